//! The lcore's part of a trace: it notes the steps of a turn in memory made beforehand, and hands
//! whole turns to the trace's thread.
//!
//! ```text
//!   lcore                                        thread of the trace
//!   a turn's events ── all or none ── ring ────▶ takes them
//! ```
//!
//! The ways of packets are found at the sinks: packets that a sink has gained over a step came from
//! that step. So neither ports nor stages know of a trace. A step examines only the sinks that it
//! may have filled, and reads the clock only if it has something to note: a turn has more steps
//! than packets.
//!
//! Guarantees: nothing is allocated or freed on the lcore, and it waits for nobody: a turn that
//! finds no room in the ring is lost to the trace as a whole, and counted. Turns without work leave
//! no event. An lcore without a trace runs code that knows nothing of one; so does one between two
//! windows of a sampling trace, except for the test whether the next window has begun.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use verbline_mem::{Packet, Pool};
use verbline_ring::{Consumer, Producer, spsc};

use crate::capture::spec::CaptureFilter;
use crate::ports::sink::Sink;
use crate::stats::clock::{Clock, Tick};
use crate::stats::counter::{Shared, shared};
use crate::stats::counters::{LcoreStats, PortStats, RingConsumerStats, RingProducerStats, StageStats};
use crate::stats::turn_time::LATE_NS;
use crate::stats::wakes::WakeCause;
use crate::trace::event::{Told, TraceEvent, TraceKind};
use crate::trace::places::{PacketNumbers, Places, place_of};
use crate::trace::windows::{Sampling, Windows};

/// Events of one lcore that may wait to be taken: 1 MiB.
const RING_EVENTS: usize = 65_536;

/// Events of a turn.
const TURN_EVENTS: usize = 8_192;

/// The sinks of an lcore whose packets are followed; a plan has fewer.
const SINKS_MAX: usize = 4_096;

/// Polls that take less and send nothing leave no event.
const SHORT_POLL_NS: u64 = 1_000;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Recorder {
    events: Producer<TraceEvent>,
    /// The events of the turn so far.
    turn: Vec<TraceEvent>,
    /// The turn has more events than there is room for.
    is_too_long: bool,
    /// The turn is worth reporting, though it found no work.
    is_told: bool,
    told: Shared<Told>,
    places: Places,
    filter: Option<CaptureFilter>,
    packets: PacketNumbers,
    /// The number of packets in each sink at the last look.
    held: Vec<usize>,
    /// The packets of a port or a ring before it takes them, and the port's count of posted
    /// packets.
    waiting: Vec<u32>,
    tx_packets: u64,
    /// When the lcore last looked for work, or awoke; and when it went to sleep.
    looked_ns: Tick,
    sleeps_ns: Tick,
    /// The time stolen from it before this turn.
    stolen_ns: u64,
    /// The turns that are recorded; `None`: all.
    sampling: Option<Sampling>,
    /// Nothing was recorded since the last event; the `Rests` event for it found no room yet.
    has_rested: bool,
    /// The last turn was recorded for its news of the one before.
    is_beyond: bool,
    clock: Clock,
}

/// A recorder, and the ends of the trace's thread.
#[derive(Debug)]
pub(crate) struct RecorderEnds {
    pub(crate) recorder: Recorder,
    pub(crate) events: Consumer<TraceEvent>,
    pub(crate) told: Shared<Told>,
}

impl RecorderEnds {
    /// Makes a recorder with all its memory, which is touched here.
    pub(crate) fn new(
        places: Places,
        pools: &[Pool],
        filter: Option<CaptureFilter>,
        windows: Option<Arc<Windows>>,
        clock: Clock,
    ) -> RecorderEnds {
        let (producer, events) = spsc(RING_EVENTS);
        let told = shared::<Told>();
        let recorder = Recorder {
            events: producer,
            turn: Vec::with_capacity(TURN_EVENTS),
            is_too_long: false,
            is_told: false,
            told: Shared::clone(&told),
            places,
            filter,
            packets: PacketNumbers::new(pools),
            held: Vec::with_capacity(SINKS_MAX),
            waiting: Vec::with_capacity(TURN_EVENTS),
            tx_packets: 0,
            looked_ns: 0,
            sleeps_ns: 0,
            stolen_ns: 0,
            sampling: windows.map(Sampling::new),
            has_rested: false,
            is_beyond: false,
            clock,
        };
        RecorderEnds { recorder, events, told }
    }
}

