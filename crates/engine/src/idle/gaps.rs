//! Statistics of the gaps between an lcore's arrivals, and the best times to be asleep within a
//! gap.
//!
//! A gap lasts from the first idle turn to the turn that finds work. Recent gaps are kept as a
//! histogram whose bins grow with the gap (eight for each doubling) and know their least and
//! greatest gap. A bin with many gaps is examined in eight parts, so that a few disturbed gaps do
//! not hide where the others lie. From it [`Gaps::plan`] makes the [`Windows`]: the times since the
//! beginning of a gap at which hardly anything ever arrived. For evenly spaced arrivals that is all
//! of the gap but its end; for random ones, the time after a long wait; for bursts, the time
//! between them. Nothing is allocated after [`Gaps::new`].

use super::bins::{BINS, Bin, MANY, PARTS, Piece, bin_of};

/// The number of gaps at which all weights are halved: older gaps count for less and less.
const HORIZON: u32 = 4096;
/// The most windows that an lcore follows.
const WINDOWS: usize = 16;
/// The number of gaps from which on the spread within a bin predicts the next ones.
const FEW: u32 = 8;
/// The most stretches: one per bin and part.
const STRETCHES: usize = BINS + (PARTS - 1) * (HORIZON / MANY) as usize;

/// A time to be asleep, since the beginning of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) from_ns: u64,
    /// When to be awake again; `u64::MAX`: not before something arrives.
    pub(crate) to_ns: u64,
}

/// The windows of a gap, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    all: [Window; WINDOWS],
    count: usize,
}

impl Windows {
    /// A single window, from `spin_ns` on.
    pub(crate) fn after(spin_ns: u64) -> Windows {
        let mut all = Windows::NONE.all;
        all[0] = Window { from_ns: spin_ns, to_ns: u64::MAX };
        Windows { all, count: 1 }
    }

    const NONE: Windows = Windows { all: [Window { from_ns: 0, to_ns: 0 }; WINDOWS], count: 0 };

    /// Returns the first window that has not ended at `ns`.
    pub(crate) fn at(&self, ns: u64) -> Option<Window> {
        self.as_slice().iter().copied().find(|window| window.to_ns > ns)
    }

    pub(crate) fn as_slice(&self) -> &[Window] {
        &self.all[..self.count]
    }

    fn push(&mut self, window: Window) -> bool {
        let fits = self.count < WINDOWS;
        if fits {
            self.all[self.count] = window;
            self.count += 1;
        }
        fits
    }
}

/// The aim of the windows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aim {
    /// The share of batches that may find the lcore asleep.
    pub(crate) late_share: f64,
    /// The longest that it is awake in one gap.
    pub(crate) spin_max_ns: u64,
    /// The time that a wake-up takes. The lcore is awake again that long before a window ends; and
    /// going to sleep takes about as long.
    pub(crate) wake_ns: u64,
}

impl Aim {
    /// The shortest time asleep that is worth its system calls.
    fn sleep_min_ns(&self) -> u64 {
        2 * self.wake_ns
    }
}

/// A stretch of a gap in which arrivals are expected.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    from_ns: u64,
    to_ns: u64,
    weight: u32,
    /// The total saving of being asleep in it, per arrival that this makes late.
    worth: f64,
    /// The number of stretches that are worth more to be awake in.
    rank: usize,
}

/// The recent gaps.
#[derive(Debug)]
pub(crate) struct Gaps {
    bins: Box<[Bin; BINS]>,
    /// The sum of the weights, and the batches that arrived in the same time.
    total: u32,
    batches: f64,
    /// Scratch space for planning.
    stretches: Box<[Stretch; STRETCHES]>,
    order: Box<[u16; STRETCHES]>,
}

impl Gaps {
    pub(crate) fn new() -> Gaps {
        Gaps {
            bins: Box::new([Bin::EMPTY; BINS]),
            total: 0,
            batches: 0.0,
            stretches: Box::new([Stretch::default(); STRETCHES]),
            order: Box::new([0; STRETCHES]),
        }
    }

    /// Returns the weight of the recorded gaps.
    pub(crate) fn weight(&self) -> u32 {
        self.total
    }

