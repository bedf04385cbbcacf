//! The exchange of the recorded feed: plays the redundant incremental channels and the snapshots of
//! a trading day at a multiple of the market's pace, and takes orders.
//!
//! The recording includes no book of the exchange, so every order is filled whole at its limit.

use verbline::plan::{Asked, Needs};
use verbline::prelude::*;

use super::channels::{DROPS, Drops, NO_ROOM, announce, has_room, has_room_to_announce};
use super::desk::Desk;
use super::replay::{Departure, Source, schedule};
use super::settings::MoexSettings;
use super::tally::Tally;
use crate::fast::{Datagram, Recording};
use crate::framing::PREAMBLE_LEN_BYTES;

const SNAPSHOTS: OutId = OutId(3);

/// Datagrams per turn.
const DATAGRAMS_PER_TURN: usize = 16;

pub(super) fn register(registry: &mut Registry, tally: &Tally) {
    let home = tally.clone();
    let spec = StageSpec {
        outputs: &["a", "b", "reports", "snapshots"],
        source: true,
        drops: DROPS,
        summary: "plays a recorded FORTS feed, takes orders",
        ..StageSpec::default()
    };
    registry.stage("moex-exchange", spec, move |stage| {
        let (settings, feed) = MoexSettings::open(stage)?;
        let section = stage.raw_section("feed")?;
        let departures = schedule(&feed).map_err(|error| section.refuse("dir", error.to_string()))?;
        let [a, b] = feed.increments;
        Ok(Box::new(MoexExchange {
            recordings: [a, b, feed.snapshots],
            departures,
            next: 0,
            start_ns: None,
            ns_per_ms: 1e6 / settings.speed,
            drops: Drops::new([settings.drop_a, settings.drop_b, 0.0], settings.seed),
            current: None,
            desk: Desk::new(stage, &home)?,
        }))
    });
    registry.needs("moex-exchange", needs);
}

/// The memory for the recording and the desk, and the packet size for the longest datagram.
fn needs(asked: &Asked<'_>) -> Needs {
    let Some(feed) = MoexSettings::asked(asked) else { return Needs::default() };
    let recordings = || feed.increments.iter().chain([&feed.snapshots]);
    let memory = |recording: &Recording| {
        let datagram = size_of::<Datagram>() + size_of::<Departure>();
        (recording.bytes.len() + recording.datagrams.len() * datagram) as u64
    };
    let longest = recordings().map(Recording::len_bytes_max).max().unwrap_or(0);
    Needs {
        memory_bytes: vec![("the recording", recordings().map(memory).sum()), ("times of ticks", Desk::MEMORY_BYTES)],
        packet_bytes: vec![("MsgSeqNum", PREAMBLE_LEN_BYTES as u64), ("longest datagram", longest as u64)],
        ..Needs::default()
    }
}

struct MoexExchange {
    /// A, B, snapshots.
    recordings: [Recording; 3],
    departures: Vec<Departure>,
    next: usize,
    start_ns: Option<u64>,
    ns_per_ms: f64,
    drops: Drops,
    /// The tick whose copies are being sent, and whether one of them was not dropped.
    current: Option<(u32, bool)>,
    desk: Desk,
}

impl Stage for MoexExchange {
    fn process(&mut self, orders: &mut Batch, out: &mut Outputs<'_>) {
        self.desk.take(orders, out, |_, _, _, quantity| quantity);
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        for _ in 0..DATAGRAMS_PER_TURN {
            let now_ns = out.fresh_ns();
            let Some(departure) = self.departures.get(self.next).copied() else { return self.finish(out) };
            let start_ns = *self.start_ns.get_or_insert(now_ns);
            let due_ns = start_ns + (f64::from(departure.after_ms) * self.ns_per_ms) as u64;
            if due_ns > now_ns {
                return Next::At(due_ns);
            }
            if !self.publish(departure, due_ns, out) || self.turns_back(departure) {
                break;
            }
        }
        Next::Busy
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        self.end(out);
    }
}

impl MoexExchange {
    /// Whether an increment follows a snapshot. The ports send at the end of a turn, one after the
    /// other: within a turn the increment would overtake the snapshot.
    fn turns_back(&self, departed: Departure) -> bool {
        let next = self.departures.get(self.next);
        departed.source == Source::Snapshot && next.is_some_and(|next| next.source != Source::Snapshot)
    }

    /// Publishes one datagram. Returns false if there is no packet or no room for it now.
    fn publish(&mut self, departure: Departure, due_ns: u64, out: &mut Outputs<'_>) -> bool {
        if !has_room(out) || out.room(SNAPSHOTS) == 0 {
            return false;
        }
        let recording = &self.recordings[departure.source as usize];
        // `schedule` took the index from this recording.
        let Some(bytes) = recording.datagram(departure.index) else { return false };
        let sequence = recording.datagrams[departure.index].msg_seq_num;
        let Some(mut packet) = out.alloc() else { return false };
        self.next += 1;
        if !write(&mut packet, sequence, bytes) {
            out.drop(packet, NO_ROOM);
            return true;
        }
        match departure.source {
            // There was room; a refusal all the same is counted at the port.
            Source::Snapshot => _ = out.send(SNAPSHOTS, packet),
            Source::A | Source::B => self.publish_increment(departure.source, sequence, packet, due_ns, out),
        }
        true
    }

    fn publish_increment(&mut self, source: Source, sequence: u32, packet: Packet, due_ns: u64, out: &mut Outputs<'_>) {
        if self.current.is_none_or(|(current, _)| current != sequence) {
            self.close_tick();
            self.current = Some((sequence, false));
            self.desk.note(u64::from(sequence), 1, due_ns, out.fresh_ns());
        }
        let sent = self.drops.send(source as usize, packet, 1, &mut self.desk.tally, out);
        if let Some((_, alive)) = &mut self.current {
            *alive |= sent;
        }
    }

    /// Counts a tick after the last of its copies.
    fn close_tick(&mut self) {
        if let Some((_, alive)) = self.current.take() {
            self.desk.tally.published += 1;
            self.desk.tally.dropped_both += u64::from(!alive);
        }
    }

    /// Announces the end of the sequence on both channels, so that a loss at the end shows.
    fn finish(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.current.is_some() && !has_room_to_announce(out) {
            return Next::Busy;
        }
        self.end(out);
        Next::Done
    }

    /// Counts the last tick, even if a copy of it has not gone out, and announces the end of the
    /// sequence.
    fn end(&mut self, out: &mut Outputs<'_>) {
        if let Some((sequence, _)) = self.current {
            self.close_tick();
            announce(&sequence.wrapping_add(1).to_le_bytes(), out);
        }
    }
}

fn write(packet: &mut Packet, sequence: u32, fast: &[u8]) -> bool {
    if !packet.fill(&sequence.to_le_bytes()) {
        return false;
    }
    match packet.append(fast.len()) {
        Some(place) => {
            place.copy_from_slice(fast);
            true
        }
        None => false,
    }
}
