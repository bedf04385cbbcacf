//! The output of a trace's results as they are found.

use super::journey::Journey;
use super::timeline::Slice;

/// Takes the slices and the packets of a trace, beside its summary.
pub trait Output {
    /// A slice of an lcore's time.
    fn slice(&mut self, lcore: usize, slice: &Slice);
    /// The way of a wanted packet.
    fn journey(&mut self, journey: &Journey);
}

/// Discards everything.
impl Output for () {
    fn slice(&mut self, _: usize, _: &Slice) {}
    fn journey(&mut self, _: &Journey) {}
}
