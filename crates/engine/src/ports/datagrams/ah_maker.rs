//! Makes address handles for a UD port beside its lcore: making one is a system call on kernel
//! devices, and may wait for the network to resolve the address.
//!
//! Guarantees: the lcore takes a lock that is held for a few moves only, and only when it hears of
//! an unknown sender. It makes a system call only to wake the thread, once each time that the
//! thread had nothing more to make. Address handles are made and destroyed on this thread, except
//! for those that a queue pair still has as its port goes.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use verbline_mem::ConnectionId;
use verbline_verbs::datagram::{AddressHandle, AhSpec};
use verbline_verbs::{ProtectionDomain, VerbError};

use crate::control::notice::Notice;
use crate::control::run_control::LcoreInbox;
use crate::errors::guarded::lock;

/// A requested address handle: its connection, and the result.
pub(super) type Made = (ConnectionId, Result<AddressHandle, VerbError>);

/// The lcore's end.
#[derive(Debug)]
pub(crate) struct AhMaker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    said: Mutex<Said>,
    /// An address handle was requested, or the port goes.
    called: Condvar,
    inbox: LcoreInbox,
    /// The port's place on its lcore.
    place: usize,
}

#[derive(Debug, Default)]
struct Said {
    asked: VecDeque<(ConnectionId, AhSpec)>,
    made: VecDeque<Made>,
    /// Address handles to be destroyed.
    used: Vec<AddressHandle>,
    /// The thread waits to be woken.
    sleeps: bool,
    ends: bool,
}

impl AhMaker {
    /// `most`: the number of address handles that may be requested at once.
    pub(crate) fn new(
        pd: ProtectionDomain,
        inbox: LcoreInbox,
        place: usize,
        most: usize,
        port: &str,
    ) -> io::Result<AhMaker> {
        let said = Said {
            asked: VecDeque::with_capacity(most),
            made: VecDeque::with_capacity(most),
            // The replaced ones, and the one made in the meantime.
            used: Vec::with_capacity(most + 1),
            sleeps: false,
            ends: false,
        };
        let shared = Arc::new(Shared { said: Mutex::new(said), called: Condvar::new(), inbox, place });
        let named = std::thread::Builder::new().name(format!("vl-ah-{port}"));
        let (of, port) = (Arc::clone(&shared), port.to_owned());
        let thread = named.spawn(move || of.serve(&pd, &port))?;
        Ok(AhMaker { shared, thread: Some(thread) })
    }

    /// Requests an address handle; a connections notice tells the lcore when it is made.
    pub(super) fn ask(&self, connection: ConnectionId, path: AhSpec) {
        let mut said = lock(&self.shared.said);
        said.asked.push_back((connection, path));
        let sleeps = mem::take(&mut said.sleeps);
        drop(said);
        // A system call on the lcore, for a new sender, and only while the thread sleeps: a thread
        // that polled would take a CPU, or delay answers. New senders that come together cost one
        // call, and keep the thread awake.
        if sleeps {
            self.shared.called.notify_one();
        }
    }

    /// Takes the next result: an address handle, or an error.
    pub(super) fn take(&self) -> Option<Made> {
        lock(&self.shared.said).made.pop_front()
    }

    /// Returns an address handle that nobody uses any more.
    pub(super) fn give_back(&self, ah: AddressHandle) {
        lock(&self.shared.said).used.push(ah);
    }
}

impl Shared {
    fn serve(&self, pd: &ProtectionDomain, port: &str) {
        let mut is_told = false;
        loop {
            let mut said = lock(&self.said);
            while !said.ends && said.asked.is_empty() {
                said.sleeps = true;
                said = self.called.wait(said).unwrap_or_else(PoisonError::into_inner);
            }
            if said.ends {
                return;
            }
            let used = said.used.split_off(0);
            let Some((connection, path)) = said.asked.pop_front() else { continue };
            drop(said);
            // Before another one is made: a device limits their number.
            drop(used);
            let made = pd.create_ah(&path);
            // Only once: senders are strangers, and may be many.
            if let (Err(error), false) = (&made, is_told) {
                tracing::warn!(%port, %error, "a sender of datagrams cannot be answered");
                is_told = true;
            }
            lock(&self.said).made.push_back((connection, made));
            self.inbox.post(Notice::Connections { port: self.place });
        }
    }
}

impl Drop for AhMaker {
    fn drop(&mut self) {
        lock(&self.shared.said).ends = true;
        self.shared.called.notify_one();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("a thread that makes address handles panicked");
        }
    }
}
