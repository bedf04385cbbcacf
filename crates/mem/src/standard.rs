//! Which standard descriptors a process was started without.
//!
//! Rust's standard library opens /dev/null in place of one that is closed, before `main`: from then
//! on what is written there is lost, and no write fails. So it is looked at before that.

use std::sync::atomic::{AtomicBool, Ordering};

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether the process was started with its standard output closed (`>&-`). Then nobody reads what
/// is written there, and no write says so.
#[must_use]
pub fn stdout_was_closed() -> bool {
    // Relaxed: written before there is a second thread.
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// The C runtime calls it before `main`, and before what the standard library does there.
#[used]
// SAFETY: the section holds addresses of functions of the C calling convention, as the ABI says
// (gABI, "Initialization and Termination Functions"), and this is one. Its arguments are of no use
// to it. It needs nothing of the standard library that `main` would have made first: one system
// call, and a store.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        let is_closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()) == Err(rustix::io::Errno::BADF);
        // Relaxed: as above.
        STDOUT_WAS_CLOSED.store(is_closed, Ordering::Relaxed);
    }
    look
};
