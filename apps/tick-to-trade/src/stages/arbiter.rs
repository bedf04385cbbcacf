//! The trader's arbiter: channels A and B in, each message once and in order out, gaps counted.
//!
//! A packet goes on as it is. Its mark tells the book how many messages at its start to pass over, and whether messages
//! were lost just before it.

use serde::Deserialize;
use verbline::engine::{Counter, StageError};
use verbline::prelude::*;

use super::tally::Tally;
use super::wire::split_preamble;
use crate::arbitration::{Arbiter, ArbiterSpec, Channel, Event, Offer};
use crate::mold;

const MERGED: OutId = OutId(0);
const MALFORMED: DropReason = DropReason::Stage(0);
const REFUSED: DropReason = DropReason::Stage(1);

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
    /// The port that receives channel A, as `md_a`; every other one is channel B's.
    a: String,
    framing: Framing,
    /// The first sequence number of the feed; without it a loss at the very start goes unseen.
    first: Option<u64>,
    /// How long a hole on one channel may be filled by the other, microseconds.
    #[serde(default = "timeout_us")]
    timeout_us: u64,
}

fn timeout_us() -> u64 {
    1_000
}

/// Packets held behind a hole: a term of the pool's sum.
const WINDOW: u32 = 256;

pub(super) fn register(registry: &mut Registry, tally: &Tally) {
    let home = tally.clone();
    let spec = StageSpec {
        outputs: &["merged"],
        // The window, and one packet beyond it.
        holds_packets: WINDOW + 1,
        drops: &["malformed", "refused"],
        summary: "merges channels A and B, finds gaps",
        ..StageSpec::default()
    };
    registry.stage("arbiter", spec, move |stage| {
        let params: Params = stage.params()?;
        let port_a = port_index(stage, &params.a)?;
        let timeout_ns = params.timeout_us.saturating_mul(1_000);
        let spec = ArbiterSpec { window: WINDOW, timeout_ns, first: params.first, ..ArbiterSpec::default() };
        Ok(Box::new(Merge {
            arbiter: Arbiter::new(spec),
            port_a,
            framing: params.framing,
            lost_before_next: false,
            received: stage.counter("received"),
            gaps: stage.counter("gaps"),
            home: home.clone(),
        }))
    });
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
    port_a: u16,
    framing: Framing,
    lost_before_next: bool,
    received: Counter,
    gaps: Counter,
    home: Tally,
}

/// What a packet says of itself.
struct Framed {
    sequence: u64,
    count: u32,
}

impl Stage for Merge {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        let now_ns = out.now_ns();
        for packet in input.drain_front(input.len()) {
            let channel = if packet.port() == self.port_a { Channel::A } else { Channel::B };
            match self.frame(packet.data()) {
                None => out.drop(packet, MALFORMED),
                Some(Framed { sequence, count: 0 }) => self.arbiter.heartbeat(channel, sequence),
                Some(Framed { sequence, count }) => {
                    match self.arbiter.offer(channel, sequence, count, packet, now_ns) {
                        Offer::Ready { item, skip } => self.forward(item, skip, out),
                        Offer::Held | Offer::Old(_) => {}
                        Offer::Refused(item) => out.drop(item, REFUSED),
                    }
                }
            }
            self.release(now_ns, out);
        }
        self.received.set(self.arbiter.counts().delivered);
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        self.release(out.now_ns(), out);
        self.arbiter.deadline_ns().map_or(Next::Idle, Next::At)
    }
}

impl Merge {
    fn frame(&self, bytes: &[u8]) -> Option<Framed> {
        match self.framing {
            Framing::Mold => {
                let packet = mold::Packet::parse(bytes).ok()?;
                Some(Framed { sequence: packet.sequence(), count: u32::from(packet.count()) })
            }
            Framing::Forts => {
                let (number, fast) = split_preamble(bytes)?;
                Some(Framed { sequence: u64::from(number), count: u32::from(!fast.is_empty()) })
            }
        }
    }

    /// Hands on what has become ready, and counts what will not come.
    #[inline]
    fn release(&mut self, now_ns: u64, out: &mut Outputs<'_>) {
        while let Some(event) = self.arbiter.pop(now_ns) {
            match event {
                Event::Message { item, skip, .. } => self.forward(item, skip, out),
                Event::Gap { .. } => {
                    self.gaps.add(1);
                    self.lost_before_next = true;
                }
            }
        }
    }

    #[inline]
    fn forward(&mut self, mut packet: Packet, skip: u32, out: &mut Outputs<'_>) {
        packet.set_mark(Mark { skip, lost_before: std::mem::take(&mut self.lost_before_next) }.to_bits());
        out.send(MERGED, packet);
    }
}

impl Drop for Merge {
    fn drop(&mut self) {
        self.home.lock().arbiter = Some(*self.arbiter.counts());
    }
}

/// What the arbiter writes on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Messages at the start that came before in another packet, or too late.
    pub(super) skip: u32,
    /// Messages were lost between the last packet and this one.
    pub(super) lost_before: bool,
}

impl Mark {
    fn to_bits(self) -> u64 {
        u64::from(self.skip) | u64::from(self.lost_before) << 32
    }

    pub(super) fn of(packet: &Packet) -> Mark {
        Mark { skip: packet.mark() as u32, lost_before: packet.mark() >> 32 != 0 }
    }
}
