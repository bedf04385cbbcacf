//! A recording that is absent, cut or corrupt: an error with the file and the place, exit code 2,
//! and no run.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use verbline_tests::{Finished, assert_fits, recording, unwrapped};

use crate::command::app;

const SNAPSHOT: &str = "micex_snapshot.dat";

/// The shipped plan's run on a recording in `dir`.
fn replay(dir: &Path) -> Finished {
    let dir = format!("feed.dir={}", dir.display());
    app().with(["run", "config/moex-replay.toml", "--json", "--set", &dir]).run()
}

/// Asserts a single error with these parts, at the plan's key.
#[track_caller]
fn refused(shown: Finished, says: &[&str]) {
    let shown = shown.exited(2);
    assert_eq!(shown.stdout, "", "{shown}");
    let said = unwrapped(&shown.stderr);
    for part in says {
        assert!(said.contains(part), "{part} is not in {shown}");
    }
    assert!(shown.stderr.contains("1 error\n"), "{shown}");
    assert_fits(&shown.stderr);
}

/// A copy of the recording with one file changed.
pub(crate) fn changed(file: &str, change: impl FnOnce(&mut Vec<u8>)) -> Option<TempDir> {
    let dir = tempfile::tempdir().expect("a folder for files");
    for entry in fs::read_dir(recording()?).expect("the recording").flatten() {
        // Copies only the bytes: the recording may be read-only, and its copy must be writable.
        let bytes = fs::read(entry.path()).expect("a file of the recording");
        fs::write(dir.path().join(entry.file_name()), bytes).expect("a copy");
    }
    let path = dir.path().join(file);
    let mut bytes = fs::read(&path).expect("a file of the recording");
    change(&mut bytes);
    fs::write(&path, bytes).expect("the change");
    Some(dir)
}

#[test]
fn a_check_has_no_effects() {
    app().with(["check", "config/tick-to-trade.toml"]).run_without_effects().exited(0);
    let Some(recording) = recording() else { return };
    let dir = format!("feed.dir={}", recording.display());
    app().with(["check", "config/moex-replay.toml", "--set", &dir]).run_without_effects().exited(0);
}

#[test]
fn two_lcores_an_absent_recording_says_where_it_was_looked_for_and_what_is_missing() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join(SNAPSHOT), b"").expect("a file");
    let missing = "missing micex_templates.xml, micex_config.xml, micex_increment_a.dat, micex_increment_b.dat; give";
    // A long path breaks only at spaces, so it appears whole.
    refused(
        replay(dir.path()),
        &[&format!("no MOEX FORTS recording in {}:", dir.path().display()), missing, "--set feed.dir="],
    );
}

#[test]
fn two_lcores_the_shipped_plan_names_its_own_line_when_nobody_gives_the_folder() {
    // As seen by a user without a recording: with the absolute path.
    let shown = app().with(["run", "config/moex-replay.toml"]).run();
    let dir = verbline_tests::root().join("moex-forts");
    refused(shown, &["config/moex-replay.toml:", &dir.display().to_string()]);
}

#[test]
fn two_lcores_a_file_that_was_cut_says_at_which_byte() {
    for (file, len) in [(SNAPSHOT, 100_001), ("micex_increment_a.dat", 4_321)] {
        let Some(dir) = changed(file, |bytes| bytes.truncate(len)) else { return };
        let path = dir.path().join(file).display().to_string();
        refused(replay(dir.path()), &[&path, &format!("byte {len}"), "was cut"]);
    }
}

#[test]
fn two_lcores_a_corrupt_file_says_at_which_byte() {
    let file = "micex_increment_b.dat";
    let Some(dir) = changed(file, |bytes| bytes[100_000..100_020].fill(0xff)) else { return };
    let path = dir.path().join(file).display().to_string();
    refused(replay(dir.path()), &[&path, "byte 1000", "corrupt", "messages"]);
}

#[test]
fn two_lcores_files_that_are_not_xml_are_named() {
    for file in ["micex_templates.xml", "micex_config.xml"] {
        let Some(dir) = changed(file, |bytes| bytes.truncate(bytes.len() / 2)) else { return };
        refused(replay(dir.path()), &[&dir.path().join(file).display().to_string(), "not XML"]);
    }
}

#[test]
fn no_flipped_byte_makes_it_panic() {
    // A change is either detected, or decodes to other messages, which are played and accounted
    // for. Only the opening is tried here: a run for each would take too long.
    let Some(dir) = changed(SNAPSHOT, |_| ()) else { return };
    let path = dir.path().join(SNAPSHOT);
    let good = fs::read(&path).expect("the snapshots");
    let mut refusals = 0;
    for index in 0..24 {
        let mut bytes = good[..20_000].to_vec();
        let at = 1 + index * 811;
        bytes[at] ^= 0xff;
        fs::write(&path, bytes).expect("the change");
        if let Err(error) = tick_to_trade::fast::MoexFeed::open(dir.path()) {
            assert!(error.to_string().contains(SNAPSHOT), "{error}");
            refusals += 1;
        }
    }
    assert!(refusals > 0, "some of these changes cannot be decoded");
}
