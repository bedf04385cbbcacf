//! The idle policy over arrivals that are given, without a thread or a clock: how long it would
//! have been awake, and how many would have found it asleep. The policy is the one that lcores run.

use verbline_plan::IdlePolicy;

use super::policy::{Budget, Idle, SpinFrom, Step, Turn};
use crate::stats::wakes::WakeCause;

pub use super::forecast::Objective;

/// What going to sleep and waking up cost.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// From an arrival to the lcore that it wakes, and from a timer, as it was measured.
    pub wake_ns: u64,
    /// The same as it is after a long sleep.
    pub late_wake_ns: u64,
    /// CPU time of the system calls of one sleep.
    pub sleep_cpu_ns: u64,
}

/// What became of the arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The time from the first to the last.
    pub elapsed_ns: u64,
    /// CPU time without work: awake, and going to sleep.
    pub awake_ns: u64,
    /// How many there were, and how many found the lcore asleep.
    pub arrivals: u64,
    /// The latter.
    pub late: u64,
}

impl Outcome {
    /// Share of the time in which it was awake.
    #[must_use]
    pub fn awake_share(&self) -> f64 {
        self.awake_ns as f64 / self.elapsed_ns.max(1) as f64
    }

    /// Share of the arrivals that found it asleep.
    #[must_use]
    pub fn late_share(&self) -> f64 {
        self.late as f64 / self.arrivals.max(1) as f64
    }

    fn add(&mut self, gap_ns: u64, awake_ns: u64, late: bool) {
        self.elapsed_ns += gap_ns;
        self.awake_ns += awake_ns;
        self.arrivals += 1;
        self.late += u64::from(late);
    }
}

/// An lcore that learns from these gaps between arrivals, one after another.
pub fn learning(gaps_ns: impl IntoIterator<Item = u64>, aim: Objective, costs: Costs) -> Outcome {
    let mut lcore = Simulated::new(aim, costs);
    gaps_ns.into_iter().for_each(|gap_ns| lcore.meet(gap_ns));
    lcore.outcome
}

/// The best that a fixed spin could have done on these gaps by who knew them before: the least time
/// awake of all spins that keep the share of late arrivals, or spin for as long as is allowed.
#[must_use]
pub fn best_fixed(gaps_ns: &[u64], aim: Objective, costs: Costs) -> Outcome {
    let mut sorted = gaps_ns.to_vec();
    sorted.sort_unstable();
    let below: Vec<u64> = std::iter::once(0)
        .chain(sorted.iter().scan(0, |sum, gap_ns| {
            *sum += gap_ns;
            Some(*sum)
        }))
        .collect();
    let elapsed_ns = below[sorted.len()];
    let arrivals = sorted.len() as u64;
    let with_spin = |spin_ns: u64| {
        let met = sorted.partition_point(|gap_ns| *gap_ns <= spin_ns);
        let late = arrivals - met as u64;
        Outcome { elapsed_ns, awake_ns: below[met] + late * (spin_ns + costs.sleep_cpu_ns), arrivals, late }
    };
    // Only at a gap's own length does a longer spin meet one more.
    let spins = sorted.iter().copied().take_while(|spin_ns| *spin_ns < aim.spin_max_ns);
    let allowed = spins.map(with_spin).filter(|outcome| outcome.late_share() <= aim.late_share);
    let longest = with_spin(aim.spin_max_ns);
    allowed.fold(longest, |best, outcome| if outcome.awake_ns < best.awake_ns { outcome } else { best })
}

struct Simulated {
    idle: Idle,
    costs: Costs,
    now_ns: u64,
    outcome: Outcome,
}

impl Simulated {
    fn new(aim: Objective, costs: Costs) -> Simulated {
        let budget = Budget {
            policy: IdlePolicy::Adaptive,
            spin_ns: aim.spin_max_ns,
            spin_from: SpinFrom::Plan,
            dwell_ns: 0,
            wake_cost_ns: costs.wake_ns,
            objective: Some(aim),
            pause: None,
        };
        Simulated { idle: Idle::new(budget), costs, now_ns: 1, outcome: Outcome::default() }
    }

    /// Nothing for `gap_ns`, then an arrival.
    fn meet(&mut self, gap_ns: u64) {
        let (until_ns, mut awake_ns) = (self.now_ns + gap_ns, 0);
        let late = loop {
            let quiet = Turn { now_ns: self.now_ns, busy: false, timer_ns: None, batches: self.outcome.arrivals };
            match self.idle.after(quiet) {
                Step::Spin => {
                    let to_ns = self.idle.spins_until_ns(self.now_ns).unwrap_or(self.now_ns + 1).min(until_ns);
                    awake_ns += to_ns - self.now_ns;
                    self.now_ns = to_ns;
                    if to_ns == until_ns {
                        // What a turn sees last before an arrival.
                        self.idle.after(Turn { now_ns: to_ns, ..quiet });
                        self.idle.busy();
                        break false;
                    }
                }
                Step::Sleep { timer_ns } => {
                    awake_ns += self.costs.sleep_cpu_ns;
                    let timer_ns = timer_ns.unwrap_or(u64::MAX);
                    if until_ns < timer_ns {
                        self.now_ns = until_ns + self.costs.late_wake_ns;
                        self.idle.woke(self.now_ns, WakeCause::Completion);
                        break true;
                    }
                    self.now_ns = timer_ns + self.costs.late_wake_ns;
                    self.idle.woke(self.now_ns, WakeCause::Timer);
                    if until_ns < self.now_ns {
                        // It came while the lcore woke up, and is found in the next turn.
                        self.idle.busy();
                        break true;
                    }
                }
            }
        };
        self.outcome.add(gap_ns, awake_ns, late);
        // The turns that handle it.
        self.now_ns = self.now_ns.max(until_ns) + 500;
    }
}
