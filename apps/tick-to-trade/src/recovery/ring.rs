//! The last messages of a stream, by sequence number: what a server can send again, and what a
//! client holds behind a gap.

use crate::itch::MESSAGE_LEN_BYTES_MAX;

/// One message, in a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Slot {
    /// The message's sequence number plus 1, so that 0 says that there is none.
    tag: u64,
    len_bytes: u8,
    bytes: [u8; MESSAGE_LEN_BYTES_MAX],
}

const _: () = assert!(size_of::<Slot>() == 64);

/// A message's type and locate code: shorter than any message.
const HEAD_LEN_BYTES: usize = 3;

const EMPTY: Slot = Slot { tag: 0, len_bytes: 0, bytes: [0; MESSAGE_LEN_BYTES_MAX] };

/// A ring of messages. A message takes the place of the one that is as many sequence numbers before
/// it as the ring is long.
pub struct MessageRing {
    slots: Box<[Slot]>,
}

impl MessageRing {
    /// What a ring of this many messages allocates.
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

    /// How many messages it can hold.
    pub fn capacity(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Keeps a message. One that is longer than any of ITCH is none of ITCH: its type and locate
    /// code are kept, so that it is seen to be none, and which book it was for.
    #[inline]
    pub fn put(&mut self, sequence: u64, message: &[u8]) {
        let at = self.at(sequence);
        let slot = &mut self.slots[at];
        let message = if message.len() <= MESSAGE_LEN_BYTES_MAX { message } else { &message[..HEAD_LEN_BYTES] };
        slot.tag = sequence.wrapping_add(1);
        slot.len_bytes = message.len() as u8;
        slot.bytes[..message.len()].copy_from_slice(message);
    }

    /// The message of this number, if it is still there.
    #[inline]
    pub fn get(&self, sequence: u64) -> Option<&[u8]> {
        let slot = &self.slots[self.at(sequence)];
        let is_there = slot.tag == sequence.wrapping_add(1) && slot.tag != 0;
        is_there.then(|| &slot.bytes[..usize::from(slot.len_bytes)])
    }

    /// Whether the message of this number is there.
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
