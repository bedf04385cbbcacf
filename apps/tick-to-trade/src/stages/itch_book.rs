//! The trader's full-depth books: applies each message, requests lost ones again, rebuilds books in
//! doubt, and sends the strategy the changed best levels of books that are right.

use serde::Deserialize;
use verbline::plan::{Asked, Needs};
use verbline::prelude::*;

use super::arbiter::{FIRST_MAX, Mark};
use super::settings::{INSTRUMENTS_MAX, KEPT_MESSAGES_MAX, port_of_output};
use super::silence::Silence;
use super::tally::{Home, ItchTally, Tally};
use super::teller::{Teller, memory_bytes};
use super::update::UPDATE_LEN_BYTES;
use crate::book::BookSpec;
use crate::itch::MESSAGE_LEN_BYTES_MAX;
use crate::mold::{self, BLOCK_HEADER_LEN_BYTES, HEADER_LEN_BYTES};
use crate::recovery::{Follower, FollowerSpec, REQUEST_LEN_BYTES, Service};

const CHANGED: OutId = OutId(0);
const REQUEST: OutId = OutId(1);
const SNAPSHOT_REQUEST: OutId = OutId(2);

const DROPS: &[&str] = &["malformed", "not_in_order", "no_room"];
const MALFORMED: DropReason = DropReason::Stage(0);
/// The packet came neither from an arbiter nor as an answer.
const NOT_IN_ORDER: DropReason = DropReason::Stage(1);
/// The packet is too short for a request.
const NO_ROOM: DropReason = DropReason::Stage(2);

/// Live orders of all instruments together, and price levels per side.
const BOOKS: BookSpec = BookSpec { instruments: INSTRUMENTS_MAX, orders: 1 << 20, levels_per_side: 4_096 };

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    first: Option<u64>,
    held_messages: u32,
    gap_messages_max: u32,
    timeout_us: u64,
    tries: u32,
    snapshot_timeout_ms: u64,
    rebuild_pause_ms: u64,
}

impl Keys for Params {
    const KEYS: &'static [AppKey] = &[
        AppKey::integer("first", 0..=FIRST_MAX, "first sequence number; without it books begin with snapshots")
            .optional("none"),
        AppKey::integer("held_messages", 2..=KEPT_MESSAGES_MAX, "held behind a gap, or for a book that is rebuilt")
            .or(65_536)
            .unit("messages"),
        AppKey::integer("gap_messages_max", 0..=KEPT_MESSAGES_MAX, "a larger gap is left to snapshots")
            .or(16_384)
            .unit("messages"),
        AppKey::integer("timeout_us", 1..=60_000_000, "how long an answer may take; each further time twice as long")
            .or(5_000)
            .unit("µs"),
        AppKey::integer("tries", 1..=32, "how often messages are asked for before they are left to snapshots").or(6),
        AppKey::integer("snapshot_timeout_ms", 1..=60_000, "how long a part of a snapshot may take").or(100).unit("ms"),
        AppKey::integer("rebuild_pause_ms", 1..=60_000, "how soon a book may be rebuilt again").or(1_000).unit("ms"),
    ];
}

impl Params {
    fn follower(&self) -> FollowerSpec {
        FollowerSpec {
            books: BOOKS,
            first: self.first,
            held_messages: self.held_messages,
            request_messages: 1,
            retransmits: false,
            snapshots: false,
            gap_messages_max: self.gap_messages_max,
            timeout_ns: self.timeout_us.saturating_mul(1_000),
            tries: self.tries,
            snapshot_timeout_ns: self.snapshot_timeout_ms.saturating_mul(1_000_000),
            rebuild_pause_ns: self.rebuild_pause_ms.saturating_mul(1_000_000),
        }
    }
}

