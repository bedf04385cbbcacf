//! The trader's arbiter: merges channels A and B, each message once and in order, and counts gaps.
//!
//! A packet passes unchanged. Its mark tells the book how many messages to skip at its start, and
//! whether messages were lost just before it. The arbiter also forwards a MoldUDP64 heartbeat once
//! the stream has come to its number: so the book learns of a loss with nothing behind it.

use serde::Deserialize;
use verbline::cli::duration;
use verbline::prelude::*;

use super::settings::MoexSettings;
use super::silence::Silence;
use super::tally::{ArbiterTally, Home, Tally};
use crate::arbitration::{Anew, Arbiter, ArbiterSpec, BEYOND_ITEMS, Channel, Event, Offer};
use crate::framing::{FortsFrames, FrameError, Framed, Frames, MoldFrames};
use crate::mold::Session;

const MERGED: OutId = OutId(0);
const DROPS: &[&str] = &["malformed", "wrong_session", "false_preamble", "refused"];
const REFUSED: DropReason = DropReason::Stage(3);

fn reason(error: FrameError) -> DropReason {
    DropReason::Stage(match error {
        FrameError::Malformed => 0,
        FrameError::WrongSession => 1,
        FrameError::FalsePreamble => 2,
    })
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Framing {
    /// MoldUDP64.
    Mold,
    /// FAST behind a four-byte MsgSeqNum.
    Forts,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    a: String,
    framing: Framing,
    session: Option<String>,
    first: Option<u64>,
    timeout_us: u64,
    silence_ms: u64,
}

impl Keys for Params {
    const KEYS: &'static [AppKey] = &[
        AppKey::text("a", "a port's NAME", "the port that receives channel A; every other one is channel B's"),
        AppKey::choice("framing", &["mold", "forts"], "MoldUDP64, or FAST behind a four-byte MsgSeqNum"),
        AppKey::text("session", "1 to 10 ASCII characters", "the feed's MoldUDP64 session").optional("first heard"),
        AppKey::integer("first", 0..=FIRST_MAX, "first sequence number; without it a loss at the start is not seen")
            .optional("first heard"),
        AppKey::integer("timeout_us", 0..=TIMEOUT_US_MAX, "how long a hole on one channel may be filled by the other")
            .or(1_000)
            .unit("µs"),
        AppKey::integer("silence_ms", 0..=SILENCE_MS_MAX, "how long a MoldUDP64 feed may say nothing; 0: for ever")
            .or(3_000)
            .unit("ms"),
    ];
}

/// The longest time-out: an hour, effectively none.
const TIMEOUT_US_MAX: u64 = 3_600_000_000;

/// The longest silence: a day.
const SILENCE_MS_MAX: u64 = 86_400_000;

/// No feed gets there: a thousand million messages per second for thirty years.
pub(super) const FIRST_MAX: u64 = 1_000_000_000_000_000_000;

/// Sequence numbers held behind a hole.
const WINDOW: u32 = 256;

pub(super) fn register(registry: &mut Registry, tally: &Tally) {
    let home = tally.clone();
    let spec = StageSpec {
        outputs: &["merged"],
        holds_packets: WINDOW + BEYOND_ITEMS as u32 + 1,
        drops: DROPS,
        summary: "merges channels A and B, finds gaps",
        ..StageSpec::default()
    };
    registry.stage("arbiter", spec, move |stage| {
        let params: Params = stage.raw_params().read()?;
        let port_a = port_index(stage, &params.a)?;
        let timeout_ns = params.timeout_us * 1_000;
        // A recording ends without an end of session.
        let silence_ms = if params.framing == Framing::Mold { params.silence_ms } else { 0 };
        let spec = ArbiterSpec { window: WINDOW, timeout_ns, first: params.first, ..ArbiterSpec::default() };
        Ok(Box::new(Merge {
            arbiter: Arbiter::new(spec),
            anew: Anew::default(),
            silence: Silence::new(silence_ms * 1_000_000),
            silent_ns: None,
            silent_in_all_ns: 0,
            over_at: None,
            port_a,
            frames: frames(stage, &params)?,
            next_bits: 0,
            forwards_heartbeats: params.framing == Framing::Mold,
            heartbeat: None,
            heartbeats_end: 0,
            old: 0,
            received: stage.counter("received"),
            gaps: stage.counter("gaps"),
            duplicates: stage.counter("duplicates"),
            heartbeats: stage.counter("heartbeats"),
            heartbeats_forwarded: stage.counter("heartbeats_forwarded"),
            begun_anew: stage.counter("begun_anew"),
            silences: stage.counter("silences"),
            home: home.home(stage),
        }))
    });
    registry.params_of::<Params>("arbiter", "which port is channel A, and how frames are read");
}

