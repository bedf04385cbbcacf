//! Why a message does not fit a full-depth book.

/// Why a message did not change the book as intended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BookError {
    /// A new instrument exceeds the bound.
    #[error("locate code {locate} is instrument number {} of at most {limit}; raise `instruments`", *.limit as u32 + 1)]
    InstrumentsFull {
        /// The instrument's locate code.
        locate: u16,
        /// The bound.
        limit: u16,
    },
    /// An order of an instrument without a stock directory message.
    #[error(
        "order {reference} is of locate code {locate}, which no stock directory message announced; the start of the \
         feed was missed"
    )]
    UnknownInstrument {
        /// The order.
        reference: u64,
        /// The instrument's locate code.
        locate: u16,
    },
    /// A new order has the reference number of a live one.
    #[error("order {reference} is in the book already; the feed was replayed, or a delete was missed")]
    DuplicateOrder {
        /// The order.
        reference: u64,
    },
    /// A change to an order that is not in the book.
    #[error("order {reference} is not in the book; its add was missed")]
    UnknownOrder {
        /// The order.
        reference: u64,
    },
    /// A change comes under another locate code than that of its order.
    #[error(
        "order {reference} is of locate code {own}, its change comes under {locate}; the message is corrupt, or one \
         was missed"
    )]
    OtherInstrument {
        /// The order.
        reference: u64,
        /// The locate code of its book.
        own: u16,
        /// The locate code of the message.
        locate: u16,
    },
    /// More shares taken than the order has.
    #[error("order {reference} has {have} shares, {take} cannot be taken from it; a message was missed")]
    TooManyShares {
        /// The order.
        reference: u64,
        /// Its shares.
        have: u32,
        /// The shares to take.
        take: u32,
    },
    /// An order or a change of 0 shares.
    #[error("order {reference} comes with 0 shares; the message is corrupt")]
    NoShares {
        /// The order.
        reference: u64,
    },
    /// The bound on live orders is reached. From here on the order is missing from the book.
    #[error("{limit} orders are live, order {reference} has no room; raise `orders`")]
    OrdersFull {
        /// The order.
        reference: u64,
        /// The bound.
        limit: u32,
    },
    /// Too many live orders have reference numbers that collide in the table, which numbers that
    /// count upwards never do. From here on the order is missing from the book (after a replace,
    /// both orders).
    #[error("order {reference} finds {limit} lines of the order table full; the reference numbers are corrupt")]
    OrdersCrowded {
        /// The order.
        reference: u64,
        /// The bound.
        limit: usize,
    },
    /// The bound on price levels is reached. From here on the order is missing from the book (after
    /// a replace, both orders).
    #[error("{limit} price levels are in use on its side, order {reference} has no room; raise `levels_per_side`")]
    LevelsFull {
        /// The order.
        reference: u64,
        /// The bound.
        limit: u32,
    },
}