impl Recorder {
    /// The lcore has the recorder from here on.
    pub(crate) fn enter(&mut self, sinks: &[Sink], stats: &LcoreStats) {
        self.held.extend(sinks.iter().take(SINKS_MAX).map(|sink| sink.batch.len()));
        self.looked_ns = self.clock.now_ns();
        self.stolen_ns = stats.stolen_ns.value();
    }

    /// The lcore goes to sleep.
    pub(crate) fn sleeps(&mut self) {
        self.sleeps_ns = self.clock.now_ns();
    }

    /// The lcore awoke.
    pub(crate) fn awoke(&mut self, cause: WakeCause) {
        self.looked_ns = self.clock.now_ns();
        let slept_ns = self.looked_ns.saturating_sub(self.sleeps_ns);
        self.note(TraceEvent::new(TraceKind::Asleep, self.looked_ns, cause as u16, slept_ns));
    }

    /// Whether some turns are not recorded.
    pub(crate) fn samples(&self) -> bool {
        self.sampling.is_some()
    }

    /// Whether the next turn is recorded. `is_resting`: the last one was not.
    pub(crate) fn records(&mut self, is_resting: bool, stats: &LcoreStats) -> bool {
        let (now_ns, Some(sampling)) = (self.clock.now_ns(), &mut self.sampling) else { return true };
        let waited_ns = now_ns.saturating_sub(self.looked_ns);
        let is_sampled = sampling.records(now_ns, waited_ns);
        // Only the next turn can report the time stolen from this one.
        let was_long = !is_resting && waited_ns >= LATE_NS;
        self.is_beyond = !is_sampled && was_long && !self.is_beyond;
        if is_sampled || self.is_beyond {
            return true;
        }
        (self.looked_ns, self.stolen_ns) = (now_ns, stats.stolen_ns.value());
        if is_resting {
            // Forget the cause of its waking.
            self.turn.clear();
        } else {
            self.note(TraceEvent::new(TraceKind::Rests, now_ns, 0, 0));
            self.has_rested = !self.keep();
        }
        false
    }

    /// A turn begins at `now_ns`.
    pub(crate) fn begin(&mut self, sinks: &[Sink], stats: &LcoreStats, now_ns: Tick) {
        let stolen_ns = stats.stolen_ns.value();
        let robbed_ns = stolen_ns.saturating_sub(std::mem::replace(&mut self.stolen_ns, stolen_ns));
        if robbed_ns > 0 {
            self.note(TraceEvent::new(TraceKind::Stolen, now_ns, 0, robbed_ns));
        }
        if self.has_rested {
            self.note(TraceEvent::new(TraceKind::Rests, now_ns, 0, 0));
        }
        // Events from between two turns.
        self.has_rested &= !self.keep();
        self.held.iter_mut().zip(sinks).for_each(|(held, sink)| *held = sink.batch.len());
        self.told.turn_ns.set(now_ns);
        let waited_ns = now_ns.saturating_sub(std::mem::replace(&mut self.looked_ns, now_ns));
        self.note(TraceEvent::new(TraceKind::Turn, now_ns, 0, waited_ns));
    }

    /// The turn ends, and found work or none.
    pub(crate) fn end(&mut self, was_busy: bool) {
        if was_busy || self.is_told {
            self.note_now(TraceKind::TurnEnd, 0, 0);
            self.keep();
        } else {
            self.turn.clear();
            self.is_too_long = false;
        }
        self.is_told = false;
        self.told.turn_ns.set(0);
    }

    /// Completions have been handed to their ports.
    pub(crate) fn received(&mut self, sinks: &[Sink]) {
        let (from, mut at_ns) = (self.places.ports_from, None);
        for sink in 0..sinks.len() {
            self.added(TraceKind::Received, &mut at_ns, sink, sinks, |packet| from + packet.port());
        }
    }

