//! Connections that others have asked for, by who asked and its number: what a request is compared
//! with.
//!
//! What it guarantees: a request costs the same, however many connections there are, and whatever
//! addresses and numbers strangers choose. Nothing is allocated once it is made.

use crate::cm::connection::State;
use std::collections::HashMap;
use std::net::IpAddr;

/// The other end of a connection: its address, and its number there.
pub(crate) type Remote = (IpAddr, u32);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Asked {
    /// All that are not gone.
    places: HashMap<Remote, usize>,
    /// Of each address that has any, how many are no connections yet, or no longer.
    half_open: HashMap<IpAddr, usize>,
    /// Those that a program has neither accepted nor rejected.
    undecided: usize,
}

impl Asked {
    /// Room for as many connections.
    pub(crate) fn new(connections: usize) -> Asked {
        // A table that is half empty is put in order where it lies.
        let room = 2 * connections;
        Asked { places: HashMap::with_capacity(room), half_open: HashMap::with_capacity(room), undecided: 0 }
    }

    /// Where the connection is that was asked for from there by that number, if it is not gone.
    pub(crate) fn place_of(&self, remote: Remote) -> Option<usize> {
        self.places.get(&remote).copied()
    }

    /// How many of an address are no connections yet, or no longer: each has a place, and costs the
    /// address nothing.
    pub(crate) fn half_open(&self, from: IpAddr) -> usize {
        self.half_open.get(&from).copied().unwrap_or(0)
    }

    /// Whether there is one that a program has neither accepted nor rejected.
    pub(crate) fn has_undecided(&self) -> bool {
        self.undecided > 0
    }

    /// Somebody asks.
    pub(crate) fn begin(&mut self, remote: Remote, place: usize) {
        self.places.insert(remote, place);
        *self.half_open.entry(remote.0).or_default() += 1;
        self.undecided += 1;
    }

    /// One goes from a state to another.
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

    /// One of an address is half open no longer.
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