    /// Records a gap. `batches` arrived since the previous one ended. It may have been shorter, by
    /// `doubt_ns` at most.
    pub(crate) fn ended(&mut self, gap_ns: u64, doubt_ns: u64, batches: u64) {
        self.bins[bin_of(gap_ns)].add(gap_ns, doubt_ns);
        self.total += 1;
        self.batches += batches.max(1) as f64;
        if self.total >= HORIZON {
            self.age();
        }
    }

    /// Halves all weights.
    pub(crate) fn age(&mut self) {
        self.total = 0;
        for bin in self.bins.iter_mut().filter(|bin| bin.weight > 0) {
            bin.age();
            self.total += bin.weight;
        }
        self.batches /= 2.0;
    }

    /// Returns the times to be asleep so that `aim` is met with the least time awake.
    pub(crate) fn plan(&mut self, aim: &Aim) -> Windows {
        let count = self.expect(aim);
        let wanted = self.rank(count, aim);
        let mut sleep_min_ns = aim.sleep_min_ns();
        loop {
            let kept = self.affordable(count, wanted, aim, sleep_min_ns);
            // If there are too many windows, try fewer and longer ones.
            match self.windows(count, kept, sleep_min_ns) {
                Some(windows) => return windows,
                None => sleep_min_ns = sleep_min_ns.max(1) * 2,
            }
        }
    }

    /// Writes down the stretches in which arrivals are expected; returns their number.
    fn expect(&mut self, aim: &Aim) -> usize {
        let (mut count, mut left) = (0, self.total);
        let bins = self.bins.iter().enumerate().filter(|(_, bin)| bin.weight > 0);
        for Piece { weight, least_ns, greatest_ns, width_ns } in bins.flat_map(|(index, bin)| bin.pieces(index)) {
            // A few gaps do not say how far from them the next one may be; many gaps say that it
            // will lie among them, with hardly an exception.
            let margin_ns = match weight {
                0..FEW => width_ns,
                _ => ((greatest_ns - least_ns) * u64::from(FEW / 2) / u64::from(weight)).max(aim.wake_ns / 2),
            };
            let (from_ns, to_ns) = (least_ns.saturating_sub(margin_ns), greatest_ns + margin_ns);
            // Margins overlap where gaps are short: there they are not what is saved.
            let own_ns = (to_ns - from_ns).min(3 * width_ns);
            let worth = f64::from(left) * own_ns as f64 / f64::from(weight);
            self.stretches[count] = Stretch { from_ns, to_ns, weight, worth, rank: 0 };
            self.order[count] = count as u16;
            left = left.saturating_sub(weight);
            count += 1;
        }
        count
    }

    /// Ranks the stretches: it costs least to be asleep in the highest ranks. Returns how many
    /// stretches are left after giving up all that the share of late arrivals allows.
    fn rank(&mut self, count: usize, aim: &Aim) -> usize {
        let (stretches, order) = (&mut self.stretches[..count], &mut self.order[..count]);
        order.sort_unstable_by(|a, b| stretches[usize::from(*a)].worth.total_cmp(&stretches[usize::from(*b)].worth));
        order.iter().enumerate().for_each(|(rank, index)| stretches[usize::from(*index)].rank = rank);
        let mut late = aim.late_share * self.batches;
        let given_up = order.iter().rev().take_while(|index| {
            late -= f64::from(stretches[usize::from(**index)].weight);
            late >= 0.0
        });
        count - given_up.count()
    }

    /// Returns how many of the `wanted` stretches there is time to be awake in, taking first those
    /// with the most arrivals.
    fn affordable(&self, count: usize, wanted: usize, aim: &Aim, sleep_min_ns: u64) -> usize {
        let (mut fits, mut above) = (0, wanted + 1);
        while above - fits > 1 {
            let middle = fits.midpoint(above);
            match self.awake_ns(count, middle, aim, sleep_min_ns) <= aim.spin_max_ns {
                true => fits = middle,
                false => above = middle,
            }
        }
        fits
    }

    fn kept(&self, count: usize, kept: usize) -> impl Iterator<Item = &Stretch> {
        self.stretches[..count].iter().filter(move |stretch| stretch.rank < kept)
    }

