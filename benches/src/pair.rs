//! Two pinned threads: the measuring one, and its partner on another core.
//!
//! Code that pins its calling thread later restores the thread's CPUs: so the next measurement
//! finds the process as this one did, and [`cpus`] returns the same.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use core_affinity::CoreId;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The two CPUs that every two-core benchmark uses: the first two that this process may run on.
///
/// # Panics
/// If there are fewer than two: a hand-off between cores can't be measured on one.
pub fn cpus() -> [CoreId; 2] {
    let cpus = core_affinity::get_core_ids().unwrap_or_default();
    assert!(cpus.len() >= 2, "two CPUs are needed, this process may run on {}", cpus.len());
    [cpus[0], cpus[1]]
}

/// A pinned thread. Dropping this restores its former CPUs. It cannot leave its thread, to which
/// the CPUs belong.
#[derive(Debug)]
#[must_use = "the thread is pinned for as long as this lives"]
pub struct Pinned {
    had: CpuSet,
    _of_this_thread: PhantomData<*const ()>,
}

/// Pins the calling thread.
///
/// # Panics
/// If the kernel refuses: figures of threads that move would mean nothing.
pub fn pin(cpu: CoreId) -> Pinned {
    let had = sched_getaffinity(None).expect("a thread knows its own CPUs");
    assert!(core_affinity::set_for_current(cpu), "cannot pin this thread to CPU {}", cpu.id);
    Pinned { had, _of_this_thread: PhantomData }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // The kernel refuses the former CPUs only if they were taken from the process since; then
        // the thread stays where it is.
        let _ = sched_setaffinity(None, &self.had);
    }
}

/// Runs both sides from one starting line, `near` on the first CPU and `far` on the second. Returns
/// the time that each took.
pub fn race(near: impl FnOnce() + Send, far: impl FnOnce() + Send) -> [Duration; 2] {
    let start = Barrier::new(2);
    let [near_cpu, far_cpu] = cpus();
    let run = |cpu: CoreId, side: Box<dyn FnOnce() + Send + '_>| {
        let _pinned = pin(cpu);
        start.wait();
        let began = Instant::now();
        side();
        began.elapsed()
    };
    thread::scope(|scope| {
        let far = scope.spawn(|| run(far_cpu, Box::new(far)));
        let near = scope.spawn(|| run(near_cpu, Box::new(near)));
        [near, far].map(|side| side.join().expect("neither side panics"))
    })
}

/// A partner thread on the second CPU; stopped and joined when this is dropped.
#[derive(Debug)]
pub struct Partner {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _here: Pinned,
}

impl Partner {
    /// Pins the calling thread to the first CPU and calls `turn` on the second, until this is
    /// dropped.
    pub fn start(turn: impl FnMut() + Send + 'static) -> Partner {
        Partner::start_with(move || turn)
    }

    /// Like [`start`](Self::start), with a `turn` that `setup` makes on the partner's own thread
    /// and that need not be `Send`.
    pub fn start_with<T: FnMut()>(setup: impl FnOnce() -> T + Send + 'static) -> Partner {
        let [here, there] = cpus();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let _there = pin(there);
            let mut turn = setup();
            // Relaxed: the flag carries no data, and the line stays shared until it is written
            // once.
            while !seen.load(Ordering::Relaxed) {
                turn();
            }
        });
        // After the spawn, as a new thread inherits its parent's CPUs.
        Partner { stop, thread: Some(thread), _here: pin(here) }
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        // Relaxed: see above.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the partner has been printed; a second one here would abort.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: each `Partner` left its caller pinned, so that a second one found only one CPU
    /// and every benchmark with two panicked.
    #[test]
    fn a_thread_has_its_cpus_again_when_its_partner_is_gone() {
        let found = core_affinity::get_core_ids().map_or(0, |cpus| cpus.len());
        if found < 2 {
            println!("skipped: two CPUs are needed, this process may run on {found}");
            return;
        }
        let before = cpus();
        for _ in 0..2 {
            let partner = Partner::start(std::hint::spin_loop);
            assert_eq!(core_affinity::get_core_ids(), Some(vec![before[0]]), "pinned beside its partner");
            drop(partner);
            assert_eq!(cpus(), before);
        }
        drop(pin(before[1]));
        assert_eq!(cpus(), before);
    }
}
