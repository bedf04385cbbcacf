//! Ctrl-C and SIGTERM: the first one asks for an orderly stop, the second one ends the process at
//! once. SIGHUP only ever asks for an orderly stop: the kernel and the shell may both send one when
//! a terminal goes away. SIGUSR1 asks for the plan to be read again. SIGXFSZ is no reason to end.
//!
//! Guarantees: a signal that has a handler here is delivered, also where the process that started
//! this one had blocked it (a mask is inherited); SIGHUP that was ignored at the start stays so.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::sys::signal::{SigSet, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::flag;
use signal_hook::low_level::signal_name;

/// The shell's exit code of a process that ended on SIGINT.
const EXIT_INTERRUPTED: i32 = 130;

/// Set by a signal that ends a command which looks at a run: it still says what it has found. A
/// second Ctrl-C or SIGTERM ends the process at once: it may wait for a pipe that nobody reads.
pub(super) fn caught() -> io::Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| *signal != SIGHUP || !ignores_hangup()) {
        if signal != SIGHUP {
            flag::register_conditional_shutdown(signal, EXIT_INTERRUPTED, Arc::clone(&asked))?;
        }
        flag::register(signal, Arc::clone(&asked))?;
    }
    hear()?;
    Ok(asked)
}

/// Has the calling thread, which is to have the handlers by now, hear all of these signals.
pub(super) fn hear() -> io::Result<()> {
    const HEARD: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1];
    Ok(HEARD.into_iter().collect::<SigSet>().thread_unblock()?)
}

/// A request to read the plan again. Its signal has a handler before the plan is read at all, so
/// that it may come however far the run is. A signal that asks for a stop then ends the process,
/// which has nothing to bring to an end.
pub(super) struct ReloadRequest(Arc<AtomicBool>);

impl ReloadRequest {
    /// Installs the handler for the rest of the process's life.
    pub(super) fn install() -> io::Result<ReloadRequest> {
        let reload = Arc::new(AtomicBool::new(false));
        flag::register(SIGUSR1, Arc::clone(&reload))?;
        Ok(ReloadRequest(reload))
    }
}

/// The user's requests to the run.
pub(super) struct StopRequest {
    stop: Arc<AtomicBool>,
    /// The last signal that asked for it; 0 if there is none.
    signal: Arc<AtomicUsize>,
    reload: Arc<AtomicBool>,
}

impl StopRequest {
    /// Installs the handlers for the rest of the process's life.
    pub(super) fn install(ReloadRequest(reload): ReloadRequest) -> io::Result<StopRequest> {
        let (asked, by) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: handlers run as registered, so that the first signal finds the
            // flag still false.
            flag::register_conditional_shutdown(signal, EXIT_INTERRUPTED, Arc::clone(&asked))?;
            flag::register_usize(signal, Arc::clone(&by), signal as usize)?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        // nohup(1) has it ignored.
        if !ignores_hangup() {
            flag::register_usize(SIGHUP, Arc::clone(&by), SIGHUP as usize)?;
            flag::register(SIGHUP, Arc::clone(&asked))?;
        }
        hear()?;
        Ok(StopRequest { stop: asked, signal: by, reload })
    }

    /// Whether the user asked the run to stop.
    pub(super) fn asked(&self) -> bool {
        // Relaxed: the flag publishes no data, and may be seen one look later.
        self.stop.load(Ordering::Relaxed)
    }

    /// The signal by which the user asked the run to stop.
    pub(super) fn signal(&self) -> Option<&'static str> {
        // Relaxed: a name for the user, stored before the flag that made the run stop.
        signal_name(self.signal.load(Ordering::Relaxed) as i32)
    }

    /// Takes the user's request to read the plan again, if there is one.
    pub(super) fn takes_reload(&self) -> bool {
        // Relaxed: as above.
        self.reload.swap(false, Ordering::Relaxed)
    }
}

/// Makes a write beyond the limit of a file's size (RLIMIT_FSIZE) fail with EFBIG, like one to a
/// full disk, instead of ending the process.
pub(super) fn survive_file_limit() {
    // If it can't be caught, the limit still ends the process.
    let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Whether SIGHUP was ignored at the start of this process.
fn ignores_hangup() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignored(&status, SIGHUP))
}

/// Whether a process with this status (proc_pid_status(5)) ignores `signal`.
fn ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nohup_ignores_stays_ignored() {
        let status = |mask: &str| format!("Name:\trig\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\nSigCgt:\t01\n");
        assert!(ignored(&status("0000000000001001"), SIGHUP));
        assert!(!ignored(&status("0000000000001000"), SIGHUP));
        assert!(!ignored("", SIGHUP));
    }
}
