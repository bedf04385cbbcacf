//! The stack of the main thread, which grows up to the limit of the moment (`ulimit -s`): clap's
//! parser alone takes more than a small one has, and the process would abort. Other threads have
//! stacks of their own size.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for the command line, with room for an app's [`App`](super::App).
const WANTED_BYTES: u64 = 1 << 20;
/// Without optimization 192 KiB are too few for `--help`, and 256 KiB suffice.
const NEEDED_BYTES: u64 = 256 << 10;

/// Raises a limit that is too low, as far as the hard limit permits.
///
/// # Errors
/// The hard limit is too low.
pub(super) fn raise() -> Result<(), String> {
    let Rlimit { current, maximum } = getrlimit(Resource::Stack);
    let Some(bytes) = current.filter(|bytes| *bytes < WANTED_BYTES) else { return Ok(()) };
    let wanted = maximum.map_or(WANTED_BYTES, |most| most.min(WANTED_BYTES));
    let raised = setrlimit(Resource::Stack, Rlimit { current: Some(wanted), maximum });
    let bytes = if raised.is_ok() { wanted } else { bytes };
    if bytes >= NEEDED_BYTES {
        return Ok(());
    }
    let kib = |bytes: u64| bytes >> 10;
    let (has, needed) = (kib(bytes), kib(NEEDED_BYTES));
    Err(format!("error: the stack may have {has} KiB, and {needed} KiB are needed: raise the limit (`ulimit -s 8192`)"))
}
