//! The lcore's part of a capture: it copies packets that pass a port, leave a stage or come by a
//! ring into buffers that were made before, and hands them to the thread that takes them.
//!
//! ```text
//!   thread of the capture                lcore
//!   buffers ────── free ───────────────▶ copies into one, up to the snap length
//!   reads, and gives it back ◀── kept ── hands it over
//! ```
//!
//! Guarantees: nothing is allocated or freed on the lcore, and it waits for nobody: where no buffer
//! is free the packet is lost to the capture, and counted. A packet is copied once a point: when a
//! port has received it or has taken it to be posted, when the call of a stage that sent it has
//! returned, or when it was taken from a ring. An lcore without a capture runs code that knows
//! nothing of one, but for one question a batch at ports with many connections or operations.
//!
//! What a stage sent is seen by the sinks, as a trace sees it: what a sink has more after the call.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use verbline_mem::{Batch, Packet};
use verbline_ring::{Consumer, Producer, spsc};
use verbline_verbs::datagram::AhSpec;
use verbline_verbs::{Completion, Endpoint, QueuePair, Transport};

use crate::capture::spec::{CaptureFilter, CaptureSpec};
use crate::stats::clock::{Clock, Tick};
use crate::stats::counter::{Count, Shared};
use crate::stats::counters::{RingConsumerStats, StageStats};

/// Which way a captured packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureDirection {
    /// It was received.
    Received,
    /// It was posted to be sent.
    Sent,
    /// It went from one place of the run to another: a stage sent it, or it was taken from a ring
    /// or an injector.
    Within,
}

/// The queue pair that a captured packet came or went by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturePath {
    /// Its transport.
    pub transport: Transport,
    /// The queue pair of this run.
    pub local: Endpoint,
    /// The one at the other end, as far as it is known.
    pub peer: Option<Endpoint>,
}

impl CapturePath {
    pub(crate) fn of(qp: &QueuePair) -> CapturePath {
        CapturePath { transport: qp.transport(), local: qp.endpoint(), peer: qp.peer() }
    }

    /// Of a message that was received: on UD the completion says who sent it.
    fn back(self, completion: &Completion, packet: &Packet) -> CapturePath {
        if self.transport != Transport::Ud {
            return self;
        }
        let AhSpec { gid, lid, .. } = AhSpec::reply(completion, packet).unwrap_or_default();
        let (qpn, qkey) = (completion.src_qp(), self.local.qkey);
        CapturePath { peer: Some(Endpoint { qpn, psn: 0, gid: gid.unwrap_or_default(), lid, qkey }), ..self }
    }
}

/// A packet that was captured.
#[derive(Debug)]
pub struct Captured {
    /// Where: its place in [`Capture::points`](crate::Capture::points).
    pub point: usize,
    /// When it was copied, by the run's clock.
    pub at_ns: Tick,
    /// Bytes of the whole packet.
    pub len_bytes: usize,
    /// Which way it went.
    pub direction: CaptureDirection,
    /// By which queue pair; `None` of one that the port does not have yet.
    pub path: Option<CapturePath>,
    /// The immediate data that it came with.
    pub immediate: Option<u32>,
    kept_bytes: usize,
    pub(crate) buffer: Box<[u8]>,
}

impl Captured {
    /// Its first bytes, up to the snap length.
    pub fn data(&self) -> &[u8] {
        &self.buffer[..self.kept_bytes]
    }
}

/// What one lcore counts at one point.
#[derive(Debug, Default)]
pub(crate) struct TapCounts {
    /// Packets that passed the filter.
    pub(crate) seen: Count,
    /// Those of them for which no buffer was free.
    pub(crate) lost: Count,
}

/// A point of a capture on this lcore.
#[derive(Debug)]
pub(crate) struct TapPoint {
    /// Its place among the points of the capture.
    pub(crate) point: usize,
    pub(crate) place: TapPlace,
    pub(crate) counts: Shared<TapCounts>,
}

/// Where packets are copied, as the lcore knows that place.
#[derive(Debug)]
pub(crate) enum TapPlace {
    /// A port, by its place in the plan.
    Port(u16),
    /// What the stage with these counters sends, over one of its outputs or over all.
    Stage { stats: Shared<StageStats>, output: Option<usize> },
    /// What is taken from a ring, by the counters of its lanes, or from an injector.
    Ring(Vec<Shared<RingConsumerStats>>),
}

