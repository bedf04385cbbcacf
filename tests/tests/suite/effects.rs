//! The filter that shows that a check has no effects.

use std::os::unix::process::ExitStatusExt;

use verbline_tests::Program;

fn shell(script: &str) -> Program {
    Program::new("/bin/sh").with(["-c", script])
}

/// The filter ends a program with an effect, and lets others go on.
#[test]
fn it_ends_what_has_an_effect_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file").display().to_string();
    for script in ["cat /proc/self/status", "test -e /; echo said >&2", "read line < /proc/version"] {
        shell(script).run_without_effects().exited(0);
    }
    for script in [format!(": > {file}"), format!("mkdir {file}"), format!("ln -s / {file}"), format!(": >> {file}")] {
        let shown = shell(&format!("exec 2>&1; {script}")).run_without_effects();
        let by_itself = shown.status.signal() == Some(libc::SIGSYS);
        // The shell gives the end of its child as an exit code: 128 and the signal.
        assert!(by_itself || shown.status.code() == Some(128 + libc::SIGSYS), "{script}: {shown}");
        assert_eq!(folder.path().read_dir().expect("it is there").count(), 0, "{script}");
    }
}

#[test]
fn the_plan_of_these_tests_is_checked_without_effects() {
    Program::new(env!("CARGO_BIN_EXE_rig")).with(["check", "tests/plans/rig.toml"]).run_without_effects().exited(0);
}
