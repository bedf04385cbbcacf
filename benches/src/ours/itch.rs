//! ITCH 5.0 messages read, and read into full-depth books: nanoseconds per message.
//!
//! "Read" means that every field that can change a book is taken out of every message and folded
//! into a sum; all compared parsers must get the same sum ([`CHECKSUM`] of the figures).

use std::time::Instant;

use tick_to_trade::book::OrderBooks;
use tick_to_trade::generator::GeneratorSpec;
use tick_to_trade::itch::{self, Message, OrderAction, Side};
use tick_to_trade::mold::Packet;

use super::feed::{self, Packets};
use crate::Figures;
use crate::figures::median;

/// The figure that identifies the data read.
pub const CHECKSUM: &str = "checksum";
const REPEATS: usize = 5;

/// Each message parsed: `ns` per message, and `views_ns` with each type read through its own view.
pub fn parse(bytes: &[u8]) -> Figures {
    let [mut sum, mut by_view] = [0; 2];
    let ns = timed(bytes, || sum = read_all(bytes));
    let views_ns = timed(bytes, || by_view = read_by_view(bytes));
    assert_eq!(sum, by_view, "two ways to read the same fields");
    Figures::of("ns", ns).and("views_ns", views_ns).and(CHECKSUM, low_bits(sum))
}

/// Each message parsed and applied to full-depth books of its instruments: `ns` per message. The
/// books are built within the measured time, like those of the peers, which build them as they go.
pub fn parse_and_book(spec: GeneratorSpec, bytes: &[u8]) -> Figures {
    let mut best = 0;
    let ns = timed(bytes, || best = book_all(&mut OrderBooks::new(feed::books(spec)), bytes));
    Figures::of("ns", ns).and(CHECKSUM, low_bits(best))
}

/// Like [`parse_and_book`], from MoldUDP64 packets, into books built before: `ns` per message.
pub fn mold_and_book(spec: GeneratorSpec, bytes: &[u8]) -> Figures {
    let packets = Packets::of(bytes);
    let messages = feed::messages(bytes).count() as f64;
    let mut best = 0;
    let ns = median((0..REPEATS).map(|_| {
        let mut books = OrderBooks::new(feed::books(spec));
        let began = Instant::now();
        best = book_packets(&mut books, &packets);
        began.elapsed().as_nanos() as f64 / messages
    }));
    Figures::of("ns", ns).and(CHECKSUM, low_bits(best))
}

/// The sum over all fields relevant to a book.
pub fn read_all(bytes: &[u8]) -> u64 {
    feed::messages(bytes).fold(0u64, |sum, message| {
        let fields = match itch::parse_order(message).expect("a generated message") {
            Some(order) => {
                let side = if order.action == OrderAction::Add { order.side().to_byte() } else { 0 };
                order.reference
                    ^ order.new_reference.rotate_left(32)
                    ^ u64::from(side)
                    ^ u64::from(order.shares)
                    ^ u64::from(order.price_e4)
                    ^ order.timestamp_ns
            }
            None => u64::from(message[0]),
        };
        sum.wrapping_add(fields)
    })
}

/// Like [`read_all`], through the views of the types.
pub fn read_by_view(bytes: &[u8]) -> u64 {
    feed::messages(bytes).fold(0u64, |sum, message| {
        let message = itch::parse(message).expect("a generated message");
        sum.wrapping_add(fields(&message))
    })
}

/// Applies all messages, and prefetches for each some messages before. Returns the sum of the best
/// prices of both sides of all books at the end.
pub fn book_all(books: &mut OrderBooks, bytes: &[u8]) -> u64 {
    apply_all(books, feed::messages(bytes), feed::messages(bytes));
    best_prices(books)
}

/// Like [`book_all`], from packets, one at a time.
pub fn book_packets(books: &mut OrderBooks, packets: &Packets) -> u64 {
    for packet in packets.iter() {
        let packet = Packet::parse(packet).expect("a whole packet");
        apply_all(books, packet.messages(), packet.messages());
    }
    best_prices(books)
}

/// Applies the messages. `later` has the same messages again, for prefetching.
#[inline(always)]
fn apply_all<'a>(
    books: &mut OrderBooks,
    messages: impl Iterator<Item = &'a [u8]>,
    mut later: impl Iterator<Item = &'a [u8]>,
) {
    later.by_ref().take(OrderBooks::AHEAD).for_each(|message| books.prefetch(message));
    for message in messages {
        if let Some(later) = later.next() {
            books.prefetch(later);
        }
        let message = itch::parse(message).expect("a generated message");
        let _ = std::hint::black_box(books.apply(&message).expect("a generated feed fits its books"));
    }
}

fn best_prices(books: &OrderBooks) -> u64 {
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

/// The median time of some runs, per message; each run has fresh state.
fn timed(bytes: &[u8], mut run: impl FnMut()) -> f64 {
    let messages = feed::messages(bytes).count() as f64;
    median((0..REPEATS).map(|_| {
        let began = Instant::now();
        run();
        began.elapsed().as_nanos() as f64 / messages
    }))
}

/// The bits that a double holds exactly.
fn low_bits(sum: u64) -> f64 {
    (sum & ((1 << 48) - 1)) as f64
}
