//! 64-byte RC ping-pong over raw rdma-sys calls on two pinned cores, beside a bare exchange of one
//! cache line in the same run: `cargo run --release -p verbline-softnic --example ping_pong
//! [rounds]`.
//!
//! Prints nanoseconds one way (the tenth percentile of batches, since the machine may be shared)
//! and the ratio, which is the meaningful figure on a shared machine.
#![allow(clippy::undocumented_unsafe_blocks, missing_docs)]

#[path = "../tests/suite/harness/mod.rs"]
mod harness;

use harness::*;
use rdma_sys::*;
use std::ptr::null_mut;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

fn pin(cpu: usize) {
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set), 0);
    }
}

const BATCH: usize = 500;

/// Runs `side(0)` and `side(1)` on two cores; `side` does one round. Gives ns one way for each
/// batch, sorted.
fn measure(rounds: usize, mut here: impl FnMut(), mut there: impl FnMut() + Send) -> Vec<f64> {
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            start.wait();
            for _ in 0..rounds {
                there();
            }
        });
        pin(0);
        start.wait();
        let mut times = Vec::new();
        for _ in 0..rounds / BATCH {
            let begin = Instant::now();
            for _ in 0..BATCH {
                here();
            }
            times.push(begin.elapsed().as_nanos() as f64 / BATCH as f64 / 2.0);
        }
        times.sort_by(f64::total_cmp);
        times
    })
}

#[repr(align(128))]
struct Line(AtomicU64);

fn bare(rounds: usize) -> Vec<f64> {
    let (ping, pong) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let (mut n, mut m) = (0, 0);
    measure(
        rounds,
        || {
            n += 1;
            ping.0.store(n, Ordering::Release);
            while pong.0.load(Ordering::Acquire) != n {}
        },
        || {
            m += 1;
            while ping.0.load(Ordering::Acquire) != m {}
            pong.0.store(m, Ordering::Release);
        },
    )
}

struct Side<'a> {
    qp: &'a Qp,
    recv: &'a Cq,
    send: &'a Cq,
    wr: ibv_send_wr,
    sge: Box<ibv_sge>,
    recv_wr: ibv_recv_wr,
    recv_sge: Box<ibv_sge>,
    sent: u64,
}
unsafe impl Send for Side<'_> {}

impl Side<'_> {
    fn new<'a>(qp: &'a Qp, recv: &'a Cq, send: &'a Cq, mem: &Memory, bytes: usize, inline: bool) -> Side<'a> {
        let mut sge = Box::new(mem.sge(0, bytes));
        let mut recv_sge = Box::new(mem.sge(4096, bytes));
        let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
        wr.opcode = ibv_wr_opcode::IBV_WR_SEND;
        wr.sg_list = &mut *sge;
        wr.num_sge = 1;
        wr.send_flags = if inline { INLINE } else { 0 };
        let recv_wr = ibv_recv_wr { wr_id: 1, next: null_mut(), sg_list: &mut *recv_sge, num_sge: 1 };
        Side { qp, recv, send, wr, sge, recv_wr, recv_sge, sent: 0 }
    }
    fn post_recv(&mut self) {
        let mut bad = null_mut();
        let _ = &self.recv_sge;
        assert_eq!(unsafe { ibv_post_recv(self.qp.0, &mut self.recv_wr, &mut bad) }, 0);
    }
    fn send(&mut self) {
        let mut bad = null_mut();
        let _ = &self.sge;
        self.sent += 1;
        let signal = self.sent.is_multiple_of(32);
        let flags = self.wr.send_flags & !SIGNALED;
        self.wr.send_flags = if signal { flags | SIGNALED } else { flags };
        assert_eq!(unsafe { ibv_post_send(self.qp.0, &mut self.wr, &mut bad) }, 0);
        if signal {
            let mut wc = std::mem::MaybeUninit::<ibv_wc>::uninit();
            assert_eq!(unsafe { ibv_poll_cq(self.send.0, 1, wc.as_mut_ptr()) }, 1);
        }
    }
    fn wait(&mut self) {
        let mut wc = std::mem::MaybeUninit::<ibv_wc>::uninit();
        while unsafe { ibv_poll_cq(self.recv.0, 1, wc.as_mut_ptr()) } == 0 {}
        debug_assert_eq!(unsafe { wc.assume_init_ref() }.status, SUCCESS);
    }
}

