//! ITCH 5.0: every message is refused or all of its fields can be read, and both parsers agree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tick_to_trade::itch::{self, LEN_BYTES};

fuzz_target!(|bytes: &[u8]| {
    let (whole, order) = (itch::parse(bytes), itch::parse_order(bytes));
    match &whole {
        Ok(message) => {
            assert_eq!(message.as_bytes(), bytes);
            assert_eq!(usize::from(LEN_BYTES[usize::from(bytes[0])]), bytes.len());
            assert_eq!(order.as_ref().ok().copied().flatten(), message.order());
            let _ = (message.stock_locate(), format!("{message:?}"));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
