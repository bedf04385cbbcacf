//! A thread of a real-time priority lets a thread that it waits for run, whatever the priority of
//! that.
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use verbline_sync::lock::SpinLock;

/// This thread's CPU time.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Pins this thread to its current CPU.
fn stay_here() -> usize {
    let cpu = unsafe { libc::sched_getcpu() } as usize;
    stay_on(cpu);
    cpu
}

fn stay_on(cpu: usize) {
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Gives this thread SCHED_FIFO. Returns false if that isn't permitted.
fn become_real_time() -> bool {
    let param = libc::sched_param { sched_priority: 1 };
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) == 0 }
}

/// The waiting thread keeps the holder from its CPU: it must not burn that CPU until the kernel
/// throttles it (after 950 ms of a second), or for ever if the kernel doesn't.
#[test]
fn who_waits_for_a_preempted_holder_of_a_lower_priority_sleeps() {
    let (lock, held) = (SpinLock::new(()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (lock, held) = (&lock, &held);
        let (cpu_out, cpu_in) = std::sync::mpsc::channel();
        scope.spawn(move || {
            let cpu = stay_here();
            let _held = lock.lock();
            held.store(true, Ordering::Release);
            cpu_out.send(cpu).expect("it is waited for");
            let start = cpu_time();
            while cpu_time() - start < Duration::from_millis(20) {
                std::hint::spin_loop();
            }
        });
        scope.spawn(move || {
            let cpu = cpu_in.recv().expect("it is sent");
            if !become_real_time() {
                eprintln!("skipped: SCHED_FIFO needs CAP_SYS_NICE");
                return;
            }
            stay_on(cpu);
            let start = cpu_time();
            drop(lock.lock());
            let burnt = cpu_time() - start;
            assert!(held.load(Ordering::Acquire));
            assert!(burnt < Duration::from_millis(200), "it took {burnt:?} of the CPU to wait for a lock");
        });
    });
}
