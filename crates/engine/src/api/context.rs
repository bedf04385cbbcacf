//! [`StageContext`]: the factory's view of a stage: its place, parameters and links in the plan.

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

/// The argument of a factory: the stage's place in the plan.
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

    /// The stage's kind in the plan (`use`).
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

    /// The plan's description of the stage's pool, from which
    /// [`Outputs::alloc`](crate::Outputs::alloc) takes.
    pub fn pool(&self) -> Option<&'a verbline_plan::Pool> {
        self.stage.pool.map(|id| &self.plan[id])
    }

    /// The number of timers that the stage may have armed at once
    /// ([`Outputs::arm_timer`](crate::Outputs::arm_timer)): `timers_max` in the plan.
    pub fn timers_max(&self) -> usize {
        self.stage.timers_max as usize
    }

    /// The region of this name, if the plan assigns it to this stage (`regions`). Its memory exists
    /// once the runtime is built, not yet in the factory.
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

    /// The number of a port, which the packets that it received carry
    /// ([`Packet::port`](verbline_mem::Packet::port)). A stage that asks for a port of its lcore
    /// hears of the port's changes ([`Stage::port_event`](crate::Stage::port_event)), even if no
    /// link connects them. Ports of other lcores have numbers too, but their packets never come
    /// here.
    pub fn port(&self, name: &str) -> Option<u16> {
        let place = self.plan.ports().iter().position(|port| port.name == name).map(|index| index as u16);
        self.ports.borrow_mut().extend(place);
        place
    }

    /// A group of a port's `send_to`, as the destination of a packet
    /// ([`Packet::set_connection`](verbline_mem::Packet::set_connection)). A packet without a
    /// destination goes to the first group. `None` if the plan has no such port, or the port no
    /// such group.
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

    /// Refuses any key in `params`: for a kind without parameters. The engine does this for a kind
    /// that opens nothing and reads no `params`. A kind that opens something might read them then,
    /// which a check can't know.
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

    /// A section with keys of any type, as the plan has it: for sections that fit no type of the
    /// app.
    pub fn raw_section(&self, name: &str) -> Result<&'a Params, StageError> {
        self.plan.section(name).ok_or_else(|| {
            format!("stage kind `{}` reads the section [{name}], which the app has not registered", self.kind()).into()
        })
    }

    /// The running plan, proved and complete: this stage's neighbours, and the plan's sums.
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

    /// The stage's own figures, and the ports that it asked for.
    pub(crate) fn into_parts(self) -> (OwnFigures, Vec<u16>) {
        (self.own.into_inner(), self.ports.into_inner())
    }
}
