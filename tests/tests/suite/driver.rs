//! `./x` hands a plan to the app that it names. Where it can't build, it says what to do.
//!
//! The driver runs as a copy in a folder of its own, with a `cargo` that builds nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use verbline_tests::{root, skipped};

use crate::outside::new_crate;

/// A stand-in for each app: it prints its arguments.
const APP: &str = "#!/bin/sh\necho \"${0##*/} $*\"\n";
/// A stand-in for the program that prints a plan's app: the app is the plan's only line.
const PLAN_APP: &str = "#!/bin/sh\ncat \"$1\"\n";

/// A checkout with the driver and two apps, all built.
fn checkout() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let script = |path: &str, text: &str| script(&folder.path().join(path), text);
    script("x", &fs::read_to_string(root().join("x")).unwrap());
    script("bin/cargo", "#!/bin/sh\n");
    script("target/quick/plan-app", PLAN_APP);
    for app in ["pingpong", "tick-to-trade"] {
        fs::create_dir_all(folder.path().join("apps").join(app)).unwrap();
        script(&format!("target/quick/{app}"), APP);
    }
    folder
}

pub(crate) fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn driver(folder: &Path, mut command: Command, arguments: &[&str]) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}/bin:{path}", folder.display())).env("HOME", folder).env_remove("CARGO_TARGET_DIR");
    command.arg(folder.join("x")).args(arguments).output().unwrap()
}

#[test]
fn a_plan_goes_to_the_app_that_it_names() {
    let folder = checkout();
    for (named, app) in
        [("pingpong", "pingpong"), ("", "tick-to-trade"), ("other", "tick-to-trade"), ("../apps", "tick-to-trade")]
    {
        fs::write(folder.path().join("plan.toml"), named).unwrap();
        let output = driver(folder.path(), Command::new("bash"), &["check", "plan.toml", "--explain"]);
        let said = format!("{app} check plan.toml --explain\n");
        assert_eq!(String::from_utf8_lossy(&output.stdout), said, "{named}: {output:?}");
    }
}

// Failed with `HOME: unbound variable`: a service of systemd's has no HOME.
#[test]
fn where_there_is_no_home_that_of_the_user_is_taken() {
    let folder = checkout();
    fs::write(folder.path().join("plan.toml"), "pingpong").unwrap();
    let mut homeless = Command::new("env");
    homeless.args(["-u", "HOME", "bash"]);
    let output = driver(folder.path(), homeless, &["check", "plan.toml"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "pingpong check plan.toml\n", "{output:?}");
}

#[test]
fn a_crate_has_no_name_with_which_none_builds() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["self", "match", "test", "verbline", "verbline-engine"] {
        let output = new_crate(folder.path(), name);
        let told = format!("x: {name} is a name of Rust's or of Verbline's: no crate of yours can have it\n");
        assert_eq!(String::from_utf8_lossy(&output.stderr), told);
        assert!(output.status.code() == Some(2) && !folder.path().join(name).exists(), "{output:?}");
    }
}

#[test]
fn a_first_run_of_the_default_app_waits_for_one_build() {
    let folder = checkout();
    // Cargo notes its arguments, and `plan-app` reads the plan's app like the real program.
    script(&folder.path().join("bin/cargo"), "#!/bin/sh\necho \"$*\" >>\"$HOME/built\"\n");
    let reads_app = "#!/bin/sh\nsed -n 's/^app = \"\\(.*\\)\"/\\1/p' \"$1\"\n";
    for (profile, at) in [("quick", "quick"), ("dev", "debug")] {
        script(&folder.path().join("target").join(at).join("plan-app"), reads_app);
        for (app, together) in [("tick-to-trade", true), ("pingpong", false)] {
            script(&folder.path().join("target").join(at).join(app), APP);
            fs::write(folder.path().join("plan.toml"), format!("app = \"{app}\"\n")).unwrap();
            let mut command = Command::new("bash");
            command.env("VERBLINE_PROFILE", profile);
            let output = driver(folder.path(), command, &["check", "plan.toml"]);
            assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{app} check plan.toml\n"), "{output:?}");
            let built = fs::read_to_string(folder.path().join("built")).unwrap();
            let first = built.lines().next().unwrap();
            assert_eq!(first.contains("--bin tick-to-trade"), together, "{built}");
            // Cargo finds programs only in the chosen packages.
            for program in ["tick-to-trade", "pingpong"] {
                let calls =
                    |word: &str| built.lines().filter(|line| line.contains(&format!("{word} {program}"))).count();
                assert!(calls("--bin") == 0 || calls("-p") >= calls("--bin"), "{built}");
            }
            fs::remove_file(folder.path().join("built")).unwrap();
        }
    }
}

