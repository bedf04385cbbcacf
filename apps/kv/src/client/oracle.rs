//! The client's expectations of the server's answers: each key's value carries the PUT that it came
//! from.
//!
//! One PUT per key is in flight at a time, so that the generations of a key grow. A GET that begins
//! after a PUT was answered finds that PUT's generation, or a later one. A PUT that was given up
//! may still be done at any later time; from then on only generations up to the one before it are
//! guaranteed for its key.
//!
//! A generation has 32 bits, which a key with a million PUTs per second uses up in an hour. So
//! generations are compared by their distance, and 0 is skipped.
//!
//! A server keeps its values when a client dies. So a value also carries its client, and a later
//! client may find a value of another client until its own PUT of that key is answered.

#[derive(Clone, Copy, Debug, Default)]
struct Key {
    /// The last generation sent.
    sent: u32,
    /// The lowest generation that a GET may find.
    floor: u32,
    /// A PUT is in flight.
    putting: bool,
    /// A PUT was given up: the floor stays.
    unsure: bool,
}

/// A PUT given up this many PUTs of its key ago is assumed never to come: so the generations of a
/// key that may be found are never further apart than comparisons allow.
const FAR: u32 = 1 << 30;

/// Whether one generation comes after another.
fn is_after(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}

/// The verdict on a value, or on its absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A PUT of this key wrote the value, and it is new enough.
    Good,
    /// An earlier client wrote it, and none of our PUTs of this key was answered yet.
    Earlier,
    /// The value is older than a PUT that was answered before the GET began, or is gone.
    Stale,
    /// Another client wrote it after a PUT of ours was answered.
    Foreign,
    /// No PUT wrote this value.
    Corrupt,
}

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// A number that each client draws at random.
    pub(crate) client: u32,
    pub(crate) generation: u32,
}

/// The keys of one client, by number.
#[derive(Debug)]
pub(crate) struct Oracle {
    client: u32,
    keys: Vec<Key>,
}

impl Oracle {
    pub(crate) fn new(client: u32, keys: usize) -> Oracle {
        Oracle { client, keys: vec![Key::default(); keys] }
    }

    /// Memory that [`Oracle::new`] allocates, in bytes.
    pub(crate) fn memory_bytes(keys: u64) -> u64 {
        keys * size_of::<Key>() as u64
    }

    /// The origin of a value that this client puts.
    pub(crate) fn origin(&self, generation: u32) -> Origin {
        Origin { client: self.client, generation }
    }

    /// Begins a PUT and returns its generation; `None` while another is in flight.
    pub(crate) fn begin_put(&mut self, key: usize) -> Option<u32> {
        let key = &mut self.keys[key];
        if key.putting {
            return None;
        }
        key.putting = true;
        key.sent = key.sent.wrapping_add(1).max(1);
        if key.floor > 0 && key.sent.wrapping_sub(key.floor) > FAR {
            key.floor = key.sent.wrapping_sub(FAR).max(1);
        }
        Some(key.sent)
    }

    /// Ends a PUT at its answer. A refused PUT leaves the old value.
    pub(crate) fn end_put(&mut self, key: usize, done: bool) {
        let key = &mut self.keys[key];
        key.putting = false;
        if done && !key.unsure {
            key.floor = key.sent;
        }
    }

    /// Takes back a PUT that was never sent.
    pub(crate) fn undo_put(&mut self, key: usize) {
        let key = &mut self.keys[key];
        key.putting = false;
        key.sent = key.sent.wrapping_sub(1);
    }

    /// Gives up a PUT: whether it was or will be done is unknown.
    pub(crate) fn give_up_put(&mut self, key: usize) {
        let key = &mut self.keys[key];
        (key.putting, key.unsure) = (false, true);
    }

    /// The lowest generation that a GET which begins now may find.
    pub(crate) fn floor(&self, key: usize) -> u32 {
        self.keys[key].floor
    }

