//! The idle policy that learns: it sleeps at the times within a gap at which hardly anything
//! arrives, so that no more than a stated share of the batches finds the lcore asleep.
//!
//! Guarantees, for all arrivals: in one gap the lcore is awake for [`Objective::spin_max_ns`] at
//! most. If the share is held ([`Objective::is_held`]), the late batches, apart from those beyond
//! `spin_max_ns`, are never more than that share of all batches plus [`CREDIT`]. The forecast of
//! arrivals decides only how much the lcore sleeps within these bounds.

use super::gaps::{Aim, Gaps, Window, Windows};

/// Late batches allowed ahead of the batches that they are a share of.
const CREDIT: f64 = 3.0;
/// The most credit that can be saved up: how many arrivals of a quiet time the lcore may sleep
/// through after a busy one. It learns most about the quiet time from these. With 20, arrivals that
/// go from ten a second to a hundred thousand and back kept the lcore awake for 62 % of the time,
/// where 4 % is the least.
const CREDIT_MAX: f64 = 64.0;
/// The number of gaps needed for a forecast.
const KNOWN: u32 = 32;
/// Gaps between two forecasts, in the long run.
const EVERY: u32 = 512;

/// The plan's demands on the policy.
// Part of the crate's interface where the simulation is.
#[cfg_attr(not(feature = "simulation"), expect(unreachable_pub))]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// At most this share of the batches may find the lcore asleep, 0 to 1.
    pub late_share: f64,
    /// The longest that it waits awake in one gap. Batches that arrive later may find it asleep,
    /// and do not count in the share.
    pub spin_max_ns: u64,
    /// The share holds for all arrivals: an lcore whose forecasts failed waits awake until it has
    /// made up for that. Otherwise it goes on as well as it can.
    pub is_held: bool,
}

/// The objective, the lessons learned, and the consequences of both.
#[derive(Debug)]
pub(crate) struct Forecast {
    aim: Aim,
    gaps: Gaps,
    windows: Windows,
    is_held: bool,
    /// The late batches allowed now.
    credit: f64,
    /// There was credit at the last look; without credit the forecast is not trusted.
    trusted: bool,
    /// The gaps until the next forecast, and from that one to the one after.
    left: u32,
    every: u32,
}

impl Forecast {
    pub(crate) fn new(objective: Objective, wake_cost_ns: u64) -> Forecast {
        let Objective { late_share, spin_max_ns, is_held } = objective;
        Forecast {
            aim: Aim { late_share, spin_max_ns, wake_ns: wake_cost_ns },
            gaps: Gaps::new(),
            windows: Windows::after(spin_max_ns),
            is_held,
            credit: CREDIT,
            trusted: true,
            left: KNOWN,
            every: KNOWN,
        }
    }

    /// Returns the window that the lcore is in or comes to next, `idle_ns` after the gap began.
    #[inline]
    pub(crate) fn window(&self, idle_ns: u64) -> Option<Window> {
        self.windows.at(idle_ns)
    }

    /// Ends a gap. `batches` arrived since the previous one ended. If the batch that ended it is
    /// `late`, it found the lcore asleep, and came up to that much earlier than the gap says.
    pub(crate) fn ended(&mut self, gap_ns: u64, batches: u64, late: Option<u64>) {
        self.gaps.ended(gap_ns, late.unwrap_or(0), batches);
        let late = late.is_some();
        let charged = late && gap_ns < self.aim.spin_max_ns;
        let earned = self.aim.late_share * batches.max(1) as f64;
        self.credit = (self.credit + earned - f64::from(u8::from(charged))).min(CREDIT_MAX);
        // Spent credit must grow by a batch first, so that the forecast does not change at every
        // gap.
        let trusted = !self.is_held || self.credit >= if self.trusted { 1.0 } else { 2.0 };
        if self.trusted && !trusted {
            // The arrivals have changed.
            self.gaps.age();
            self.every = KNOWN;
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 || trusted != self.trusted {
            self.trusted = trusted;
            self.left = self.every;
            self.every = (self.every * 2).min(EVERY);
            self.renew();
        }
    }

    fn renew(&mut self) {
        self.windows = match self.trusted && self.gaps.weight() >= KNOWN {
            true => self.gaps.plan(&self.aim),
            false => Windows::after(self.aim.spin_max_ns),
        };
    }
}
