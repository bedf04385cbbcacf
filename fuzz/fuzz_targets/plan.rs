//! A plan's text: no text panics or hangs the loader, and its diagnostics stay readable.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "common/plans.rs"]
mod plans;

fuzz_target!(|text: &str| plans::exercise(text, &[]));