    /// Returns how long an lcore is awake in a gap that outlasts the `kept` best stretches, its
    /// early wake-ups included. Overlaps of stretches count once.
    fn awake_ns(&self, count: usize, kept: usize, aim: &Aim, sleep_min_ns: u64) -> u64 {
        let (mut awake_ns, mut awake_until_ns) = (0, 0);
        for stretch in self.kept(count, kept) {
            let pause_ns = stretch.from_ns.saturating_sub(awake_until_ns);
            awake_ns += if pause_ns < sleep_min_ns { pause_ns } else { aim.wake_ns };
            awake_ns += stretch.to_ns.saturating_sub(stretch.from_ns.max(awake_until_ns));
            awake_until_ns = awake_until_ns.max(stretch.to_ns);
        }
        awake_ns
    }

    /// Returns the times between the `kept` best stretches, as far as they are long enough; `None`
    /// if these are too many.
    fn windows(&self, count: usize, kept: usize, sleep_min_ns: u64) -> Option<Windows> {
        let (mut windows, mut awake_until_ns) = (Windows::NONE, 0);
        for stretch in self.kept(count, kept) {
            let pause_ns = stretch.from_ns.saturating_sub(awake_until_ns);
            if pause_ns >= sleep_min_ns && !windows.push(Window { from_ns: awake_until_ns, to_ns: stretch.from_ns }) {
                return None;
            }
            awake_until_ns = awake_until_ns.max(stretch.to_ns);
        }
        windows.push(Window { from_ns: awake_until_ns, to_ns: u64::MAX }).then_some(windows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AIM: Aim = Aim { late_share: 0.01, spin_max_ns: u64::MAX, wake_ns: 25_000 };

    fn plan(gaps_ns: impl IntoIterator<Item = u64>) -> Vec<Window> {
        let mut gaps = Gaps::new();
        gaps_ns.into_iter().for_each(|gap_ns| gaps.ended(gap_ns, 0, 1));
        gaps.plan(&AIM).as_slice().to_vec()
    }

    #[test]
    fn evenly_spaced_arrivals_leave_all_of_a_gap_but_its_end() {
        let windows = plan((0..1000).map(|k| 1_000_000 + k % 7 * 1_000));
        let [first, last] = windows[..] else { panic!("{windows:?}") };
        assert_eq!(first.from_ns, 0);
        assert!((950_000..1_000_000).contains(&first.to_ns) && last.from_ns < 1_060_000, "{windows:?}");
        assert_eq!(last.to_ns, u64::MAX);
    }

    #[test]
    fn what_is_rarer_than_the_share_is_slept_through_and_what_is_not_is_not() {
        let burst = |rare: u64| (0..2000).map(move |k| if k % rare == 0 { 10_000_000 } else { 2_000 });
        assert!(plan(burst(200)).iter().any(|window| window.to_ns == u64::MAX && window.from_ns < 100_000));
        let windows = plan(burst(50));
        assert!(windows.iter().all(|window| window.to_ns <= 10_000_000 || window.from_ns > 10_000_000), "{windows:?}");
        assert!(windows[0].to_ns > 8_000_000, "the pause is slept through, but for its end: {windows:?}");
    }

    #[test]
    fn it_is_awake_for_no_longer_than_it_may_be() {
        for spin_max_ns in [0, 1, 70_000, 500_000] {
            let mut gaps = Gaps::new();
            (0..3000_u64).for_each(|k| gaps.ended(k * k * 40 % 3_000_017, 0, 1));
            let windows = gaps.plan(&Aim { spin_max_ns, ..AIM });
            let (mut awake_ns, mut from_ns) = (0, 0);
            for window in windows.as_slice() {
                awake_ns += window.from_ns - from_ns;
                from_ns = window.to_ns;
            }
            assert!(awake_ns <= spin_max_ns && from_ns == u64::MAX, "{spin_max_ns}: {windows:?}");
        }
    }

    #[test]
    fn what_has_not_been_seen_for_long_is_forgotten() {
        let mut gaps = Gaps::new();
        (0..100).for_each(|_| gaps.ended(5_000_000, 0, 1));
        (0..16 * HORIZON).for_each(|_| gaps.ended(3_000, 0, 1));
        let windows = gaps.plan(&AIM);
        assert_eq!(windows.as_slice().len(), 1, "{windows:?}");
        assert!(windows.as_slice()[0].from_ns < 100_000, "{windows:?}");
    }
}
