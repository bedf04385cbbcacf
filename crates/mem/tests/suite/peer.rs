//! Memory that a peer may write: bounds, torn-free words, and neighbours left alone.
use std::sync::Arc;
use std::thread;

use proptest::prelude::*;
use verbline_mem::{PeerAccessError, PeerRegion};

proptest! {
    /// Against a plain array: every copy in and out, at any offset and length, and refusals beyond
    /// the end, which may be within the last page.
    #[test]
    fn copies_are_those_of_an_array(
        size in prop::sample::select(vec![4096usize, 4091, 100]),
        steps in prop::collection::vec((0usize..4200, 0usize..70, any::<u8>(), any::<bool>()), 1..60),
    ) {
        let peer = PeerRegion::of_first(crate::support::region(4096), size);
        let mut array = vec![0u8; size];
        for (offset, len, seed, write) in steps {
            let range = offset..offset + len;
            let bytes: Vec<u8> = (0..len).map(|k| seed.wrapping_add(k as u8)).collect();
            let mut seen = vec![0xee; len];
            let done = if write { peer.write_from(offset, &bytes) } else { peer.read_into(offset, &mut seen) };
            if range.end > size {
                prop_assert_eq!(done, Err(PeerAccessError::OutOfBounds { offset, len_bytes: len, region_bytes: size }));
                continue;
            }
            prop_assert_eq!(done, Ok(()));
            if write {
                array[range].copy_from_slice(&bytes);
            } else {
                prop_assert_eq!(&seen[..], &array[range]);
            }
        }
        let mut all = vec![0; size];
        peer.read_into(0, &mut all).unwrap();
        prop_assert_eq!(all, array);
    }
}

#[test]
fn words_are_refused_off_their_boundaries_and_beyond_the_end() {
    let peer = PeerRegion::new(crate::support::region(4096));
    assert_eq!(peer.load_u64(4), Err(PeerAccessError::Misaligned { offset: 4 }));
    assert_eq!(peer.store_u64(4090, 1), Err(PeerAccessError::Misaligned { offset: 4090 }));
    let beyond = PeerAccessError::OutOfBounds { offset: 4096, len_bytes: 8, region_bytes: 4096 };
    assert_eq!(peer.load_u64(4096), Err(beyond));
    let wrapping = usize::MAX - 7;
    assert!(matches!(peer.store_u64(wrapping, 0), Err(PeerAccessError::OutOfBounds { .. })));
    assert!(matches!(peer.write_from(usize::MAX, b"ab"), Err(PeerAccessError::OutOfBounds { .. })));
    assert_eq!(
        beyond.to_string(),
        "8 bytes at offset 4096 leave the region of 4096 bytes; check the offset that the peer was told"
    );
    assert_eq!(peer.read_into(4096, &mut []), Ok(()));
}

#[test]
fn a_word_is_what_was_stored_last() {
    let peer = PeerRegion::new(crate::support::region(4096));
    for word in [u64::MAX, 1, 9] {
        peer.store_u64(8, word).unwrap();
        assert_eq!(peer.load_u64(8), Ok(word));
    }
}

/// Two threads write one half each of a word: neither undoes the other's.
#[test]
fn a_write_leaves_its_neighbours_to_others() {
    let peer = Arc::new(PeerRegion::new(crate::support::region(4096)));
    let threads = [(0, 3), (3, 5)].map(|(offset, len)| {
        let peer = Arc::clone(&peer);
        thread::spawn(move || {
            for round in 0..2000u32 {
                let value = vec![round as u8; len];
                peer.write_from(offset, &value).unwrap();
                let mut seen = vec![0; len];
                peer.read_into(offset, &mut seen).unwrap();
                assert_eq!(seen, value);
            }
        })
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
