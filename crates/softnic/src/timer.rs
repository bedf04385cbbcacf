//! Time: what the coded timers mean, and the thread that watches deadlines while everybody sleeps.
//!
//! What it guarantees: a pending work request with a deadline is given up soon after it, even if no thread posts or
//! polls. The thread is started with the first finite deadline of the process and sleeps between deadlines; without one
//! (`rnr_retry` 7, `timeout` 0, or nothing ever pending) there is none.

use crate::stall;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Nanoseconds since this process first asked.
pub(crate) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// What `min_rnr_timer` stands for (IB specification, vol. 1, table 45; `ibv_modify_qp(3)`).
pub(crate) fn rnr_ns(code: u32) -> u64 {
    /// In units of 10 µs.
    const TIMES: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
        4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    u64::from(TIMES[code as usize % TIMES.len()]) * 10_000
}

/// What `timeout` stands for: 4.096 µs times 2 to its power.
pub(crate) fn ack_timeout_ns(exponent: u32) -> u64 {
    4096 << (exponent % 32)
}

#[derive(Debug)]
struct Deadlines {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    started: bool,
}

static DEADLINES: Mutex<Deadlines> = Mutex::new(Deadlines { heap: BinaryHeap::new(), started: false });
static CHANGED: Condvar = Condvar::new();

/// Looks at queue pair `qpn` again at `deadline_ns`.
pub(crate) fn arm(deadline_ns: u64, qpn: u32) {
    if deadline_ns == u64::MAX || deadline_ns <= now_ns() {
        return;
    }
    let mut deadlines = DEADLINES.lock().unwrap_or_else(PoisonError::into_inner);
    deadlines.heap.push(Reverse((deadline_ns, qpn)));
    if !deadlines.started {
        let thread = std::thread::Builder::new().name("softnic-timer".into()).spawn(watch);
        // Without it deadlines are seen by the next post or poll only; the next arm tries again.
        deadlines.started = thread.is_ok();
    }
    CHANGED.notify_one();
}

fn watch() {
    let mut deadlines = DEADLINES.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let Some(Reverse((first_ns, _))) = deadlines.heap.peek().copied() else {
            deadlines = CHANGED.wait(deadlines).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let now = now_ns();
        if first_ns > now {
            let sleep = Duration::from_nanos(first_ns - now);
            deadlines = CHANGED.wait_timeout(deadlines, sleep).unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        let mut due = Vec::new();
        while let Some(Reverse((at_ns, qpn))) = deadlines.heap.peek().copied()
            && at_ns <= now
        {
            deadlines.heap.pop();
            due.push(qpn);
        }
        drop(deadlines);
        stall::progress_numbers(&due);
        deadlines = DEADLINES.lock().unwrap_or_else(PoisonError::into_inner);
    }
}