/// A sink, as a capture looks at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TapSink<'a> {
    pub(crate) batch: &'a Batch,
    /// Packets that later ones have put out of it so far.
    pub(crate) displaced: u64,
}

/// Sinks of an lcore whose packets are looked at; a plan has fewer.
const SINKS_MAX: usize = 4_096;

/// Packets without a buffer of which it is kept, until they are posted, that they are lost.
const LOST_ROOM: usize = 4096;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Tap {
    points: Box<[TapPoint]>,
    snap_bytes: usize,
    filter: Option<CaptureFilter>,
    kept: Producer<Captured>,
    free: Consumer<Box<[u8]>>,
    /// Copies of packets that are about to be posted, each with its place among them.
    offered: Vec<(usize, Captured)>,
    /// The places of those for which there was no buffer.
    unkept: Vec<usize>,
    /// Buffers of packets that were not posted.
    spare: Vec<Box<[u8]>>,
    /// What each sink had taken, ever, before the stage was called that is being called.
    taken: Vec<u64>,
    clock: Clock,
}

/// A tap, and what the thread of the capture has of it.
#[derive(Debug)]
pub(crate) struct TapEnds {
    pub(crate) tap: Tap,
    pub(crate) kept: Consumer<Captured>,
    pub(crate) free: Producer<Box<[u8]>>,
}

impl TapEnds {
    /// With all its buffers, made and touched here.
    pub(crate) fn new(points: Box<[TapPoint]>, spec: &CaptureSpec, clock: Clock) -> TapEnds {
        let CaptureSpec { snap_bytes, depth_packets: depth, .. } = *spec;
        let (kept, taken) = spsc(depth);
        let (mut given, free) = spsc(depth);
        given.push_iter(depth, (0..depth).map(|_| vec![0; snap_bytes].into_boxed_slice()));
        let tap = Tap {
            points,
            snap_bytes,
            filter: spec.filter.clone(),
            kept,
            free,
            offered: Vec::with_capacity(depth),
            unkept: Vec::with_capacity(LOST_ROOM),
            spare: Vec::with_capacity(depth),
            taken: Vec::with_capacity(SINKS_MAX),
            clock,
        };
        TapEnds { tap, kept: taken, free: given }
    }
}

/// What the packets of a batch have in common.
#[derive(Clone, Copy, Debug)]
struct Seen {
    point: usize,
    at_ns: Tick,
    direction: CaptureDirection,
    path: Option<CapturePath>,
    immediate: Option<u32>,
}

impl Tap {
    /// Copies a packet that a port has received.
    pub(crate) fn received(&mut self, port: u16, packet: &Packet, path: Option<CapturePath>, completion: &Completion) {
        let Some(at) = self.place_of(port).filter(|_| self.wants(packet)) else { return };
        let path = path.map(|path| path.back(completion, packet));
        let immediate = completion.imm();
        let seen = Seen { direction: CaptureDirection::Received, path, immediate, ..self.seen(at) };
        match self.copy(packet, seen) {
            Some(captured) => self.keep(at, captured),
            None => self.points[at].lose(),
        }
    }

    /// Copies packets that a port is about to post: [`Tap::posted`] says how many of them it did.
    pub(crate) fn offer(&mut self, port: u16, packets: &[Packet], qp: &QueuePair) {
        let Some(at) = self.place_of(port) else { return };
        let seen = Seen { path: Some(CapturePath::of(qp)), ..self.seen(at) };
        // What the send queue has no room for is offered again.
        for (place, packet) in packets.iter().enumerate().take(qp.send_room()) {
            if !self.wants(packet) {
                continue;
            }
            match self.copy(packet, seen) {
                Some(captured) => self.offered.push((place, captured)),
                None if self.unkept.len() < LOST_ROOM => self.unkept.push(place),
                None => self.points[at].lose(),
            }
        }
    }

    /// The first `count` of the packets that were offered are posted.
    pub(crate) fn posted(&mut self, port: u16, count: usize) {
        let Some(at) = self.place_of(port) else { return };
        let mut offered = std::mem::take(&mut self.offered);
        for (place, captured) in offered.drain(..) {
            match place < count {
                true => self.keep(at, captured),
                false => self.spare.push(captured.buffer),
            }
        }
        self.offered = offered;
        self.unkept.drain(..).filter(|place| *place < count).for_each(|_| self.points[at].lose());
    }

