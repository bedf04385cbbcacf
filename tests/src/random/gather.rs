//! Memory of operations in several parts: packets and slices of the own region, cut anywhere, some
//! of them empty. What a list holds is told by its parts, in their order.

use fastrand::Rng;
use verbline::engine::{Local, Region, SgEntry, SgList};
use verbline::prelude::*;

use super::marks::{Counters, ON_PURPOSE};

/// Where the parts of an operation may lie: packets, and so far into the region.
pub(super) struct Ground<'a> {
    pub(super) own: &'a Region,
    pub(super) at: usize,
    pub(super) counters: &'a Counters,
}

impl Ground<'_> {
    /// A list of this many parts that holds these bytes. `None`: there is no packet for one.
    pub(super) fn list(&self, bytes: &[u8], parts: usize, rng: &mut Rng, out: &mut Outputs<'_>) -> Option<Box<SgList>> {
        let mut list = Box::new(SgList::with_capacity(parts));
        let mut from = 0;
        for part in 1..=parts {
            let rest = bytes.len() - from;
            let here = &bytes[from..][..if part == parts { rest } else { rng.usize(..=rest) }];
            let Some(entry) = self.part(from, here, rng.bool(), out) else {
                self.drop_list(&mut list, out);
                return None;
            };
            list.push(entry).expect("it has room for its parts");
            from += here.len();
        }
        Some(list)
    }

    /// Bytes of a list from this one on, in a packet or where the region has them.
    fn part(&self, from: usize, bytes: &[u8], in_packet: bool, out: &mut Outputs<'_>) -> Option<SgEntry> {
        if in_packet {
            let mut packet = self.counters.take(out)?;
            assert!(packet.fill(bytes), "a plan's packets hold a slot");
            return Some(packet.into());
        }
        self.own.write_from(self.at + from, bytes).expect("a slot lies in the region");
        Some(self.own.slice(self.at + from, bytes.len() as u32).expect("a slot lies in the region"))
    }

    /// So many bytes of the region.
    pub(super) fn bytes(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.own.read_into(self.at, &mut bytes).expect("a slot lies in the region");
        bytes
    }

    /// What a list holds.
    pub(super) fn bytes_of(&self, list: &SgList) -> Vec<u8> {
        let mut bytes = Vec::new();
        for entry in list.as_slice() {
            match entry.as_packet() {
                Some(packet) => bytes.extend_from_slice(packet.data()),
                None => {
                    let mut part = vec![0; entry.len_bytes()];
                    self.own.read_into(self.at + bytes.len(), &mut part).expect("a slot lies in the region");
                    bytes.append(&mut part);
                }
            }
        }
        bytes
    }

    /// Drops the packets of a list, counted.
    pub(super) fn drop_list(&self, list: &mut SgList, out: &mut Outputs<'_>) {
        list.drain().filter_map(SgEntry::into_packet).for_each(|packet| self.drop(packet, out));
    }

    fn drop(&self, packet: Packet, out: &mut Outputs<'_>) {
        self.counters.on_purpose.add(1);
        out.drop(packet, ON_PURPOSE);
    }

    /// Drops the packets of an operation's memory, counted.
    pub(super) fn drop_local(&self, local: Local, out: &mut Outputs<'_>) {
        match local {
            Local::Packet(packet) => self.drop(packet, out),
            Local::List(mut list) => self.drop_list(&mut list, out),
            Local::Empty | Local::Part(_) | Local::Key(..) => {}
        }
    }
}
