//! Files given to the command, for blocks and for secrets: files in use, and paths that are not
//! usable files.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FlockOperation, Mode, flock, mkfifoat};
use verbline_tests::{Finished, Program, unwrapped};

const SECRET: &str = "DHHC-1:01:AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09pl1OOC:";

/// The shipped plan, with these settings.
fn check(sets: &[&str]) -> Finished {
    let check = Program::new(env!("CARGO_BIN_EXE_nvme-target")).with(["check", "config/nvme-target.toml"]);
    check.with(sets.iter().flat_map(|set| ["--set", set])).run()
}

/// Two targets of one file would destroy each other's blocks: the second run is refused, with the
/// reason.
#[test]
fn two_lcores_a_file_that_somebody_else_has_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    let namespace = format!("nvme.namespace.2={{file={path:?}}}");
    let sets = [&namespace[..], "pool.data.headroom_bytes=0"];
    check(&sets).exited(0);
    flock(&file, FlockOperation::LockExclusive).unwrap();
    // A check opens nothing.
    check(&sets).exited(0);
    let run =
        Program::new(env!("CARGO_BIN_EXE_nvme-target")).with(["run", "config/nvme-target.toml", "--for", "100ms"]);
    let shown = run.with(sets.iter().flat_map(|set| ["--set", set])).run().exited(1);
    let holder = format!("process {} (", std::process::id());
    assert!(unwrapped(&shown.stderr).contains(&holder), "{shown}");
    drop(file);
    check(&sets).exited(0);
}

/// Both were served, and every write failed.
#[test]
fn two_lcores_what_would_take_no_write_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let run = |file: &str, more: &str| {
        let run = ["run", "config/nvme-target.toml", "--for", "100ms", "--set", "pool.data.headroom_bytes=0"];
        let run = Program::new(env!("CARGO_BIN_EXE_nvme-target")).with(run);
        run.with(["--set", &format!("nvme.namespace.2={{file={file:?}{more}}}")])
    };
    let long = run(path.to_str().unwrap(), "");
    let limited = ["prlimit", "--fsize=1000000"];
    let shown = long.run_as(&mut long.behind(limited)).exited(1);
    let said = unwrapped(&shown.stderr);
    assert!(said.contains("it has 1048576 bytes, and this process may write no file beyond 1000000"), "{shown}");
    let reads = run(path.to_str().unwrap(), ", read_only=true");
    let shown = reads.run_as(&mut reads.behind(limited));
    assert!(!shown.stderr.contains("RLIMIT_FSIZE"), "{shown}");

    let attached = Command::new("losetup").args(["--read-only", "--find", "--show"]).arg(&path).output();
    let Some(attached) = attached.ok().filter(|attached| attached.status.success()) else {
        return println!("skipped: losetup(8) makes no loop device here");
    };
    let device = String::from_utf8(attached.stdout).unwrap();
    let shown = run(device.trim(), "").run();
    assert!(Command::new("losetup").args(["--detach", device.trim()]).status().unwrap().success());
    let shown = shown.exited(1);
    let said = unwrapped(&shown.stderr);
    assert!(said.contains("the device is read-only; open it as such (`read_only = true`)"), "{shown}");
}

/// Two names of one file are one file.
#[test]
fn a_file_is_the_blocks_of_one_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("disk"), folder.path().join("link"));
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    std::fs::hard_link(&path, &link).unwrap();
    let [first, second] =
        [(2, &path), (3, &link)].map(|(nsid, path)| format!("nvme.namespace.{nsid}={{file={path:?}}}"));
    let shown = check(&[&first, &second, "pool.data.headroom_bytes=0"]).exited(2);
    assert!(unwrapped(&shown.stderr).contains("namespaces 2 and 3 are both kept in"), "{shown}");
}

#[test]
fn two_lcores_a_secret_is_read_from_a_regular_file_and_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    mkfifoat(CWD, path("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
    std::fs::write(path("long"), "x".repeat(1 << 20)).unwrap();
    std::fs::write(path("good"), SECRET).unwrap();
    std::fs::set_permissions(path("good"), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(path("open"), SECRET).unwrap();
    std::fs::set_permissions(path("open"), PermissionsExt::from_mode(0o644)).unwrap();
    let host = "nqn.2026-01.org.verbline:load";
    let cases = [
        (SECRET.to_owned(), 2, "the secret itself stands in the plan"),
        (path("fifo"), 2, "is a FIFO, and no regular file"),
        ("/dev/zero".to_owned(), 2, "is a device, and no regular file"),
        (folder.path().display().to_string(), 2, "is a folder, and no regular file"),
        (path("long"), 2, "is not of the form DHHC-1:NN:BASE64:"),
        (path("open"), 0, "(mode 644): chmod 600"),
        (path("good"), 0, ""),
    ];
    for (value, code, says) in cases {
        for set in [format!("nvme.secrets={{{host:?}={value:?}}}"), format!("load.secret={value:?}")] {
            let began = Instant::now();
            let shown = check(&[&set]).exited(code);
            let text = format!("{}{}", shown.stdout, shown.stderr);
            assert!(unwrapped(&text).contains(says), "{set}: {text}");
            assert!(!text.contains(&SECRET[10..]), "the secret is told: {text}");
            assert!(code != 0 || says.is_empty() != text.contains("chmod"), "{text}");
            assert!(began.elapsed() < Duration::from_secs(30), "{set}: it did not wait");
        }
    }
    // In the plan itself, where the line is shown.
    let plan = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/nvme-target.toml")).unwrap();
    let plan = plan.replace("[load]\n", &format!("[load]\nsecret = {SECRET:?}\n"));
    std::fs::write(path("plan.toml"), plan).unwrap();
    let program = Program::new(env!("CARGO_BIN_EXE_nvme-target"));
    for command in [&["check"][..], &["check", "--json"], &["run"]] {
        let shown = program.clone().with(command.iter().copied()).with([path("plan.toml")]).run().exited(2);
        let text = format!("{}{}", shown.stdout, shown.stderr);
        assert!(text.contains("stands in the plan") && !text.contains(&SECRET[10..]), "{text}");
    }
}

/// The kind takes no params, and refuses them before it opens anything.
#[test]
fn params_of_a_target_are_refused() {
    let said = check(&["stage.target.params.x=1"]).exited(2).stderr;
    assert!(said.contains("unknown key `x`") && said.contains("stage kind `target` takes no keys"), "{said}");
}
