//! `--set`: each line of the input is a flag for a good plan.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "common/plans.rs"]
mod plans;

fuzz_target!(|text: &str| {
    let flags: Vec<&str> = text.split('\n').take(8).collect();
    plans::exercise(plans::GOOD, &flags);
});
