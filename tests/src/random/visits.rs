//! Connections that come and go: a visitor talks over each of many, and a desk sends packets back.
//! Now and then either of them closes a connection, which is then made again.

use fastrand::Rng;
use serde::Deserialize;
use verbline::engine::{ConnectionChange, ConnectionEvent, ConnectionId, StageError, Tick};
use verbline::prelude::*;

use super::gate::Tag;
use super::marks::{
    Counters, DESK, DROPS, LATE_NS, ON_PURPOSE, PART_BYTES, RETRY_NS, STAMP_BYTES, VISITOR, doors, is_hello, stamp,
};

const OUT: OutId = OutId(0);
/// In the last place of a stamp: the desk is to close the connection.
const BYE: u8 = 1;
const BYE_AT: usize = 3;
/// In the place of an output: the gate's tag of the connection.
const OUTPUT_AT: usize = 1;
/// In place of the packets under way: the connection is closed.
const CLOSING: usize = usize::MAX;
/// The most packets that a desk holds: all that its peers have under way.
const HELD_MAX: u32 = 64;
/// Connections of a port, at most.
const SLOTS_MAX: usize = 8;

pub(super) fn register(registry: &mut Registry) {
    let spec = |source, summary| StageSpec { outputs: &["a"], source, drops: DROPS, summary, ..StageSpec::default() };
    let desk = StageSpec { holds_packets: HELD_MAX, ..spec(false, "sends back what comes") };
    registry.stage("visitor", spec(true, "talks over connections, and closes them"), |context| {
        Ok(Box::new(Visitor::new(context)?))
    });
    registry.stage("desk", desk, |context| Ok(Box::new(Desk::new(context)?)));
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    seed: u64,
    /// Times that a connection is talked over, and closed.
    rounds: u32,
    closes: u32,
    window_packets: usize,
    server_closes: bool,
    is_rude: bool,
    /// A connection's end may overtake the acknowledgements of its last packets: the end is told
    /// within the process, and they go by the wire.
    by_wire: bool,
    has_gate: bool,
}

/// The settings of a desk.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeskParams {
    /// Its port's index among the ports that share a listener.
    place: usize,
    has_gate: bool,
}

/// The connections known to one end, by slot: the open one, and the last number received over it.
struct Book {
    port: u16,
    /// The gate's tag of each connection, as this end knows it.
    tags: [Tag; SLOTS_MAX],
    open: [Option<(ConnectionId, u32)>; SLOTS_MAX],
    opened: Counter,
    ended: Counter,
    failed: Counter,
}

impl Book {
    fn new(context: &StageContext<'_>, port: &str) -> Book {
        Book {
            port: context.port(port).unwrap_or(u16::MAX),
            tags: [Tag::default(); SLOTS_MAX],
            open: [None; SLOTS_MAX],
            opened: context.counter("opened"),
            ended: context.counter("ended"),
            failed: context.counter("failed"),
        }
    }

    /// Whether this event may happen next at the port that leads here. Events of another port's
    /// connections, perhaps on the same lcore, do not reach the stage.
    fn note(&mut self, event: ConnectionEvent) -> bool {
        if event.port != self.port {
            return false;
        }
        let Some(slot) = self.open.get_mut(event.connection.slot()) else { return false };
        if event.change == ConnectionChange::Opened {
            self.opened.add(1);
            return slot.replace((event.connection, 0)).is_none();
        }
        if matches!(event.change, ConnectionChange::Failed { .. }) { &self.failed } else { &self.ended }.add(1);
        slot.take().is_some_and(|(connection, _)| connection == event.connection)
    }

    /// Whether a packet came by an open connection, and is the next one sent over it. A packet lost
    /// at the connection's end has no successor.
    fn is_next(&mut self, packet: &Packet) -> bool {
        let Some([_, _, _, _, number @ ..]) = packet.data().first_chunk::<STAMP_BYTES>() else { return false };
        let number = u32::from_le_bytes(*number);
        let Some(from) = packet.connection() else { return false };
        match self.open.get_mut(from.slot()) {
            Some(Some((connection, last))) if *connection == from => {
                *last += 1;
                number == *last
            }
            _ => false,
        }
    }
}

struct Visitor {
    params: Params,
    rng: Rng,
    counters: Counters,
    late: Counter,
    book: Book,
    /// The last number sent over each connection, by slot.
    numbers: [u32; SLOTS_MAX],
    /// The connection that it waits for, for this many packets.
    under_way: Option<(ConnectionId, usize)>,
    /// The desk is to close that connection.
    is_asked_of_desk: bool,
    /// To be closed in the next poll, for which nothing else calls the lcore.
    closes_next: Option<ConnectionId>,
    sent_ns: Tick,
    rounds_left: u32,
    closes_left: u32,
}