pub(super) fn register(registry: &mut Registry, tally: &Tally) {
    let home = tally.clone();
    let spec = StageSpec {
        outputs: &["changed", "request", "snapshot_request"],
        drops: DROPS,
        summary: "decodes ITCH, keeps full-depth books, recovers what was lost",
        ..StageSpec::default()
    };
    // A check builds no books.
    let describe = |stage: &StageContext<'_>| Ok(stage.raw_params().read::<Params>()?);
    registry.opening_stage("itch-book", spec, describe, move |params, stage| {
        let ports = [port_of_output(stage, "request"), port_of_output(stage, "snapshot_request")];
        let follower = FollowerSpec {
            request_messages: request_messages(stage),
            retransmits: ports[0].is_some(),
            snapshots: ports[1].is_some(),
            ..params.follower()
        };
        Ok(Box::new(ItchBook {
            follower: Follower::new(follower),
            teller: Teller::new(stage.burst(), CHANGED),
            ports,
            silence: Silence::new(0),
            waits: false,
            stale: stage.counter("stale_books"),
            retransmitted: stage.counter("retransmitted"),
            rebuilt: stage.counter("rebuilt"),
            home: home.home(stage),
        }))
    });
    registry.needs("itch-book", needs).params_of::<Params>("itch-book", "how lost messages are recovered");
}

/// Messages that are sure to fit one answer, if the server's packets are as long as the stage's
/// own.
fn request_messages(stage: &StageContext<'_>) -> u16 {
    let data_bytes = stage.pool().map_or(0, |pool| pool.data_bytes as usize);
    let block = BLOCK_HEADER_LEN_BYTES + MESSAGE_LEN_BYTES_MAX;
    (data_bytes.saturating_sub(HEADER_LEN_BYTES) / block).clamp(1, 1_000) as u16
}

/// The memory for the books and their recovery, and the packet size for one update.
fn needs(asked: &Asked<'_>) -> Needs {
    let Ok(params) = asked.params().read::<Params>() else { return Needs::default() };
    let recovery = params.follower().memory_bytes() - BOOKS.memory_bytes();
    Needs {
        memory_bytes: vec![("books", BOOKS.memory_bytes()), ("held_messages", recovery), ("updates", memory_bytes())],
        packet_bytes: vec![("an update", UPDATE_LEN_BYTES as u64)],
        ..Needs::default()
    }
}

struct ItchBook {
    follower: Follower,
    teller: Teller,
    /// The ports of retransmissions and of snapshots: answers come in where the requests go out.
    ports: [Option<u16>; 2],
    /// Of all packets, from the stop of the run on.
    silence: Silence,
    /// The run stops: the recovery in progress is finished first.
    waits: bool,
    stale: Counter,
    retransmitted: Counter,
    rebuilt: Counter,
    home: Home,
}

impl Stage for ItchBook {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        self.prefetch(input);
        let now_ns = out.now_ns();
        let was_live = self.follower.is_live();
        if self.waits {
            self.silence.heard(now_ns);
        }
        for packet in input.drain_front(input.len()) {
            self.take(packet, now_ns, out);
        }
        if !(was_live && self.follower.is_live()) {
            self.recover(now_ns, out);
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let is_done = self.teller.updates.turn(out);
        if self.follower.is_live() {
            return if is_done { Next::At(Tick::MAX) } else { Next::Busy };
        }
        let now_ns = out.now_ns();
        self.recover(now_ns, out);
        self.waits &= !self.silence.begins(now_ns);
        match self.follower.deadline_ns(now_ns) {
            _ if !is_done => Next::Busy,
            None => Next::At(Tick::MAX),
            Some(deadline_ns) if deadline_ns <= now_ns => Next::Busy,
            Some(deadline_ns) => Next::At(self.silence.due_ns().map_or(deadline_ns, |due_ns| due_ns.min(deadline_ns))),
        }
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        self.waits = self.ports.iter().any(Option::is_some);
        // From the last packet on.
        self.silence = Silence::new(verbline::cli::Silence::ANSWER_WITHIN.as_nanos() as u64);
        self.silence.heard(out.now_ns());
    }

    fn awaits_packets(&self) -> bool {
        self.waits && self.follower.has_begun() && !self.follower.is_live()
    }
}

