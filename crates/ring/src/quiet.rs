//! Tells when lcores that hand packets to each other are quiet: nothing is in flight between them
//! any more.
//!
//! Every lcore counts its turns and its active turns ([`Pulse`]). A turn is active if it found
//! work, or ended with something that still has to go out. The rule ([`Quiet`]): note every lcore's
//! active turns, *then* every lcore's turns. All was quiet if each lcore has since completed two
//! more turns, none of them active.
//!
//! Why this holds: a packet in flight was handed on in an active turn, which had ended before its
//! lcore's active turns were noted; otherwise the count would have grown since. So the packet lay
//! at its receiver before any turns were noted. Of two turns that the receiver completed after
//! that, the second began after the noting, found the packet, and was active.
//!
//! "Began after" needs fences, since a processor may look into a ring before its count of the
//! previous turn is visible. Each turn ends with a light fence, and a heavy fence lies between the
//! two passes of noting. A turn whose count becomes visible only after the heavy fence is followed
//! by turns that see whatever was handed on before that fence.
//!
//! Packets that a device carries are outside of this: give them time before the last look.

use crate::sync::{AtomicU64, Fences, Ordering};

/// `(turns, active turns)` of one lcore; the second is at least as new as the first.
pub type Beats = (u64, u64);

/// What an lcore says about itself; written by that lcore alone, read by the one that looks for
/// quiet.
///
/// Give it a cache line of its own.
#[derive(Debug)]
pub struct Pulse {
    /// Turns of the loop; moves on whether or not there is work.
    turns: AtomicU64,
    /// Turns that found work, or left something that is not yet delivered.
    active: AtomicU64,
    fences: Fences,
}

impl Default for Pulse {
    fn default() -> Pulse {
        Pulse::with(Fences::both())
    }
}

impl Pulse {
    fn with(fences: Fences) -> Pulse {
        Pulse { turns: AtomicU64::new(0), active: AtomicU64::new(0), fences }
    }

    /// A pulse that lacks its fence, to show in a model that a packet would be overlooked.
    #[cfg(loom)]
    #[doc(hidden)]
    pub fn lacking_fence() -> Pulse {
        Pulse::with(Fences { without_light: true, without_heavy: false })
    }

    /// Ends a turn, before the next one looks for work. `active` if it found work or something is
    /// still on its way out.
    #[inline]
    pub fn beat(&self, active: bool) {
        if active {
            // Relaxed load: single writer. Release: pairs with the Acquire of `active` in `read`;
            // who counts the activity knows of what was handed on in it.
            self.active.store(self.active.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
        // Release: pairs with the Acquire of `turns` in `read`, which so sees the activity of every
        // turn that it counts.
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Release);
        // Between this count and the next turn's look for work: pairs with the heavy fence in
        // `Quiet::note`.
        self.fences.light();
    }

    /// The counts, for [`Quiet`].
    pub fn read(&self) -> Beats {
        // Acquire, both: pair with the Releases of the same words in `beat`.
        let turns = self.turns.load(Ordering::Acquire);
        (turns, self.active.load(Ordering::Acquire))
    }
}

/// A look-out for quiet. `read` gives [`Pulse::read`] of the lcore of this index.
#[derive(Debug)]
pub struct Quiet {
    noted: Vec<Beats>,
    fences: Fences,
}

impl Quiet {
    /// Starts to look at this number of lcores.
    pub fn new(lcores: usize, read: impl FnMut(usize) -> Beats) -> Quiet {
        Quiet::with(Fences::both(), lcores, read)
    }

    fn with(fences: Fences, lcores: usize, read: impl FnMut(usize) -> Beats) -> Quiet {
        let mut quiet = Quiet { noted: vec![(0, 0); lcores], fences };
        quiet.note(read);
        quiet
    }

    /// A look-out that lacks its fence, to show in a model that it would overlook a packet.
    #[cfg(loom)]
    #[doc(hidden)]
    pub fn lacking_fence(lcores: usize, read: impl FnMut(usize) -> Beats) -> Quiet {
        Quiet::with(Fences { without_light: false, without_heavy: true }, lcores, read)
    }

