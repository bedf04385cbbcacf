//! The registry of an app: its stage kinds and its acceptors, each with a factory, and the sections
//! of the plan that the app reads itself.
//!
//! ```
//! use verbline_engine::{Next, OutId, Outputs, Registry, Stage, StageSpec};
//! use verbline_mem::Batch;
//!
//! /// Sends everything back where it came from.
//! struct Echo;
//!
//! impl Stage for Echo {
//!     fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
//!         out.send_batch(OutId(0), input);
//!     }
//! }
//!
//! let mut registry = Registry::new("echo");
//! let spec = StageSpec { outputs: &["back"], summary: "sends everything back", ..StageSpec::default() };
//! registry.stage("echo", spec, |_| Ok(Box::new(Echo)));
//! assert_eq!(registry.catalog().kinds[0].spec.outputs, ["back"]);
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::os::fd::AsFd;
use std::time::Duration;

use serde::de::DeserializeOwned;
use verbline_plan::{Catalog, Diagnostic, NeedsFn, Params, Plan, StageKind, StageSpec};

use crate::api::acceptor::{Acceptor, AcceptorContext};
use crate::api::outputs::OutId;
use crate::api::region::Region;
use crate::api::stage::Stage;
use crate::stats::clock::Clock;
use crate::stats::count::Counter;
use crate::stats::drop_reason::STAGE_REASONS_MAX;
use crate::waiting::fds::{FdId, FdInterest, Fds};

/// Why a factory could not make its stage. A [`Diagnostic`] (from [`StageContext::params`] or
/// [`Params::refuse`](verbline_plan::Params::refuse)) keeps its place in the plan.
pub type StageError = Box<dyn Error + Send + Sync>;

