//! The checks on kernel RDMA fail if the guest does. The guest's scripts run as a copy, with a qemu
//! that boots nothing and leaves the files that a guest would.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use verbline_tests::{root, skipped};

use crate::driver::script;

/// Ends at once, with the exit code and the console output that the test wants.
const QEMU: &str = "#!/bin/sh
for word; do
    case $word in
        file:*) console=${word#file:} ;;
        *mount_tag=control*) control=${word#*path=} && control=${control%%,*} ;;
    esac
done
cp \"$HOME/console\" \"$console\" && : >\"$control/begun\" && echo 0 >\"$control/exit\"
";

/// Ends as the test wants, with every check of `test-rdma` passed, once the second guest ran, too.
const GUEST: &str = "#!/bin/bash
. <(sed -n '/^conformance=/,/^checks=/p' \"${0%/*}/test-rdma\")
printf 'ok    %-60s      1.0 s\\n' \"${checks[@]}\"
for try in {1..300}; do [ ! -e \"$HOME/second\" ] || exit \"$(<\"$HOME/code\")\"; sleep 0.1; done
exit 124
";

/// Leaves word that it ran.
const SECOND_GUEST: &str = "#!/bin/sh
: >\"$HOME/second\"
";

/// A checkout with these real scripts of the guest, and these stubs in place of others.
fn checkout(real: &[&str], stubs: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in real {
        let path = Path::new("tests/guest").join(name);
        script(&folder.path().join(&path), &fs::read_to_string(root().join(&path)).unwrap());
    }
    stubs.iter().for_each(|(path, text)| script(&folder.path().join(path), text));
    folder
}

fn ran(folder: &Path, words: &[&str]) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("bash");
    command.env("PATH", format!("{}/bin:{path}", folder.display())).env("HOME", folder).current_dir(folder);
    command.env("VERBLINE_CACHE", folder.join("cache")).env_remove("CARGO_TARGET_DIR");
    command.arg(folder.join("tests/guest").join(words[0])).args(&words[1..]).output().unwrap()
}

/// The scripts need jq for their judgement.
fn lacks_jq() -> bool {
    let is_there = Command::new("jq").arg("--version").output().is_ok();
    if !is_there {
        skipped("jq is not installed");
    }
    !is_there
}

#[test]
fn a_kernel_that_breaks_under_a_command_is_a_failure_and_one_that_complains_is_told_of() {
    let image = "#!/bin/sh\necho kernel && echo initramfs\n";
    let stubs =
        [("bin/qemu-system-x86_64", QEMU), ("tests/guest/require", "#!/bin/sh\n"), ("tests/guest/image", image)];
    let folder = checkout(&["run", "session"], &stubs);
    for (console, code, told) in [
        ("all is well", 0, ""),
        ("watchdog: BUG: soft lockup - CPU#0 stuck for 23s! [kv:71]", 0, "the kernel complained"),
        ("WARNING: CPU: 0 PID: 71 at net/core/dev.c:1", 0, "the kernel complained"),
        ("BUG: unable to handle page fault for address: ffff0000", 125, "kernel broke"),
        ("Oops: 0002 [#1] PREEMPT SMP NOPTI", 125, "kernel broke"),
        ("kernel BUG at mm/slub.c:1!", 125, "kernel broke"),
    ] {
        fs::write(folder.path().join("console"), console).unwrap();
        let output = ran(folder.path(), &["run", "--", "true"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{console}: {output:?}");
        assert!(said.contains(told) && said.is_empty() == told.is_empty(), "{console}: {said}");
    }
}

#[test]
fn checks_that_all_pass_in_a_guest_that_does_not_end_well_have_not_passed() {
    if lacks_jq() {
        return;
    }
    let tests = "#!/bin/sh
for name in verbs engine; do
    echo '{\"target\":{\"kind\":[\"test\"]},\"package_id\":\"crates/'$name'#0\",\"executable\":\"/bin/true\"}'
done
";
    let stubs = [("bin/cargo", tests), ("tests/guest/run", GUEST), ("tests/guest/nvme-auth", SECOND_GUEST)];
    let folder = checkout(&["test-rdma", "json"], &stubs);
    for (guest, code) in [(0, 0), (125, 1), (2, 2)] {
        fs::write(folder.path().join("code"), format!("{guest}\n")).unwrap();
        let output = ran(folder.path(), &["test-rdma"]);
        fs::remove_file(folder.path().join("second")).expect("the second guest ran beside the first");
        assert_eq!(output.status.code(), Some(code), "{guest}: {output:?}");
    }
}

/// A failed target, or one that a signal did not end in order, may have lost no packet.
#[test]
fn a_target_is_judged_by_its_packets_its_failures_and_its_exit_code() {
    if lacks_jq() {
        return;
    }
    let folder = checkout(&["nvme-common", "json"], &[]);
    let judge = "here=$1; . \"$here/nvme-common\"
        (trap \"exit $2\" TERM; : >\"$out/up\"; while :; do sleep 0.01; done) & ours=$!
        until [ -e \"$out/up\" ]; do sleep 0.01; done
        printf %s \"$3\" >\"$out/ours\" && : >\"$out/ours.err\"
        stop_ours 2>/dev/null; judge_report; rm -r \"$out\"; exit $failed";
    let good = r#"{"packets":{"held":0},"failures":[]}"#;
    for (exited, report, failed) in [
        ("0", good, 0),
        ("1", good, 1),
        ("0", r#"{"packets":{"held":3},"failures":[]}"#, 1),
        ("0", r#"{"packets":{"held":0},"failures":[{"lcore":"near"}]}"#, 1),
        ("0", "", 1),
    ] {
        let mut command = Command::new("bash");
        command.args(["-c", judge, "bash"]).arg(folder.path().join("tests/guest")).args([exited, report]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(failed), "{exited} {report}: {output:?}");
    }
}
