//! Where the recorded feed is, or a clear word that it is not.

use std::path::{Path, PathBuf};

use tick_to_trade::fast::{MoexError, MoexFeed};

/// Where the recording is, if it is there.
pub(crate) fn dir() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/moex-forts");
    std::env::var_os("VERBLINE_MOEX_DIR").map_or(beside, Into::into)
}

/// The recording: `VERBLINE_MOEX_DIR`, or `../shared/data/moex-forts` beside the repository. `None`
/// is said on standard error; with `CI` set and no such folder it is a failure, for CI has the
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
