//! A port's alternate path (automatic path migration): armed with the connection. After each
//! migration the failed path is armed as the new alternate.
//!
//! The device migrates by itself when ACKs don't come; both ends of a connection have to be armed
//! for it. The lcore hears of it by an event (IBV_EVENT_PATH_MIG), and arms again where it reads
//! notices: a system call on a kernel device, which only the queue pair's owner may make.

use verbline_verbs::QpError;

use crate::ports::single_port::Port;

impl Port {
    /// Gives its connected queue pair the plan's alternate path, if there is one.
    pub(crate) fn arm_alternate(&mut self) -> Result<(), QpError> {
        self.alternate.as_mut().map_or(Ok(()), |alternate| alternate.arm(&mut self.qp))
    }

    /// Like [`Port::arm_alternate`], for a reconnected queue pair: it goes on without one if need
    /// be.
    #[cold]
    pub(in crate::ports) fn arm_again(&mut self) {
        if let Err(error) = self.arm_alternate() {
            tracing::warn!(port = %self.name, %error, "the port has no alternate path");
        }
    }

    /// Records that the path of its queue pair was changed.
    pub(in crate::ports) fn path_changed(&mut self) -> Result<(), QpError> {
        self.alternate.as_mut().map_or(Ok(()), |alternate| alternate.note(&mut self.qp))
    }

    /// The device has gone over to the alternate path, or could not.
    #[cold]
    pub(crate) fn path_migrated(&mut self, is_done: bool) {
        let Some(alternate) = self.alternate.as_mut().filter(|_| is_done) else { return };
        match alternate.swap(&mut self.qp) {
            Ok(()) => tracing::info!(port = %self.name, "the path that failed is the alternate one from now on"),
            Err(error) => tracing::warn!(port = %self.name, %error, "the port has no alternate path any more"),
        }
    }
}
