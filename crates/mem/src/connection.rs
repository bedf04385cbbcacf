//! The handle of a connection: which of the many peers of a port a packet came from or goes to.

use std::fmt;
use std::num::NonZeroU64;

/// The handle of one connection of one port.
///
/// It has a slot, which a later connection of the port may have again, and a generation, which none
/// has again: the handle of a connection that is gone never means another. State that is kept for
/// each connection belongs into a `Vec` at its slot, beside the handle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ConnectionId(NonZeroU64);

const _: () = assert!(size_of::<Option<ConnectionId>>() == 8);

impl ConnectionId {
    /// Makes the handle of the connection of this generation in a slot of a port; `None` for
    /// generation 0, which no connection has.
    #[must_use]
    pub fn new(port: u16, slot: u16, generation: u32) -> Option<ConnectionId> {
        let bits = u64::from(generation) << 32 | u64::from(port) << 16 | u64::from(slot);
        NonZeroU64::new(bits).filter(|_| generation > 0).map(ConnectionId)
    }

    /// Its place among the port's connections: less than the port's `connections_max`, or its
    /// `connections`.
    #[inline]
    #[must_use]
    pub fn slot(self) -> usize {
        usize::from(self.0.get() as u16)
    }

    /// The number of its port.
    #[inline]
    #[must_use]
    pub fn port(self) -> u16 {
        (self.0.get() >> 16) as u16
    }

    /// How many connections the slot has had, this one included.
    #[inline]
    #[must_use]
    pub fn generation(self) -> u32 {
        (self.0.get() >> 32) as u32
    }
}

/// As `port:slot.generation`.
impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}.{}", self.port(), self.slot(), self.generation())
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_has_its_parts_and_differs_in_each() {
        let id = ConnectionId::new(3, u16::MAX, 7).unwrap();
        assert_eq!((id.port(), id.slot(), id.generation()), (3, 65_535, 7));
        assert_eq!(id.to_string(), "3:65535.7");
        for (port, slot, generation) in [(4, u16::MAX, 7), (3, 0, 7), (3, u16::MAX, 8)] {
            assert_ne!(ConnectionId::new(port, slot, generation), Some(id));
        }
        assert_eq!(ConnectionId::new(1, 1, 0), None);
    }
}
