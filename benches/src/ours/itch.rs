//! ITCH 5.0 messages read, and read into full-depth books: nanoseconds a message.
//!
//! "Read" means that every field which can change a book is taken out of every message and folded into a sum; all
//! parsers that are compared must arrive at the same one ([`CHECKSUM`] of the figures).

use std::time::Instant;

use tick_to_trade::book::{BookSpec, OrderBooks};
use tick_to_trade::itch::{self, Message, Side};

use super::feed;
use crate::Figures;
use crate::figures::median;

/// The figure that says what was read.
pub const CHECKSUM: &str = "checksum";
const REPEATS: usize = 5;

/// What the books of [`feed::SPEC`] need.
pub const BOOKS: BookSpec =
    BookSpec { instruments: feed::SPEC.instruments, orders: 8 * 2_000 * 3 / 2, levels_per_side: 2_048 };

/// Each message parsed: `ns` a message.
pub fn parse(bytes: &[u8]) -> Figures {
    let mut sum = 0;
    let ns = timed(bytes, || sum = read_all(bytes));
    Figures::of("ns", ns).and(CHECKSUM, low_bits(sum))
}

/// Each message parsed and applied to full-depth books of its instruments: `ns` a message.
pub fn parse_and_book(bytes: &[u8]) -> Figures {
    let mut best = 0;
    let ns = timed(bytes, || {
        let mut books = OrderBooks::new(BOOKS);
        best = book_all(&mut books, bytes);
    });
    Figures::of("ns", ns).and(CHECKSUM, low_bits(best))
}

/// The sum over all fields that matter to a book.
pub fn read_all(bytes: &[u8]) -> u64 {
    feed::messages(bytes).fold(0u64, |sum, message| {
        let message = itch::parse(message).expect("a generated message");
        sum.wrapping_add(fields(&message))
    })
}

/// Applies all messages; gives the sum of the best prices of both sides of all books at the end.
pub fn book_all(books: &mut OrderBooks, bytes: &[u8]) -> u64 {
    for message in feed::messages(bytes) {
        let message = itch::parse(message).expect("a generated message");
        let _ = std::hint::black_box(books.apply(&message).expect("a generated feed fits its books"));
    }
    let best =
        |side| books.books().iter().filter_map(move |book| book.best(side)).map(|level| u64::from(level.price_e4));
    best(Side::Buy).chain(best(Side::Sell)).sum()
}

#[inline]
fn fields(message: &Message<'_>) -> u64 {
    let side = |side: Side| u64::from(side.to_byte());
    match message {
        Message::AddOrder(m) => {
            m.order_reference() ^ side(m.side()) ^ u64::from(m.shares()) ^ u64::from(m.price_e4()) ^ m.timestamp_ns()
        }
        Message::AddOrderMpid(m) => {
            m.order_reference() ^ side(m.side()) ^ u64::from(m.shares()) ^ u64::from(m.price_e4()) ^ m.timestamp_ns()
        }
        Message::OrderExecuted(m) => m.order_reference() ^ u64::from(m.executed_shares()) ^ m.timestamp_ns(),
        Message::OrderExecutedWithPrice(m) => {
            m.order_reference() ^ u64::from(m.executed_shares()) ^ u64::from(m.execution_price_e4()) ^ m.timestamp_ns()
        }
        Message::OrderCancel(m) => m.order_reference() ^ u64::from(m.cancelled_shares()) ^ m.timestamp_ns(),
        Message::OrderDelete(m) => m.order_reference() ^ m.timestamp_ns(),
        Message::OrderReplace(m) => {
            m.original_reference()
                ^ m.new_reference().rotate_left(32)
                ^ u64::from(m.shares())
                ^ u64::from(m.price_e4())
                ^ m.timestamp_ns()
        }
        other => u64::from(other.as_bytes()[0]),
    }
}

/// The median of some runs, a message; each over fresh state.
fn timed(bytes: &[u8], mut run: impl FnMut()) -> f64 {
    let messages = feed::messages(bytes).count() as f64;
    median((0..REPEATS).map(|_| {
        let began = Instant::now();
        run();
        began.elapsed().as_nanos() as f64 / messages
    }))
}

/// What a double holds exactly.
fn low_bits(sum: u64) -> f64 {
    (sum & ((1 << 48) - 1)) as f64
}
