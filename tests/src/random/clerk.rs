//! Stages' requests for their sends, and the stage that gets returned packets.
//!
//! A packet's stamp has its requests, so that its receiver knows the immediate data that must come
//! with it, and the number of packets that must have come back to their sender.

use std::fmt::Write as _;

use fastrand::Rng;
use verbline::engine::{Counter, SendWith, immediate, send_result};
use verbline::prelude::*;

use super::links::{LinkDraft, RingDraft};
use super::marks::{ASKS_AT, ASKS_END, Counters, DROPS, Numbers, OPERATOR, STAMP_BYTES, is_filled};
use super::text::{Plan, line};

/// A packet's possible requests, as the bits of its stamp.
pub(super) const IMMEDIATE: u8 = 1;
const FENCED: u8 = 2;
const SOLICITED: u8 = 4;
pub(super) const RETURNED: u8 = 8;

/// A random part of a stage's possible requests.
pub(super) fn some(asks: u8, rng: &mut Rng) -> u8 {
    if asks == 0 { 0 } else { asks & rng.u8(..ASKS_END) }
}

/// Sets a packet's requests, in place of earlier ones. It is the `number`th of its output, and gets
/// a mark.
pub(super) fn ask(packet: &mut Packet, asks: u8, number: u32) {
    let has = |bit| asks & bit != 0;
    let with = SendWith::new();
    let with = if has(IMMEDIATE) { with.imm(number) } else { with };
    let with = if has(FENCED) { with.fenced() } else { with };
    let with = if has(SOLICITED) { with.solicited() } else { with };
    if has(RETURNED) { with.returned() } else { with }.ask(packet);
}

/// A stage's knowledge of links to it whose ports send as packets ask.
pub(super) struct Asked {
    /// Node and output at the other end, whether the port here puts immediate data on its packets,
    /// and the number of packets that asked to come back.
    links: Vec<([u8; 3], Counter)>,
}

impl Asked {
    pub(super) fn new(context: &StageContext<'_>, links: &[[u8; 3]]) -> Asked {
        let back = |[node, output, _]: &[u8; 3]| context.counter(format!("back_{node}_{output}"));
        Asked { links: links.iter().map(|link| (*link, back(link))).collect() }
    }

    /// Whether a packet came with the immediate data that it asked for.
    pub(super) fn is_well(&self, packet: &Packet) -> bool {
        let Some([node, output, _, asks, number @ ..]) = packet.data().first_chunk::<STAMP_BYTES>() else {
            return false;
        };
        let Some(([.., has_immediates], back)) = self.links.iter().find(|(link, _)| link[..2] == [*node, *output])
        else {
            return true;
        };
        back.add((asks & RETURNED != 0).into());
        let number = (asks & IMMEDIATE != 0).then_some(u32::from_le_bytes(*number));
        *has_immediates == 0 || immediate(packet) == number
    }
}

/// Counts packets that come back.
struct Clerk {
    counters: Counters,
    numbers: Numbers,
}

pub(super) fn register(registry: &mut Registry) {
    let spec = StageSpec { drops: DROPS, summary: "gets back what was sent", ..StageSpec::default() };
    registry.stage("clerk", spec, |context| {
        Ok(Box::new(Clerk { counters: Counters::new(context), numbers: Numbers::default() }))
    });
}

impl Stage for Clerk {
    /// Each packet has asked for it and was sent well, and is unchanged.
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.as_slice() {
            let asks = packet.data().get(ASKS_AT).copied().unwrap_or(0);
            let is_filled = packet.data().first() == Some(&(OPERATOR as u8)) || is_filled(packet.data());
            let is_well = asks & RETURNED != 0 && is_filled && send_result(packet) == Some(Ok(()));
            self.counters.astray.add((!is_well || !self.numbers.is_next(packet)).into());
        }
        self.counters.came.add(input.len() as u64);
        self.counters.drop_all(input, out);
    }
}

impl Plan<'_> {
    /// Keys of a port that sends as packets ask, keys of the port at the other end, and the stage
    /// for returned packets.
    pub(super) fn options(&mut self, name: &str, near: usize, link: &LinkDraft) -> [String; 2] {
        let Some(options) = link.options else { return Default::default() };
        let mut near_keys = "send_options = true\n".to_owned();
        if options & 2 != 0 {
            let far = if options & 4 != 0 { self.beside(near, 1) } else { near };
            let stage = format!("stage.w{name}");
            let to = match far == near {
                true => stage.clone(),
                // Packets that wait for a port can't be held back.
                false => {
                    let ring = RingDraft { full: link.ring.full % 2, ..link.ring.clone() };
                    self.ring(&format!("w{name}"), &ring, &stage, false)
                }
            };
            near_keys += &format!("sent = \"{to}\"\n");
            line!(self, "[{stage}]\nuse = \"clerk\"\nlcore = \"c{far}\"\n");
        }
        [near_keys, if options & 1 != 0 { "immediates = true\n".to_owned() } else { String::new() }]
    }
}
