//! The owner's side of a capture: begins on the lcores concerned, hands out the copied packets,
//! counts lost ones, and ends.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use verbline_ring::{Consumer, Producer};

use crate::capture::spec::{CaptureError, CaptureSpec};
use crate::capture::tap::{Captured, Tap, TapCounts, TapEnds, TapPlace, TapPoint};
use crate::run::attachment::Attachment;
use crate::run::observed::Observed;
use crate::stats::clock::Tick;
use crate::stats::counter::{Shared, shared};
use crate::stats::snapshot::{OutputEntry, RunStats};

/// A capture of a run, from another thread ([`Observer::capture`](crate::Observer::capture)).
/// Dropping it calls [`Capture::end`]. It does not keep a run alive.
#[derive(Debug)]
pub struct Capture {
    /// Ends before the lanes go.
    taps: Attachment<Tap>,
    points: Vec<String>,
    /// Whether each point is a port.
    are_ports: Vec<bool>,
    lanes: Vec<Lane>,
    /// The origin of the run's clock, in nanoseconds since 1970.
    origin_unix_ns: u64,
}

/// The rings between the capture and one lcore.
#[derive(Debug)]
struct Lane {
    kept: Consumer<Captured>,
    free: Producer<Box<[u8]>>,
    /// By the indices of the points.
    counts: Vec<(usize, Shared<TapCounts>)>,
}

impl Lane {
    /// Hands each waiting packet to `each`, and returns their number.
    fn take(&mut self, each: &mut impl FnMut(&Captured)) -> usize {
        let mut taken = 0;
        // One by one: a packet's slot in the ring is free before its buffer is, so that each packet
        // the lcore copies meanwhile has a slot.
        for _ in 0..self.kept.len() {
            let Some(captured) = self.kept.pop() else { break };
            each(&captured);
            // There is room for all existing buffers.
            let _ = self.free.push(captured.buffer);
            taken += 1;
        }
        taken
    }
}

/// A point of a plan that can be captured.
#[derive(Clone)]
struct Place {
    name: String,
    lcore: usize,
    seat: Seat,
}

/// The kind of a point, with indices in the plan.
#[derive(Clone, Copy)]
enum Seat {
    Port(u16),
    Stage(usize),
    Output(usize, usize),
    Ring(usize),
    Injector(usize),
}

impl Place {
    fn is_port(&self) -> bool {
        matches!(self.seat, Seat::Port(_))
    }
}

impl Seat {
    /// The point as its lcore identifies it.
    fn known_as(self, stats: &RunStats) -> TapPlace {
        let stage = |stage: usize| Shared::clone(&stats.stages[stage].stats);
        match self {
            Seat::Port(port) => TapPlace::Port(port),
            Seat::Stage(at) => TapPlace::Stage { stats: stage(at), output: None },
            Seat::Output(at, output) => TapPlace::Stage { stats: stage(at), output: Some(output) },
            Seat::Ring(ring) => {
                TapPlace::Ring(stats.rings[ring].lanes.iter().map(|lane| Shared::clone(&lane.consumer)).collect())
            }
            Seat::Injector(injector) => TapPlace::Ring(vec![Shared::clone(&stats.injectors[injector].consumer)]),
        }
    }
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
            are_ports: places.iter().map(Place::is_port).collect(),
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

    /// The points of the capture, indexed by [`Captured::point`].
    pub fn points(&self) -> &[String] {
        &self.points
    }

    /// Whether this point is a port, whose packets come or go by a queue pair.
    pub fn is_port(&self, point: usize) -> bool {
        self.are_ports[point]
    }

    /// Hands each waiting packet to `each`, those of one lcore in order. Returns their number.
    pub fn take(&mut self, mut each: impl FnMut(&Captured)) -> usize {
        self.lanes.iter_mut().map(|lane| lane.take(&mut each)).sum()
    }

    /// The number of packets that passed the filter at a point so far, and the number of these that
    /// were lost because too many waited.
    pub fn counts(&self, point: usize) -> (u64, u64) {
        let all = self.lanes.iter().flat_map(|lane| &lane.counts).filter(|(at, _)| *at == point);
        all.fold((0, 0), |(seen, lost), (_, counts)| (seen + counts.seen.value(), lost + counts.lost.value()))
    }

    /// A time of [`Captured::at_ns`] in nanoseconds since 1970.
    pub fn unix_ns(&self, at_ns: Tick) -> u64 {
        self.origin_unix_ns.saturating_add(at_ns)
    }

    /// Whether the run is over, so that no more packets will come.
    pub fn is_over(&self) -> bool {
        self.taps.is_over()
    }

    /// Ends it: waits until each lcore has heard of it, for a second at most. [`Capture::take`]
    /// then returns the rest.
    pub fn end(&mut self) {
        self.taps.end();
    }
}

