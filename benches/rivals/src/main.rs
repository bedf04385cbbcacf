//! Other crates, and C, doing the work of ours. `rivals SUBJECT FEED` prints figures as a line of
//! JSON, and so does `rivals hop LIBRARY rate|latency`; `rivals post-and-poll LISTS BURST` does
//! work for callgrind to count.
//!
//! The feed is framed like Nasdaq's recorded files: each message after its length in two big-endian
//! bytes. A parser reads every field that can change a book and folds it into a sum, which must be
//! the same for all; a book returns the sum of its best prices at the end.

mod books;
mod hop;
mod parsers;
mod verbs;

use std::time::Instant;

/// Runs per measurement; the median counts.
const REPEATS: usize = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["itchy", feed] => timed(feed, parsers::itchy),
        ["itch5", feed] => timed(feed, parsers::itch5),
        ["hftbacktest", feed] => timed(feed, books::hftbacktest),
        ["hop", library, by] => hop::run(library, by),
        ["post-and-poll", lists, burst] => {
            verbs::run(lists.parse().expect("a count of lists"), burst.parse().expect("a count of messages"));
        }
        _ => panic!(
            "usage: rivals itchy|itch5|hftbacktest FEED, hop LIBRARY rate|latency, or post-and-poll LISTS BURST"
        ),
    }
}

fn timed(path: &str, run: fn(&[u8]) -> (u64, u64)) {
    let feed = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
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
