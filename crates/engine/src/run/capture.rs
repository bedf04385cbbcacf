//! A capture as its owner holds it: begins on the lcores concerned, hands out what they copied,
//! counts what was lost, and ends.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use verbline_ring::{Consumer, Producer};

use crate::capture::spec::{CaptureError, CaptureSpec};
use crate::capture::tap::{Captured, Tap, TapCounts, TapEnds, TapPoint};
use crate::run::attachment::Attachment;
use crate::run::observed::Observed;
use crate::stats::clock::Tick;
use crate::stats::counter::{Shared, shared};
use crate::stats::snapshot::RunStats;

/// A capture of a run, from another thread ([`Observer::capture`](crate::Observer::capture)).
/// Dropping it calls [`Capture::end`]. It keeps no run alive.
#[derive(Debug)]
pub struct Capture {
    /// Ends before the lanes go.
    taps: Attachment<Tap>,
    points: Vec<String>,
    lanes: Vec<Lane>,
    /// What the run's clock counts from, in nanoseconds since 1970.
    origin_unix_ns: u64,
}

/// What there is between the capture and one lcore.
#[derive(Debug)]
struct Lane {
    kept: Consumer<Captured>,
    free: Producer<Box<[u8]>>,
    /// By the places of the points.
    counts: Vec<(usize, Shared<TapCounts>)>,
}

/// A point of a plan where there can be a capture.
struct Place {
    name: String,
    lcore: usize,
    port: u16,
}

impl Capture {
    pub(super) fn begin(observed: &Arc<Observed>, spec: &CaptureSpec) -> Result<Capture, CaptureError> {
        spec.check()?;
        let places = chosen(&observed.stats, &spec.points)?;
        let taps = Attachment::claim(observed, |control| &control.captures).ok_or(CaptureError::Busy)?;
        let clock = &observed.stats.clock;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ns = u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX);
        let mut capture = Capture {
            points: places.iter().map(|place| place.name.clone()).collect(),
            lanes: Vec::new(),
            taps,
            origin_unix_ns: unix_ns.saturating_sub(clock.now_ns()),
        };
        let mut parts = Vec::new();
        for lcore in 0..observed.stats.lcores.len() {
            let here: Vec<(usize, &Place)> =
                places.iter().enumerate().filter(|(_, place)| place.lcore == lcore).collect();
            if here.is_empty() {
                continue;
            }
            if !capture.taps.is_taken(lcore) {
                let lcore = observed.stats.lcores[lcore].known.name.clone();
                return Err(CaptureError::LcoreLate { lcore });
            }
            let (lane, tap) = lane(observed, spec, &here);
            capture.lanes.push(lane);
            parts.push((lcore, tap));
        }
        capture.taps.begin(parts);
        Ok(capture)
    }

    /// Where it captures: [`Captured::point`] is a place in this.
    pub fn points(&self) -> &[String] {
        &self.points
    }

    /// Hands each packet that waits to `each`, those of one lcore in order. Says how many.
    pub fn take(&mut self, mut each: impl FnMut(&Captured)) -> usize {
        let mut taken = 0;
        for Lane { kept, free, .. } in &mut self.lanes {
            let waiting = kept.len();
            for captured in kept.pop_iter(waiting) {
                each(&captured);
                // There is room for all buffers that there are.
                let _ = free.push(captured.buffer);
                taken += 1;
            }
        }
        taken
    }

    /// Packets that the filter let pass at a point so far, and how many of them were lost since as
    /// many waited as may.
    pub fn counts(&self, point: usize) -> (u64, u64) {
        let all = self.lanes.iter().flat_map(|lane| &lane.counts).filter(|(at, _)| *at == point);
        all.fold((0, 0), |(seen, lost), (_, counts)| (seen + counts.seen.value(), lost + counts.lost.value()))
    }

    /// A time of [`Captured::at_ns`] in nanoseconds since 1970.
    pub fn unix_ns(&self, at_ns: Tick) -> u64 {
        self.origin_unix_ns.saturating_add(at_ns)
    }

    /// Whether the run is over, so that nothing will come any more.
    pub fn is_over(&self) -> bool {
        self.taps.is_over()
    }

    /// Ends it: waits until each lcore has heard of it, for a second at most. [`Capture::take`]
    /// then gives what is left.
    pub fn end(&mut self) {
        self.taps.end();
    }
}

/// The places of a plan that these names mean; without names all ports.
fn chosen(stats: &RunStats, names: &[String]) -> Result<Vec<Place>, CaptureError> {
    let known: Vec<Place> = places(stats);
    let mut chosen: Vec<Place> = Vec::new();
    for name in names {
        let found = known.iter().find(|place| place.name == *name);
        let Some(Place { lcore, port, .. }) = found else {
            let known = known.into_iter().map(|place| place.name).collect();
            return Err(CaptureError::NoPoint { asked: name.clone(), known });
        };
        if chosen.iter().any(|place| place.name == *name) {
            return Err(CaptureError::Invalid { why: format!("{name} is named twice") });
        }
        chosen.push(Place { name: name.clone(), lcore: *lcore, port: *port });
    }
    Ok(if names.is_empty() { known } else { chosen })
}

fn places(stats: &RunStats) -> Vec<Place> {
    let lcore_of = |name: &str| stats.lcores.iter().position(|lcore| lcore.known.name == name);
    let ports = stats.ports.iter().enumerate().filter_map(|(port, entry)| {
        let lcore = lcore_of(&entry.known.lcore)?;
        Some(Place { name: format!("port.{}", entry.known.name), lcore, port: port as u16 })
    });
    ports.collect()
}

/// Everything that one lcore needs, made and touched here.
fn lane(observed: &Observed, spec: &CaptureSpec, here: &[(usize, &Place)]) -> (Lane, Tap) {
    let counts: Vec<_> = here.iter().map(|(point, _)| (*point, shared::<TapCounts>())).collect();
    let points = here.iter().zip(&counts).map(|((point, place), (_, counts))| TapPoint {
        point: *point,
        port: place.port,
        counts: Shared::clone(counts),
    });
    let TapEnds { tap, kept, free } = TapEnds::new(points.collect(), spec, observed.stats.clock.clone());
    (Lane { kept, free, counts }, tap)
}
