//! A wire's counters, for readers that take no lock.
//!
//! One thread at a time counts: the holder of the wire's lock. So counting is a load and a store of
//! a cache line that this thread has anyway. Any thread reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use verbline_roce::transport::Incidents;

/// Declares the link's counters twice: for readers, and for the counting thread.
macro_rules! link_counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A link's counters.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LinkCounters {
            $($(#[$doc])* pub $name: u64,)*
            /// Datagrams that the kernel dropped on arrival, since a socket was full.
            pub socket_full: u64,
        }

        /// [`LinkCounters`] while they are counted.
        #[derive(Debug, Default)]
        pub(super) struct LinkTallies {
            $(pub(super) $name: Tally,)*
        }

        impl LinkTallies {
            /// All but what the kernel counts.
            pub(super) fn values(&self) -> LinkCounters {
                LinkCounters { $($name: self.$name.value(),)* socket_full: 0 }
            }
        }
    };
}

link_counters! {
    /// Datagrams sent, as far as the kernel took them.
    sent,
    /// Datagrams received.
    received,
    /// Datagrams received that were too long.
    truncated,
    /// System calls that sent.
    send_calls,
    /// System calls that received something.
    receive_calls,
    /// Datagrams lost because a queue was full (EAGAIN, ENOBUFS).
    full,
    /// Datagrams lost because the interface's MTU is smaller (EMSGSIZE).
    too_long,
    /// Datagrams that a firewall refused (EPERM).
    refused,
    /// Datagrams lost for another reason.
    failed,
    /// Datagrams received and passed on to another process of the address.
    passed_on,
    /// Datagrams that another process of the address passed on to this one.
    taken_over,
    /// Datagrams not passed on, since the other process lags behind.
    neighbour_full,
    /// Refused processes of other users, which wanted to pass something on.
    foreign,
}

/// One counter: written by one thread at a time.
#[derive(Debug, Default)]
pub(super) struct Tally(AtomicU64);

impl Tally {
    pub(super) fn add(&self, more: u64) {
        // Relaxed, both: the wire's lock orders the counting threads; a reader wants this value
        // alone.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    fn set(&self, value: u64) {
        // Relaxed: as in `add`.
        self.0.store(value, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        // Relaxed: pairs with nothing; each value is right by itself.
        self.0.load(Ordering::Relaxed)
    }
}

/// Incidents of one queue pair of a wire, for readers that take no lock. It keeps its last values
/// when the queue pair ends.
#[derive(Clone, Debug)]
pub struct QpIncidents(pub(super) Arc<Published>);

impl QpIncidents {
    /// All values so far.
    pub fn values(&self) -> Incidents {
        self.0.values()
    }
}

/// Incidents of queue pairs, as last published.
#[derive(Debug)]
pub(super) struct Published([Tally; Incidents::VALUES]);

impl Published {
    pub(super) fn new() -> Published {
        Published(std::array::from_fn(|_| Tally::default()))
    }

    pub(super) fn publish(&self, all: &Incidents) {
        self.0.iter().zip(all.values()).for_each(|(tally, value)| tally.set(value));
    }

    pub(super) fn values(&self) -> Incidents {
        Incidents::of_values(self.0.iter().map(Tally::value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_read_value_by_value() {
        let published = Published::new();
        assert_eq!(published.values(), Incidents::default());
        let all = Incidents::of_values((0..Incidents::VALUES as u64).map(|index| index * 3 + 1));
        published.publish(&all);
        assert_eq!(published.values(), all);
        let link = LinkTallies::default();
        link.sent.add(3);
        link.sent.add(4);
        assert_eq!(link.values(), LinkCounters { sent: 7, ..LinkCounters::default() });
    }
}
