//! GETs by RDMA READ, and their continuation as messages.

use verbline::engine::{Operation as OneSided, place_of_key};
use verbline::prelude::*;

use super::{Client, SEND};
use crate::client::work::{Task, name_of};
use crate::protocol::Location;
use crate::table::{Found, find, hash};

/// How often a READ that finds a torn slot is repeated before the GET continues as a message.
const TRIES_MAX: u8 = 8;

impl Client {
    /// Posts the first READ of a GET. If the port has no room, or the bucket is longer than a
    /// packet, the GET is a message from the start: it must not keep later operations from
    /// beginning.
    pub(super) fn read_or_ask(&mut self, id: u64, out: &mut Outputs<'_>) -> bool {
        self.post_read(id, out) || self.ask_instead(id) && self.send_request(id, out)
    }

    /// Posts the READ of the current bucket.
    fn post_read(&mut self, id: u64, out: &mut Outputs<'_>) -> bool {
        let Some(pending) = self.in_flight.get_mut(id) else { return false };
        let Some((location, hash)) = table_of(&self.tables, self.number, &pending.task) else { return false };
        let Some(mut packet) = out.alloc() else { return false };
        if !packet.set_len(location.shape.bucket_bytes()) {
            return false;
        }
        let bucket = location.shape.buckets_of(hash)[pending.bucket];
        let from = location.table.offset(location.shape.offset_of(bucket) as u64);
        out.operate(SEND, OneSided::read(packet, from).over(pending.peer).tag(id)).is_ok()
    }

    /// Handles a bucket that a READ has brought.
    pub(super) fn was_read(&mut self, id: u64, packet: Packet, out: &mut Outputs<'_>) {
        let Some(pending) = self.in_flight.get_mut(id) else { return };
        // The table's location is forgotten, and these bytes may be of its successor.
        let Some((location, _)) = table_of(&self.tables, self.number, &pending.task) else {
            return self.fall_back(id, out);
        };
        let Task::Read { key } = pending.task else { return };
        match find(&location.shape, packet.data(), &name_of(self.number, key)) {
            Found::Value(value) => {
                let verdict = self.oracle.judge(key, pending.floor, Some(value));
                self.got(id, Some(verdict), out);
            }
            Found::Torn => {
                pending.torn += 1;
                let again = pending.torn < TRIES_MAX;
                self.count(|counts| counts.torn += 1);
                self.read_again(id, again, out);
            }
            Found::Absent => {
                pending.bucket += 1;
                let again = pending.bucket < location.shape.buckets_of(0).len();
                // The key may have moved between the two READs: in the end the server is asked.
                self.read_again(id, again, out);
            }
        }
    }

    fn read_again(&mut self, id: u64, again: bool, out: &mut Outputs<'_>) {
        if !again || !self.post_read(id, out) {
            self.fall_back(id, out);
        }
    }

    /// Continues a GET by READ as a message on its connection; gives it up if the connection is
    /// over.
    pub(super) fn fall_back(&mut self, id: u64, out: &mut Outputs<'_>) {
        if !self.ask_instead(id) {
            return;
        }
        let is_over = self.in_flight.get_mut(id).is_none_or(|pending| out.room_to(pending.peer) == 0);
        if is_over || !self.send_request(id, out) {
            self.end_cut_off(id, out);
        }
    }

    /// Turns a GET by READ into one by message. Returns false if it is no such GET.
    fn ask_instead(&mut self, id: u64) -> bool {
        let Some(pending) = self.in_flight.get_mut(id) else { return false };
        let Task::Read { key } = pending.task else { return false };
        pending.task = Task::Get { key };
        self.reading -= 1;
        self.count(|counts| counts.fell_back += 1);
        true
    }

    fn end_cut_off(&mut self, id: u64, out: &mut Outputs<'_>) {
        if let Some(pending) = self.in_flight.take(id) {
            pending.timer.map(|timer| out.cancel_timer(timer));
            self.count(|counts| counts.cut_off += 1);
            if self.peers.is_open(pending.peer) {
                self.silence.lost(out.now_ns());
            }
            self.give_up(&pending);
        }
    }
}

/// The table of a READ, and the hash of its key.
fn table_of(tables: &[Option<Location>], client: u32, task: &Task) -> Option<(Location, u64)> {
    let Task::Read { key } = task else { return None };
    let hash = hash(&name_of(client, *key));
    let location = tables[place_of_key(hash, tables.len())]?;
    Some((location, hash))
}
