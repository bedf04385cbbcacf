//! The way of one packet: what it did when, and what it waited for in between.

use verbline_engine::TraceKind;

/// Steps that are kept of a packet; a plan's graph has no circle, so that hardly one has more.
const STEPS_MAX: usize = 64;

/// How a packet's way ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// A port posted it.
    Posted,
    /// A port dropped it.
    Dropped,
    /// In a stage, which dropped it, or kept it for longer than it was waited for.
    InStage,
    /// It was not seen again: something dropped it on its way, or the turn was lost to the trace.
    Unseen,
}

impl Ending {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Ending::Posted => "posted",
            Ending::Dropped => "dropped",
            Ending::InStage => "ends there",
            Ending::Unseen => "not seen again",
        }
    }
}

/// Something that a packet did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What.
    pub kind: TraceKind,
    /// Where.
    pub place: u16,
    /// On which lcore.
    pub lcore: u16,
    /// When.
    pub at_ns: u64,
}

/// The way of a packet.
#[derive(Clone, Debug)]
pub struct Journey {
    /// Its steps, in order; there is one at least.
    pub steps: Vec<Step>,
    /// How long it had waited at most before its first step, for the lcore to look.
    pub waited_ns: u64,
    /// The filter marks it.
    pub is_marked: bool,
    /// Its first step is where it came into the graph.
    pub is_whole: bool,
    /// When the stage returned that it is in.
    pub returned_ns: Option<u64>,
    /// How it ended, once it has.
    pub ending: Ending,
}

/// What a packet did, or waited for, between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Between {
    /// It waited before its first step, for that long at most.
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
    /// What it did.
    pub between: Between,
    /// The lcore that it waited for, or that it was on.
    pub lcore: u16,
    /// From when.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
}

impl Journey {
    pub(super) fn new(first: Step, waited_ns: u64, is_marked: bool, is_whole: bool) -> Journey {
        Journey { steps: vec![first], waited_ns, is_marked, is_whole, ..Journey::none() }
    }

    /// Of no packet.
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

    /// When it came, as far as that was seen.
    pub fn from_ns(&self) -> u64 {
        self.steps.first().map_or(0, |step| step.at_ns)
    }

    /// When it was seen last.
    pub fn to_ns(&self) -> u64 {
        self.returned_ns.or(self.steps.last().map(|step| step.at_ns)).unwrap_or(0)
    }

    /// From its first step to its last.
    pub fn took_ns(&self) -> u64 {
        self.to_ns().saturating_sub(self.from_ns())
    }

    /// The same with what it may have waited before.
    pub fn at_most_ns(&self) -> u64 {
        self.took_ns() + self.waited_ns
    }

    /// The places that it came by, in order.
    pub fn path(&self) -> Vec<u16> {
        let mut path: Vec<u16> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            // A stage is entered and left, a ring filled and emptied.
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
            // Who empties a ring is waited for.
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