/// The points with these names; without names all ports.
fn chosen(stats: &RunStats, names: &[String]) -> Result<Vec<Place>, CaptureError> {
    let known = places(stats);
    if names.is_empty() {
        return Ok(known.into_iter().filter(Place::is_port).collect());
    }
    let invalid = |why| Err(CaptureError::Invalid { why });
    let mut chosen: Vec<Place> = Vec::new();
    for name in names {
        let Some(found) = known.iter().find(|place| place.name == *name) else {
            let known = known.into_iter().map(|place| place.name).collect();
            return Err(CaptureError::NoPoint { asked: name.clone(), known });
        };
        if chosen.iter().any(|place| place.name == *name) {
            return invalid(format!("{name} is named twice"));
        }
        if let Seat::Output(stage, output) = found.seat
            && let Some(other) = mixed(&stats.stages[stage].outputs, output)
        {
            let stage = &stats.stages[stage].known.name;
            return invalid(format!(
                "what goes by {name} can't be told from what goes by the stage's output {other}, which leads to the \
                 same place: capture at stage.{stage}"
            ));
        }
        chosen.push(found.clone());
    }
    Ok(chosen)
}

/// The name of another output that leads to one of the same places as this output.
fn mixed(outputs: &[OutputEntry], output: usize) -> Option<&'static str> {
    let here = &outputs[output].leads_to;
    let mut others = outputs.iter().enumerate().filter(|(place, _)| *place != output);
    others.find(|(_, other)| other.leads_to.iter().any(|place| here.contains(place))).map(|(_, other)| other.name)
}

/// All points that can be captured: a trace's names, and the outputs of stages.
fn places(stats: &RunStats) -> Vec<Place> {
    let place = |name: String, of: &str, seat: Seat| {
        let lcore = stats.lcores.iter().position(|lcore| lcore.known.name == of)?;
        Some(Place { name, lcore, seat })
    };
    let ports = stats.ports.iter().enumerate().filter_map(|(port, entry)| {
        place(format!("port.{}", entry.known.name), &entry.known.lcore, Seat::Port(port as u16))
    });
    let sends = stats.stages.iter().enumerate().filter(|(_, entry)| !entry.outputs.is_empty());
    let stages = sends.flat_map(|(stage, entry)| {
        let (name, lcore) = (format!("stage.{}", entry.known.name), &entry.known.lcore);
        let outputs = entry.outputs.iter().enumerate();
        let outputs = outputs.map(|(output, one)| (format!("{name}.{}", one.name), Seat::Output(stage, output)));
        let all: Vec<_> = std::iter::once((name.clone(), Seat::Stage(stage))).chain(outputs).collect();
        all.into_iter().filter_map(move |(name, seat)| place(name, lcore, seat))
    });
    let rings = stats.rings.iter().enumerate().filter_map(|(ring, entry)| {
        place(format!("ring.{}", entry.known.name), &entry.known.consumer, Seat::Ring(ring))
    });
    let injectors = stats.injectors.iter().enumerate().filter_map(|(injector, entry)| {
        place(format!("injector.{}", entry.known.name), &entry.known.lcore, Seat::Injector(injector))
    });
    ports.chain(stages).chain(rings).chain(injectors).collect()
}

/// Makes and touches all memory for one lcore.
fn lane(observed: &Observed, spec: &CaptureSpec, here: &[(usize, &Place)]) -> (Lane, Tap) {
    let stats = &observed.stats;
    let counts: Vec<_> = here.iter().map(|(point, _)| (*point, shared::<TapCounts>())).collect();
    let points = here.iter().zip(&counts).map(|((point, place), (_, counts))| TapPoint {
        point: *point,
        place: place.seat.known_as(stats),
        counts: Shared::clone(counts),
    });
    let TapEnds { tap, kept, free } = TapEnds::new(points.collect(), spec, stats.clock.clone());
    (Lane { kept, free, counts }, tap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;
    use crate::stats::counters::RingConsumerStats;

    #[test]
    fn what_comes_while_packets_are_taken_waits_or_is_lost_and_nothing_else() {
        let (rig, ring, counts) = (Rig::new(4), shared::<RingConsumerStats>(), shared::<TapCounts>());
        let place = TapPlace::Ring(vec![Shared::clone(&ring)]);
        let points = Box::new([TapPoint { point: 0, place, counts: Shared::clone(&counts) }]);
        let spec = CaptureSpec { snap_bytes: 8, depth_packets: 2, ..CaptureSpec::default() };
        let TapEnds { mut tap, kept, free } = TapEnds::new(points, &spec, rig.time.clock());
        let mut lane = Lane { kept, free, counts: vec![(0, counts)] };
        let packet = rig.pool.cache(0).get().unwrap();
        let mut comes = || tap.popped(&ring, std::slice::from_ref(&packet));
        comes();
        comes();
        // The second of these finds the buffer of the first packet.
        assert_eq!(lane.take(&mut |_| comes()), 2);
        assert_eq!(lane.take(&mut |_| {}), 1);
        let counts = &lane.counts[0].1;
        assert_eq!((counts.seen.value(), counts.lost.value()), (4, 1), "three were taken");
    }

    #[test]
    fn outputs_that_lead_to_one_place_can_not_be_told_apart_and_those_that_drop_can() {
        let entry = |name, leads_to: &[&str]| OutputEntry {
            name,
            leads_to: leads_to.iter().map(|place| (*place).to_owned()).collect(),
        };
        let outputs = [
            entry("a", &["ring.x", "ring.y"]),
            entry("b", &["ring.z"]),
            entry("c", &["ring.y"]),
            entry("d", &[]),
            entry("e", &[]),
        ];
        let others: Vec<_> = (0..outputs.len()).map(|output| mixed(&outputs, output)).collect();
        assert_eq!(others, [Some("c"), None, Some("a"), None, None]);
    }
}
