//! The time per message: of ITCH parsed, of ITCH parsed into full-depth books, and of FAST decoded
//! and built into books.
//!
//! `cargo run --release --example parse_speed [ROUNDS]`. The feed is generated once and lies in
//! memory, 2 million messages in MoldUDP64 packets of up to 1,400 bytes. As the machine may be
//! busy, the output is the fastest of the rounds.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use tick_to_trade::book::{BookSpec, OrderBooks};
use tick_to_trade::fast::{BooksSpec, FortsBooks, Message, MessageKind, MoexFeed};
use tick_to_trade::generator::{Generator, GeneratorSpec};
use tick_to_trade::itch;
use tick_to_trade::mold::Packet;

const MESSAGES: u64 = 2_000_000;

fn main() {
    let rounds = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(10);
    for (instruments, live_orders) in [(8, 2_000), (64, 8_000)] {
        itch_speed(GeneratorSpec { seed: 1, instruments, live_orders }, rounds);
    }
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/moex-forts");
    match MoexFeed::open(&std::env::var_os("VERBLINE_MOEX_DIR").map_or(beside, Into::into)) {
        Ok(feed) => fast_speed(&feed, rounds),
        Err(error) => println!("FAST: skipped: {error}"),
    }
}

fn itch_speed(spec: GeneratorSpec, rounds: u32) {
    let mut generator = Generator::new(spec);
    let mut frames = Vec::new();
    let mut ends = Vec::new();
    let mut buffer = [0; 1400];
    let started = Instant::now();
    while generator.sequence() <= MESSAGES {
        let frame = generator.write_frame(u16::MAX, 0, &mut buffer).expect("a packet holds a message");
        frames.extend_from_slice(&buffer[..frame.len_bytes]);
        ends.push(frames.len());
    }
    let messages = generator.sequence() - 1;
    let generated = started.elapsed().as_nanos() as f64 / messages as f64;
    println!("ITCH: {messages} messages, {} instruments, {} live orders", spec.instruments, generator.live_orders());
    println!("  generate            {generated:6.1} ns/message");

    let packets = || {
        ends.iter().scan(0, |start, &end| {
            let packet = &frames[*start..end];
            *start = end;
            Some(Packet::parse(packet).expect("the generator's packets are whole"))
        })
    };
    let frame_ns =
        least(rounds, messages, || packets().flat_map(|p| p.messages()).map(<[u8]>::len).sum::<usize>() as u64);
    let parse_ns = least(rounds, messages, || {
        let messages = packets().flat_map(|p| p.messages());
        messages.map(|m| u64::from(itch::parse(m).expect("a generated message").stock_locate())).sum()
    });
    let book_spec = BookSpec {
        instruments: spec.instruments,
        orders: u32::from(spec.instruments) * spec.live_orders * 3 / 2,
        levels_per_side: 2048,
    };
    let order_ns = least(rounds, messages, || {
        let orders = packets().flat_map(|p| p.messages()).map(|m| itch::parse_order(m).expect("a generated message"));
        orders.flatten().fold(0, |sum, order| sum ^ order.reference ^ u64::from(order.shares ^ order.price_e4))
    });
    // New books each round, allocated outside the measured time.
    let book = |ahead: bool| {
        let times = (0..rounds).map(|_| {
            let mut books = OrderBooks::new(book_spec);
            least(1, messages, || {
                let mut tops = 0;
                for packet in packets() {
                    let mut later = packet.messages();
                    if ahead {
                        later.by_ref().take(OrderBooks::AHEAD).for_each(|bytes| books.prefetch(bytes));
                    }
                    for bytes in packet.messages() {
                        if ahead && let Some(later) = later.next() {
                            books.prefetch(later);
                        }
                        let message = itch::parse(bytes).expect("a generated message");
                        let change = books.apply(&message).expect("a generated feed fits its books");
                        tops += u64::from(change.is_some_and(|c| c.top));
                    }
                }
                tops
            })
        });
        times.fold(f64::INFINITY, f64::min)
    };
    let [book_ns, unaided_ns] = [book(true), book(false)];
    println!("  frame               {frame_ns:6.1} ns/message");
    println!("  frame, parse        {parse_ns:6.1} ns/message");
    println!("  frame, order fields {order_ns:6.1} ns/message");
    println!("  frame, parse, book  {book_ns:6.1} ns/message, {unaided_ns:.1} without looking ahead");
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
