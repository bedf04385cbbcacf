//! From a book's best levels to an order: [`Trigger`] decides, [`RiskGate`] checks,
//! [`OrderTemplate`] writes.
//!
//! Instruments are small dense indices, those of [`crate::book::Change::book`]. Prices are integers
//! in the unit of the feed; quantities are shares or contracts.

mod gate;
mod open_orders;
mod order;
mod trigger;

pub use gate::{Refusal, RiskCounts, RiskGate, RiskSpec};
pub use open_orders::{OpenOrders, Unmatched};
pub use order::{ORDER_LEN_BYTES, OrderError, OrderTemplate, OrderView};
pub use trigger::{Quote, Top, Trigger, TriggerSpec};

use crate::itch::Side;

/// The order that the trigger asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderIntent {
    /// The instrument's index.
    pub instrument: u16,
    /// Buy or sell.
    pub side: Side,
    /// The limit, in the feed's unit.
    pub price: i64,
    /// Shares or contracts.
    pub quantity: u32,
}
