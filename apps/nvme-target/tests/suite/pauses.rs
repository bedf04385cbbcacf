//! A process that does not run for a while: commands that arrived meanwhile are read before their
//! hosts count as silent.

use std::time::Duration;

use rustix::process::Signal;
use verbline_tests::{Program, two_lcores};

/// Pauses of several keep-alive time-outs, of the target and its host together: no command fails,
/// and no controller ends.
#[test]
fn two_lcores_go_on_after_a_pause_longer_than_the_keep_alive() {
    let Some(placed) = two_lcores(["target", "load"]) else { return };
    let app = Program::new(env!("CARGO_BIN_EXE_nvme-target"));
    let run = app.with(["run", "config/nvme-target.toml", "--for", "8s", "--json"]).with(placed);
    let started = run.with(["--set", "load.bytes=2097152", "--set", "load.keep_alive_ms=400"]).start();
    started.await_lcores(&["target", "load"]);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(300));
        started.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(1500));
        started.signal(Signal::CONT);
    }
    let shown = started.finish().exited(0);
    let counts = &shown.json()["counts"];
    assert_eq!((&counts["failed"], &counts["connected"]), (&0.into(), &1.into()), "{shown}");
}
