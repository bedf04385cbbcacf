//! The acceptor of a port, shared by threads: the port's cm thread asks it, and the cm threads of
//! the ports that share its listener tell it when connections end.
//!
//! Guarantees: the acceptor is called by one thread at a time; its panic stops here and is returned
//! as a message; after a panic it is not called again. The last of its cm threads to end drops it.
//! Any thread can see the current call, and its start.

use std::sync::Mutex;
use std::time::Instant;

use crate::connection::acceptor::{Acceptor, Answer, ConnectionRequest};
use crate::errors::guarded::lock;
use crate::errors::guarded::{self, Guarded};

/// The acceptor of a port.
pub(crate) struct AcceptorGuard {
    name: String,
    port: String,
    /// `None` once it has panicked, and once its cm threads have ended.
    acceptor: Mutex<Option<Guarded<dyn Acceptor>>>,
    /// The current call, and its start.
    asked: Mutex<Option<(&'static str, Instant)>>,
    /// The number of cm threads that may call it.
    cm_threads: Mutex<usize>,
}

impl AcceptorGuard {
    pub(crate) fn new(name: String, port: String, acceptor: Guarded<dyn Acceptor>) -> AcceptorGuard {
        let (acceptor, asked, cm_threads) = (Mutex::new(Some(acceptor)), Mutex::default(), Mutex::default());
        AcceptorGuard { name, port, acceptor, asked, cm_threads }
    }

    /// Adds a cm thread that may call it.
    pub(crate) fn enter(&self) {
        *lock(&self.cm_threads) += 1;
    }

    /// Removes a cm thread. `Err`: it was the last, and the acceptor panicked in its drop; the
    /// sentence says so.
    pub(crate) fn leave(&self) -> Result<(), String> {
        let left = {
            let mut cm_threads = lock(&self.cm_threads);
            *cm_threads = cm_threads.saturating_sub(1);
            *cm_threads
        };
        if left > 0 {
            return Ok(());
        }
        let Some(acceptor) = lock(&self.acceptor).take() else { return Ok(()) };
        let said = self.noting("in its `Drop`", || acceptor.let_go());
        said.map_or(Ok(()), |said| Err(format!("{} panicked as it was dropped: {said}", self.words())))
    }

    /// The acceptor's answer; `Err` with a sentence if it panicked.
    pub(crate) fn decide(&self, request: &ConnectionRequest<'_>) -> Result<Answer, String> {
        let answer = self.call("in `decide`", |acceptor| acceptor.decide(request))?;
        Ok(answer.unwrap_or_else(Answer::reject))
    }

    /// A connection that was accepted under this tag is over.
    pub(crate) fn ended(&self, tag: u64) -> Result<(), String> {
        self.call("in `ended`", |acceptor| acceptor.ended(tag)).map(drop)
    }

    /// The current call of the acceptor, and its start.
    pub(crate) fn asked(&self) -> Option<(&'static str, Instant)> {
        *lock(&self.asked)
    }

    /// The acceptor's name, and its port's.
    pub(crate) fn words(&self) -> String {
        format!("acceptor `{}` of port.{}", self.name, self.port)
    }

    /// `None` if the acceptor has panicked before.
    fn call<T>(&self, what: &'static str, call: impl FnOnce(&mut dyn Acceptor) -> T) -> Result<Option<T>, String> {
        let mut held = lock(&self.acceptor);
        let Some(acceptor) = &mut *held else { return Ok(None) };
        match self.noting(what, || guarded::call(|| call(&mut **acceptor))) {
            Ok(answer) => Ok(Some(answer)),
            Err(said) => {
                *held = None;
                Err(format!("{} panicked: {said}", self.words()))
            }
        }
    }

    fn noting<T>(&self, what: &'static str, run: impl FnOnce() -> T) -> T {
        *lock(&self.asked) = Some((what, Instant::now()));
        let done = run();
        *lock(&self.asked) = None;
        done
    }
}

impl std::fmt::Debug for AcceptorGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AcceptorGuard").field("name", &self.name).field("port", &self.port).finish_non_exhaustive()
    }
}