fn verbs(rounds: usize, bytes: usize, inline: bool) -> Vec<f64> {
    let pair = Pair::rc();
    let mut a = Side::new(&pair.a, &pair.a_recv, &pair.a_send, &pair.a_mem, bytes, inline);
    let mut b = Side::new(&pair.b, &pair.b_recv, &pair.b_send, &pair.b_mem, bytes, inline);
    for _ in 0..63 {
        a.post_recv();
        b.post_recv();
    }
    measure(
        rounds,
        || {
            a.send();
            a.post_recv();
            a.wait();
        },
        || {
            b.wait();
            b.send();
            b.post_recv();
        },
    )
}

/// One-way stream: `batch` messages a post, the receiver polls 32 at a time. Millions of messages a
/// second.
fn stream(messages: u64, bytes: usize, batch: usize) -> f64 {
    let (nic, other) = (Nic::open(0), Nic::open(1));
    let (send, unused, recv) = (nic.cq(1024), nic.cq(16), other.cq(4096));
    let unused_b = other.cq(16);
    let deep = |init: &mut ibv_qp_init_attr| (init.cap.max_send_wr, init.cap.max_recv_wr) = (512, 2048);
    let a = nic.qp_with(ibv_qp_type::IBV_QPT_RC, &send, &unused, deep);
    let b = other.qp_with(ibv_qp_type::IBV_QPT_RC, &unused_b, &recv, deep);
    let (a_mem, b_mem) = (nic.memory(1 << 16), other.memory(1 << 20));
    connect((&a, 1), (&b, 2));
    let start = Barrier::new(2);
    let credit = Line(AtomicU64::new(2048));
    let mut elapsed = 0.0;
    std::thread::scope(|scope| {
        let (b, recv, b_mem, credit, start) = (&b, &recv, &b_mem, &credit, &start);
        let b_mem = b_mem.sge(0, 1 << 20);
        scope.spawn(move || {
            pin(1);
            let mut sges: Vec<ibv_sge> = (0..32)
                .map(|i| ibv_sge { addr: b_mem.addr + i * bytes as u64, length: bytes as u32, lkey: b_mem.lkey })
                .collect();
            let mut wrs: Vec<ibv_recv_wr> = sges
                .iter_mut()
                .map(|sge| ibv_recv_wr { wr_id: 1, next: null_mut(), sg_list: sge, num_sge: 1 })
                .collect();
            for i in 0..31 {
                wrs[i].next = &raw mut wrs[i + 1];
            }
            let mut bad = null_mut();
            for _ in 0..2048 / 32 {
                assert_eq!(unsafe { ibv_post_recv(b.0, &mut wrs[0], &mut bad) }, 0);
            }
            start.wait();
            let mut wc: [ibv_wc; 32] = unsafe { std::mem::zeroed() };
            let (mut got, mut pending) = (0, 0);
            while got < messages {
                let n = unsafe { ibv_poll_cq(recv.0, 32, wc.as_mut_ptr()) } as u64;
                got += n;
                pending += n;
                while pending >= 32 {
                    assert_eq!(unsafe { ibv_post_recv(b.0, &mut wrs[0], &mut bad) }, 0);
                    pending -= 32;
                    if (got - pending) % 512 == 0 {
                        credit.0.store(got - pending + 2048, Ordering::Release);
                    }
                }
            }
        });
        pin(0);
        let mut sge = a_mem.sge(0, bytes);
        let mut wrs: Vec<ibv_send_wr> = (0..batch)
            .map(|_| {
                let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
                wr.opcode = ibv_wr_opcode::IBV_WR_SEND;
                wr.sg_list = &raw mut sge;
                wr.num_sge = 1;
                wr
            })
            .collect();
        for i in 0..batch - 1 {
            wrs[i].next = &raw mut wrs[i + 1];
        }
        start.wait();
        let begin = Instant::now();
        let (mut sent, mut allowed, mut unsignaled) = (0, 2048, 0);
        let mut bad = null_mut();
        let mut wc: [ibv_wc; 4] = unsafe { std::mem::zeroed() };
        while sent < messages {
            while sent + batch as u64 > allowed {
                allowed = credit.0.load(Ordering::Acquire);
            }
            unsignaled += batch;
            let signal = unsignaled >= 64;
            wrs[batch - 1].send_flags = if signal { SIGNALED } else { 0 };
            assert_eq!(unsafe { ibv_post_send(a.0, &mut wrs[0], &mut bad) }, 0);
            if signal {
                unsignaled = 0;
                unsafe { ibv_poll_cq(send.0, 4, wc.as_mut_ptr()) };
            }
            sent += batch as u64;
        }
        elapsed = begin.elapsed().as_secs_f64();
    });
    messages as f64 / elapsed / 1e6
}

