//! The command as a user runs it, where no target is needed.

use verbline_tests::{Program, unwrapped};

fn check(sets: &[&str]) -> Program {
    let check = Program::new(env!("CARGO_BIN_EXE_nvme-load")).with(["check", "tests/plans/nvme-load.toml"]);
    check.with(["device.nic0={ provider = \"soft\" }"].iter().chain(sets).flat_map(|set| ["--set", set]))
}

#[test]
fn a_check_has_no_effects() {
    check(&[]).run_without_effects().exited(0);
}

#[test]
fn what_it_needs_of_the_plan_is_proved() {
    let cases = [
        ("stage.load.timers_max=0", "can arm 2 timers at once, and may arm 0"),
        ("load.keys=window", "asks for memory windows over its output `io`"),
        ("region.buffers.rights=[\"local-write\"]", "lacks \"remote-read\", \"remote-write\""),
    ];
    for (set, says) in cases {
        let shown = check(&[set]).run().exited(2);
        assert!(unwrapped(&shown.stderr).contains(says), "{set}: {shown}");
    }
}