fn frames(stage: &StageContext<'_>, params: &Params) -> Result<Frames, StageError> {
    let refuse = |message: String| Err(stage.raw_params().refuse("session", message).into());
    match (params.framing, &params.session) {
        (Framing::Mold, None) => Ok(Frames::Mold(MoldFrames::new(None))),
        (Framing::Mold, Some(name)) => match session(name) {
            Some(session) => Ok(Frames::Mold(MoldFrames::new(Some(session)))),
            None => refuse(format!("a MoldUDP64 session is 1 to 10 ASCII characters, not `{name}`")),
        },
        (Framing::Forts, None) => Ok(Frames::Forts(Box::new(FortsFrames::new(MoexSettings::open(stage)?.1.decoder())))),
        (Framing::Forts, Some(_)) => refuse("a FORTS feed has no session: leave it out".to_owned()),
    }
}

/// A session's name, padded with spaces as on the wire.
fn session(name: &str) -> Option<Session> {
    let mut session = [b' '; size_of::<Session>()];
    session.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    (!name.is_empty() && name.is_ascii()).then_some(session)
}

fn port_index(stage: &StageContext<'_>, name: &str) -> Result<u16, StageError> {
    let ports = stage.plan().ports();
    match ports.iter().position(|port| port.name == name) {
        Some(index) => Ok(index as u16),
        None => Err(stage.raw_params().refuse("a", format!("the plan has no port `{name}`")).into()),
    }
}

struct Merge {
    arbiter: Arbiter<Packet>,
    anew: Anew,
    silence: Silence,
    /// The length of a silence at the stop, if it was too long.
    silent_ns: Option<u64>,
    /// The length of all silences that were too long.
    silent_in_all_ns: u64,
    /// The next number of the stream when its session was found to be over, replaced by one that
    /// the plan does not name.
    over_at: Option<Option<u64>>,
    port_a: u16,
    frames: Frames,
    /// The bits of the next packet's mark, except its `skip`.
    next_bits: u64,
    forwards_heartbeats: bool,
    /// The last heartbeat with its number, while the stream is not there.
    heartbeat: Option<(u64, Packet)>,
    /// The number of the last heartbeat forwarded.
    heartbeats_end: u64,
    /// Packets that the arbiter returned, as all their messages had come otherwise.
    old: u64,
    /// Messages received.
    received: Counter,
    gaps: Counter,
    /// Packets whose messages had all come otherwise, or came too late.
    duplicates: Counter,
    /// Packets: heartbeats, and ends of a session.
    heartbeats: Counter,
    /// Heartbeats and ends of a session that were forwarded.
    heartbeats_forwarded: Counter,
    /// Times that the feed began anew, or ended for another session.
    begun_anew: Counter,
    /// Times that the feed fell silent.
    silences: Counter,
    home: Home,
}

