//! The idle policy of the lcores over given arrivals, without a thread or a clock: how long the
//! lcore would have been awake, and how many arrivals would have found it asleep.

use verbline_plan::IdlePolicy;

use super::policy::{Budget, Idle, SpinFrom, Step, Turn};
use crate::stats::wakes::WakeCause;

pub use super::forecast::Objective;

/// The costs of going to sleep and of waking up.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// The wake-up time after an arrival or a timer, as measured.
    pub wake_ns: u64,
    /// The wake-up time after a long sleep.
    pub late_wake_ns: u64,
    /// CPU time of the system calls of one sleep.
    pub sleep_cpu_ns: u64,
}

/// The outcome of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The time from the first arrival to the last.
    pub elapsed_ns: u64,
    /// CPU time without work: awake, and going to sleep.
    pub awake_ns: u64,
    /// The number of arrivals.
    pub arrivals: u64,
    /// The number of arrivals that found the lcore asleep.
    pub late: u64,
}

impl Outcome {
    /// The share of the time in which the lcore was awake.
    #[must_use]
    pub fn awake_share(&self) -> f64 {
        self.awake_ns as f64 / self.elapsed_ns.max(1) as f64
    }

    /// The share of the arrivals that found it asleep.
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

/// Simulates an lcore that learns from these gaps between arrivals, in order.
pub fn learning(gaps_ns: impl IntoIterator<Item = u64>, aim: Objective, costs: Costs) -> Outcome {
    let mut lcore = Simulated::new(aim, costs);
    gaps_ns.into_iter().for_each(|gap_ns| lcore.meet(gap_ns));
    lcore.outcome
}

/// The best that a fixed spin could have done on these gaps, known in advance: the least time awake
/// of all spins that keep the share of late arrivals, or spin for as long as is allowed.
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
    // Only at a gap's own length does a longer spin meet one more arrival.
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

    /// Waits for `gap_ns`, then meets an arrival.
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
                        // The last turn before the arrival.
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
                        // It arrived while the lcore woke up, and is found in the next turn.
                        self.idle.busy();
                        break true;
                    }
                }
            }
        };
        self.outcome.add(gap_ns, awake_ns, late);
        // The time of the turns that handle it.
        self.now_ns = self.now_ns.max(until_ns) + 500;
    }
}
