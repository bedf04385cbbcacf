//! Time: the values of coded timers, and the thread that watches deadlines while all others sleep.
//!
//! Guarantees: a pending work request with a deadline is given up soon after it, even if no thread
//! posts or polls. The thread is started with the first finite deadline of the process and sleeps
//! between deadlines; without a deadline (`rnr_retry` 7, `timeout` 0, or nothing ever pending)
//! there is no thread. It may run on any CPU of the process, whichever thread met that deadline. A
//! queue pair that waits no more leaves nothing here.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Nanoseconds of a monotonic clock. A plain number: every turn of a wire asks for it, and an
/// `Instant` takes three times as many instructions.
pub(crate) fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes a local.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    debug_assert_eq!(code, 0, "Linux has the clock");
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The time of a `min_rnr_timer` (IB specification, vol. 1, table 45; `ibv_modify_qp(3)`).
pub(crate) fn rnr_ns(code: u32) -> u64 {
    /// In units of 10 µs.
    const TIMES: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
        4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    u64::from(TIMES[code as usize % TIMES.len()]) * 10_000
}

/// The time of a `timeout`: 4.096 µs times 2 to its power.
pub(crate) fn ack_timeout_ns(exponent: u32) -> u64 {
    4096 << (exponent % 32)
}

/// One deadline for each queue pair that has one: no more entries than queue pairs, however often
/// they wait.
#[derive(Debug)]
struct Deadlines {
    by_time: BTreeSet<(u64, u32)>,
    by_qpn: BTreeMap<u32, u64>,
    started: bool,
}

impl Deadlines {
    const fn new() -> Deadlines {
        Deadlines { by_time: BTreeSet::new(), by_qpn: BTreeMap::new(), started: false }
    }

    /// Sets the only deadline of queue pair `qpn`. Returns true if it is the first of all: then the
    /// timer thread must be woken, since it sleeps too long.
    fn set(&mut self, deadline_ns: u64, qpn: u32) -> bool {
        self.clear(qpn);
        self.by_qpn.insert(qpn, deadline_ns);
        self.by_time.insert((deadline_ns, qpn));
        self.first_ns() == Some(deadline_ns)
    }

    fn clear(&mut self, qpn: u32) {
        if let Some(deadline_ns) = self.by_qpn.remove(&qpn) {
            self.by_time.remove(&(deadline_ns, qpn));
        }
    }

    fn first_ns(&self) -> Option<u64> {
        self.by_time.first().map(|&(at_ns, _)| at_ns)
    }

    /// Takes out the queue pairs whose deadline is `now_ns` or earlier.
    fn due(&mut self, now_ns: u64) -> Vec<u32> {
        let mut due = Vec::new();
        while let Some(&(at_ns, qpn)) = self.by_time.first()
            && at_ns <= now_ns
        {
            self.clear(qpn);
            due.push(qpn);
        }
        due
    }
}

static DEADLINES: Mutex<Deadlines> = Mutex::new(Deadlines::new());
static CHANGED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Deadlines> {
    // Poison can't be acted upon: the lock's holder panics only if memory runs out.
    DEADLINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called with the queue pairs whose deadline is over.
pub(crate) type OnDue = fn(qpns: &[u32]);

/// Sets the deadline of queue pair `qpn`, in place of its former one. Returns whether it will be
/// watched: not if there is no deadline, or it is over. `on_due` is the same at every call.
pub(crate) fn arm(deadline_ns: u64, qpn: u32, on_due: OnDue) -> bool {
    if deadline_ns == u64::MAX || deadline_ns <= now_ns() {
        return false;
    }
    let mut deadlines = lock();
    let is_first = deadlines.set(deadline_ns, qpn);
    if !deadlines.started {
        let thread = spawn_anywhere("softnic-timer", move || watch(on_due));
        // Without the thread only the next post or poll sees deadlines; the next arm tries again.
        deadlines.started = thread.is_ok();
    }
    if is_first {
        CHANGED.notify_one();
    }
    true
}

/// Starts a thread that may run on all CPUs of the process. A thread inherits the CPUs of its
/// creator, which may be an lcore pinned to one CPU.
fn spawn_anywhere<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.into()).spawn(move || {
        // With more CPUs than the set has room for, the thread stays on the creator's.
        if let Some(cpus) = cpus_of(first_thread()) {
            run_on(&cpus);
        }
        run()
    })
}