/// Prints the cost of each call on one core, with nothing shared: the tenth percentile of rounds of
/// 32 calls each, in cycles of the time-stamp counter a call.
fn steps(rounds: usize, bytes: usize, inline: bool) {
    const CALLS: usize = 32;
    pin(0);
    let pair = Pair::rc();
    let mut a = Side::new(&pair.a, &pair.a_recv, &pair.a_send, &pair.a_mem, bytes, inline);
    let mut b = Side::new(&pair.b, &pair.b_recv, &pair.b_send, &pair.b_mem, bytes, inline);
    let mut costs = [const { Vec::new() }; 4];
    let mut wc = std::mem::MaybeUninit::<ibv_wc>::uninit();
    for _ in 0..64 {
        b.post_recv();
    }
    for _ in 0..rounds {
        let mut time = |index: usize, f: &mut dyn FnMut()| {
            let begin = unsafe { std::arch::x86_64::_rdtsc() };
            for _ in 0..CALLS {
                f();
            }
            costs[index].push(unsafe { std::arch::x86_64::_rdtsc() } - begin);
        };
        time(0, &mut || a.send());
        time(1, &mut || b.wait());
        time(2, &mut || b.post_recv());
        time(3, &mut || {
            unsafe { ibv_poll_cq(b.recv.0, 1, wc.as_mut_ptr()) };
        });
    }
    let [send, poll, recv, empty] = costs.map(|mut all| {
        all.sort_unstable();
        all[all.len() / 10] as f64 / CALLS as f64
    });
    let inline = if inline { "inline" } else { "" };
    println!(
        "{bytes:5} B {inline:6} cycles: post_send {send:.1} poll_cq {poll:.1} post_recv {recv:.1} empty poll {empty:.1}"
    );
}

fn main() {
    let wanted = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(200_000_usize);
    // Both sides do the same number of rounds, in whole batches: the bare exchange does a tenth of
    // them.
    let rounds = wanted.next_multiple_of(10 * BATCH).max(10 * BATCH);
    for (bytes, inline) in [(16, true), (64, true), (64, false), (256, false)] {
        steps(rounds / 40, bytes, inline);
    }
    verbline_ring::fence::mechanism();
    let p10 = |times: Vec<f64>| times[times.len() / 10];
    for _ in 0..3 {
        for (bytes, inline) in [(16, true), (64, true), (64, false), (88, false), (256, false), (4096, false)] {
            // The virtual cores may be moved to other real ones at any time, which changes the
            // price of a line by a factor of four: verbs count only between two bare exchanges that
            // agree.
            for _ in 0..20 {
                let before = p10(bare(rounds / 10));
                let verbs = p10(verbs(rounds, bytes, inline));
                let after = p10(bare(rounds / 10));
                if (before - after).abs() < 0.1 * before {
                    let inline = if inline { "inline" } else { "" };
                    println!("{bytes:5} B {inline:6} {verbs:7.1} ns, bare {before:.1}: {:.2} x", verbs / before);
                    break;
                }
            }
        }
        for (bytes, batch) in [(64, 1), (64, 8), (64, 32), (32, 32), (4096, 8)] {
            let count = if bytes > 1000 { rounds * 2 } else { rounds * 20 };
            let rate = stream((count / 512 * 512) as u64, bytes, batch);
            println!("stream {bytes:5} B x {batch:2}  {rate:6.1} M msg/s");
        }
    }
}
