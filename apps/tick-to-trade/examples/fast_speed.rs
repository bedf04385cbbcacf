//! The time per message of recorded FAST: its sequence number read, decoded, and built into books.
//! `./x bench -- ITCH` has the times of ITCH.
//!
//! `cargo run --release --example fast_speed [ROUNDS]`. As the machine may be busy, the output is
//! the fastest of the rounds.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use tick_to_trade::fast::{BooksSpec, FortsBooks, Message, MessageKind, MoexFeed};

fn main() {
    let rounds = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(10);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/moex-forts");
    match MoexFeed::open(&std::env::var_os("VERBLINE_MOEX_DIR").map_or(beside, Into::into)) {
        Ok(feed) => fast_speed(&feed, rounds),
        Err(error) => println!("FAST: skipped: {error}"),
    }
}

fn fast_speed(feed: &MoexFeed, rounds: u32) {
    let mut decoder = feed.decoder();
    let mut message = Message::new();
    let increments = &feed.increments[0];
    let messages = increments.datagrams.len() as u64;
    let mut entries = 0;
    let decode_ns = least(rounds, messages, || {
        entries = 0;
        for (_, bytes) in increments.iter() {
            decoder.decode(bytes, &mut message).expect("the recording decodes");
            entries += message.entries.len();
        }
        entries as u64
    });
    let peek_ns = least(rounds, messages, || {
        increments.iter().map(|(_, b)| u64::from(decoder.peek_sequence(b, &mut message).expect("it decodes"))).sum()
    });
    let book_ns = (0..rounds)
        .map(|_| {
            let mut books = FortsBooks::new(BooksSpec::default());
            for (datagram, bytes) in feed.snapshots.iter().take(40) {
                if datagram.kind == MessageKind::Snapshot {
                    decoder.decode(bytes, &mut message).expect("the recording decodes");
                    let _ = books.apply_snapshot(&message);
                }
            }
            least(1, messages, || {
                let mut tops = 0;
                for (datagram, bytes) in increments.iter() {
                    decoder.decode(bytes, &mut message).expect("the recording decodes");
                    for entry in &message.entries {
                        tops += u64::from(books.apply_entry(datagram.msg_seq_num, entry).is_ok());
                    }
                }
                tops
            })
        })
        .fold(f64::INFINITY, f64::min);
    println!("FAST: {messages} messages of {:.1} entries", entries as f64 / messages as f64);
    println!("  sequence number     {peek_ns:6.1} ns/message");
    println!("  decode              {decode_ns:6.1} ns/message");
    println!("  decode, book        {book_ns:6.1} ns/message");
}

/// The least time per message of all rounds.
fn least(rounds: u32, messages: u64, mut run: impl FnMut() -> u64) -> f64 {
    let times = (0..rounds).map(|_| {
        let started = Instant::now();
        black_box(run());
        started.elapsed().as_nanos() as f64 / messages as f64
    });
    times.fold(f64::INFINITY, f64::min)
}