    /// Packets were taken from the ring with these counters, into a sink.
    pub(crate) fn popped(&mut self, ring: &Shared<RingConsumerStats>, sink: usize, sinks: &[Sink]) {
        let place = place_of(&self.places.emptied, ring);
        self.added(TraceKind::Popped, &mut None, sink, sinks, |_| place);
    }

    /// The stage with these counters is about to be called with the packets of a sink.
    pub(crate) fn entered(&mut self, stage: &Shared<StageStats>, sink: usize, sinks: &[Sink]) {
        let place = place_of(&self.places.stages, stage);
        let now_ns = self.clock.now_ns();
        self.calls(place, now_ns);
        let packets = sinks[sink].batch.as_slice();
        self.note(TraceEvent::new(TraceKind::Process, now_ns, place, packets.len() as u64));
        let entered = packets.iter().map(|packet| {
            let number = self.packets.of(packet);
            TraceEvent::of_packet(TraceKind::Entered, now_ns, place, number, false)
        });
        note_all(&mut self.turn, &mut self.is_too_long, entered);
        self.set_held(sink, 0);
    }

    /// The stage, whose outputs lead to the sinks that `reached` yields, has returned.
    pub(crate) fn returned(
        &mut self,
        stage: &Shared<StageStats>,
        reached: impl Iterator<Item = usize>,
        sinks: &[Sink],
    ) {
        let (place, now_ns) = (place_of(&self.places.stages, stage), self.clock.now_ns());
        self.told.calls.set(0);
        let sent =
            reached.fold(0, |sent, sink| sent + self.added(TraceKind::Sent, &mut Some(now_ns), sink, sinks, |_| place));
        self.note(TraceEvent::new(TraceKind::Return, now_ns, place, sent as u64));
    }

    /// The stage is about to be polled. Returns arguments for [`Recorder::polled`].
    pub(crate) fn polls(&mut self, stage: &Shared<StageStats>) -> (usize, Tick) {
        let (place, now_ns, before) = (place_of(&self.places.stages, stage), self.clock.now_ns(), self.turn.len());
        self.calls(place, now_ns);
        self.note(TraceEvent::new(TraceKind::Poll, now_ns, place, 0));
        (before, now_ns)
    }

    fn calls(&self, place: u16, now_ns: Tick) {
        self.told.called_ns.set(now_ns);
        self.told.calls.set(u64::from(place) + 1);
    }

    /// The stage was polled.
    pub(crate) fn polled(
        &mut self,
        stage: &Shared<StageStats>,
        began: (usize, Tick),
        reached: impl Iterator<Item = usize>,
        sinks: &[Sink],
    ) {
        let (before, began_ns) = began;
        self.returned(stage, reached, sinks);
        let is_long = self.turn.last().is_some_and(|last| last.at_ns.saturating_sub(began_ns) >= SHORT_POLL_NS);
        // The call, its end, and the sent packets between them.
        let is_silent = self.turn.len() == before + 2;
        match is_long {
            true => self.is_told = true,
            false if is_silent => self.turn.truncate(before),
            false => {}
        }
    }

    /// A port is about to post the packets of a sink. Returns false if there are none.
    pub(crate) fn posts(&mut self, stats: &PortStats, sink: usize, sinks: &[Sink]) -> bool {
        self.tx_packets = stats.tx_packets.value();
        self.await_in(&sinks[sink])
    }

    /// The port at this place in the plan has posted, dropped, or left the packets of the sink.
    pub(crate) fn posted(&mut self, port: u16, stats: &PortStats, sink: usize, sinks: &[Sink]) {
        let (place, now_ns) = (self.places.ports_from + port, self.clock.now_ns());
        let batch = &sinks[sink].batch;
        if !batch.is_empty() {
            let mut left = batch.iter().map(|packet| self.packets.of(packet)).peekable();
            self.waiting.retain(|number| left.next_if_eq(number).is_none());
        }
        self.set_held(sink, batch.len());
        let sent = stats.tx_packets.value() - self.tx_packets;
        let (sent, dropped) = self.waiting.split_at(self.waiting.len().min(sent as usize));
        for (kind, numbers) in [(TraceKind::Posted, sent), (TraceKind::Dropped, dropped)] {
            let gone = numbers.iter().map(|&number| TraceEvent::of_packet(kind, now_ns, place, number, false));
            note_all(&mut self.turn, &mut self.is_too_long, gone);
        }
    }

