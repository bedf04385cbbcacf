//! Other crates at the work of ours: `rivals SUBJECT FEED`, figures as a line of JSON.
//!
//! The feed is as Nasdaq's recorded files are: each message after its length in two big-endian bytes. A parser reads
//! every field that can change a book and folds it into a sum, which must be the same for all; a book gives the sum of
//! its best prices at the end.

mod books;
mod parsers;

use std::time::Instant;

/// Runs of which the median counts.
const REPEATS: usize = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [subject, path] = &arguments[..] else { panic!("usage: rivals itchy|itch5|lobster FEED") };
    let feed = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let run: fn(&[u8]) -> (u64, u64) = match subject.as_str() {
        "itchy" => parsers::itchy,
        "itch5" => parsers::itch5,
        "lobster" => books::lobster,
        other => panic!("no subject is called {other}"),
    };
    let mut checksum = 0;
    let mut times: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let began = Instant::now();
            let (messages, sum) = run(&feed);
            checksum = sum & ((1 << 48) - 1);
            began.elapsed().as_nanos() as f64 / messages as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{{\"ns\":{:.3},\"checksum\":{checksum}.0}}", times[REPEATS / 2]);
}
