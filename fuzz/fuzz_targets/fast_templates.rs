//! FAST templates: an XML document is refused, or its templates decode any bytes without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tick_to_trade::fast::{Decoder, Message, Templates};

fuzz_target!(|text: &str| {
    let Ok(templates) = Templates::from_xml(text) else { return };
    let ids: Vec<u32> = templates.ids().collect();
    assert!(ids.is_sorted());
    let (mut decoder, mut message) = (Decoder::new(templates), Message::new());
    for id in ids.iter().take(4) {
        // A presence map with all bits set, the id, and bytes of all sorts.
        let mut bytes = vec![0xff];
        bytes.extend(stop_bit(*id));
        bytes.extend((0..=255).rev());
        let _ = decoder.decode_front(&bytes, &mut message);
    }
});

/// A number as FAST writes it: seven bits a byte, the last one marked.
fn stop_bit(number: u32) -> Vec<u8> {
    let mut bytes = vec![number as u8 | 0x80];
    let mut rest = number >> 7;
    while rest > 0 {
        bytes.insert(0, rest as u8 & 0x7f);
        rest >>= 7;
    }
    bytes
}
