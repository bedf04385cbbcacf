//! Which of the planted faults is on, and which of them a run comes by; a module of every crate
//! that has some.
//!
//! `PLANTED=N` turns fault N on. `PLANTED_REACH=FILE` appends each place that is reached, once a
//! process.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

const PLACES: usize = 1 << 14;
static REACHED: [AtomicBool; PLACES] = [const { AtomicBool::new(false) }; PLACES];
static ON: OnceLock<u32> = OnceLock::new();

/// The fault that is on, 0 if none; `place` is the number of the first fault that could be on here.
pub fn on(place: u32) -> u32 {
    // Relaxed: a process may note a place twice, which is read as once.
    if !REACHED[place as usize].load(Ordering::Relaxed) {
        note(place);
    }
    *ON.get_or_init(|| std::env::var("PLANTED").ok().and_then(|number| number.parse().ok()).unwrap_or(0))
}

#[cold]
fn note(place: u32) {
    REACHED[place as usize].store(true, Ordering::Relaxed);
    let Some(file) = std::env::var_os("PLANTED_REACH") else { return };
    // A place that is lost here makes a fault be shown to fewer tests, so that it counts as missed.
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(file) {
        let _ = file.write_all(format!("{place}\n").as_bytes());
    }
}
