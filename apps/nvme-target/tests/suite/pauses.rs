//! A process that does not run for a while: commands that arrived meanwhile are read before their
//! hosts count as silent.

use std::time::Duration;

use rustix::process::Signal;
use verbline_tests::{Program, counted, two_lcores};

/// Pauses of several keep-alive time-outs, of the target and its host together: no command fails,
/// and no controller ends.
#[test]
fn two_lcores_go_on_after_a_pause_longer_than_the_keep_alive() {
    let Some(placed) = two_lcores(["target", "load"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let app = Program::new(env!("CARGO_BIN_EXE_nvme-target")).listening_in(folder.path());
    let run = app.with(["run", "config/nvme-target.toml", "--json"]).with(placed);
    // A busy machine keeps a process from its CPUs for less than this.
    let run = run.with(["--set", "load.bytes=2097152", "--set", "load.keep_alive_ms=1500"]);
    let started = run.start();
    let mut answered = 0;
    for _ in 0..3 {
        run.await_live(None, "answers after a pause", |now| counted(now, "load", "answered") >= answered + 1000);
        answered = run.live(None).map_or(0, |now| counted(&now, "load", "answered"));
        started.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(4500));
        started.signal(Signal::CONT);
    }
    run.await_live(None, "answers after a pause", |now| counted(now, "load", "answered") >= answered + 1000);
    let shown = started.end_whole(0);
    let counts = &shown.json()["counts"];
    assert_eq!((&counts["failed"], &counts["connected"]), (&0.into(), &1.into()), "{shown}");
}