type Factory = dyn Fn(&StageContext<'_>) -> Result<Box<dyn Stage>, StageError> + Send + Sync;

/// What a port of many connections tells the listener with each of its requests: called with the
/// place of the connection ([`ConnectionId::slot`](verbline_mem::ConnectionId::slot)), on the
/// thread that makes the port's connections. At most
/// [`CONNECT_PRIVATE_BYTES`](verbline_verbs::connection::CONNECT_PRIVATE_BYTES); a request with
/// more fails, and is counted.
pub type RequestData = Box<dyn FnMut(usize) -> Vec<u8> + Send>;

pub(crate) type RequestFactory = dyn Fn(&Plan, &verbline_plan::Port) -> Option<RequestData> + Send + Sync;

pub(crate) type AcceptorFactory = dyn Fn(&AcceptorContext<'_>) -> Result<Box<dyn Acceptor>, StageError> + Send + Sync;

/// The kinds of stages, the acceptors and the sections that an app knows.
pub struct Registry {
    app: &'static str,
    kinds: BTreeMap<&'static str, Kind>,
    acceptors: BTreeMap<&'static str, Box<AcceptorFactory>>,
    requests: Vec<Box<RequestFactory>>,
    sections: Vec<&'static str>,
}

pub(crate) struct Kind {
    /// What the plan is checked against.
    pub(crate) checked: StageKind,
    pub(crate) make: Box<Factory>,
}

impl Registry {
    /// An empty registry of the app of this name; a plan that says `app = "…"` must say this one.
    pub fn new(app: &'static str) -> Registry {
        Registry { app, kinds: BTreeMap::new(), acceptors: BTreeMap::new(), requests: Vec::new(), sections: Vec::new() }
    }

    /// Registers a kind of stage, for `use = "name"`. The factory runs once for each stage of that
    /// kind, when the runtime is built, on the thread that builds it; and when a plan is only
    /// checked ([`Runtime::check`](crate::Runtime::check)), so it does no more than make the stage.
    ///
    /// # Panics
    /// If the name is taken, or the kind declares more than [`STAGE_REASONS_MAX`] drop reasons:
    /// mistakes of the app's source, not of a plan.
    pub fn stage<F>(&mut self, name: &'static str, spec: StageSpec, make: F) -> &mut Registry
    where
        F: Fn(&StageContext<'_>) -> Result<Box<dyn Stage>, StageError> + Send + Sync + 'static,
    {
        assert!(
            spec.drops.len() <= STAGE_REASONS_MAX,
            "stage kind `{name}` declares {} drop reasons, {STAGE_REASONS_MAX} at most",
            spec.drops.len()
        );
        let checked = StageKind { name, spec, needs: None };
        let previous = self.kinds.insert(name, Kind { checked, make: Box::new(make) });
        assert!(previous.is_none(), "stage kind `{name}` is registered twice");
        self
    }

    /// Registers an acceptor, for `acceptor = "name"` of a port of many connections. The factory
    /// runs once for each such port, when and where those of stages do.
    ///
    /// # Panics
    /// If the name is taken: a mistake of the app's source, not of a plan.
    pub fn acceptor<F>(&mut self, name: &'static str, make: F) -> &mut Registry
    where
        F: Fn(&AcceptorContext<'_>) -> Result<Box<dyn Acceptor>, StageError> + Send + Sync + 'static,
    {
        let previous = self.acceptors.insert(name, Box::new(make));
        assert!(previous.is_none(), "acceptor `{name}` is registered twice");
        self
    }

    /// Says what ports that make many connections tell the listener of each, where the connections
    /// differ: a queue's number, a secret of the hour. `make` runs once for each such port when the
    /// runtime is built; `None`: the port says what its plan says (`private_data`). If several are
    /// registered, the first that has something for a port has it.
    pub fn requests<F>(&mut self, make: F) -> &mut Registry
    where
        F: Fn(&Plan, &verbline_plan::Port) -> Option<RequestData> + Send + Sync + 'static,
    {
        self.requests.push(Box::new(make));
        self
    }

    /// Says what stages of a kind need beyond packets: memory, and packets of a length. The plan's
    /// sums count it, before a factory allocates any of it.
    ///
    /// # Panics
    /// If no kind of this name is registered.
    pub fn needs(&mut self, name: &str, needs: NeedsFn) -> &mut Registry {
        let kind = self.kinds.get_mut(name).unwrap_or_else(|| panic!("no stage kind `{name}` is registered"));
        kind.checked.needs = Some(needs);
        self
    }

    /// Registers a top-level table of the plan that the app reads itself, e.g. `feed` for `[feed]`.
    pub fn section(&mut self, name: &'static str) -> &mut Registry {
        if !self.sections.contains(&name) {
            self.sections.push(name);
        }
        self
    }

    /// What the plan is checked against.
    pub fn catalog(&self) -> Catalog {
        let kinds = self.kinds.values().map(|kind| kind.checked.clone()).collect();
        let acceptors = self.acceptors.keys().copied().collect();
        Catalog { app: Some(self.app), kinds, acceptors, sections: self.sections.clone() }
    }

    pub(crate) fn kind(&self, name: &str) -> Option<&Kind> {
        self.kinds.get(name)
    }

    pub(crate) fn acceptor_factory(&self, name: &str) -> Option<&AcceptorFactory> {
        self.acceptors.get(name).map(|make| &**make)
    }

    pub(crate) fn request_data(&self, plan: &Plan, port: &verbline_plan::Port) -> Option<RequestData> {
        self.requests.iter().find_map(|make| make(plan, port))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("app", &self.app)
            .field("kinds", &self.kinds.keys().collect::<Vec<_>>())
            .field("acceptors", &self.acceptors.keys().collect::<Vec<_>>())
            .field("sections", &self.sections)
            .finish()
    }
}

/// What a factory is given: the stage's place in the plan.
#[derive(Debug)]
pub struct StageContext<'a> {
    plan: &'a Plan,
    stage: &'a verbline_plan::Stage,
    spec: StageSpec,
    clock: &'a Clock,
    regions: &'a [Region],
    counters: RefCell<Vec<(String, Counter)>>,
    fds: RefCell<Option<Fds>>,
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
        let (counters, fds, ports) = (RefCell::default(), RefCell::default(), RefCell::default());
        StageContext { plan, stage, spec, clock, regions, counters, fds, ports }
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

    /// The most packets that one call of [`Stage::process`] is given.
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
    /// told what happens to it ([`Stage::port_event`]), whether or not they lead to one another.
    pub fn port(&self, name: &str) -> Option<u16> {
        let place = self.plan.ports().iter().position(|port| port.name == name).map(|index| index as u16);
        self.ports.borrow_mut().extend(place);
        place
    }

    /// The stage's `params`, as the app's own type. An error says which key is wrong, and where.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T, Diagnostic> {
        self.stage.params.parse()
    }

    /// The stage's `params` themselves, e.g. to refuse a value that only the app can judge.
    pub fn raw_params(&self) -> &'a Params {
        &self.stage.params
    }

    /// A section of the plan, as the app's own type; it must have been registered with
    /// [`Registry::section`].
    pub fn section<T: DeserializeOwned>(&self, name: &str) -> Result<T, StageError> {
        Ok(self.raw_section(name)?.parse()?)
    }

    /// A section itself.
    pub fn raw_section(&self, name: &str) -> Result<&'a Params, StageError> {
        self.plan.section(name).ok_or_else(|| {
            format!("stage kind `{}` reads the section [{name}], which the app has not registered", self.kind()).into()
        })
    }

    /// The whole plan.
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
        let name = name.into();
        let mut counters = self.counters.borrow_mut();
        if let Some((_, counter)) = counters.iter().find(|(known, _)| *known == name) {
            return counter.clone();
        }
        let counter = Counter::new();
        counters.push((name, counter.clone()));
        counter
    }

    /// Has the stage's lcore watch a descriptor: an eventfd (io_uring has one), a timerfd, a
    /// socket, a pipe. It ends the lcore's sleep when it is ready, and the stage is told
    /// ([`Stage::fd_ready`]). While the lcore is awake it looks at all descriptors of the stage
    /// (one system call for 16), as often as `look_every` says; `None`: only after a sleep that one
    /// has ended. A stage whose lcore never sleeps (`idle = "poll"`, or load without a pause) gives
    /// an interval, or reads its descriptor in its own [`Stage::poll`].
    ///
    /// The engine watches a duplicate, until the stage says
    /// [`FdNext::Unwatch`](crate::FdNext::Unwatch) or the run ends: until then the file stays open.
    ///
    /// # Errors
    /// Those of dup(2) and epoll_ctl(2): out of descriptors, or of a sort that can't be watched (a
    /// regular file).
    pub fn watch_fd(&self, fd: impl AsFd, interest: FdInterest, look_every: Option<Duration>) -> std::io::Result<FdId> {
        let mut fds = self.fds.borrow_mut();
        let fds = match &mut *fds {
            Some(fds) => fds,
            none => none.insert(Fds::new()?),
        };
        fds.watch(fd.as_fd(), interest, look_every)
    }

    /// Its counters, its descriptors, and the ports that it asked for.
    pub(crate) fn into_parts(self) -> (Vec<(String, Counter)>, Option<Fds>, Vec<u16>) {
        (self.counters.into_inner(), self.fds.into_inner(), self.ports.into_inner())
    }
}
