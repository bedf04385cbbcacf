//! The views: one struct per message type, a reference to exactly the bytes of that type.
//!
//! Offsets are those of the specification, counted from the type byte. An accessor turns the bytes
//! into an array of the type's length, which [`super::parse`] has checked, and indexes it with a
//! constant: a load and a byte swap. The compiler merges the length checks of several accessors
//! into one.

use std::fmt;

use super::{Side, Symbol};

/// Declares one message's view.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident $tag:literal $len:literal {
        $($(#[$field_doc:meta])* $field:ident: $ty:ty = $read:ident($at:literal)),* $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct $name<'a>(&'a [u8]);

        impl<'a> $name<'a> {
            /// The type byte.
            pub const TAG: u8 = $tag;
            /// The length of the message, type byte included.
            pub const LEN_BYTES: usize = $len;

            /// `bytes` have the length of the type.
            #[inline(always)]
            pub(super) fn of(bytes: &'a [u8]) -> Self {
                debug_assert_eq!(bytes.len(), $len);
                Self(bytes)
            }

            #[inline(always)]
            fn array(self) -> &'a [u8; $len] {
                self.0.first_chunk().expect("parse has checked the length")
            }

            /// The message's bytes.
            #[inline]
            pub fn as_bytes(self) -> &'a [u8] {
                self.0
            }

            /// The instrument's locate code of the day, 0 for all.
            #[inline]
            pub fn stock_locate(self) -> u16 {
                be16(self.array(), 1)
            }

            /// Nasdaq's own tracking number.
            #[inline]
            pub fn tracking_number(self) -> u16 {
                be16(self.array(), 3)
            }

            /// Nanoseconds since midnight (48 bits on the wire).
            #[inline]
            pub fn timestamp_ns(self) -> u64 {
                be48(self.array(), 5)
            }

            $($(#[$field_doc])*
            #[inline]
            pub fn $field(self) -> $ty {
                $read(self.array(), $at)
            })*
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("stock_locate", &self.stock_locate())
                    .field("timestamp_ns", &self.timestamp_ns())
                    $(.field(stringify!($field), &self.$field()))*
                    .finish()
            }
        }
    };
}