    /// A stage is about to be called, on an lcore with these sinks.
    pub(crate) fn calls<'a>(&mut self, stage: &Shared<StageStats>, sinks: impl Iterator<Item = TapSink<'a>>) {
        self.taken.clear();
        if self.points.iter().any(|point| point.output_of(stage).is_some()) {
            self.taken.extend(sinks.take(SINKS_MAX).map(TapSink::taken));
        }
    }

    /// The call has returned: copies what it sent. `leads`: whether that output of the stage, or
    /// any, leads to the sink of this number.
    pub(crate) fn returned<'a>(
        &mut self,
        stage: &Shared<StageStats>,
        sinks: impl Iterator<Item = TapSink<'a>> + Clone,
        leads: impl Fn(Option<usize>, usize) -> bool,
    ) {
        let taken = std::mem::take(&mut self.taken);
        for at in 0..self.points.len() {
            let Some(output) = self.points[at].output_of(stage) else { continue };
            for (number, (sink, before)) in sinks.clone().zip(&taken).enumerate() {
                let sent = sink.taken().saturating_sub(*before) as usize;
                if sent > 0 && leads(output, number) {
                    let packets = sink.batch.as_slice();
                    let there = sent.min(packets.len());
                    self.pass(at, &packets[packets.len() - there..]);
                    // Later ones have put them out already.
                    (there..sent).for_each(|_| self.points[at].lose());
                }
            }
        }
        self.taken = taken;
    }

    /// Copies packets that were taken from a ring, or an injector.
    pub(crate) fn popped(&mut self, ring: &Shared<RingConsumerStats>, packets: &[Packet]) {
        for at in 0..self.points.len() {
            if self.points[at].is_at(ring) {
                self.pass(at, packets);
            }
        }
    }

    /// Copies packets that go from one place of the run to another.
    fn pass(&mut self, at: usize, packets: &[Packet]) {
        let seen = Seen { direction: CaptureDirection::Within, ..self.seen(at) };
        for packet in packets {
            if !self.wants(packet) {
                continue;
            }
            match self.copy(packet, seen) {
                Some(captured) => self.keep(at, captured),
                None => self.points[at].lose(),
            }
        }
    }

    fn place_of(&self, port: u16) -> Option<usize> {
        self.points.iter().position(|point| matches!(point.place, TapPlace::Port(here) if here == port))
    }

    fn wants(&self, packet: &Packet) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.matches(packet.data()))
    }

    /// What is seen now, at one of its points, on its way out.
    fn seen(&self, at: usize) -> Seen {
        let (point, at_ns) = (self.points[at].point, self.clock.now_ns());
        Seen { point, at_ns, direction: CaptureDirection::Sent, path: None, immediate: None }
    }

    /// `None`: no buffer is free.
    fn copy(&mut self, packet: &Packet, seen: Seen) -> Option<Captured> {
        let mut buffer = self.spare.pop().or_else(|| self.free.pop())?;
        let data = packet.data();
        let kept_bytes = data.len().min(self.snap_bytes);
        buffer[..kept_bytes].copy_from_slice(&data[..kept_bytes]);
        let Seen { point, at_ns, direction, path, immediate } = seen;
        Some(Captured { point, at_ns, len_bytes: data.len(), direction, path, immediate, kept_bytes, buffer })
    }

    /// Hands a copy over.
    fn keep(&mut self, at: usize, captured: Captured) {
        self.points[at].counts.seen.add(1);
        // There is room for as many as there are buffers.
        if let Err(captured) = self.kept.push(captured) {
            self.spare.push(captured.buffer);
        }
    }
}

impl TapSink<'_> {
    /// Packets that it has taken: more by as many as come.
    fn taken(self) -> u64 {
        self.batch.len() as u64 + self.displaced
    }
}

impl TapPoint {
    /// Which output of the stage is captured here: the inner `None` are all. `None`: nothing of the
    /// stage.
    fn output_of(&self, stage: &Shared<StageStats>) -> Option<Option<usize>> {
        match &self.place {
            TapPlace::Stage { stats, output } if Arc::ptr_eq(stats, stage) => Some(*output),
            _ => None,
        }
    }

    fn is_at(&self, ring: &Shared<RingConsumerStats>) -> bool {
        matches!(&self.place, TapPlace::Ring(lanes) if lanes.iter().any(|lane| Arc::ptr_eq(lane, ring)))
    }

    fn lose(&self) {
        self.counts.seen.add(1);
        self.counts.lost.add(1);
    }
}