impl Visitor {
    fn new(context: &StageContext<'_>) -> Result<Visitor, StageError> {
        let params: Params = context.params()?;
        // Packets that are under way as their connection closes may be lost.
        context.counter("may_lose").set((params.is_rude || params.server_closes || params.by_wire).into());
        Ok(Visitor {
            rng: Rng::with_seed(params.seed),
            counters: Counters::new(context),
            late: context.counter("late"),
            book: Book::new(context, "visitors"),
            numbers: [0; SLOTS_MAX],
            under_way: None,
            is_asked_of_desk: false,
            closes_next: None,
            sent_ns: 0,
            rounds_left: params.rounds,
            closes_left: params.closes,
            params,
        })
    }

    /// Sends this many packets over a connection, the last of which may ask the desk to close it.
    fn talk(&mut self, connection: ConnectionId, packets: usize, is_bye: bool, out: &mut Outputs<'_>) -> usize {
        let room = out.room(OUT).min(out.room_to(connection));
        for done in 0..packets.min(room) {
            let Some(mut packet) = self.counters.take(out) else { return done };
            assert!(packet.set_len(self.rng.usize(STAMP_BYTES..=PART_BYTES)), "a plan's packets hold a stamp");
            let number = self.numbers[connection.slot()] + 1;
            stamp(packet.data_mut(), VISITOR, self.book.tags[connection.slot()].mark().into(), DESK as u8, number);
            packet.data_mut()[BYE_AT] = if is_bye && done + 1 == packets.min(room) { BYE } else { 0 };
            packet.set_connection(Some(connection));
            match out.send(OUT, packet) {
                true => {
                    self.counters.sent[0].add(1);
                    self.numbers[connection.slot()] = number;
                }
                false => {
                    self.counters.refused[0].add(1);
                    return done;
                }
            }
        }
        packets.min(room)
    }

    /// The time at which it wants to be polled: while it waits for packets, they call it.
    fn when(&self, out: &Outputs<'_>) -> Next {
        match self.under_way {
            Some((_, 0..CLOSING)) => Next::At(out.now_ns() + 2 * LATE_NS),
            _ => Next::At(out.now_ns() + RETRY_NS),
        }
    }

    /// Closes a connection, in one of the possible ways.
    fn close(&mut self, connection: ConnectionId, out: &mut Outputs<'_>) {
        self.closes_left -= 1;
        self.is_asked_of_desk = false;
        let packets = if self.params.is_rude { self.rng.usize(..=self.params.window_packets) } else { 0 };
        if self.params.server_closes {
            // Behind its last packet, which does not come back.
            self.is_asked_of_desk = self.talk(connection, packets.max(1), true, out) > 0;
        }
        if !self.is_asked_of_desk {
            self.talk(connection, packets, false, out);
            out.close(connection);
        }
        self.under_way = Some((connection, CLOSING));
    }
}

impl Stage for Visitor {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.as_slice() {
            self.counters.astray.add((!self.book.is_next(packet)).into());
            if let Some((connection, left)) = &mut self.under_way
                && packet.connection() == Some(*connection)
            {
                *left -= usize::from(*left != CLOSING);
            }
        }
        if self.under_way.is_some_and(|(_, left)| left == 0) {
            self.under_way = None;
            self.late.add((out.fresh_ns().saturating_sub(self.sent_ns) > LATE_NS).into());
        }
        self.counters.came.add(input.len() as u64);
        self.counters.drop_all(input, out);
    }

    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        self.counters.astray.add((!self.book.note(event)).into());
        if event.change == ConnectionChange::Opened {
            // The gate's answer.
            let peer = out.peer(event.connection);
            let told = peer.and_then(|peer| Tag::from_bytes(&peer.private_data));
            let is_well = peer.is_some_and(|peer| peer.tag == 0) && told.is_some() == self.params.has_gate;
            self.counters.astray.add((!is_well).into());
            self.book.tags[event.connection.slot()] = told.unwrap_or_default();
        }
        self.numbers[event.connection.slot()] = 0;
        if let Some((_, left)) = self.under_way.take_if(|(connection, _)| *connection == event.connection) {
            let is_closed_here = left == CLOSING && !self.is_asked_of_desk;
            let took_ns = out.fresh_ns().saturating_sub(self.sent_ns);
            self.late.add((is_closed_here && took_ns > LATE_NS).into());
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.under_way.is_some() {
            return self.when(out);
        }
        if let Some(connection) = self.closes_next.take()
            && self.book.open.iter().flatten().any(|(open, _)| *open == connection)
        {
            self.sent_ns = out.fresh_ns();
            self.close(connection, out);
            return self.when(out);
        }
        if self.rounds_left == 0 && self.closes_left == 0 {
            return Next::Done;
        }
        let open = self.book.open.iter().flatten().count();
        let Some(choice) = self.rng.u32(..).checked_rem(open as u32) else { return Next::At(out.now_ns() + RETRY_NS) };
        let chosen = self.book.open.iter().flatten().nth(choice as usize);
        let Some((connection, _)) = chosen.copied() else { return Next::Busy };
        self.sent_ns = out.fresh_ns();
        if self.rng.u32(..self.rounds_left + self.closes_left) < self.closes_left {
            self.closes_next = Some(connection);
        } else {
            self.rounds_left -= 1;
            let window = self.rng.usize(1..=self.params.window_packets);
            self.under_way =
                Some((connection, self.talk(connection, window, false, out))).filter(|(_, sent)| *sent > 0);
        }
        self.when(out)
    }
}