impl Stage for Merge {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        let now_ns = out.now_ns();
        if let Some(lasted_ns) = self.silence.heard(now_ns) {
            self.silent_in_all_ns += lasted_ns;
            tracing::info!("the feed goes on: it was silent for {}", duration(lasted_ns));
        }
        for packet in input.drain_front(input.len()) {
            let channel = if packet.port() == self.port_a { Channel::A } else { Channel::B };
            match self.frames.frame(packet.data()) {
                Err(FrameError::WrongSession) => self.claim(channel, packet, now_ns, out),
                Err(error) => out.drop(packet, reason(error)),
                Ok(Framed { sequence, count: 0 }) => {
                    self.heartbeats.add(1);
                    self.arbiter.heartbeat(channel, sequence);
                    if self.frames.is_end(packet.data()) {
                        self.silence.end();
                    }
                    if self.arbiter.next_sequence().is_some_and(|next| sequence >= next) {
                        self.anew.refute();
                    }
                    if self.forwards_heartbeats && sequence > self.heartbeats_end {
                        self.heartbeat = Some((sequence, packet));
                    }
                }
                Ok(Framed { sequence, count }) => match self.arbiter.offer(channel, sequence, count, packet, now_ns) {
                    Offer::Ready { item, skip } => self.forward(item, skip, out),
                    Offer::Held => {}
                    // From before the end of its channel: out of order, or the feed begins anew.
                    Offer::Old(item) if sequence + u64::from(count) < self.arbiter.heard(channel) => {
                        self.claim(channel, item, now_ns, out);
                    }
                    Offer::Old(_) => self.old += 1,
                    Offer::Refused(item) => out.drop(item, REFUSED),
                },
            }
            self.release(now_ns, out);
        }
        self.count();
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.arbiter.held() > 0 || self.arbiter.deadline_ns().is_some() {
            self.release(out.now_ns(), out);
            self.count();
        }
        if self.silence.begins(out.now_ns()) {
            self.silences.add(1);
            tracing::warn!("the feed has fallen silent: no book is known to be right until it goes on");
        }
        let due_ns = [self.arbiter.deadline_ns(), self.silence.due_ns()].into_iter().flatten().min();
        due_ns.map_or(Next::Idle, Next::At)
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        self.silent_ns = self.silence.lasted_ns(out.now_ns());
        self.silent_in_all_ns += self.silent_ns.unwrap_or(0);
        // An exchange of the same run stops, too: its silence is expected.
        self.silence = Silence::new(0);
    }
}

impl Merge {
    fn count(&self) {
        let counts = self.arbiter.counts();
        self.received.set(counts.delivered);
        self.duplicates.set(self.old + counts.dropped_items);
    }

