//! The last messages of a stream, by sequence number: those that a server can send again, or that a
//! client holds behind a gap.

use crate::itch::MESSAGE_LEN_BYTES_MAX;

/// One message, in a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Slot {
    /// The message's sequence number plus 1; 0 means none.
    tag: u64,
    len_bytes: u8,
    bytes: [u8; MESSAGE_LEN_BYTES_MAX],
}

const _: () = assert!(size_of::<Slot>() == 64);

/// A message's type and locate code: shorter than any message.
const HEAD_LEN_BYTES: usize = 3;

const EMPTY: Slot = Slot { tag: 0, len_bytes: 0, bytes: [0; MESSAGE_LEN_BYTES_MAX] };

/// A ring of messages. A message overwrites the one that is a ring's length earlier.
pub struct MessageRing {
    slots: Box<[Slot]>,
}

impl MessageRing {
    /// Memory that a ring of this many messages allocates, in bytes.
    pub fn memory_bytes(messages: u32) -> u64 {
        (Self::len_of(messages) * size_of::<Slot>()) as u64
    }

    /// Room for this many messages, rounded up to a power of two.
    pub fn new(messages: u32) -> MessageRing {
        MessageRing { slots: vec![EMPTY; Self::len_of(messages)].into_boxed_slice() }
    }

    fn len_of(messages: u32) -> usize {
        messages.clamp(2, 1 << 30).next_power_of_two() as usize
    }

    /// The number of messages that fit.
    pub fn capacity(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Keeps a message. A message longer than any of ITCH is malformed: only its type and locate
    /// code are kept, enough to show that, and the book it was for.
    #[inline]
    pub fn put(&mut self, sequence: u64, message: &[u8]) {
        let at = self.at(sequence);
        let slot = &mut self.slots[at];
        let message = if message.len() <= MESSAGE_LEN_BYTES_MAX { message } else { &message[..HEAD_LEN_BYTES] };
        slot.tag = sequence.wrapping_add(1);
        slot.len_bytes = message.len() as u8;
        slot.bytes[..message.len()].copy_from_slice(message);
    }

    /// The message with this number, if the ring still has it.
    #[inline]
    pub fn get(&self, sequence: u64) -> Option<&[u8]> {
        let slot = &self.slots[self.at(sequence)];
        let is_there = slot.tag == sequence.wrapping_add(1) && slot.tag != 0;
        is_there.then(|| &slot.bytes[..usize::from(slot.len_bytes)])
    }

    /// Whether the ring has the message with this number.
    #[inline]
    pub fn has(&self, sequence: u64) -> bool {
        self.get(sequence).is_some()
    }

    /// Forgets all messages.
    pub fn clear(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.tag = 0);
    }

    #[inline]
    fn at(&self, sequence: u64) -> usize {
        sequence as usize & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn keeps_the_last_of_each_place(
            puts in prop::collection::vec((prop_oneof![0u64..40, Just(u64::MAX)], 0usize..60), 0..80),
        ) {
            let mut ring = MessageRing::new(16);
            let mut oracle = HashMap::new();
            for (sequence, len) in puts {
                let message = vec![sequence as u8; len];
                ring.put(sequence, &message);
                let kept = if len <= MESSAGE_LEN_BYTES_MAX { len } else { HEAD_LEN_BYTES };
                oracle.insert(sequence % 16, (sequence, message[..kept].to_vec()));
            }
            for sequence in (0..40).chain([u64::MAX]) {
                let last = oracle.get(&(sequence % 16));
                let kept = last.filter(|(number, _)| *number == sequence && sequence < u64::MAX);
                prop_assert_eq!(ring.get(sequence), kept.map(|(_, message)| message.as_slice()));
            }
        }
    }
}