    /// A ring is about to take the packets of a sink. Returns the time; `None`: there are none.
    pub(crate) fn pushes(&mut self, sink: usize, sinks: &[Sink]) -> Option<Tick> {
        // Read before the ring's consumer may pop them.
        self.await_in(&sinks[sink]).then(|| self.clock.now_ns())
    }

    /// The ring has taken the first `count` packets.
    pub(crate) fn pushed(
        &mut self,
        ring: &Shared<RingProducerStats>,
        at_ns: Tick,
        count: usize,
        sink: usize,
        sinks: &[Sink],
    ) {
        let place = place_of(&self.places.filled, ring);
        let pushed = self.waiting.iter().take(count);
        let pushed = pushed.map(|&number| TraceEvent::of_packet(TraceKind::Pushed, at_ns, place, number, false));
        note_all(&mut self.turn, &mut self.is_too_long, pushed);
        self.set_held(sink, sinks[sink].batch.len());
    }

    /// Notes the packets that wait in a sink to be taken. Returns false if there are none.
    fn await_in(&mut self, sink: &Sink) -> bool {
        let packets = sink.batch.iter().take(TURN_EVENTS);
        self.waiting.clear();
        self.waiting.extend(packets.map(|packet| self.packets.of(packet)));
        !self.waiting.is_empty()
    }

    /// Notes each packet that has come into a sink since the last look, at a time that is read when
    /// it is first needed. Returns their number.
    fn added(
        &mut self,
        kind: TraceKind,
        at_ns: &mut Option<Tick>,
        sink: usize,
        sinks: &[Sink],
        place: impl Fn(&Packet) -> u16,
    ) -> usize {
        let Some(held) = self.held.get_mut(sink) else { return 0 };
        let packets = sinks[sink].batch.as_slice();
        let before = std::mem::replace(held, packets.len());
        let new = packets.get(before..).unwrap_or_default();
        if new.is_empty() {
            return 0;
        }
        let now_ns = *at_ns.get_or_insert_with(|| self.clock.now_ns());
        let came = new.iter().map(|packet| {
            let is_marked = self.filter.as_ref().is_none_or(|filter| filter.matches(packet.data()));
            let number = self.packets.of(packet);
            TraceEvent::of_packet(kind, now_ns, place(packet), number, is_marked)
        });
        note_all(&mut self.turn, &mut self.is_too_long, came);
        new.len()
    }

    fn set_held(&mut self, sink: usize, packets: usize) {
        if let Some(held) = self.held.get_mut(sink) {
            *held = packets;
        }
    }

    fn note(&mut self, event: TraceEvent) {
        note_all(&mut self.turn, &mut self.is_too_long, std::iter::once(event));
    }

    fn note_now(&mut self, kind: TraceKind, place: u16, value: u64) {
        self.note(TraceEvent::new(kind, self.clock.now_ns(), place, value));
    }

    /// Hands over the turn's events: all of them, or none. Returns false if they were lost.
    fn keep(&mut self) -> bool {
        let count = self.turn.len();
        if count == 0 {
            return true;
        }
        let is_too_long = std::mem::take(&mut self.is_too_long);
        let is_kept = !is_too_long && self.events.room_for(count) >= count;
        match is_kept {
            true => _ = self.events.push_iter(count, self.turn.iter().copied()),
            false => self.told.lost.add(1),
        }
        self.turn.clear();
        is_kept
    }
}

fn note_all(turn: &mut Vec<TraceEvent>, is_too_long: &mut bool, events: impl ExactSizeIterator<Item = TraceEvent>) {
    match turn.len() + events.len() <= TURN_EVENTS {
        true => turn.extend(events),
        false => *is_too_long = true,
    }
}
