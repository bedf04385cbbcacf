//! The sinks of one lcore, by the targets of its plan.

use verbline_plan::{Plan, Target, WhenFull};

use crate::api::outputs::Output;
use crate::api::spread::Spread;
use crate::ports::sink::{Link, Sink};

/// The sinks of one lcore, and the target of each.
pub(super) struct Sinks {
    pub(super) targets: Vec<Target>,
    pub(super) sinks: Vec<Sink>,
}

impl Sinks {
    /// Plans have far fewer sinks per lcore than a `u16` counts; `LcoreBuilder::sinks` checks it.
    pub(super) fn find(&self, target: Target) -> Option<usize> {
        self.targets.iter().position(|known| *known == target)
    }

    /// The sink of a target that the plan has put on this lcore.
    pub(super) fn index(&self, target: Target) -> usize {
        self.find(target).expect("a plan links only what is on one lcore, and every such target has a sink")
    }

    pub(super) fn link(&self, target: Target) -> Link {
        match target {
            Target::Drop => Link::Drop,
            target => Link::Sink(self.index(target) as u16),
        }
    }

    pub(super) fn output(&self, target: Target, plan: &Plan) -> Output {
        match target {
            Target::Drop => Output::Drop,
            Target::Spread(id) => {
                let places = plan[id].to.iter().map(|place| self.index(*place) as u16);
                Output::Spread(Box::new(Spread::new(plan[id].by, places.collect())))
            }
            Target::Ring(id) if plan[id].full == WhenFull::Displace => Output::Displacing(self.index(target) as u16),
            target => Output::Sink(self.index(target) as u16),
        }
    }
}