    /// Handles a packet of another session, or from before the end of its channel. Once both
    /// channels confirm it, the feed begins anew with it.
    #[cold]
    fn claim(&mut self, channel: Channel, packet: Packet, now_ns: u64, out: &mut Outputs<'_>) {
        let is_old = self.frames.frame(packet.data()).is_ok();
        let refuse = |merge: &mut Merge, packet, out: &mut Outputs<'_>| match is_old {
            true => merge.old += 1,
            false => out.drop(packet, reason(FrameError::WrongSession)),
        };
        let Some((session, Framed { sequence, count })) = self.frames.claim(packet.data()) else {
            return refuse(self, packet, out);
        };
        let stands_at = self.arbiter.next_sequence();
        // A packet that fills a hole is of the stream; another one that comes back for the hole may
        // be, too.
        let is_ahead = is_old && stands_at.is_some_and(|next| sequence + u64::from(count) > next);
        let is_known = is_ahead || self.over_at == Some(stands_at);
        if is_known || !self.anew.is_borne_out(channel, &session, (sequence, count), stands_at, now_ns) {
            return refuse(self, packet, out);
        }
        self.begun_anew.add(1);
        self.next_bits = ANEW;
        let name = String::from_utf8_lossy(&session).into_owned();
        if !self.frames.go_over(&session) {
            tracing::warn!("the feed goes on in session `{name}`, which the plan does not name: no book is right now");
            (self.over_at, self.next_bits) = (Some(stands_at), ANEW | OVER);
            self.forward(packet, 0, out);
            self.next_bits &= !OVER;
            return;
        }
        tracing::warn!("the feed begins anew in session `{name}` at {sequence}: all books are given up, and recovered");
        (self.heartbeat, self.heartbeats_end) = (None, 0);
        self.arbiter.begin_anew(sequence);
        if let Offer::Ready { item, skip } = self.arbiter.offer(channel, sequence, count, packet, now_ns) {
            self.forward(item, skip, out);
        }
    }

    /// Forwards packets that have become ready, and counts gaps.
    #[inline]
    fn release(&mut self, now_ns: u64, out: &mut Outputs<'_>) {
        while let Some(event) = self.arbiter.pop(now_ns) {
            match event {
                Event::Message { item, skip, .. } => self.forward(item, skip, out),
                Event::Gap { .. } => {
                    self.gaps.add(1);
                    self.next_bits |= LOST_BEFORE;
                }
            }
        }
        if self.heartbeat.is_some() {
            self.forward_heartbeat(out);
        }
    }

    /// Forwards the heartbeat if the stream has come to its number; drops it if the stream is
    /// beyond.
    #[cold]
    fn forward_heartbeat(&mut self, out: &mut Outputs<'_>) {
        let next = self.arbiter.next_sequence().unwrap_or(0);
        if let Some((sequence, packet)) = self.heartbeat.take_if(|(sequence, _)| *sequence <= next)
            && sequence == next
        {
            self.heartbeats_end = sequence;
            self.heartbeats_forwarded.add(1);
            self.forward(packet, 0, out);
        }
    }

    #[inline]
    fn forward(&mut self, mut packet: Packet, skip: u32, out: &mut Outputs<'_>) {
        packet.set_mark(ARBITRATED | u64::from(skip) | self.next_bits);
        // A packet refused for want of room is counted there; its messages are lost to the book.
        self.next_bits = if out.send(MERGED, packet) { 0 } else { self.next_bits | LOST_BEFORE };
    }
}

impl Drop for Merge {
    fn drop(&mut self) {
        let (counts, silent_in_all_ns) = (*self.arbiter.counts(), self.silent_in_all_ns);
        let tally = ArbiterTally { counts, silent_ns: self.silent_ns, silent_in_all_ns };
        self.home.leave(|all, stage| _ = all.arbiters.insert(stage, tally));
    }
}

/// The arbiter's mark on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Messages at the start to skip: they came in another packet, or too late.
    pub(super) skip: u32,
    /// Messages were lost between the last packet and this one.
    pub(super) lost_before: bool,
}

const LOST_BEFORE: u64 = 1 << 32;

/// Set on every packet from an arbiter; a fresh packet's mark is 0.
const ARBITRATED: u64 = 1 << 33;

/// The feed has begun anew with this packet: earlier state is void.
const ANEW: u64 = 1 << 34;

/// In addition: skip the whole packet, as it is of a session that the plan does not follow.
const OVER: u64 = 1 << 35;

impl Mark {
    fn from_bits(bits: u64) -> Mark {
        Mark { skip: bits as u32, lost_before: bits & LOST_BEFORE != 0 }
    }

    /// The mark; `None` for a packet that came from no arbiter, or with which the feed begins anew.
    #[inline]
    pub(super) fn of(packet: &Packet) -> Option<Mark> {
        let bits = packet.mark();
        (bits & (ARBITRATED | ANEW) == ARBITRATED).then(|| Mark::from_bits(bits))
    }

    /// The mark of a packet with which the feed begins anew. `Some(None)`: the followed session is
    /// over, and no message of the packet counts.
    #[cold]
    pub(super) fn of_anew(packet: &Packet) -> Option<Option<Mark>> {
        let bits = packet.mark();
        let counts = (bits & OVER == 0).then(|| Mark::from_bits(bits));
        (bits & (ARBITRATED | ANEW) == ARBITRATED | ANEW).then_some(counts)
    }

    /// Marks a packet like the next one of a stream that lost none.
    #[cfg(test)]
    pub(super) fn put_next(packet: &mut Packet) {
        packet.set_mark(ARBITRATED);
    }
}
