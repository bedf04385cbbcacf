//! Where what a trace finds goes as it is found.

use super::journey::Journey;
use super::timeline::Slice;

/// Where the slices and the packets of a trace go besides its summary.
pub trait Output {
    /// What an lcore did.
    fn slice(&mut self, lcore: usize, slice: &Slice);
    /// The way of a packet that is wanted.
    fn journey(&mut self, journey: &Journey);
}

/// Nowhere.
impl Output for () {
    fn slice(&mut self, _: usize, _: &Slice) {}
    fn journey(&mut self, _: &Journey) {}
}
