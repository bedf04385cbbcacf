//! MoldUDP64: a packet is refused, or has as many messages as it says, and they use all of its
//! bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tick_to_trade::itch;
use tick_to_trade::mold::Packet;

/// A session of ten bytes, a sequence number, a count.
const HEADER_BYTES: usize = 20;
/// The length field before each message.
const LENGTH_BYTES: usize = 2;

fuzz_target!(|bytes: &[u8]| {
    let Ok(packet) = Packet::parse(bytes) else { return };
    assert!(packet.sequence().checked_add(packet.count().into()).is_some());
    let messages: Vec<&[u8]> = packet.messages().collect();
    assert_eq!(messages.len(), usize::from(packet.count()));
    let length: usize = messages.iter().map(|message| LENGTH_BYTES + message.len()).sum();
    assert_eq!(HEADER_BYTES + length, bytes.len());
    for message in messages {
        let _ = itch::parse(message);
    }
});