impl ItchBook {
    /// Prefetches the orders of each packet's first messages before the first packet is processed;
    /// the rest is prefetched while messages are applied. So the loads overlap, instead of one wait
    /// per message: at 221,000 live orders a third of the time.
    #[inline]
    fn prefetch(&self, input: &Batch) {
        for packet in input.iter() {
            let Ok(frame) = mold::Packet::parse(packet.data()) else { continue };
            let skip = Mark::of(packet).map_or(0, |mark| mark.skip);
            self.follower.prefetch(&frame, skip);
        }
    }

    /// Takes a packet of the stream, or an answer.
    #[inline]
    fn take(&mut self, packet: Packet, now_ns: u64, out: &mut Outputs<'_>) {
        let Ok(frame) = mold::Packet::parse(packet.data()) else { return out.drop(packet, MALFORMED) };
        let ItchBook { follower, teller, ports, .. } = self;
        let mut told = |books: &_, change, told, sequence| teller.tell(books, change, told, sequence);
        match (Mark::of(&packet), Some(packet.port())) {
            (Some(mark), _) => follower.take(&frame, mark.skip, now_ns, &mut told),
            (None, port) if port == ports[0] => follower.take_again(&frame, now_ns, &mut told),
            (None, port) if port == ports[1] => follower.take_snapshot(&frame, now_ns, &mut told),
            (None, _) => match Mark::of_anew(&packet) {
                None => return out.drop(packet, NOT_IN_ORDER),
                Some(mark) => {
                    follower.begin_anew(now_ns);
                    if let Some(mark) = mark {
                        follower.take(&frame, mark.skip, now_ns, &mut told);
                    }
                }
            },
        }
        if !follower.is_live() {
            teller.take_back_of(follower);
        }
        teller.updates.send(packet, out);
    }

    /// Continues the recovery, and sends the requests that are due.
    #[cold]
    fn recover(&mut self, now_ns: u64, out: &mut Outputs<'_>) {
        let ItchBook { follower, teller, .. } = self;
        follower.poll(now_ns, &mut |books: &_, change, told, sequence| teller.tell(books, change, told, sequence));
        if !follower.is_live() {
            teller.take_back_of(follower);
        }
        teller.updates.send_fresh(out);
        while out.room(REQUEST) > 0 && out.room(SNAPSHOT_REQUEST) > 0 && teller.updates.has_fresh() {
            let Some((service, request)) = follower.next_request(now_ns) else { break };
            // Without a packet, or room, the request counts as lost: it is sent again.
            let Some(mut packet) = teller.updates.take_fresh(out) else { break };
            let output = match service {
                Service::Retransmission => REQUEST,
                Service::Snapshot => SNAPSHOT_REQUEST,
            };
            match packet.fill(&request.to_bytes()) {
                true => _ = out.send(output, packet),
                false => out.drop(packet, NO_ROOM),
            }
        }
        let counts = follower.counts();
        self.stale.set(follower.stale_books() as u64);
        self.retransmitted.set(counts.retransmitted);
        self.rebuilt.set(counts.rebuilt);
    }
}

const _: () = assert!(REQUEST_LEN_BYTES <= UPDATE_LEN_BYTES, "what holds an update holds a request");

impl Drop for ItchBook {
    fn drop(&mut self) {
        let mut tally = ItchTally {
            follower: *self.follower.counts(),
            next_sequence: self.follower.next_sequence(),
            stale_books: self.follower.stale_books(),
            live_orders: self.follower.books().live_orders(),
            ..ItchTally::default()
        };
        // Without a message there are no books to compare.
        if tally.follower.applied > 0 {
            tally.books = self.follower.books().images();
        }
        tally.levels = tally.books.iter().map(|book| book.levels[0].len() + book.levels[1].len()).sum();
        self.teller.report(&mut tally);
        self.home.leave(|all, stage| _ = all.itch.insert(stage, tally));
    }
}

#[cfg(test)]
mod tests;