/// Declares the messages with views. Each has a name, type byte, length in bytes, and then
/// `field: type = reader(offset)`.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident $tag:literal $len:literal $(sided $side_at:literal)? {
        $($(#[$field_doc:meta])* $field:ident: $ty:ty = $read:ident($at:literal)),* $(,)?
    })*) => {
        $(view! {
            $(#[$doc])* $name $tag $len { $($(#[$field_doc])* $field: $ty = $read($at)),* }
        })*

        /// One message, borrowed from the bytes it was parsed from.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Message<'a> {
            $($(#[$doc])* $name($name<'a>),)*
            /// `Y L V W K J N O`: administrative; checked for length, not interpreted.
            Other(Other<'a>),
        }

        impl<'a> Message<'a> {
            /// `bytes` have the length of the type `tag`.
            #[inline(always)]
            pub(super) fn of(tag: u8, bytes: &'a [u8]) -> Self {
                match tag {
                    $($tag => Message::$name($name::of(bytes)),)*
                    _ => Message::Other(Other::of(bytes)),
                }
            }

            /// The message's bytes, type byte first; never fewer than 12.
            #[inline]
            pub fn as_bytes(&self) -> &[u8] {
                match self {
                    $(Message::$name(m) => m.as_bytes(),)*
                    Message::Other(m) => m.as_bytes(),
                }
            }
        }

        /// The type byte and length of each message with a view.
        pub(super) const LENGTHS: &[(u8, usize)] = &[$(($tag, $len)),*];

        /// The type byte of each message with a side, and the offset of its buy/sell indicator.
        pub(super) const SIDES: &[(u8, u8)] = &[$($(($tag, $side_at),)?)*];
    };
}

messages! {
    /// `S`, system event.
    SystemEvent b'S' 12 {
        /// `O S Q M E C`: start of messages, system hours, market hours; end of market hours,
        /// system hours, messages.
        event_code: u8 = byte(11),
    }
    /// `R`, stock directory.
    StockDirectory b'R' 39 {
        /// The symbol.
        stock: Symbol = symbol(11),
        /// The listing market.
        market_category: u8 = byte(19),
        /// Compliance with listing rules.
        financial_status: u8 = byte(20),
        /// Shares in a round lot.
        round_lot_shares: u32 = be32(21),
        /// `Y` when only round lots trade.
        round_lots_only: u8 = byte(25),
        /// Class of security.
        issue_classification: u8 = byte(26),
        /// Sub-class of security.
        issue_sub_type: [u8; 2] = bytes(27),
        /// `P` live, `T` test instrument.
        authenticity: u8 = byte(29),
        /// Short sale threshold list.
        short_sale_threshold: u8 = byte(30),
        /// New issue.
        ipo_flag: u8 = byte(31),
        /// Limit up/limit down tier.
        luld_tier: u8 = byte(32),
        /// Exchange traded product.
        etp_flag: u8 = byte(33),
        /// Its leverage.
        etp_leverage: u32 = be32(34),
        /// `Y` when it is an inverse product.
        inverse: u8 = byte(38),
    }
    /// `H`, stock trading action.
    TradingAction b'H' 25 {
        /// The symbol.
        stock: Symbol = symbol(11),
        /// `H` halted, `P` paused, `Q` quotation only, `T` trading.
        trading_state: u8 = byte(19),
        /// The reason, 4 characters.
        reason: [u8; 4] = bytes(21),
    }
    /// `h`, operational halt: of an instrument at one market alone.
    OperationalHalt b'h' 21 {
        /// The symbol.
        stock: Symbol = symbol(11),
        /// The market: `Q` Nasdaq, `B` BX, `X` PSX.
        market: u8 = byte(19),
        /// `H` halted, `T` trading.
        action: u8 = byte(20),
    }
    /// `A`, add order without attribution.
    AddOrder b'A' 36 sided 19 {
        /// The order's reference number, unique for the day.
        order_reference: u64 = be64(11),
        /// The order's side.
        side: Side = side(19),
        /// Displayed shares.
        shares: u32 = be32(20),
        /// The symbol.
        stock: Symbol = symbol(24),
        /// Price in 1/10 000 dollar.
        price_e4: u32 = be32(32),
    }
    /// `F`, add order with the participant's name.
    AddOrderMpid b'F' 40 sided 19 {
        /// The order's reference number, unique for the day.
        order_reference: u64 = be64(11),
        /// The order's side.
        side: Side = side(19),
        /// Displayed shares.
        shares: u32 = be32(20),
        /// The symbol.
        stock: Symbol = symbol(24),
        /// Price in 1/10 000 dollar.
        price_e4: u32 = be32(32),
        /// The participant, 4 characters.
        attribution: [u8; 4] = bytes(36),
    }
    /// `E`, order executed at its own price.
    OrderExecuted b'E' 31 {
        /// The order.
        order_reference: u64 = be64(11),
        /// Shares executed; the order keeps the rest.
        executed_shares: u32 = be32(19),
        /// The match, unique for the day.
        match_number: u64 = be64(23),
    }
    /// `C`, order executed at another price.
    OrderExecutedWithPrice b'C' 36 {
        /// The order.
        order_reference: u64 = be64(11),
        /// Shares executed; the order keeps the rest.
        executed_shares: u32 = be32(19),
        /// The match, unique for the day.
        match_number: u64 = be64(23),
        /// `N` if it counts in no volume (a cross will report it).
        printable: u8 = byte(31),
        /// The price of the execution, in 1/10 000 dollar.
        execution_price_e4: u32 = be32(32),
    }
    /// `X`, part of an order cancelled.
    OrderCancel b'X' 23 {
        /// The order.
        order_reference: u64 = be64(11),
        /// Shares taken from it.
        cancelled_shares: u32 = be32(19),
    }
    /// `D`, order deleted.
    OrderDelete b'D' 19 {
        /// The order.
        order_reference: u64 = be64(11),
    }
    /// `U`, order replaced; side and instrument stay.
    OrderReplace b'U' 35 {
        /// The order that leaves.
        original_reference: u64 = be64(11),
        /// The new order, behind all others of its price.
        new_reference: u64 = be64(19),
        /// The new order's shares.
        shares: u32 = be32(27),
        /// The new order's price in 1/10 000 dollar.
        price_e4: u32 = be32(31),
    }
    /// `P`, trade against an order never displayed; the book stays as it is.
    Trade b'P' 44 sided 19 {
        /// The hidden order; 0 since 2010.
        order_reference: u64 = be64(11),
        /// Its side.
        side: Side = side(19),
        /// Shares traded.
        shares: u32 = be32(20),
        /// The symbol.
        stock: Symbol = symbol(24),
        /// Price in 1/10 000 dollar.
        price_e4: u32 = be32(32),
        /// The match, unique for the day.
        match_number: u64 = be64(36),
    }
    /// `Q`, the trade of an auction.
    CrossTrade b'Q' 40 {
        /// Shares crossed (64 bits).
        shares: u64 = be64(11),
        /// The symbol.
        stock: Symbol = symbol(19),
        /// Price in 1/10 000 dollar.
        cross_price_e4: u32 = be32(27),
        /// The match, unique for the day.
        match_number: u64 = be64(31),
        /// `O` opening, `C` closing, `H` after a halt or of an IPO.
        cross_type: u8 = byte(39),
    }
    /// `B`, an execution was broken; the book stays as it is.
    BrokenTrade b'B' 19 {
        /// The match that is void.
        match_number: u64 = be64(11),
    }
    /// `I`, net order imbalance indicator.
    Imbalance b'I' 50 {
        /// Shares that would trade at the reference price.
        paired_shares: u64 = be64(11),
        /// Shares left over.
        imbalance_shares: u64 = be64(19),
        /// `B`, `S`, `N` none, `O` not enough orders.
        direction: u8 = byte(27),
        /// The symbol.
        stock: Symbol = symbol(28),
        /// Clearing price of the auction's own orders, in 1/10 000 dollar.
        far_price_e4: u32 = be32(36),
        /// Clearing price of the auction's orders and the continuous book.
        near_price_e4: u32 = be32(40),
        /// The price at which the shares are counted.
        reference_price_e4: u32 = be32(44),
        /// The auction.
        cross_type: u8 = byte(48),
        /// How far the near price is from the reference.
        price_variation: u8 = byte(49),
    }
}

/// An administrative message, of which only the length is known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Other<'a>(&'a [u8]);

impl<'a> Other<'a> {
    /// `bytes` are not empty.
    #[inline(always)]
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The type byte.
    pub fn tag(self) -> u8 {
        self.0[0]
    }

    /// The message's bytes.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for Other<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Other({:?}, {} bytes)", self.0[0] as char, self.0.len())
    }
}

// `at` is always a literal within N: the slice is in bounds at compile time and no check remains
// after inlining.
#[inline(always)]
fn bytes<const N: usize, const M: usize>(b: &[u8; N], at: usize) -> [u8; M] {
    b[at..at + M].try_into().expect("the range is M long")
}

#[inline(always)]
fn byte<const N: usize>(b: &[u8; N], at: usize) -> u8 {
    b[at]
}

#[inline(always)]
fn be16<const N: usize>(b: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes(bytes::<N, 2>(b, at))
}

#[inline(always)]
fn be32<const N: usize>(b: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes(bytes::<N, 4>(b, at))
}

#[inline(always)]
fn be48<const N: usize>(b: &[u8; N], at: usize) -> u64 {
    u64::from(be16(b, at)) << 32 | u64::from(be32(b, at + 2))
}

#[inline(always)]
fn be64<const N: usize>(b: &[u8; N], at: usize) -> u64 {
    u64::from_be_bytes(bytes::<N, 8>(b, at))
}

#[inline(always)]
fn side<const N: usize>(b: &[u8; N], at: usize) -> Side {
    // `parse` admits only B and S, 0x42 and 0x53. A load, not a branch: sides come at random.
    [Side::Buy, Side::Sell][usize::from(b[at] & 1)]
}

#[inline(always)]
fn symbol<const N: usize>(b: &[u8; N], at: usize) -> Symbol {
    Symbol(bytes::<N, 8>(b, at))
}
