//! The places for commands that queues were admitted with. A place is free again when its queue has
//! ended and nothing of it is under way any more. The last to notice frees it: the acceptor, which
//! hears of the connection's end, or the stage, whose store may take longer.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What was admitted. Behind a lock that is held for no longer than a look-up, and that no command
/// takes.
#[derive(Debug, Default)]
pub(crate) struct Admissions(Mutex<State>);

/// An admission, as the tag of its connection. 0 is none.
pub(crate) type AdmissionId = u64;

#[derive(Debug, Default)]
struct State {
    last: AdmissionId,
    all: BTreeMap<AdmissionId, Admission>,
    ports: BTreeMap<String, Admitted>,
}

#[derive(Debug)]
struct Admission {
    port: String,
    address: IpAddr,
    entries: u16,
    /// The connection is there, or may come.
    is_connected: bool,
    /// A stage has a queue for it.
    has_queue: bool,
}

/// What is admitted at one port, or of one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) queues: usize,
    /// Commands that their hosts may have under way.
    pub(crate) commands: u32,
}

impl State {
    fn release_if_free(&mut self, id: AdmissionId) {
        let is_free = |admission: &Admission| !admission.is_connected && !admission.has_queue;
        if !self.all.get(&id).is_some_and(is_free) {
            return;
        }
        if let Some(admission) = self.all.remove(&id)
            && let Some(port) = self.ports.get_mut(&admission.port)
        {
            port.queues -= 1;
            port.commands -= u32::from(admission.entries);
        }
    }
}

impl Admissions {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is admitted at a port.
    pub(crate) fn at(&self, port: &str) -> Admitted {
        self.lock().ports.get(port).copied().unwrap_or_default()
    }

    /// What is admitted of an address at the ports that are meant.
    pub(crate) fn of(&self, address: IpAddr, is_meant: impl Fn(&str) -> bool) -> Admitted {
        let state = self.lock();
        let own = state.all.values().filter(|own| own.address == address && is_meant(&own.port));
        own.fold(Admitted::default(), |sum, own| Admitted {
            queues: sum.queues + 1,
            commands: sum.commands + u32::from(own.entries),
        })
    }

    /// Lets a queue with `entries` entries in at a port.
    pub(crate) fn admit(&self, port: &str, address: IpAddr, entries: u16) -> AdmissionId {
        let state = &mut *self.lock();
        state.last += 1;
        let admission = Admission { port: port.to_owned(), address, entries, is_connected: true, has_queue: false };
        state.all.insert(state.last, admission);
        let admitted = state.ports.entry(port.to_owned()).or_default();
        admitted.queues += 1;
        admitted.commands += u32::from(entries);
        state.last
    }

    /// A stage has a queue for the connection, which it hears of before that ends.
    pub(crate) fn begin(&self, id: AdmissionId) {
        if let Some(admission) = self.lock().all.get_mut(&id) {
            admission.has_queue = true;
        }
    }

    /// The connection is over, or never came.
    pub(crate) fn disconnected(&self, id: AdmissionId) {
        let state = &mut *self.lock();
        if let Some(admission) = state.all.get_mut(&id) {
            admission.is_connected = false;
        }
        state.release_if_free(id);
    }

    /// Nothing of the queue is under way any more.
    pub(crate) fn done(&self, id: AdmissionId) {
        let state = &mut *self.lock();
        if let Some(admission) = state.all.get_mut(&id) {
            admission.has_queue = false;
        }
        state.release_if_free(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_free_when_the_last_has_left() {
        let admissions = Admissions::default();
        let at = |queues, commands| Admitted { queues, commands };
        // One that never came.
        let here = IpAddr::from([10, 9, 9, 2]);
        let id = admissions.admit("a", here, 16);
        assert_eq!((admissions.at("a"), admissions.of(here, |port| port == "a")), (at(1, 16), at(1, 16)));
        assert_eq!(admissions.of(here, |port| port == "b"), at(0, 0));
        assert_eq!(admissions.of(IpAddr::from([10, 9, 9, 3]), |_| true), at(0, 0));
        admissions.disconnected(id);
        assert_eq!(admissions.at("a"), at(0, 0));
        // The host leaves first; or the stage is done first.
        for host_first in [true, false] {
            let id = admissions.admit("a", here, 16);
            let other = admissions.admit("b", here, 2);
            admissions.begin(id);
            let (host, stage) = (|| admissions.disconnected(id), || admissions.done(id));
            if host_first {
                host()
            } else {
                stage()
            }
            assert_eq!(admissions.at("a"), at(1, 16), "one of them has it");
            if host_first {
                stage()
            } else {
                host()
            }
            assert_eq!((admissions.at("a"), admissions.at("b")), (at(0, 0), at(1, 2)));
            // Said twice, or of none.
            [id, 0, 99].into_iter().for_each(|id| admissions.disconnected(id));
            admissions.disconnected(other);
            assert_eq!(admissions.at("b"), at(0, 0));
        }
    }
}