/// Sends packets back, once their connection has room. Packets that get none are dropped at once. A
/// send takes room until its completion has come, which may be after the reply to the answer.
struct Desk {
    params: DeskParams,
    counters: Counters,
    book: Book,
    held: Batch,
    later: Batch,
    /// The room of each connection in this turn, by slot.
    room: [Option<usize>; SLOTS_MAX],
    turn: u64,
    stopping: bool,
}

impl Desk {
    fn new(context: &StageContext<'_>) -> Result<Desk, StageError> {
        let batch = || Batch::with_capacity(HELD_MAX as usize + context.batch_max());
        let params: DeskParams = context.params()?;
        let door = doors().nth(params.place).map_or(String::new(), |(door, _)| door);
        Ok(Desk {
            params,
            counters: Counters::new(context),
            book: Book::new(context, &door),
            held: batch(),
            later: batch(),
            room: [None; SLOTS_MAX],
            turn: 0,
            stopping: false,
        })
    }

    /// Whether an opened connection came to a place that its gate or the plan gave it, and the
    /// stage gets the visitor's private data.
    fn is_known(&mut self, connection: ConnectionId, out: &Outputs<'_>) -> bool {
        let Some(peer) = out.peer(connection) else { return false };
        let tag = Tag::of(peer.tag);
        self.book.tags[connection.slot()] = tag;
        let is_here = if self.params.has_gate { tag.allows(self.params.place) } else { tag == Tag::default() };
        is_here && is_hello(&peer.private_data)
    }

    /// Whether a packet has the mark of its connection, as the visitor was told it.
    fn is_marked(&self, packet: &Packet) -> bool {
        let tag = packet.connection().map(|connection| self.book.tags[connection.slot()]);
        tag.is_some_and(|tag| packet.data().get(OUTPUT_AT) == Some(&tag.mark()))
    }

    fn answer(&mut self, out: &mut Outputs<'_>) {
        if self.turn != out.turn() {
            (self.turn, self.room) = (out.turn(), [None; SLOTS_MAX]);
        }
        for packet in self.held.drain_front(self.held.len()) {
            let Some(to) = packet.connection() else { continue };
            let room = self.room[to.slot()].get_or_insert_with(|| out.room_to(to));
            // If the connection is over, the port knows what to do.
            let is_open = self.book.open[to.slot()].is_some_and(|(open, _)| open == to);
            if is_open && (*room == 0 || out.room(OUT) == 0) {
                match self.stopping {
                    true => {
                        self.counters.on_purpose.add(1);
                        out.drop(packet, ON_PURPOSE);
                    }
                    false => _ = self.later.push(packet),
                }
                continue;
            }
            *room = room.saturating_sub(1);
            match out.send(OUT, packet) {
                true => self.counters.sent[0].add(1),
                false => self.counters.refused[0].add(1),
            }
        }
        std::mem::swap(&mut self.held, &mut self.later);
    }
}

impl Stage for Desk {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        self.counters.came.add(input.len() as u64);
        for packet in input.as_slice() {
            self.counters.astray.add((!self.book.is_next(packet) || !self.is_marked(packet)).into());
            if let (Some(&BYE), Some(connection)) = (packet.data().get(BYE_AT), packet.connection()) {
                out.close(connection);
            }
        }
        self.held.append(input);
        self.answer(out);
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        self.answer(out);
        match self.held.is_empty() {
            true => Next::At(Tick::MAX),
            false => Next::At(out.now_ns() + RETRY_NS),
        }
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        self.stopping = true;
        self.answer(out);
    }

    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        let mut is_well = self.book.note(event);
        if event.change == ConnectionChange::Opened {
            is_well &= self.is_known(event.connection, out);
        }
        self.counters.astray.add((!is_well).into());
    }
}