    /// Judges a GET's result.
    pub(crate) fn judge(&self, key: usize, floor: u32, value: Option<&[u8]>) -> Verdict {
        let Some(value) = value else {
            return if floor == 0 { Verdict::Good } else { Verdict::Stale };
        };
        match origin_of(key, value) {
            None => Verdict::Corrupt,
            Some(origin) if origin.client != self.client && floor == 0 => Verdict::Earlier,
            Some(origin) if origin.client != self.client => Verdict::Foreign,
            Some(origin) if is_after(origin.generation, self.keys[key].sent) => Verdict::Corrupt,
            Some(origin) if floor > 0 && is_after(floor, origin.generation) => Verdict::Stale,
            Some(_) => Verdict::Good,
        }
    }
}

/// Fills `value` with the value of a key from `origin`.
pub(crate) fn write_value(key: usize, origin: Origin, value: &mut [u8]) {
    let len = value.len();
    for (index, word) in value.chunks_mut(8).enumerate() {
        let bytes = value_word(key, len, origin, index).to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
}

/// The origin of a value; `None` if any byte of it is not of this key, or is missing.
fn origin_of(key: usize, value: &[u8]) -> Option<Origin> {
    let word = u64::from_le_bytes(value.get(8..16)?.try_into().ok()?);
    let origin = Origin { client: (word >> 32) as u32, generation: word as u32 };
    let right = |index| value_word(key, value.len(), origin, index).to_le_bytes();
    let is_right = |(index, word): (usize, &[u8])| word == &right(index)[..word.len()];
    value.chunks(8).enumerate().all(is_right).then_some(origin)
}

fn value_word(key: usize, len: usize, origin: Origin, index: usize) -> u64 {
    let from = u64::from(origin.client) << 32 | u64::from(origin.generation);
    match index {
        0 => (len as u64) << 32 | key as u64,
        1 => from,
        // Differs by word, by key, and by PUT.
        _ => (key as u64 ^ from.rotate_left(32)).wrapping_add(index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u32 = 77;

    fn value(key: usize, generation: u32, len: usize) -> Vec<u8> {
        value_of(US, key, generation, len)
    }

    fn value_of(client: u32, key: usize, generation: u32, len: usize) -> Vec<u8> {
        let mut value = vec![0; len];
        write_value(key, Origin { client, generation }, &mut value);
        value
    }

    #[test]
    fn a_value_is_judged_by_its_generation() {
        let mut oracle = Oracle::new(US, 4);
        assert_eq!(oracle.judge(2, oracle.floor(2), None), Verdict::Good, "nothing was put");
        assert_eq!(oracle.begin_put(2), Some(1));
        assert_eq!(oracle.begin_put(2), None, "one at a time");
        let before = oracle.floor(2);
        oracle.end_put(2, true);
        assert_eq!(oracle.judge(2, before, None), Verdict::Good, "the GET may have come first");
        let after = oracle.floor(2);
        assert_eq!(oracle.judge(2, after, None), Verdict::Stale);
        assert_eq!(oracle.judge(2, after, Some(&value(2, 1, 40))), Verdict::Good);
        assert_eq!(oracle.judge(2, after, Some(&value(2, 2, 40))), Verdict::Corrupt, "never sent");
        assert_eq!(oracle.judge(2, after, Some(&value(1, 1, 40))), Verdict::Corrupt, "another key's");
        assert_eq!(oracle.begin_put(2), Some(2));
        oracle.end_put(2, false);
        assert_eq!(oracle.judge(2, oracle.floor(2), Some(&value(2, 1, 40))), Verdict::Good, "the second was refused");
    }

    #[test]
    fn a_put_that_was_given_up_may_be_done_later() {
        let mut oracle = Oracle::new(US, 1);
        for _ in 0..2 {
            oracle.begin_put(0);
            oracle.end_put(0, true);
        }
        oracle.begin_put(0);
        oracle.give_up_put(0);
        oracle.begin_put(0);
        oracle.end_put(0, true);
        // Generation 3, given up, may arrive after 4.
        assert_eq!(oracle.judge(0, oracle.floor(0), Some(&value(0, 3, 16))), Verdict::Good);
        assert_eq!(oracle.judge(0, oracle.floor(0), Some(&value(0, 1, 16))), Verdict::Stale);
    }

    /// Regression: after 2^32 PUTs of a key its values were judged stale, and the run failed.
    #[test]
    fn generations_begin_again_when_they_are_used_up() {
        let mut oracle = Oracle::new(US, 1);
        oracle.keys[0] = Key { sent: u32::MAX - 2, floor: u32::MAX - 2, ..Key::default() };
        let mut before = u32::MAX - 2;
        for generation in [u32::MAX - 1, u32::MAX, 1, 2, 3] {
            assert_eq!(oracle.begin_put(0), Some(generation));
            let meanwhile = oracle.floor(0);
            oracle.end_put(0, true);
            let judge = |floor, found| oracle.judge(0, floor, Some(&value(0, found, 40)));
            assert_eq!(judge(oracle.floor(0), generation), Verdict::Good);
            assert_eq!(judge(oracle.floor(0), before), Verdict::Stale);
            assert_eq!(judge(meanwhile, before), Verdict::Good, "the GET may have come first");
            assert_eq!(judge(meanwhile, generation.wrapping_add(1).max(1)), Verdict::Corrupt, "never sent");
            before = generation;
        }
    }

    #[test]
    fn a_put_that_was_given_up_a_thousand_million_puts_ago_does_not_come() {
        let mut oracle = Oracle::new(US, 1);
        oracle.keys[0] = Key { sent: FAR + 5, floor: 5, unsure: true, ..Key::default() };
        assert_eq!(oracle.judge(0, oracle.floor(0), Some(&value(0, 5, 40))), Verdict::Good);
        let sent = oracle.begin_put(0).unwrap();
        oracle.end_put(0, true);
        assert_eq!(oracle.judge(0, oracle.floor(0), Some(&value(0, 5, 40))), Verdict::Stale);
        assert_eq!(oracle.judge(0, oracle.floor(0), Some(&value(0, sent, 40))), Verdict::Good);
    }

    #[test]
    fn a_client_before_this_one_may_have_left_values() {
        let mut oracle = Oracle::new(US, 1);
        let left = value_of(US + 1, 0, 9, 40);
        assert_eq!(oracle.judge(0, oracle.floor(0), Some(&left)), Verdict::Earlier);
        oracle.begin_put(0);
        assert_eq!(oracle.judge(0, oracle.floor(0), Some(&left)), Verdict::Earlier, "ours is under way");
        let before = oracle.floor(0);
        oracle.end_put(0, true);
        assert_eq!(oracle.judge(0, before, Some(&left)), Verdict::Earlier, "the GET may have come first");
        assert_eq!(oracle.judge(0, oracle.floor(0), Some(&left)), Verdict::Foreign);
        let mut bad = left.clone();
        bad[20] ^= 1;
        assert_eq!(Oracle::new(US, 1).judge(0, 0, Some(&bad)), Verdict::Corrupt);
    }

    #[test]
    fn every_byte_of_a_value_counts() {
        let from = Origin { client: US, generation: 3 };
        for len in crate::settings::VALUE_BYTES_MIN..80 {
            let good = value(7, 3, len);
            assert_eq!(origin_of(7, &good), Some(from));
            for at in 0..len {
                let mut bad = good.clone();
                bad[at] ^= 1;
                assert_ne!(origin_of(7, &bad), Some(from), "byte {at} of {len}");
                // Regression: a GET that found the front of a value was verified.
                assert_eq!(origin_of(7, &good[..at]), None, "{at} bytes of {len}");
            }
        }
        assert_eq!(origin_of(7, &value(7, 3, 15)), None);
    }
}
