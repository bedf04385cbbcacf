//! FAST: a datagram is decoded, or refused at an offset within it; a recording is split without a
//! byte left over.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use tick_to_trade::fast::{Decoder, Message, Recording, Templates};

thread_local! {
    static DECODER: RefCell<Decoder> = RefCell::new(Decoder::new(
        Templates::from_xml(include_str!("../corpus/fast_templates/forts.xml")).expect("the templates of the corpus"),
    ));
}

fuzz_target!(|bytes: &[u8]| DECODER.with_borrow_mut(|decoder| {
    let mut message = Message::new();
    for result in [
        decoder.decode(bytes, &mut message),
        decoder.decode_front(bytes, &mut message).map(|used| assert!(used <= bytes.len())),
        decoder.peek_sequence(bytes, &mut message).map(drop),
    ] {
        if let Err(error) = result {
            assert!(error.offset_bytes <= bytes.len(), "{error}");
        }
    }
    if let Ok(recording) = Recording::split(bytes.to_vec(), decoder) {
        assert!(recording.iter().all(|(_, datagram)| datagram.len() <= recording.len_bytes_max()));
    }
}));
