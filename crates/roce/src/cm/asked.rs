//! Connections that peers have requested, by address and number: repeated requests are found here.
//!
//! Guarantees: a request costs the same for any number of connections, and for any addresses and
//! numbers that strangers choose. Nothing is allocated after creation.

use crate::cm::connection::State;
use std::collections::HashMap;
use std::net::IpAddr;

/// The other end of a connection: its address, and its number there.
pub(crate) type Remote = (IpAddr, u32);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Asked {
    /// All passive connections that are not gone.
    places: HashMap<Remote, usize>,
    /// The number of half-open connections of each address that has any: not yet established,
    /// ending, or in time-wait.
    half_open: HashMap<IpAddr, usize>,
    /// Requests that a program has neither accepted nor rejected.
    undecided: usize,
}

impl Asked {
    /// Makes room for that many connections.
    pub(crate) fn new(connections: usize) -> Asked {
        // A half-empty table is rehashed in place, without an allocation.
        let room = 2 * connections;
        Asked { places: HashMap::with_capacity(room), half_open: HashMap::with_capacity(room), undecided: 0 }
    }

    /// The place of the connection that the peer requested by that number, if it is not gone.
    pub(crate) fn place_of(&self, remote: Remote) -> Option<usize> {
        self.places.get(&remote).copied()
    }

    /// The number of half-open connections of an address. Each occupies a place, and costs the
    /// address nothing.
    pub(crate) fn half_open(&self, from: IpAddr) -> usize {
        self.half_open.get(&from).copied().unwrap_or(0)
    }

    /// Whether a program has a request that it has neither accepted nor rejected.
    pub(crate) fn has_undecided(&self) -> bool {
        self.undecided > 0
    }

    /// Adds a requested connection.
    pub(crate) fn begin(&mut self, remote: Remote, place: usize) {
        self.places.insert(remote, place);
        *self.half_open.entry(remote.0).or_default() += 1;
        self.undecided += 1;
    }

    /// Moves a connection from one state to another.
    pub(crate) fn go(&mut self, remote: Remote, from: State, to: State) {
        match (is_half_open(from), is_half_open(to)) {
            (true, false) => self.settles(remote.0),
            (false, true) => *self.half_open.entry(remote.0).or_default() += 1,
            (false, false) | (true, true) => {}
        }
        if from == State::Requested && to != State::Requested {
            self.undecided -= 1;
        }
        if to == State::Gone {
            self.places.remove(&remote);
        }
    }

    /// Counts one half-open connection of an address less.
    fn settles(&mut self, from: IpAddr) {
        let Some(count) = self.half_open.get_mut(&from) else { return };
        *count -= 1;
        if *count == 0 {
            self.half_open.remove(&from);
        }
    }
}

fn is_half_open(state: State) -> bool {
    !matches!(state, State::Established | State::Gone)
}
