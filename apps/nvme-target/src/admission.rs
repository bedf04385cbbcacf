//! Admissions of queues, each with places for its commands. The places are free again when the
//! queue has ended and its last operation is done. They are freed by the acceptor, at the
//! connection's end, or by the stage, whose store may take longer: by the later of the two.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The admissions, behind a lock. It is held for a look-up at most, and no command takes it.
#[derive(Debug, Default)]
pub(crate) struct Admissions(Mutex<State>);

/// An admission, as the tag of its connection; 0 for none.
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
    /// The connection is open, or may still open.
    is_connected: bool,
    /// A stage has a queue for it.
    has_queue: bool,
}

/// The sums of the admissions at one port, or of one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) queues: usize,
    /// Commands that their hosts may have in flight.
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

    /// Sums the admissions at a port.
    pub(crate) fn at(&self, port: &str) -> Admitted {
        self.lock().ports.get(port).copied().unwrap_or_default()
    }

    /// Sums the admissions of an address at the ports that `is_meant` selects.
    pub(crate) fn of(&self, address: IpAddr, is_meant: impl Fn(&str) -> bool) -> Admitted {
        let state = self.lock();
        let own = state.all.values().filter(|own| own.address == address && is_meant(&own.port));
        own.fold(Admitted::default(), |sum, own| Admitted {
            queues: sum.queues + 1,
            commands: sum.commands + u32::from(own.entries),
        })
    }

    /// Admits a queue with `entries` entries at a port.
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

    /// A stage has made a queue for the connection. It does so before the connection's end.
    pub(crate) fn begin(&self, id: AdmissionId) {
        if let Some(admission) = self.lock().all.get_mut(&id) {
            admission.has_queue = true;
        }
    }

    /// The connection has ended, or never opened.
    pub(crate) fn disconnected(&self, id: AdmissionId) {
        let state = &mut *self.lock();
        if let Some(admission) = state.all.get_mut(&id) {
            admission.is_connected = false;
        }
        state.release_if_free(id);
    }

    /// The queue has ended, and its last operation is done.
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
        // A connection that never opened.
        let here = IpAddr::from([10, 9, 9, 2]);
        let id = admissions.admit("a", here, 16);
        assert_eq!((admissions.at("a"), admissions.of(here, |port| port == "a")), (at(1, 16), at(1, 16)));
        assert_eq!(admissions.of(here, |port| port == "b"), at(0, 0));
        assert_eq!(admissions.of(IpAddr::from([10, 9, 9, 3]), |_| true), at(0, 0));
        admissions.disconnected(id);
        assert_eq!(admissions.at("a"), at(0, 0));
        // The host leaves first, or the stage is done first.
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
            // A second call, the tag 0, and an unknown tag.
            [id, 0, 99].into_iter().for_each(|id| admissions.disconnected(id));
            admissions.disconnected(other);
            assert_eq!(admissions.at("b"), at(0, 0));
        }
    }
}
