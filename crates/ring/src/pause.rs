//! A moment's wait of a thread that spins: it leaves the core to the other hardware thread, and
//! takes less power.
//!
//! Where the CPU has `TPAUSE` (Intel's WAITPKG: Tremont, Alder Lake, Sapphire Rapids, and later)
//! the thread rests in the state C0.1, the lighter of the two, until a deadline. Elsewhere it is
//! `PAUSE`, or what [`std::hint::spin_loop`] stands for. Both take about as long as `PAUSE` does on
//! Intel's CPUs since Skylake, some 140 cycles; on AMD's Zen it is some 40 to 65.
//!
//! `UMWAIT` of the same CPUs ends at a write to one cache line. An lcore waits for many: its
//! completion queue, rings, a word of control.
//!
//! `TPAUSE` has not run: none of the CPUs that this was tested on has it.

/// How this CPU waits for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// By the hint that a spin loop gives.
    Hint,
    /// By `TPAUSE`. Only [`Pause::of_this_cpu`] makes it.
    #[cfg(target_arch = "x86_64")]
    Timed(Timed),
}

/// The CPU has `TPAUSE`.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed(());

impl Pause {
    /// Asks the CPU.
    #[must_use]
    pub fn of_this_cpu() -> Pause {
        #[cfg(target_arch = "x86_64")]
        if let Some(timed) = native::timed() {
            return Pause::Timed(timed);
        }
        Pause::Hint
    }

    /// The instruction's name, as a report says it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Pause::Hint if cfg!(target_arch = "x86_64") => "pause",
            Pause::Hint => "hint",
            #[cfg(target_arch = "x86_64")]
            Pause::Timed(_) => "tpause",
        }
    }

    /// Waits for a moment: some tens of nanoseconds.
    #[inline(always)]
    pub fn wait(self) {
        match self {
            Pause::Hint => std::hint::spin_loop(),
            #[cfg(target_arch = "x86_64")]
            Pause::Timed(timed) => native::wait(timed),
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod native {
    #![allow(unsafe_code)]

    use super::Timed;
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid_count, __get_cpuid_max, _rdtsc};

    /// Leaf 7, ECX: WAITPKG.
    const WAITPKG: u32 = 1 << 5;
    /// The state C0.1: less power is saved than in C0.2, and leaving it is faster.
    const C0_1: u32 = 1;
    /// How long, in ticks of the TSC.
    const TICKS: u64 = 140;

    pub(super) fn timed() -> Option<Timed> {
        let (leaves, _) = __get_cpuid_max(0);
        (leaves >= 7 && __cpuid_count(7, 0).ecx & WAITPKG != 0).then_some(Timed(()))
    }

    #[inline(always)]
    pub(super) fn wait(_: Timed) {
        // SAFETY: a `Timed` says that the CPU has the instruction, and `timed` alone makes one. It
        // reads and writes no memory, and ends at the deadline at the latest.
        unsafe {
            let until = _rdtsc() + TICKS;
            asm!(
                "tpause {state:e}",
                state = in(reg) C0_1,
                in("eax") until as u32,
                in("edx") (until >> 32) as u32,
                options(nomem, nostack),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pause;
    use std::time::{Duration, Instant};

    #[test]
    fn a_moment_is_short() {
        let pause = Pause::of_this_cpu();
        let least = (0..1000).map(|_| {
            let began = Instant::now();
            pause.wait();
            began.elapsed()
        });
        assert!(least.min() < Some(Duration::from_micros(5)), "{pause:?}");
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn the_kernel_says_the_same_of_the_cpu() {
        let says = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = says.lines().find(|line| line.starts_with("flags")).unwrap();
        let word = if flags.split(' ').any(|flag| flag == "waitpkg") { "tpause" } else { "pause" };
        assert_eq!(Pause::of_this_cpu().word(), word);
    }
}
