//! The owner's side of a trace: begins on all lcores, hands out the recorded events, counts lost
//! turns, and ends.

use std::num::NonZeroU32;
use std::sync::Arc;

use verbline_ring::Consumer;

use crate::run::attachment::Attachment;
use crate::run::observed::Observed;
use crate::stats::clock::{Clock, Tick};
use crate::stats::counter::Shared;
use crate::stats::snapshot::RunStats;
use crate::trace::event::{Told, TraceEvent};
use crate::trace::places::Places;
use crate::trace::recorder::{Recorder, RecorderEnds};
use crate::trace::spec::{TraceError, TraceSpec};
use crate::trace::windows::Windows;

/// A trace of a run, from another thread ([`Observer::trace`](crate::Observer::trace)). Dropping it
/// calls [`Trace::end`]. It does not keep a run alive.
#[derive(Debug)]
pub struct Trace {
    /// Ends before the lanes go.
    recorders: Attachment<Recorder>,
    lcores: Vec<String>,
    places: Vec<TracePlace>,
    lanes: Vec<Lane>,
    one_in: Option<NonZeroU32>,
    clock: Clock,
}

/// A place that events name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracePlace {
    /// `stage.NAME`, `port.NAME`, `ring.NAME` or `injector.NAME`.
    pub name: String,
    /// The lcore that runs the stage, owns the port, or empties the ring: an index into
    /// [`Trace::lcores`].
    pub lcore: usize,
}

/// The rings and counters between the trace and one lcore.
#[derive(Debug)]
struct Lane {
    events: Consumer<TraceEvent>,
    told: Shared<Told>,
}

impl Trace {
    pub(super) fn begin(observed: &Arc<Observed>, spec: &TraceSpec) -> Result<Trace, TraceError> {
        let stats = &observed.stats;
        let places = places(stats);
        if places.len() >= usize::from(u16::MAX) {
            return Err(TraceError::Invalid { why: format!("the plan has {} places, too many", places.len()) });
        }
        let recorders = Attachment::claim(observed, |control| &control.traces).ok_or(TraceError::Busy)?;
        let lcores: Vec<String> = stats.lcores.iter().map(|lcore| lcore.known.name.clone()).collect();
        if let Some(late) = (0..lcores.len()).find(|lcore| !recorders.is_taken(*lcore)) {
            return Err(TraceError::LcoreLate { lcore: lcores[late].clone() });
        }
        let windows = spec.one_in.map(|one_in| Arc::new(Windows::new(one_in)));
        let ends = (0..lcores.len()).map(|_| {
            let (filter, windows) = (spec.filter.clone(), windows.clone());
            RecorderEnds::new(known_places(stats), &stats.pools, filter, windows, stats.clock.clone())
        });
        let (lanes, parts) = ends
            .enumerate()
            .map(|(lcore, RecorderEnds { recorder, events, told })| (Lane { events, told }, (lcore, recorder)))
            .unzip();
        let (one_in, clock) = (spec.one_in, stats.clock.clone());
        let mut trace = Trace { lcores, places, lanes, recorders, one_in, clock };
        trace.recorders.begin(parts);
        Ok(trace)
    }

    /// The names of the lcores.
    pub fn lcores(&self) -> &[String] {
        &self.lcores
    }

    /// The places, indexed by [`TraceEvent::place`].
    pub fn places(&self) -> &[TracePlace] {
        &self.places
    }

    /// The recorded share of the time: one millisecond in this many; `None`: all
    /// ([`TraceSpec::one_in`]).
    pub fn one_in(&self) -> Option<NonZeroU32> {
        self.one_in
    }

    /// Hands each waiting event to `each`, with its lcore; those of one lcore in order. Returns
    /// their number.
    pub fn take(&mut self, mut each: impl FnMut(usize, TraceEvent)) -> usize {
        let mut taken = 0;
        for (lcore, Lane { events, .. }) in self.lanes.iter_mut().enumerate() {
            let waiting = events.len();
            taken += events.pop_into(waiting, |event| each(lcore, event));
        }
        taken
    }

    /// The number of an lcore's turns that were lost so far because too many events waited.
    pub fn lost(&self, lcore: usize) -> u64 {
        self.lanes[lcore].told.lost.value()
    }

    /// After [`Trace::end`]: the current turn of each lcore that has not heard of the end, as if
    /// the turn ended now. The packets' ways in it are unknown.
    pub fn standing(&self) -> Vec<(usize, Vec<TraceEvent>)> {
        let late = (0..self.lanes.len()).filter(|lcore| !self.is_over() && !self.recorders.is_taken(*lcore));
        late.filter_map(|lcore| Some((lcore, self.lanes[lcore].told.standing(self.now_ns())?))).collect()
    }

    /// The time, by the clock of the events.
    pub fn now_ns(&self) -> Tick {
        self.clock.now_ns()
    }

    /// Whether the run is over, so that no more events will come.
    pub fn is_over(&self) -> bool {
        self.recorders.is_over()
    }

    /// Ends it: waits until each lcore has heard of it, for a second at most. [`Trace::take`] then
    /// returns the rest.
    pub fn end(&mut self) {
        self.recorders.end();
    }
}

/// All places, in the order of their numbers: stages, ports, rings, injectors.
fn places(stats: &RunStats) -> Vec<TracePlace> {
    let lcore = |name: &str| stats.lcores.iter().position(|lcore| lcore.known.name == name).unwrap_or_default();
    let place = |kind: &str, name: &str, of: &str| TracePlace { name: format!("{kind}.{name}"), lcore: lcore(of) };
    let stages = stats.stages.iter().map(|stage| place("stage", &stage.known.name, &stage.known.lcore));
    let ports = stats.ports.iter().map(|port| place("port", &port.known.name, &port.known.lcore));
    let rings = stats.rings.iter().map(|ring| place("ring", &ring.known.name, &ring.known.consumer));
    let injectors = stats.injectors.iter().map(|one| place("injector", &one.known.name, &one.known.lcore));
    stages.chain(ports).chain(rings).chain(injectors).collect()
}

/// The places as an lcore identifies them.
fn known_places(stats: &RunStats) -> Places {
    let ports_from = stats.stages.len();
    let rings_from = ports_from + stats.ports.len();
    let injectors_from = rings_from + stats.rings.len();
    let lanes = || {
        let rings = stats.rings.iter().enumerate();
        rings.flat_map(|(place, ring)| ring.lanes.iter().map(move |lane| (lane, (rings_from + place) as u16)))
    };
    let injected = stats.injectors.iter().enumerate();
    let injected = injected.map(|(place, one)| (Shared::clone(&one.consumer), (injectors_from + place) as u16));
    let stages = stats.stages.iter().enumerate();
    Places {
        stages: stages.map(|(place, stage)| (Shared::clone(&stage.stats), place as u16)).collect(),
        filled: lanes().map(|(lane, place)| (Shared::clone(&lane.producer), place)).collect(),
        emptied: lanes().map(|(lane, place)| (Shared::clone(&lane.consumer), place)).chain(injected).collect(),
        ports_from: ports_from as u16,
    }
}