/// Figures depend on the profile, so a run names its own, and benchmarks use the shipped one.
#[test]
fn a_run_is_soon_built_and_a_benchmark_as_it_is_shipped() {
    let folder = checkout();
    let cargo = "#!/bin/sh\necho \"$*\" >>\"$HOME/built\"\n";
    script(&folder.path().join("bin/cargo"), cargo);
    fs::write(folder.path().join("plan.toml"), "pingpong").unwrap();
    for at in ["release", "debug"] {
        script(&folder.path().join("target").join(at).join("plan-app"), PLAN_APP);
        for program in ["pingpong", "peers"] {
            script(&folder.path().join("target").join(at).join(program), APP);
        }
    }
    let (run, check, bench) = (&["run", "plan.toml"][..], &["check", "plan.toml"][..], &["bench", "peers"][..]);
    for (chosen, arguments, profile, says_so) in [
        (None, run, "quick", true),
        (None, check, "quick", false),
        (None, bench, "release", false),
        (Some("release"), run, "release", false),
        (Some("dev"), bench, "dev", false),
    ] {
        let mut command = Command::new("bash");
        command.env_remove("VERBLINE_PROFILE").envs(chosen.map(|profile| ("VERBLINE_PROFILE", profile)));
        let output = driver(folder.path(), command, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let built = fs::read_to_string(folder.path().join("built")).unwrap();
        let is_chosen = |line: &str| line.contains(&format!("--profile {profile} "));
        assert!(built.lines().all(is_chosen), "{chosen:?} {arguments:?}: {built}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.contains("x: profile quick"), says_so, "{chosen:?} {arguments:?}: {said}");
        fs::remove_file(folder.path().join("built")).unwrap();
    }
}

#[test]
fn a_plan_on_standard_input_goes_to_its_app_whole() {
    let folder = checkout();
    fs::write(folder.path().join("plan"), "pingpong").unwrap();
    let reads = "#!/bin/sh\necho \"${0##*/} $* $(cat)\"\n";
    for app in ["pingpong", "tick-to-trade"] {
        fs::write(folder.path().join("target/quick").join(app), reads).unwrap();
    }
    for plan in ["-", "/dev/stdin"] {
        let mut command = Command::new("bash");
        command.stdin(fs::File::open(folder.path().join("plan")).unwrap());
        let output = driver(folder.path(), command, &["check", plan]);
        let said = format!("pingpong check {plan} pingpong\n");
        assert_eq!(String::from_utf8_lossy(&output.stdout), said, "{output:?}");
    }
}

#[test]
fn verbs_that_are_scripts_have_help_that_installs_nothing() {
    let folder = checkout();
    for verb in ["new", "random-steps", "test-rdma", "smoke", "asan", "tsan", "fresh", "headers", "lint"] {
        let output = driver(folder.path(), elsewhere(folder.path(), &format!("none-for-{verb}")), &[verb, "--help"]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.starts_with(&format!("./x {verb} ")), "{output:?}");
    }
}

/// Given a name that no test has, cargo runs nothing and reports success.
#[test]
fn a_check_that_names_its_tests_fails_where_a_name_is_no_tests() {
    let folder = checkout();
    script(&folder.path().join("tests/named"), &fs::read_to_string(root().join("tests/named")).unwrap());
    script(&folder.path().join("tests/sanitized"), "#!/bin/sh\n");
    let cargo =
        "#!/bin/sh\ncase \"$*\" in *--list*) cat \"$HOME/tests-there\" ;; *) echo \"$*\" >>\"$HOME/ran\" ;; esac\n";
    script(&folder.path().join("bin/cargo"), cargo);
    let names = ["connections", "acceptors", "many_operations", "operations_lost", "hostile_peers", "many_peers"];
    let of_asan = names.map(|theme| format!("{theme}::works: test")).join("\n");
    let renamed = of_asan.replace("many_peers", "peers");
    for (verb, there, missing) in [
        ("random-steps", "model::random_steps_do_what_the_oracle_says: test\n", None),
        ("random-steps", "model::steps_by_chance: test\n", Some("no test is called random_steps_do")),
        ("random-steps", "", Some("no test is left by: cargo test")),
        ("asan", &of_asan, None),
        ("asan", &renamed, Some("no test is called many_peers::")),
        ("asan", "", Some("no test is left by: cargo test")),
    ] {
        fs::write(folder.path().join("tests-there"), there).unwrap();
        let output = driver(folder.path(), Command::new("bash"), &[verb]);
        assert_eq!(output.status.code(), Some(i32::from(missing.is_some())), "{verb} {there}: {output:?}");
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
        assert!(said.contains(missing.unwrap_or_default()), "{verb} {there}: {said}");
        if missing.is_none() {
            let ran = fs::read_to_string(folder.path().join("ran")).unwrap();
            let last = there.lines().last().unwrap().split("::").next().unwrap();
            assert!(ran.contains(if verb == "asan" { last } else { "-- random_steps_do --nocapture" }), "{ran}");
        }
    }
}

#[test]
fn every_fuzz_target_that_there_is_runs() {
    let folder = tempfile::tempdir().unwrap();
    script(&folder.path().join("fuzz/run"), &fs::read_to_string(root().join("fuzz/run")).unwrap());
    for target in ["a_new_one", "plan"] {
        script(&folder.path().join(format!("fuzz/fuzz_targets/{target}.rs")), "");
    }
    let output = Command::new("bash").arg(folder.path().join("fuzz/run")).arg("--help").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.ends_with("\ntargets: a_new_one plan\n"), "{said}");
}

#[test]
fn a_plan_that_is_not_there_is_for_the_default_app_to_tell() {
    let folder = checkout();
    let output = driver(folder.path(), Command::new("bash"), &["check", "missing.toml"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "tick-to-trade check missing.toml\n", "{output:?}");
}

#[test]
fn a_plans_path_is_the_callers() {
    let folder = checkout();
    fs::create_dir(folder.path().join("config")).unwrap();
    fs::write(folder.path().join("config/plan.toml"), "pingpong").unwrap();
    for (from, path) in [
        ("config", "plan.toml"),
        ("config", "../config/plan.toml"),
        (".", "config/plan.toml"),
        ("apps", "config/plan.toml"),
    ] {
        let mut command = Command::new("bash");
        command.current_dir(folder.path().join(from));
        let output = driver(folder.path(), command, &["check", path]);
        let said = "pingpong check config/plan.toml\n";
        assert_eq!(String::from_utf8_lossy(&output.stdout), said, "{path} from {from}: {output:?}");
    }
}

/// A system without dpkg: it has its package manager and other needed commands, but no compiler.
fn elsewhere(folder: &Path, manager: &str) -> Command {
    let bin = folder.join(format!("bin-{manager}"));
    fs::create_dir(&bin).unwrap();
    for tool in ["bash", "sh", "dirname", "realpath", "cat", "env", "echo", "grep"] {
        let path = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().unwrap().stdout;
        let path = String::from_utf8(path).unwrap();
        let path = if path.starts_with('/') { path.trim().to_owned() } else { format!("/bin/{tool}") };
        std::os::unix::fs::symlink(path, bin.join(tool)).unwrap();
    }
    script(&bin.join(manager), "#!/bin/sh\nexit 1\n");
    // A user who may not install is told what to install.
    script(&bin.join("id"), "#!/bin/sh\necho 1000\n");
    let mut command = Command::new(bin.join("bash"));
    command.env("PATH", &bin).env("HOME", folder).env("LIBCLANG_PATH", "/chosen").env_remove("CARGO_TARGET_DIR");
    command
}

#[test]
fn a_system_without_dpkg_is_told_in_its_own_words_what_is_missing() {
    for (manager, words) in [
        ("dnf", "dnf install gcc gcc-c++ make pkgconf-pkg-config rdma-core-devel"),
        ("zypper", "zypper install gcc gcc-c++ make pkg-config rdma-core-devel"),
        ("pacman", "pacman -S base-devel pkgconf rdma-core"),
        ("apk", "apk add build-base pkgconf rdma-core-dev"),
        ("apt-get", "apt-get install build-essential pkg-config libibverbs-dev librdmacm-dev"),
        ("none", "your package manager, for build-essential pkg-config libibverbs-dev librdmacm-dev"),
    ] {
        let folder = checkout();
        let mut command = elsewhere(folder.path(), manager);
        let output = command.arg(folder.path().join("x")).args(["check", "missing.toml"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{manager}: {output:?}");
        assert!(said.contains(&format!("(as root: {words})")), "{manager}: {said}");
    }
}

/// The user need not ask for the names of the packages.
#[test]
fn a_system_without_dpkg_that_has_everything_builds() {
    let folder = checkout();
    let mut command = elsewhere(folder.path(), "dnf");
    for tool in ["cc", "pkg-config"] {
        script(&folder.path().join("bin-dnf").join(tool), "#!/bin/sh\nexit 0\n");
    }
    fs::copy(folder.path().join("bin/cargo"), folder.path().join("bin-dnf/cargo")).unwrap();
    let output = command.arg(folder.path().join("x")).args(["check", "missing.toml"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "tick-to-trade check missing.toml\n", "{output:?}");
}

#[test]
fn a_checkout_that_can_not_be_written_is_told_of_cargo_target_dir() {
    let folder = checkout();
    let is_root = rustix::process::geteuid().is_root();
    let flags = if is_root { &["--mount"][..] } else { &["--mount", "--map-root-user"] };
    let is_allowed = Command::new("unshare").args(flags).arg("true").status().is_ok_and(|status| status.success());
    if !is_allowed {
        return skipped("unshare(1) may make no mount namespace here");
    }
    let mut command = Command::new("unshare");
    let mount = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec bash \"$@\"";
    command.args(flags).args(["sh", "-c", mount]).arg(folder.path());
    let output = driver(folder.path(), command, &["check", "plan.toml"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(said.contains("can't be written") && said.contains("CARGO_TARGET_DIR=/"), "{said}");
}