/// The first thread of the process, whose CPUs are the process's.
fn first_thread() -> libc::pid_t {
    std::process::id().cast_signed()
}

/// The CPUs that a thread may run on; 0 is the calling thread.
fn cpus_of(thread: libc::pid_t) -> Option<libc::cpu_set_t> {
    let mut cpus = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the kernel writes at most the bytes of the set, and the set is ours.
    let written = unsafe { libc::sched_getaffinity(thread, size_of::<libc::cpu_set_t>(), cpus.as_mut_ptr()) };
    // SAFETY: a set is an array of integers, all of them zeroed or written.
    (written == 0).then(|| unsafe { cpus.assume_init() })
}

/// Moves the calling thread to these CPUs, if permitted.
fn run_on(cpus: &libc::cpu_set_t) {
    // SAFETY: the kernel reads exactly the bytes of the set.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), cpus) };
}

/// Removes the deadline of queue pair `qpn`.
pub(crate) fn disarm(qpn: u32) {
    lock().clear(qpn);
}

fn watch(on_due: OnDue) {
    let mut deadlines = lock();
    loop {
        let Some(first_ns) = deadlines.first_ns() else {
            deadlines = CHANGED.wait(deadlines).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let now = now_ns();
        if first_ns > now {
            let sleep = Duration::from_nanos(first_ns - now);
            deadlines = CHANGED.wait_timeout(deadlines, sleep).unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        let due = deadlines.due(now);
        drop(deadlines);
        on_due(&due);
        deadlines = lock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ibv_modify_qp(3)` and table 45 of the InfiniBand specification, volume 1: in milliseconds,
    /// code by code.
    #[test]
    fn each_code_of_a_timer_is_the_time_of_the_table() {
        let ms = [
            655.36, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28, 1.92, 2.56,
            3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52,
        ];
        let ns: Vec<u64> = (0..32).map(rnr_ns).collect();
        assert_eq!(ns, ms.map(|ms: f64| (ms * 1e6).round() as u64));
        assert_eq!([1, 14, 31].map(ack_timeout_ns), [8_192, 67_108_864, 8_796_093_022_208]);
    }

    /// However often and long a queue pair waits: one deadline each, the last one.
    #[test]
    fn a_queue_pair_has_one_deadline_and_keeps_nothing_when_it_waits_no_more() {
        let mut deadlines = Deadlines::new();
        let hours_ns = ack_timeout_ns(31);
        for wait in 0..10_000 {
            deadlines.set(hours_ns + wait, 7);
            if wait % 2 == 0 {
                deadlines.clear(7);
            }
        }
        assert_eq!((deadlines.by_time.len(), deadlines.by_qpn.len()), (1, 1));
        assert_eq!([deadlines.set(200, 8), deadlines.set(300, 9), deadlines.set(100, 8)], [true, false, true]);
        assert_eq!((deadlines.due(99), deadlines.due(100), deadlines.due(299)), (vec![], vec![8], vec![]));
        assert_eq!((deadlines.due(hours_ns), deadlines.due(u64::MAX)), (vec![9], vec![7]));
        assert_eq!((deadlines.by_time.len(), deadlines.by_qpn.len(), deadlines.first_ns()), (0, 0, None));
    }

    fn numbers(cpus: &libc::cpu_set_t) -> Vec<usize> {
        // SAFETY: each of these bits is within the set.
        let has = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, cpus) };
        (0..libc::CPU_SETSIZE as usize).filter(has).collect()
    }

    #[test]
    fn a_thread_that_a_pinned_one_starts_is_not_pinned() {
        let process = numbers(&cpus_of(first_thread()).expect("the set has room"));
        let cpu = process[0];
        let pinned = std::thread::spawn(move || {
            let mut one = cpus_of(0).expect("the set has room");
            // SAFETY: the set is ours.
            unsafe { libc::CPU_ZERO(&mut one) };
            // SAFETY: the bit is within the set, since the kernel has named it.
            unsafe { libc::CPU_SET(cpu, &mut one) };
            run_on(&one);
            assert_eq!(cpus_of(0).map(|cpus| numbers(&cpus)), Some(vec![cpu]), "it is pinned");
            let anywhere = spawn_anywhere("anywhere", || cpus_of(0).map(|cpus| numbers(&cpus)));
            anywhere.expect("a thread").join().expect("no panic")
        });
        assert_eq!(pinned.join().expect("no panic"), Some(process), "it runs where the process may");
    }
}
