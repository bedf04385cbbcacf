//! When a draining run is quiet: nothing is on its way between its lcores any more.
//!
//! Every lcore counts its turns, and those of them that were active: found work, or ended with something on its way
//! out. The rule: first every lcore's active turns are noted, *then* every lcore's turns; the run was quiet if each
//! lcore has since completed two more turns and none of them an active one.
//!
//! Why it holds: a packet that is under way was handed on in an active turn, and that turn had ended before its lcore's
//! active turns were noted, or else it would have shown since. So the packet lay at its receiver before any turns were
//! noted. Of two turns completed after that, the second one began after it, found the packet, and was active.

/// `(turns, active turns)` of one lcore; the second is at least as new as the first.
pub(crate) type Beats = (u64, u64);

/// A look-out for quiet.
#[derive(Debug)]
pub(crate) struct Quiet {
    noted: Vec<Beats>,
}

impl Quiet {
    /// Starts to look, at so many lcores.
    pub(crate) fn new(lcores: usize, read: impl FnMut(usize) -> Beats) -> Quiet {
        let mut quiet = Quiet { noted: vec![(0, 0); lcores] };
        quiet.note(read);
        quiet
    }

    /// Looks again. True if the run was quiet since it was last noted; if an lcore was active, notes anew.
    pub(crate) fn look(&mut self, mut read: impl FnMut(usize) -> Beats) -> bool {
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
        for lcore in 0..self.noted.len() {
            self.noted[lcore].0 = read(lcore).0;
        }
    }
}

#[cfg(test)]
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

    /// Lcores in a circle that hand packets on, each packet so many times.
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
