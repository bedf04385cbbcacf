//! Deallocation of blocks: in parts, so that other commands need not wait for all of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::common::protected::last_error;
use crate::common::{Host, end, plan, start_app};
use nvme_target::NvmeTarget;
use verbline_nvme::io::{DSM_DEALLOCATE, DSM_RANGE_BYTES, DsmRange};
use verbline_nvme::{Command, Sgl, Status, opcode};
use verbline_store::{Done, Geometry, NullStore, Op, Request, Store};

const NSID: u32 = 3;
/// 1 TiB, in blocks of 4 KiB.
const BLOCKS: u64 = 1 << 28;
/// 16 MiB, in blocks.
const PART: u64 = 1 << 12;

/// A store that records its requests and stores nothing.
struct Noted {
    store: NullStore,
    asked: Arc<Mutex<Vec<(u64, u32)>>>,
}

impl Store for Noted {
    fn geometry(&self) -> Geometry {
        self.store.geometry()
    }

    fn submit(&mut self, requests: &mut VecDeque<Request>) -> usize {
        let discards = requests.iter().filter(|request| request.op == Op::Discard);
        self.asked.lock().unwrap().extend(discards.map(|request| (request.lba, request.blocks)));
        self.store.submit(requests)
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        self.store.poll(done)
    }

    fn under_way(&self) -> usize {
        self.store.under_way()
    }

    fn room(&self) -> usize {
        self.store.room()
    }
}

/// A range of any length is deallocated in parts that end at the same multiples for any first
/// block. The error for a range beyond the namespace names its first block beyond it. Regression:
/// what such a command named in front of that block was gone.
#[test]
fn long_ranges_are_given_back_in_parts() {
    let asked: Arc<Mutex<Vec<_>>> = Arc::default();
    let noted = Arc::clone(&asked);
    let geometry = Geometry::of_bytes(BLOCKS * 4096, 4096).expect("blocks");
    let store = move |depth| Noted { store: NullStore::new(geometry, depth), asked: Arc::clone(&noted) };
    let app = NvmeTarget::default().with_store(NSID, store);
    let running = start_app(&plan(7966, &format!("[nvme.namespace.{NSID}]\nnull_bytes = {}\n", BLOCKS * 4096)), &app);
    let mut host = Host::new(7966);
    let (admin, io) = host.queues();
    let mut give_back = |ranges: &[(u64, u32)]| {
        let of = |(slba, blocks): &(u64, u32)| DsmRange { attributes: 0, blocks: *blocks, slba: *slba }.to_bytes();
        let data: Vec<u8> = ranges.iter().flat_map(of).collect();
        let sgl = Sgl::InCapsule { offset: 0, len: (ranges.len() * DSM_RANGE_BYTES) as u32 };
        let dwords = [ranges.len() as u32 - 1, DSM_DEALLOCATE, 0, 0, 0, 0];
        let command = Command { nsid: NSID, ..Command::new(opcode::io::DATASET_MANAGEMENT, 0, sgl).with(dwords) };
        let answer = host.ask_with(io, &command, &data);
        (answer.status, std::mem::take(&mut *asked.lock().unwrap()))
    };
    let ranges = [(5, 3 * PART as u32), (7, 0), (BLOCKS - 1, 1)];
    let (status, parts) = give_back(&ranges);
    assert!(status.is_success(), "{status:?}");
    let [first, second, third] = [(5, PART as u32 - 5), (PART, PART as u32), (2 * PART, PART as u32)];
    assert_eq!(parts, [first, second, third, (3 * PART, 5), (BLOCKS - 1, 1)]);
    let mut refused = Vec::new();
    for (beyond, at) in [((BLOCKS - PART, PART as u32 + 1), BLOCKS), ((u64::MAX, u32::MAX), u64::MAX)] {
        let (status, parts) = give_back(&[(0, 1), beyond]);
        assert!(status.is(Status::LBA_OUT_OF_RANGE), "{beyond:?}: {status:?}");
        assert_eq!(parts, [], "{beyond:?}: nothing is given back");
        refused.push((status, at));
    }
    // A range of no blocks is nowhere.
    assert!(give_back(&[(u64::MAX, 0)]).0.is_success());
    let (status, at) = refused.pop().expect("two");
    assert_eq!(last_error(&mut host, admin), (status, at, NSID));
    end(running);
}
