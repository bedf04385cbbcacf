//! The stage that owns the region which an operator's operations reach.

use serde::Deserialize;
use verbline::engine::{Counter, Region, StageError};
use verbline::prelude::*;

use super::clerk::Asked;
use super::marks::{Counters, OPERATOR, OWNER, RETRY_NS, STAMP_BYTES, Stamps, WORD_BYTES};

const OUT: OutId = OutId(0);
/// A stamp, a word's place and what was written there before.
pub(super) const TOLD_BYTES: usize = STAMP_BYTES + 2 * WORD_BYTES;
/// The place in a message that tells of no word.
pub(super) const NO_WORD: u64 = u64::MAX;

/// Owns the region, and sends its key.
pub(super) struct Owner {
    counters: Counters,
    /// What was added, as the run stops.
    sum: Counter,
    stamps: Stamps,
    asked: Asked,
    there: Region,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnerParams {
    /// As of a stage of the graph.
    asked: Vec<[u8; 3]>,
}

impl Owner {
    pub(super) fn new(context: &StageContext<'_>) -> Result<Owner, StageError> {
        Ok(Owner {
            counters: Counters::new(context),
            sum: context.counter("sum"),
            stamps: Stamps::new(OWNER as u8),
            asked: Asked::new(context, &context.params::<OwnerParams>()?.asked),
            there: context.region("there")?,
        })
    }

    /// Whether a word that a message tells of has been written.
    fn is_written(&self, packet: &Packet) -> bool {
        let Ok(told) = <&[u8; TOLD_BYTES]>::try_from(packet.data()) else { return false };
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| told[at + byte]));
        match word(STAMP_BYTES) {
            NO_WORD => true,
            index => {
                let there = self.there.load_u64(index as usize * WORD_BYTES);
                there.is_ok_and(|there| there >= word(STAMP_BYTES + WORD_BYTES))
            }
        }
    }
}

impl Stage for Owner {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.as_slice() {
            let is_well = self.stamps.is_next(packet) && self.is_written(packet) && self.asked.is_well(packet);
            self.counters.astray.add((!is_well).into());
        }
        self.counters.came.add(input.len() as u64);
        self.counters.drop_all(input, out);
    }

    /// Sends the key, once there is a packet for it.
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let Some(mut packet) = self.counters.take(out) else { return Next::At(out.now_ns() + RETRY_NS) };
        let key = self.there.remote(0).expect("its memory is there").to_bytes();
        assert!(packet.set_len(STAMP_BYTES + key.len()), "a plan's packets hold a key");
        self.stamps.stamp(&mut packet, 0, OPERATOR as u8);
        packet.data_mut()[STAMP_BYTES..].copy_from_slice(&key);
        match out.send(OUT, packet) {
            true => self.counters.sent[0].add(1),
            false => self.counters.refused[0].add(1),
        }
        Next::Done
    }

    fn stop(&mut self, _: &mut Outputs<'_>) {
        self.sum.set(self.there.load_u64(0).expect("its memory is there"));
    }
}
