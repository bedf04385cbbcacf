//! The way of one packet: its steps, and its waits in between.

use verbline_engine::TraceKind;

/// The most steps kept of a packet; a plan's graph has no cycle, so that hardly any has more.
const STEPS_MAX: usize = 64;

/// The end of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// A port posted it.
    Posted,
    /// A port dropped it.
    Dropped,
    /// In a stage, which dropped it, or kept it for too long.
    InStage,
    /// It was not seen again: something dropped it on its way, or the turn was lost to the trace.
    Unseen,
}

impl Ending {
    /// The ending in a word.
    pub fn word(self) -> &'static str {
        match self {
            Ending::Posted => "posted",
            Ending::Dropped => "dropped",
            Ending::InStage => "ends there",
            Ending::Unseen => "not seen again",
        }
    }
}

/// A step of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its kind.
    pub kind: TraceKind,
    /// Its place.
    pub place: u16,
    /// Its lcore.
    pub lcore: u16,
    /// Its time.
    pub at_ns: u64,
}

/// The way of a packet.
#[derive(Clone, Debug)]
pub struct Journey {
    /// Its steps, in order; there is one at least.
    pub steps: Vec<Step>,
    /// The most that it may have waited before its first step, for the lcore to look.
    pub waited_ns: u64,
    /// Whether the filter marks it.
    pub is_marked: bool,
    /// Whether its first step is its entry into the graph.
    pub is_whole: bool,
    /// The time at which the stage that it is left in returned.
    pub returned_ns: Option<u64>,
    /// Its ending, once its way has ended.
    pub ending: Ending,
}

/// A packet's activity or wait between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Between {
    /// It waited before its first step, at most that long.
    Before,
    /// It was in a stage.
    InStage(u16),
    /// It was in a ring or an injector.
    InRing(u16),
    /// It waited within its lcore for the next place.
    For(u16),
}

/// A part of a packet's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its activity.
    pub between: Between,
    /// The lcore that it waited for, or that it was on.
    pub lcore: u16,
    /// The beginning.
    pub from_ns: u64,
    /// The end.
    pub to_ns: u64,
}

impl Journey {
    pub(super) fn new(first: Step, waited_ns: u64, is_marked: bool, is_whole: bool) -> Journey {
        Journey { steps: vec![first], waited_ns, is_marked, is_whole, ..Journey::none() }
    }

    /// A placeholder.
    pub(super) fn none() -> Journey {
        let ending = Ending::Unseen;
        Journey { steps: Vec::new(), waited_ns: 0, is_marked: false, is_whole: false, returned_ns: None, ending }
    }

    /// Whether a step may follow the last one.
    pub(super) fn leads_to(&self, next: &Step) -> bool {
        use TraceKind as Kind;
        let Some(last) = self.steps.last() else { return false };
        match last.kind {
            Kind::Received | Kind::Popped | Kind::Sent => {
                matches!(next.kind, Kind::Entered | Kind::Pushed | Kind::Posted | Kind::Dropped)
            }
            Kind::Entered => next.kind == Kind::Sent && next.place == last.place,
            Kind::Pushed => next.kind == Kind::Popped && next.place == last.place,
            _ => false,
        }
    }

    pub(super) fn add(&mut self, step: Step) {
        if self.steps.len() < STEPS_MAX {
            self.steps.push(step);
        }
        self.returned_ns = None;
    }

    /// The time of its first step.
    pub fn from_ns(&self) -> u64 {
        self.steps.first().map_or(0, |step| step.at_ns)
    }

    /// The time at which it was last seen.
    pub fn to_ns(&self) -> u64 {
        self.returned_ns.or(self.steps.last().map(|step| step.at_ns)).unwrap_or(0)
    }

    /// From its first step to its last.
    pub fn took_ns(&self) -> u64 {
        self.to_ns().saturating_sub(self.from_ns())
    }

    /// Like [`took_ns`](Self::took_ns), with the most that it may have waited before.
    pub fn at_most_ns(&self) -> u64 {
        self.took_ns() + self.waited_ns
    }

    /// The places that it passed, in order.
    pub fn path(&self) -> Vec<u16> {
        let mut path: Vec<u16> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            // Stages are both entered and left, rings both filled and emptied.
            if path.last() != Some(&step.place) {
                path.push(step.place);
            }
        }
        path
    }

    /// The parts of its time, in order, without a gap.
    pub fn parts(&self) -> Vec<Part> {
        let mut parts = Vec::with_capacity(self.steps.len() + 1);
        if let Some(first) = self.steps.first().filter(|_| self.waited_ns > 0) {
            let from_ns = first.at_ns.saturating_sub(self.waited_ns);
            parts.push(Part { between: Between::Before, lcore: first.lcore, from_ns, to_ns: first.at_ns });
        }
        for pair in self.steps.windows(2) {
            let (step, next) = (&pair[0], &pair[1]);
            let between = match step.kind {
                TraceKind::Entered => Between::InStage(step.place),
                TraceKind::Pushed => Between::InRing(step.place),
                _ => Between::For(next.place),
            };
            // The wait is for the lcore that empties the ring.
            let (from_ns, to_ns) = (step.at_ns, next.at_ns);
            parts.push(Part { between, lcore: next.lcore, from_ns, to_ns });
        }
        if let (Some(last), Some(to_ns)) = (self.steps.last(), self.returned_ns) {
            let between = Between::InStage(last.place);
            parts.push(Part { between, lcore: last.lcore, from_ns: last.at_ns, to_ns });
        }
        parts
    }
}
