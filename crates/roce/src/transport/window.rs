//! Bounds the packets of requests under way: fewer after a loss, and more again as packets arrive.
//!
//! After a loss, all packets behind it are sent again, so that losses cost more in a wide window.
//! Each loss halves the window, and each window that arrives whole widens it by one packet
//! (additive increase, multiplicative decrease: RFC 5681, section 3.1).

/// Losses don't shrink it below this: the packets that a queue pair sends in its turn.
const LEAST_PACKETS: u32 = 16;

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    packets: u32,
    /// Packets that have arrived since the window last grew.
    arrived: u64,
    most: u32,
}

impl Window {
    /// As wide as allowed.
    pub(crate) fn new(most: u32) -> Window {
        Window { packets: most, arrived: 0, most }
    }

    pub(crate) fn packets(&self) -> u32 {
        self.packets
    }

    /// Shrinks it after a loss.
    pub(crate) fn shrink(&mut self) {
        self.packets = (self.packets / 2).max(LEAST_PACKETS.min(self.most));
        self.arrived = 0;
    }

    /// Counts packets that have arrived, and grows.
    pub(crate) fn grow(&mut self, packets: u64) {
        self.arrived += packets;
        if self.packets < self.most && self.arrived >= self.packets.into() {
            self.arrived -= u64::from(self.packets);
            self.packets += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_halves_it_and_each_whole_window_adds_one() {
        let mut window = Window::new(128);
        window.shrink();
        assert_eq!(window.packets(), 64);
        window.grow(63);
        assert_eq!(window.packets(), 64);
        window.grow(1);
        assert_eq!(window.packets(), 65);
        (0..10).for_each(|_| window.shrink());
        assert_eq!(window.packets(), LEAST_PACKETS);
        (0..100_000).for_each(|_| window.grow(1));
        assert_eq!(window.packets(), 128);
    }

    #[test]
    fn one_that_may_not_be_wide_never_is() {
        let mut window = Window::new(2);
        (0..3).for_each(|_| window.shrink());
        assert_eq!(window.packets(), 2);
        window.grow(1_000);
        assert_eq!(window.packets(), 2);
    }
}
