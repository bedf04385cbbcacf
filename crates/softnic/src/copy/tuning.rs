//! Tuning by CPU: chosen once, when the first device is opened, for these reasons.
//!
//! - **Copies of 65 bytes to 8 KiB**: moves of 16, 32 or 64 bytes. The CPU's features decide, then
//!   a measurement: Zen 4 stores 32 bytes a cycle, Zen 5 64 (140 and 217 GB/s at 4 KiB there); Zen
//!   4 loses three quarters with 64 when the two ends lie unluckily. An Intel Xeon (family 6 model
//!   207) gains 11 to 18 % with 64 if both ends lie alike in their lines, and otherwise loses up to
//!   8 %.
//! - **Copies of 8 KiB and more**: the same, or `rep movsb`, chosen alike. Zen 5: 117 GB/s and not
//!   87 out of L2, 113 and not 58 where the targets are in turn beyond it; Zen 4: no gain, and 3.5
//!   GB/s when the ends lie unluckily.
//!
//! It measures, since a list of CPUs is never complete. Each candidate copies between buffers that
//! lie as messages may lie: at the same place in a page, and a little before and behind. The least
//! time of some rounds counts, and of these the places' mean ratio: a method that is bad in one of
//! them is not chosen. This takes a quarter of a millisecond. A candidate must be a twentieth
//! faster than the method that is known to be good everywhere: a measurement on a busy machine then
//! costs that twentieth at most.
//!
//! Other parameters were measured on more than one CPU, did not depend on it, and are fixed: the
//! distance at which a ring's producer prefetches its lines (8 to 32 alike), the bytes copied
//! before they are published (`fast_send_copy`), the width in which a pool's handles are moved
//! (`verbline-mem`, by AVX2 alone).

#[cfg(all(test, target_arch = "x86_64", not(portable_copy)))]
pub(crate) use x86::methods;
#[cfg(all(target_arch = "x86_64", not(portable_copy)))]
pub(crate) use x86::{choose, long_copy};

/// There is only one method.
#[cfg(not(all(target_arch = "x86_64", not(portable_copy))))]
pub(crate) fn choose() {}

/// The name of this process's method for messages of more than 64 bytes. Chooses it, if no device
/// was opened yet.
#[must_use]
pub fn copies() -> &'static str {
    #[cfg(all(target_arch = "x86_64", not(portable_copy)))]
    return x86::choose();
    #[cfg(not(all(target_arch = "x86_64", not(portable_copy))))]
    "byte by byte"
}