    /// Looks again. True if all was quiet since it was last noted; if an lcore was active, notes
    /// anew.
    pub fn look(&mut self, mut read: impl FnMut(usize) -> Beats) -> bool {
        let (mut turned, mut active) = (true, false);
        for (lcore, noted) in self.noted.iter().enumerate() {
            let now = read(lcore);
            turned &= now.0 >= noted.0 + 2;
            active |= now.1 != noted.1;
        }
        if active {
            self.note(read);
        }
        turned && !active
    }

    /// Two passes, and the order matters: see the top of this file.
    fn note(&mut self, mut read: impl FnMut(usize) -> Beats) {
        for lcore in 0..self.noted.len() {
            self.noted[lcore].1 = read(lcore).1;
        }
        // Pairs with the light fence in `Pulse::beat`.
        self.fences.heavy();
        for lcore in 0..self.noted.len() {
            self.noted[lcore].0 = read(lcore).0;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Where a modelled lcore is in its turn.
    #[derive(Clone, Copy, Debug)]
    enum At {
        Poll,
        HandOn(Option<u8>),
        Beat { active: bool },
    }

    /// Lcores in a circle that hand packets on, each packet a given number of times.
    struct Model {
        /// Turns that each lcore takes before it notices the drain, uncounted.
        unnoticed: Vec<u8>,
        at: Vec<At>,
        inboxes: Vec<Vec<u8>>,
        beats: Vec<Beats>,
        /// Who takes how many steps, again and again.
        schedule: Vec<(usize, u8)>,
        next: usize,
        fair: usize,
    }

    impl Model {
        fn new(packets: &[u8], unnoticed: Vec<u8>, schedule: Vec<(usize, u8)>) -> Model {
            let lcores = unnoticed.len();
            let mut inboxes = vec![Vec::new(); lcores];
            for (index, hops) in packets.iter().enumerate() {
                inboxes[index % lcores].push(*hops);
            }
            Model {
                unnoticed,
                at: vec![At::Poll; lcores],
                inboxes,
                beats: vec![(0, 0); lcores],
                schedule,
                next: 0,
                fair: 0,
            }
        }

        fn step(&mut self, lcore: usize) {
            self.at[lcore] = match self.at[lcore] {
                At::Poll => At::HandOn(self.inboxes[lcore].pop()),
                At::HandOn(None) => At::Beat { active: false },
                At::HandOn(Some(hops)) => {
                    if let Some(left) = hops.checked_sub(1) {
                        let receiver = (lcore + 1) % self.at.len();
                        self.inboxes[receiver].push(left);
                    }
                    At::Beat { active: true }
                }
                At::Beat { .. } if self.unnoticed[lcore] > 0 => {
                    self.unnoticed[lcore] -= 1;
                    if self.unnoticed[lcore] == 0 {
                        self.beats[lcore] = (1, 1);
                    }
                    At::Poll
                }
                At::Beat { active } => {
                    self.beats[lcore].1 += u64::from(active);
                    self.beats[lcore].0 += 1;
                    At::Poll
                }
            };
        }

        /// What a reader sees, after whatever the lcores do in the meantime.
        fn read(&mut self, lcore: usize) -> Beats {
            let (who, steps) = self.schedule[self.next % self.schedule.len()];
            self.next += 1;
            for _ in 0..steps {
                self.step(who % self.at.len());
            }
            // However unfair the schedule, everybody gets on.
            self.fair = (self.fair + 1) % self.at.len();
            self.step(self.fair);
            self.beats[lcore]
        }

        fn under_way(&self) -> usize {
            let held = self.at.iter().filter(|at| matches!(at, At::HandOn(Some(_)))).count();
            held + self.inboxes.iter().map(Vec::len).sum::<usize>()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn quiet_means_that_nothing_is_under_way(
            packets in prop::collection::vec(0..6u8, 0..5),
            unnoticed in prop::collection::vec(1..4u8, 1..4),
            schedule in prop::collection::vec((0..3usize, 0..10u8), 1..40),
        ) {
            let lcores = unnoticed.len();
            let mut model = Model::new(&packets, unnoticed, schedule);
            let mut quiet = Quiet::new(lcores, |lcore| model.read(lcore));
            let mut found = false;
            for _ in 0..3000 {
                if quiet.look(|lcore| model.read(lcore)) {
                    prop_assert_eq!(model.under_way(), 0);
                    found = true;
                    break;
                }
            }
            prop_assert!(found, "never quiet, with {} packets under way", model.under_way());
        }
    }
}
