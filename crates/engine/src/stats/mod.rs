//! Counters of packets and time, the clock, and the report made from them.

pub(crate) mod calling;
pub(crate) mod clock;
pub(crate) mod connection_counters;
pub(crate) mod counter;
pub(crate) mod counters;
pub(crate) mod down_reason;
pub(crate) mod drop_reason;
pub(crate) mod failures;
pub(crate) mod kernel_time;
pub(crate) mod lcore_time;
pub(crate) mod neighbours;
pub(crate) mod operations;
pub(crate) mod own_figures;
pub(crate) mod report;
pub(crate) mod sampling;
pub(crate) mod snapshot;
pub(crate) mod status;
pub(crate) mod times;
pub(crate) mod turn_time;
pub(crate) mod wakes;
pub(crate) mod warnings;
pub(crate) mod wire;
