//! Hand-off between lcores: batch SPSC rings with a sleep/wake protocol.

pub mod fence;
