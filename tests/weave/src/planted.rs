//! The switch: turns a planted fault on, and notes the places that a run reaches. It is a module of
//! every crate that has faults.
//!
//! `PLANTED=N` turns fault N on. `PLANTED_REACH=FILE` appends each reached place to FILE, once a
//! process.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

const PLACES: usize = 1 << 14;
static REACHED: [AtomicBool; PLACES] = [const { AtomicBool::new(false) }; PLACES];
static ON: OnceLock<u32> = OnceLock::new();

/// The active fault, 0 if none; `place` is the number of the first fault that could be active here.
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
    // A failed write loses a place: then fewer tests run with the fault, and it may count as
    // missed.
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(file) {
        let _ = file.write_all(format!("{place}\n").as_bytes());
    }
}
