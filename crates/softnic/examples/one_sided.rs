//! RDMA WRITEs and READs in lists, called as C programs call verbs, beside libc's memcpy between
//! the same buffers in the same run: `cargo run --release -p verbline-softnic --example one_sided`.
//!
//! Prints the fastest of several passes, since the machine may be shared: nanoseconds per
//! operation, and the ratio to the bare copy.
#![allow(clippy::undocumented_unsafe_blocks, missing_docs)]

#[path = "../tests/suite/harness/mod.rs"]
mod harness;

use harness::*;
use rdma_sys::*;
use std::ptr::null_mut;
use std::time::Instant;

const PASSES: usize = 20;
const BYTES_A_PASS: usize = 64 << 20;

/// Nanoseconds per operation, if `pass` does `count`: the fastest of several passes.
fn least(count: usize, mut pass: impl FnMut()) -> f64 {
    let times = (0..PASSES).map(|_| {
        let began = Instant::now();
        pass();
        began.elapsed().as_nanos() as f64 / count as f64
    });
    times.fold(f64::INFINITY, f64::min)
}

/// The distance from an address to the next page.
fn to_page(addr: u64) -> usize {
    (addr.wrapping_neg() % 4096) as usize
}

fn lists(pair: &Pair, [near, far]: [&Memory; 2], opcode: u32, bytes: usize, list: usize) -> f64 {
    let mut sge = near.sge(to_page(near.addr()), bytes);
    let remote_addr = far.addr() + to_page(far.addr()) as u64;
    let mut wrs: Vec<ibv_send_wr> = (0..list).map(|_| unsafe { std::mem::zeroed() }).collect();
    for wr in &mut wrs {
        (wr.opcode, wr.sg_list, wr.num_sge) = (opcode, &raw mut sge, 1);
        wr.wr.rdma = rdma_t { remote_addr, rkey: far.key() };
    }
    for at in 1..list {
        wrs[at - 1].next = &raw mut wrs[at];
    }
    wrs[list - 1].send_flags = SIGNALED;
    let count = (BYTES_A_PASS / bytes).min(1 << 16) / list * list;
    least(count, || {
        let (mut bad, mut wc) = (null_mut(), std::mem::MaybeUninit::<ibv_wc>::uninit());
        for _ in 0..count / list {
            assert_eq!(unsafe { ibv_post_send(pair.a.0, &raw mut wrs[0], &mut bad) }, 0);
            assert_eq!(unsafe { ibv_poll_cq(pair.a_send.0, 1, wc.as_mut_ptr()) }, 1);
        }
    })
}

fn main() {
    verbline_ring::fence::mechanism();
    let pair = Pair::rc();
    let (near, far) = (pair.nic.memory(1 << 17), pair.other.memory(1 << 17));
    for bytes in [64usize, 512, 4096, 65_536] {
        let count = (BYTES_A_PASS / bytes).min(1 << 16);
        let [to, from] = [&far, &near].map(|memory| (memory.addr() as *mut u8).wrapping_add(to_page(memory.addr())));
        let bare = least(count, || {
            for _ in 0..count {
                unsafe { libc::memcpy(std::hint::black_box(to).cast(), from.cast(), bytes) };
            }
        });
        print!("{bytes:6} B: memcpy {bare:7.1} ns");
        let verbs = [(ibv_wr_opcode::IBV_WR_RDMA_WRITE, "write"), (ibv_wr_opcode::IBV_WR_RDMA_READ, "read")];
        for ((opcode, name), list) in verbs.into_iter().flat_map(|verb| [(verb, 1), (verb, 32)]) {
            let ns = lists(&pair, [&near, &far], opcode, bytes, list);
            print!("; {name} x {list}: {ns:7.1} ns, {:4.2}", ns / bare);
        }
        println!();
    }
}
