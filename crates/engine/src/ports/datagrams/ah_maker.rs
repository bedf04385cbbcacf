//! Makes address handles for a UD port beside its lcore, since making one is a system call on
//! kernel devices, and may wait for the network to say where its address is.
//!
//! Guarantees: the lcore takes a lock that is held for a few moves only, and only when it hears of
//! a sender that it does not know; it makes a system call only to wake the thread, once for each
//! time that this had nothing more to make; address handles are made and destroyed on this thread,
//! but for those that a queue pair still has as its port goes.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use verbline_mem::ConnectionId;
use verbline_verbs::datagram::{AddressHandle, AhSpec};
use verbline_verbs::{ProtectionDomain, VerbError};

use crate::control::notice::Notice;
use crate::control::run_control::LcoreInbox;

/// An address handle that was asked for: whose it is to be.
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
    /// Something was asked for, or the port goes.
    called: Condvar,
    inbox: LcoreInbox,
    /// The port's place on its lcore.
    place: usize,
}

#[derive(Debug, Default)]
struct Said {
    asked: VecDeque<(ConnectionId, AhSpec)>,
    made: VecDeque<Made>,
    /// To be destroyed.
    used: Vec<AddressHandle>,
    /// The thread waits to be called.
    sleeps: bool,
    ends: bool,
}

impl AhMaker {
    /// `most`: how many may be asked for at once.
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
            // What was replaced, and what is made in the meantime.
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

    /// Wants an address handle; a notice of connections tells the lcore that it was made.
    pub(super) fn ask(&self, connection: ConnectionId, path: AhSpec) {
        let mut said = self.shared.lock();
        said.asked.push_back((connection, path));
        let sleeps = mem::take(&mut said.sleeps);
        drop(said);
        // A system call on the lcore, for a sender that is new, and only while the thread sleeps: a
        // thread that looked by itself would take a CPU, or have answers wait. New senders that
        // come together cost one call, and keep the thread awake.
        if sleeps {
            self.shared.called.notify_one();
        }
    }

    /// The next that was made, or could not be.
    pub(super) fn take(&self) -> Option<Made> {
        self.shared.lock().made.pop_front()
    }

    /// One that nobody uses any more.
    pub(super) fn give_back(&self, ah: AddressHandle) {
        self.shared.lock().used.push(ah);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Said> {
        // Every change is a few moves that do not panic.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, pd: &ProtectionDomain, port: &str) {
        let mut is_told = false;
        loop {
            let mut said = self.lock();
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
            // Before another is made: a device has a limit.
            drop(used);
            let made = pd.create_ah(&path);
            // Once: senders are strangers, and may be many.
            if let (Err(error), false) = (&made, is_told) {
                tracing::warn!(%port, %error, "a sender of datagrams cannot be answered");
                is_told = true;
            }
            self.lock().made.push_back((connection, made));
            self.inbox.post(Notice::Connections { port: self.place });
        }
    }
}

impl Drop for AhMaker {
    fn drop(&mut self) {
        self.shared.lock().ends = true;
        self.shared.called.notify_one();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("a thread that makes address handles panicked");
        }
    }
}
