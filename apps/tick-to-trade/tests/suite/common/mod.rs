//! Finds the recorded feed, or reports that it is missing.

use std::path::{Path, PathBuf};

use tick_to_trade::fast::{MoexError, MoexFeed};

/// The recording's folder, whether it exists or not.
pub(crate) fn dir() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/moex-forts");
    std::env::var_os("VERBLINE_MOEX_DIR").map_or(beside, Into::into)
}

/// The recording: `VERBLINE_MOEX_DIR`, or `../shared/data/moex-forts` beside the repository. `None`
/// is noted on standard error; if `CI` is set, a missing folder is a failure, as CI has the
/// recording.
pub(crate) fn moex() -> Option<MoexFeed> {
    match MoexFeed::open(&dir()) {
        Ok(feed) => Some(feed),
        Err(error @ MoexError::Absent { .. }) => {
            assert!(std::env::var_os("CI").is_none(), "CI must have the recording: {error}");
            eprintln!("skipped: {error} (or set VERBLINE_MOEX_DIR)");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
