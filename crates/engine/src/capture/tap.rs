//! The lcore's part of a capture: it copies packets that pass a port, leave a stage or come from a
//! ring into buffers made beforehand, and hands them to the capture's thread.
//!
//! ```text
//!   thread of the capture                lcore
//!   buffers ────── free ───────────────▶ copies into one, up to the snap length
//!   reads, and gives it back ◀── kept ── hands it over
//! ```
//!
//! Guarantees: nothing is allocated or freed on the lcore, and it waits for nobody: without a free
//! buffer the packet is lost to the capture, and counted. A packet is copied once per point: when a
//! port has received it or has taken it to be posted, when the call of the stage that sent it has
//! returned, or when it was taken from a ring. An lcore without a capture runs code that knows
//! nothing of one, except for one test per batch at ports with many connections or operations.
//!
//! A stage's packets are found at the sinks, like in a trace: those that a sink has gained over the
//! call.

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

/// The direction of a captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureDirection {
    /// Received.
    Received,
    /// Posted to be sent.
    Sent,
    /// Within the run: a stage sent it, or it was taken from a ring or an injector.
    Within,
}

/// The queue pair by which a captured packet came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturePath {
    /// Its transport.
    pub transport: Transport,
    /// The queue pair of this run.
    pub local: Endpoint,
    /// The peer's queue pair, as far as it is known.
    pub peer: Option<Endpoint>,
}

impl CapturePath {
    pub(crate) fn of(qp: &QueuePair) -> CapturePath {
        CapturePath { transport: qp.transport(), local: qp.endpoint(), peer: qp.peer() }
    }

    /// Returns the path of a received message: on UD the completion names the sender.
    fn back(self, completion: &Completion, packet: &Packet) -> CapturePath {
        if self.transport != Transport::Ud {
            return self;
        }
        let AhSpec { gid, lid, .. } = AhSpec::reply(completion, packet).unwrap_or_default();
        let (qpn, qkey) = (completion.src_qp(), self.local.qkey);
        CapturePath { peer: Some(Endpoint { qpn, psn: 0, gid: gid.unwrap_or_default(), lid, qkey }), ..self }
    }
}

/// A captured packet.
#[derive(Debug)]
pub struct Captured {
    /// Its point, as an index of [`Capture::points`](crate::Capture::points).
    pub point: usize,
    /// The time of the copy, by the run's clock.
    pub at_ns: Tick,
    /// The length of the whole packet.
    pub len_bytes: usize,
    /// Its direction.
    pub direction: CaptureDirection,
    /// Its queue pair; `None` if the port does not have it yet.
    pub path: Option<CapturePath>,
    /// The immediate data that came with it.
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

/// The counts of one lcore at one point.
#[derive(Debug, Default)]
pub(crate) struct TapCounts {
    /// Packets that passed the filter.
    pub(crate) seen: Count,
    /// Packets for which no buffer was free.
    pub(crate) lost: Count,
}

/// A point of a capture on this lcore.
#[derive(Debug)]
pub(crate) struct TapPoint {
    /// Its index among the points of the capture.
    pub(crate) point: usize,
    pub(crate) place: TapPlace,
    pub(crate) counts: Shared<TapCounts>,
}

/// The lcore's view of a point.
#[derive(Debug)]
pub(crate) enum TapPlace {
    /// A port, by its place in the plan.
    Port(u16),
    /// The packets sent by the stage with these counters, to one of its outputs or to all.
    Stage { stats: Shared<StageStats>, output: Option<usize> },
    /// The packets taken from a ring, by the counters of its lanes, or from an injector.
    Ring(Vec<Shared<RingConsumerStats>>),
}

/// A capture's view of a sink.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TapSink<'a> {
    pub(crate) batch: &'a Batch,
    /// Its packets that later ones have displaced so far.
    pub(crate) displaced: u64,
}

/// The sinks of an lcore that are examined; a plan has fewer.
const SINKS_MAX: usize = 4_096;

/// The number of packets without a buffer that are remembered until they are posted.
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
    /// The places of offered packets for which there was no buffer.
    unkept: Vec<usize>,
    /// Buffers of packets that were not posted.
    spare: Vec<Box<[u8]>>,
    /// The total of packets that each sink had taken before the present call of a stage.
    taken: Vec<u64>,
    clock: Clock,
}

/// A tap, and the ends of the capture's thread.
#[derive(Debug)]
pub(crate) struct TapEnds {
    pub(crate) tap: Tap,
    pub(crate) kept: Consumer<Captured>,
    pub(crate) free: Producer<Box<[u8]>>,
}

impl TapEnds {
    /// Makes a tap with all its buffers, which are touched here.
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

/// The common data of a batch's packets.
#[derive(Clone, Copy, Debug)]
struct Seen {
    point: usize,
    at_ns: Tick,
    direction: CaptureDirection,
    path: Option<CapturePath>,
    immediate: Option<u32>,
}

impl Tap {
    /// Copies a received packet.
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

    /// Copies packets that a port is about to post; [`Tap::posted`] then says how many it did.
    pub(crate) fn offer(&mut self, port: u16, packets: &[Packet], qp: &QueuePair) {
        let Some(at) = self.place_of(port) else { return };
        let seen = Seen { path: Some(CapturePath::of(qp)), ..self.seen(at) };
        // Packets beyond the send queue's room are offered again.
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

    /// Keeps the copies of the first `count` offered packets, which are posted.
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

    /// The call has returned: copies its packets. `leads`: whether that output of the stage, or
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
                    // Later packets have displaced them already.
                    (there..sent).for_each(|_| self.points[at].lose());
                }
            }
        }
        self.taken = taken;
    }

    /// Copies packets taken from a ring or an injector.
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

    /// Returns the data of packets that go out at one of its points now.
    fn seen(&self, at: usize) -> Seen {
        let (point, at_ns) = (self.points[at].point, self.clock.now_ns());
        Seen { point, at_ns, direction: CaptureDirection::Sent, path: None, immediate: None }
    }

    /// Copies a packet. `None`: no buffer is free.
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
        // There is room for as many copies as there are buffers.
        if let Err(captured) = self.kept.push(captured) {
            self.spare.push(captured.buffer);
        }
    }
}

impl TapSink<'_> {
    /// Returns the total of packets taken: it rises by one with each.
    fn taken(self) -> u64 {
        self.batch.len() as u64 + self.displaced
    }
}

impl TapPoint {
    /// Returns the stage's output that is captured here; the inner `None`: all outputs. `None`:
    /// this point is not the stage's.
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
