//! Who is let in: the acceptor of a port, as its host asks it, and as the hosts of the ports that
//! share its listener tell it of ends.
//!
//! Guarantees: the acceptor is called by one thread at a time; its panic stays here and comes out
//! as words; after one it is not asked again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use crate::api::acceptor::{Acceptor, Answer, ConnectionRequest};
use crate::stats::failures;

/// The acceptor of a port.
pub(crate) struct Gate {
    name: String,
    port: String,
    /// `None` once it has panicked.
    acceptor: Mutex<Option<Box<dyn Acceptor>>>,
}

impl Gate {
    pub(crate) fn new(name: String, port: String, acceptor: Box<dyn Acceptor>) -> Gate {
        Gate { name, port, acceptor: Mutex::new(Some(acceptor)) }
    }

    /// What the acceptor answers; `Err`: it panicked, which the sentence tells.
    pub(crate) fn decide(&self, request: &ConnectionRequest<'_>) -> Result<Answer, String> {
        let answer = self.call(|acceptor| acceptor.decide(request))?;
        Ok(answer.unwrap_or_else(Answer::reject))
    }

    /// A connection that was accepted under this tag is over.
    pub(crate) fn ended(&self, tag: u64) -> Result<(), String> {
        self.call(|acceptor| acceptor.ended(tag)).map(drop)
    }

    /// `None` if it has panicked before.
    fn call<T>(&self, call: impl FnOnce(&mut dyn Acceptor) -> T) -> Result<Option<T>, String> {
        // No panic reaches the lock.
        let mut held = self.acceptor.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(acceptor) = &mut *held else { return Ok(None) };
        // Unwind safety: after a panic nobody calls it again.
        match catch_unwind(AssertUnwindSafe(|| call(&mut **acceptor))) {
            Ok(answer) => Ok(Some(answer)),
            Err(panic) => {
                *held = None;
                Err(format!("acceptor `{}` of port.{} panicked: {}", self.name, self.port, failures::said(&*panic)))
            }
        }
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("name", &self.name).field("port", &self.port).finish_non_exhaustive()
    }
}
