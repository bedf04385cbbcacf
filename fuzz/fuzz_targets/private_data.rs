//! The private data of a connection manager's rejection: shown as words if it is words, and never
//! with control characters.
#![no_main]

use libfuzzer_sys::fuzz_target;
use verbline_verbs::connection::ConnectionError;

fuzz_target!(|bytes: &[u8]| {
    let address = "10.9.9.1:4420".parse().expect("an address");
    let error = ConnectionError::Rejected { address, code: 28, private_data: bytes.to_vec() };
    let shown = error.to_string();
    assert!(!shown.contains(char::is_control), "{shown:?}");
});
