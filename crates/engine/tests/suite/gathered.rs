//! Operations on several pieces of memory: a header in a packet and data in a region, written, sent
//! and read as one message.

use crate::common::{OUT, assert_clean, one_lcore_with, region};
use crate::operation_kinds::{REST, Side, key_in, packet, play_on};
use verbline_engine::{Done, Operation, OperationError, Outputs, PostStop, Region, SgEntry, SgList};
use verbline_mem::Packet;

const HEAD: &[u8] = b"header: ";
const TAIL: &[u8] = b"; end";
/// The offset and the length of the block in `mine`.
const BLOCK: (usize, u32) = (104, 200);
/// The offset in `table` to which the message is written.
const THERE: u64 = 512;

fn block() -> Vec<u8> {
    (0..BLOCK.1).map(|at| (at * 7) as u8).collect()
}

fn whole() -> Vec<u8> {
    [HEAD, &block(), TAIL].concat()
}

/// A header, the block in its region, and a trailer.
fn parts(region: &Region, out: &mut Outputs<'_>) -> Box<SgList> {
    let mut list = Box::new(SgList::with_capacity(3));
    list.push(packet(out, HEAD)).unwrap();
    list.push(region.slice(BLOCK.0, BLOCK.1).unwrap()).unwrap();
    list.push(packet(out, TAIL)).unwrap();
    list
}

/// Writes and sends the message in parts, and reads it back into other parts.
struct Gathers {
    done: u64,
}

impl Side for Gathers {
    fn begin(&mut self, _: &Region, _: &mut Outputs<'_>) {}

    fn took(&mut self, came: Packet, region: &Region, out: &mut Outputs<'_>) -> bool {
        let there = key_in(&came).offset(THERE);
        region.write_from(BLOCK.0, &block()).unwrap();
        assert!(region.slice(4000, 97).is_err(), "it leaves the region");
        let mut scattered = Box::new(SgList::with_capacity(2));
        scattered.push(packet(out, &[0; HEAD.len()])).unwrap();
        scattered.push(region.slice(1000, BLOCK.1 + TAIL.len() as u32).unwrap()).unwrap();
        let too_many = (0..4).map(|_| SgEntry::from(packet(out, b"part"))).collect::<SgList>();
        let asked = [
            Operation::write(parts(region, out), there).tag(1),
            Operation::read(scattered, there).tag(2),
            Operation::send(Box::new(too_many)).tag(3),
            Operation::send(parts(region, out)).imm(9).tag(4),
        ];
        out.operate_all(OUT, asked).unwrap();
        false
    }

    fn done(&mut self, done: Done, region: &Region, _: &mut Outputs<'_>) -> bool {
        // Refused operations come back at once, before posted ones.
        self.done += 1;
        let (tag, result, bytes) = (done.tag, done.result, done.bytes as usize);
        let list = done.into_list().expect("it comes back");
        let first = list.as_slice()[0].as_packet().map(Packet::data);
        match tag {
            3 => {
                let too_many = PostStop::TooManySges { sges: 4, max_sge: 3 };
                assert_eq!((result, list.len()), (Err(OperationError::Refused(too_many)), 4));
            }
            2 => {
                let mut rest = vec![0; BLOCK.1 as usize + TAIL.len()];
                region.read_into(1000, &mut rest).unwrap();
                assert_eq!((result, first), (Ok(()), Some(HEAD)));
                assert_eq!(rest, whole()[HEAD.len()..]);
            }
            _ => assert_eq!((result, first, bytes), (Ok(()), Some(HEAD), whole().len())),
        }
        self.done == 4
    }
}

/// Announces its region, and finds the whole message there and in its received packets.
struct Finds;

impl Side for Finds {
    fn begin(&mut self, region: &Region, out: &mut Outputs<'_>) {
        let key = packet(out, &region.remote(0).unwrap().to_bytes());
        assert!(out.send(OUT, key));
    }

    fn took(&mut self, came: Packet, region: &Region, _: &mut Outputs<'_>) -> bool {
        let mut written = vec![0; whole().len()];
        region.read_into(THERE as usize, &mut written).unwrap();
        assert_eq!((written, came.data().to_vec()), (whole(), whole()));
        assert_eq!(verbline_engine::immediate(&came), Some(9));
        true
    }

    fn done(&mut self, done: Done, _: &Region, _: &mut Outputs<'_>) -> bool {
        panic!("it asked for nothing: {done:?}")
    }
}

fn text(rest: &str) -> String {
    let regions = region("mine", 4096, &["local-write"])
        + &region("table", 4096, &["local-write", "remote-read", "remote-write"]);
    one_lcore_with("poll", [2048, 256], &(regions + rest))
}

#[test]
fn a_message_is_gathered_from_its_parts_and_scattered_over_others() {
    let rest = REST.replacen("ops_depth_wr = 16", "ops_depth_wr = 16\nmax_sge = 3", 1).replace("windows = 2", "");
    let report = play_on(&text(&rest), Gathers { done: 0 }, Finds).unwrap();
    assert_clean(&report);
    let operations = report.port("near").unwrap().operations.as_ref().unwrap();
    let counts: Vec<_> = operations.kinds.iter().map(|kind| (kind.kind, kind.completed, kind.failed)).collect();
    assert_eq!(counts, [("send", 1, 1), ("write", 1, 0), ("read", 1, 0)]);
}

/// Posts more at once than comes back before the run ends.
struct Leaves;

impl Side for Leaves {
    fn begin(&mut self, region: &Region, out: &mut Outputs<'_>) {
        let send = Operation::send(parts(region, out));
        out.operate(OUT, send).unwrap();
    }

    fn took(&mut self, _: Packet, _: &Region, _: &mut Outputs<'_>) -> bool {
        true
    }

    /// The list is dropped here, with its packets.
    fn done(&mut self, _: Done, _: &Region, _: &mut Outputs<'_>) -> bool {
        true
    }
}

struct Takes;

impl Side for Takes {
    fn begin(&mut self, _: &Region, _: &mut Outputs<'_>) {}

    fn took(&mut self, _: Packet, _: &Region, _: &mut Outputs<'_>) -> bool {
        true
    }

    fn done(&mut self, _: Done, _: &Region, _: &mut Outputs<'_>) -> bool {
        true
    }
}

#[test]
fn the_packets_of_a_list_that_is_dropped_go_back_to_their_pool() {
    let rest = REST.replace("ops_depth_wr = 16", "ops_depth_wr = 16\nmax_sge = 3").replace("windows = 2", "");
    let report = play_on(&text(&rest), Leaves, Takes).unwrap();
    assert_clean(&report);
}
