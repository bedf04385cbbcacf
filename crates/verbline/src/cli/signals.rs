//! Ctrl-C and SIGTERM: the first asks for an orderly stop, the second ends the process at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// The shell's convention for a process that ended on SIGINT.
const EXIT_INTERRUPTED: i32 = 130;

/// Becomes true when the user asks the run to stop.
pub(super) struct StopRequest(Arc<AtomicBool>);

impl StopRequest {
    /// Installs the handlers for the rest of the process's life.
    pub(super) fn install() -> io::Result<StopRequest> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: handlers run as registered, so that the first signal finds the flag still false.
            flag::register_conditional_shutdown(signal, EXIT_INTERRUPTED, Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(StopRequest(asked))
    }

    /// Whether the user has asked.
    pub(super) fn asked(&self) -> bool {
        // Relaxed: the flag carries no data; a look later is soon enough.
        self.0.load(Ordering::Relaxed)
    }
}
