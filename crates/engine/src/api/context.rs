//! [`StageContext`]: a stage's place in the plan, and the plan's parameters and links of it, as its
//! factory sees them.

use std::cell::RefCell;

use serde::de::DeserializeOwned;
use verbline_mem::ConnectionId;
use verbline_plan::{Diagnostic, Params, Plan, StageSpec};

use crate::api::outputs::OutId;
use crate::errors::error::StageError;
use crate::operations::region::Region;
use crate::stats::clock::Clock;
use crate::stats::counter::Counter;
use crate::stats::own_figures::OwnFigures;
use crate::stats::times::Histogram;

/// What a factory is given: the stage's place in the plan.
#[derive(Debug)]
pub struct StageContext<'a> {
    plan: &'a Plan,
    stage: &'a verbline_plan::Stage,
    spec: StageSpec,
    clock: &'a Clock,
    regions: &'a [Region],
    own: RefCell<OwnFigures>,
    ports: RefCell<Vec<u16>>,
}

impl<'a> StageContext<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        stage: &'a verbline_plan::Stage,
        spec: StageSpec,
        clock: &'a Clock,
        regions: &'a [Region],
    ) -> StageContext<'a> {
        StageContext { plan, stage, spec, clock, regions, own: RefCell::default(), ports: RefCell::default() }
    }

    pub(crate) fn spec(&self) -> &StageSpec {
        &self.spec
    }

    /// The stage's name in the plan.
    pub fn name(&self) -> &'a str {
        &self.stage.name
    }

    /// The kind that the plan says it is.
    pub fn kind(&self) -> &'a str {
        &self.stage.kind
    }

    /// The name of the lcore that will run it.
    pub fn lcore(&self) -> &'a str {
        &self.plan[self.stage.lcore].name
    }

    /// The most packets that the lcore takes from a queue at once.
    pub fn burst(&self) -> usize {
        self.plan[self.stage.lcore].burst_packets as usize
    }

    /// The most packets that one call of [`Stage::process`](crate::Stage::process) is given.
    pub fn batch_max(&self) -> usize {
        self.stage.batch_packets as usize
    }

    /// The pool that [`Outputs::alloc`](crate::Outputs::alloc) takes from, as the plan describes
    /// it.
    pub fn pool(&self) -> Option<&'a verbline_plan::Pool> {
        self.stage.pool.map(|id| &self.plan[id])
    }

    /// How many timers the stage may have armed at once
    /// ([`Outputs::arm_timer`](crate::Outputs::arm_timer)): `timers_max` in the plan.
    pub fn timers_max(&self) -> usize {
        self.stage.timers_max as usize
    }

    /// The region of this name, which the plan gives to this stage (`regions`). Its memory is there
    /// once the runtime is built, not in the factory.
    ///
    /// # Errors
    /// The plan gives this stage no such region.
    pub fn region(&self, name: &str) -> Result<Region, StageError> {
        let owned = self.stage.regions.iter().map(|id| &self.regions[id.index()]);
        owned.clone().find(|region| region.name() == name).cloned().ok_or_else(|| {
            let names: Vec<_> = owned.map(Region::name).collect();
            let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            format!("needs the region `{name}`, and the plan gives it {has}; write `regions = [\"{name}\"]`").into()
        })
    }

    /// The output of this name; `None` if the kind declares none of it.
    pub fn output(&self, name: &str) -> Option<OutId> {
        self.spec.outputs.iter().position(|output| *output == name).map(|index| OutId(index as u16))
    }

    /// The number that packets received by this port carry
    /// ([`Packet::port`](verbline_mem::Packet::port)). A stage that asks for a port of its lcore is
    /// told what happens to it ([`Stage::port_event`](crate::Stage::port_event)), whether or not
    /// they lead to one another. A port of any lcore has a number: packets of another lcore's never
    /// come here.
    pub fn port(&self, name: &str) -> Option<u16> {
        let place = self.plan.ports().iter().position(|port| port.name == name).map(|index| index as u16);
        self.ports.borrow_mut().extend(place);
        place
    }

    /// A group of a port's `send_to`, as a packet says that it goes there
    /// ([`Packet::set_connection`](verbline_mem::Packet::set_connection)); without that it goes to
    /// the first. `None` if the plan has no such port, or the port no such group.
    pub fn group(&self, port: &str, group: &str) -> Option<ConnectionId> {
        let port = self.plan.ports().iter().find(|known| known.name == port)?;
        let place = port.send_to.iter().position(|known| known.to_string() == group)?;
        ConnectionId::new(port.id.index() as u16, place as u16, 1)
    }

    /// The stage's `params`, as the app's own type. An error says which key is wrong, and where.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T, Diagnostic> {
        self.stage.params.parse()
    }

    /// The stage's `params` themselves, e.g. to refuse a value that only the app can judge.
    pub fn raw_params(&self) -> &'a Params {
        self.stage.params.note_asked();
        &self.stage.params
    }

    /// Refuses any key in `params`: for a kind that has none. Where a kind that opens nothing asks
    /// for none, this is done for it; one that opens something might ask for them then, which a
    /// check can't know.
    ///
    /// # Errors
    /// The first key, and where it is.
    pub fn no_params(&self) -> Result<(), Diagnostic> {
        self.stage.params.read_none(&format!("stage kind `{}`", self.kind()))
    }

    /// A section of the plan, as the app's own type; it must have been registered with
    /// [`Registry::section`](crate::Registry::section).
    pub fn section<T: DeserializeOwned>(&self, name: &str) -> Result<T, StageError> {
        Ok(self.raw_section(name)?.parse()?)
    }

    /// A section as the plan has it, keys of any type: for what no type of the app's stands for.
    pub fn raw_section(&self, name: &str) -> Result<&'a Params, StageError> {
        self.plan.section(name).ok_or_else(|| {
            format!("stage kind `{}` reads the section [{name}], which the app has not registered", self.kind()).into()
        })
    }

    /// The plan that runs, proved and complete: what this stage's neighbours are, and their sums.
    pub fn plan(&self) -> &'a Plan {
        self.plan
    }

    /// The runtime's clock; its ticks are those of [`Outputs::now_ns`](crate::Outputs::now_ns).
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// A counter of the stage's own, shown live in the report. The same name gives the same
    /// counter.
    pub fn counter(&self, name: impl Into<String>) -> Counter {
        self.own.borrow_mut().counter(name.into())
    }

    /// A histogram of times that the stage measures, e.g. from a request to its answer; shown live
    /// with its percentiles, each known to a quarter. The same name gives the same histogram.
    pub fn histogram(&self, name: impl Into<String>) -> Histogram {
        self.own.borrow_mut().histogram(name.into())
    }

    /// Its own figures, and the ports that it asked for.
    pub(crate) fn into_parts(self) -> (OwnFigures, Vec<u16>) {
        (self.own.into_inner(), self.ports.into_inner())
    }
}