#[cfg(all(target_arch = "x86_64", not(portable_copy)))]
mod x86 {
    use crate::copy::long;
    use crate::copy::x86::narrow;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicPtr, Ordering};
    use std::time::{Duration, Instant};

    /// Copies 65 bytes or more.
    pub(crate) type LongCopy = unsafe fn(*mut u8, *const u8, usize);

    /// A method and its name.
    type Method = (&'static str, LongCopy);

    const NARROW: Method = ("moves of 16 bytes, rep movsb from 512 on", narrow);
    const BY_32: Method = ("moves of 32 bytes", long::by_32);
    const BY_32_THEN_STRING: Method = ("moves of 32 bytes, rep movsb from 8 KiB on", long::by_32_then_string);
    const BY_64: Method = ("moves of 64 bytes", long::by_64);
    const BY_64_THEN_STRING: Method = ("moves of 64 bytes, rep movsb from 8 KiB on", long::by_64_then_string);

    /// A [`LongCopy`] that this CPU has; until one is chosen, the one for every x86-64.
    static LONG: AtomicPtr<()> = AtomicPtr::new(narrow as LongCopy as *mut ());

    /// The method for this CPU.
    #[inline(always)]
    pub(crate) fn long_copy() -> LongCopy {
        // Relaxed: each value is good at any time, and leads to no other memory.
        let method = LONG.load(Ordering::Relaxed);
        // SAFETY: only a `LongCopy` is ever stored, here and in `choose`.
        unsafe { std::mem::transmute::<*mut (), LongCopy>(method) }
    }

    /// Chooses, once in a process; returns the method's name.
    pub(crate) fn choose() -> &'static str {
        static CHOSEN: OnceLock<&'static str> = OnceLock::new();
        CHOSEN.get_or_init(|| {
            let (name, method) = best();
            // Relaxed: see `long_copy`.
            LONG.store(method as *mut (), Ordering::Relaxed);
            name
        })
    }

    /// Moves of 64 bytes lower the clock of the first CPUs that had them; those with VBMI2 (Ice
    /// Lake, Zen 4 and later) no longer do.
    fn has_64() -> bool {
        std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("avx512vbmi2")
    }

    fn has_32() -> bool {
        std::is_x86_feature_detected!("avx")
    }

    /// The methods that this CPU has.
    #[cfg(test)]
    pub(crate) fn methods() -> impl Iterator<Item = Method> {
        let wide = [BY_32, BY_32_THEN_STRING].into_iter().filter(|_| has_32());
        let wider = [BY_64, BY_64_THEN_STRING].into_iter().filter(|_| has_64());
        std::iter::once(NARROW).chain(wide).chain(wider)
    }

    fn best() -> Method {
        if !has_32() {
            return NARROW;
        }
        let mut buffers = Buffers::new();
        let moves = if has_64() && buffers.is_faster(BY_64.1, BY_32.1, SHORT_BYTES) { BY_64 } else { BY_32 };
        let then_string = if moves.0 == BY_64.0 { BY_64_THEN_STRING } else { BY_32_THEN_STRING };
        if buffers.is_faster(then_string.1, moves.1, LONG_BYTES) { then_string } else { moves }
    }

    /// A packet of 4 KiB, and a length beyond every first cache.
    const SHORT_BYTES: usize = 4 << 10;
    const LONG_BYTES: usize = 64 << 10;
    /// Bytes copied in a sample: long enough for the clock.
    const SAMPLE_BYTES: usize = 128 << 10;
    const ROUNDS: usize = 9;
    const PAGE_BYTES: usize = 4096;
    /// The target's distance from the source, modulo a page.
    const DISTANCES: [usize; 5] = [0, 8, 64, PAGE_BYTES - 8, PAGE_BYTES - 64];

    /// The buffers to copy between.
    struct Buffers {
        from: Vec<u8>,
        to: Vec<u8>,
    }

    impl Buffers {
        fn new() -> Buffers {
            // Written, so that each has pages of its own.
            let [from, to] = [0x5a, 0xa5].map(|byte| vec![byte; LONG_BYTES + 2 * PAGE_BYTES]);
            Buffers { from, to }
        }

        /// Whether a method is faster than another by a twentieth: the mean ratio of all places, in
        /// the least times of some alternating rounds.
        fn is_faster(&mut self, this: LongCopy, that: LongCopy, bytes: usize) -> bool {
            let mut ratios = 0.0;
            for distance in DISTANCES {
                let mut least = [Duration::MAX; 2];
                for _ in 0..ROUNDS {
                    for (least, method) in least.iter_mut().zip([this, that]) {
                        *least = (*least).min(self.time(method, bytes, distance));
                    }
                }
                ratios += least[0].as_secs_f64() / least[1].as_secs_f64();
            }
            ratios < 0.95 * DISTANCES.len() as f64
        }

        fn time(&mut self, method: LongCopy, bytes: usize, distance: usize) -> Duration {
            let from = self.from.as_ptr().wrapping_add(self.from.as_ptr().addr().wrapping_neg() % PAGE_BYTES);
            let to = self.to.as_mut_ptr().wrapping_add(self.to.as_ptr().addr().wrapping_neg() % PAGE_BYTES + distance);
            let began = Instant::now();
            for _ in 0..SAMPLE_BYTES / bytes {
                // SAFETY: both begin within a page, the target up to one later, and each buffer is
                // two pages longer than the longest copy. This CPU has the method.
                unsafe { method(to, from, bytes) };
            }
            began.elapsed()
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_is_chosen_is_there_and_stays() {
            let name = choose();
            let (_, method) = methods().find(|method| method.0 == name).expect("a method that this CPU has");
            assert!(std::ptr::fn_addr_eq(long_copy(), method));
            assert_eq!(choose(), name);
        }

        /// The difference is so large that no busy machine inverts it.
        #[test]
        fn a_method_that_is_much_slower_is_not_chosen() {
            /// As slow as Zen 4's `rep movsb` between ends that lie unluckily.
            unsafe fn slow(to: *mut u8, from: *const u8, len: usize) {
                // SAFETY: the same ranges, each time.
                (0..8).for_each(|_| unsafe { narrow(to, from, len) });
            }
            let mut buffers = Buffers::new();
            assert!(!buffers.is_faster(slow, narrow, LONG_BYTES));
            assert!(buffers.is_faster(narrow, slow, LONG_BYTES));
        }
    }
}
