//! `capture` of a running plan: the file, its permissions, and the ways to end the capture.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use verbline_tests::unwrapped;

use crate::lacks::{address_space_sum, limited_mappings};
use crate::operate::{BUSY, await_run, end, endless, look, rig, said};

/// The block types of an interface and of a packet.
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;

/// The number of blocks of each type in a file, which must be whole.
fn blocks(path: &Path) -> [usize; 2] {
    let file = fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (mut at, mut counts) = (0, [0; 2]);
    assert_eq!(word(0), 0x0A0D_0D0A, "a section is first");
    while at < file.len() {
        let len = word(at + 4) as usize;
        assert_eq!(word(at + len - 4) as usize, len, "a block is whole");
        for (count, kind) in counts.iter_mut().zip([INTERFACE, PACKET]) {
            *count += usize::from(word(at) == kind);
        }
        at += len;
    }
    counts
}

fn captured(folder: &Path, file: &Path, words: &[&str]) -> Output {
    look(folder, &[&["capture", "-w", file.to_str().unwrap()][..], words].concat())
}

#[test]
fn a_capture_is_a_file_of_its_users_that_tshark_reads() {
    let folder = tempfile::tempdir().unwrap();
    let run = endless(folder.path(), &[]).start();
    await_run(folder.path());
    let file = folder.path().join("run.pcapng");
    let done = captured(folder.path(), &file, &["rig", "--count", "40"]);
    let told = said(&done).1;
    assert!(done.status.success(), "{told}");
    assert!(told.starts_with("rig: capturing at port.out, port.in; Ctrl-C ends it\n40 packets captured, "), "{told}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(blocks(&file), [2, 40]);

    let again = captured(folder.path(), &file, &["--count", "1"]);
    assert!(again.status.code() == Some(1) && unwrapped(&said(&again).1).contains("is there already"));
    assert_eq!(blocks(&file), [2, 40], "it is as it was");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let forced = captured(folder.path(), &file, &["--count", "7", "--force", "--port", "in"]);
    assert!(forced.status.success(), "{}", said(&forced).1);
    assert_eq!((blocks(&file), fs::metadata(&file).unwrap().permissions().mode() & 0o777), ([1, 7], 0o600));

    // One that a shell has opened has the mode that the shell gave it.
    let shell = folder.path().join("shell.pcapng");
    let out = fs::File::create(&shell).unwrap();
    out.set_permissions(fs::Permissions::from_mode(0o644)).unwrap();
    let mut capture = rig(folder.path(), &["capture", "-w", "/dev/stdout", "--force", "--count", "5"]).command();
    assert!(capture.stdout(out).status().unwrap().success());
    assert_eq!((blocks(&shell), fs::metadata(&shell).unwrap().permissions().mode() & 0o777), ([2, 5], 0o644));

    let refused = captured(folder.path(), &folder.path().join("none"), &["--port", "off"]);
    let told = unwrapped(&said(&refused).1);
    assert!(
        told.contains("nothing can be captured at \"port.off\"; what can be is port.out, port.in, stage."),
        "{told}"
    );
    assert!(refused.status.code() == Some(1) && !folder.path().join("none").exists());

    dissected(&file);
    end(run);
}

#[test]
fn a_capture_at_a_stage_is_read_by_tshark_as_a_link_type_of_the_users() {
    let folder = tempfile::tempdir().unwrap();
    let run = endless(folder.path(), &[]).start();
    await_run(folder.path());
    let file = folder.path().join("stage.pcapng");
    let words = ["--count", "9", "--at", "stage.numbers.out", "--at", "stage.numbers", "--snap", "16"];
    let done = captured(folder.path(), &file, &words);
    let told = said(&done).1;
    assert!(
        told.starts_with("rig: capturing at stage.numbers.out, stage.numbers; Ctrl-C ends it\n9 packets"),
        "{told}"
    );
    assert_eq!(blocks(&file), [2, 9]);
    end(run);
    if Command::new("tshark").arg("--version").output().is_err() {
        return eprintln!("skipped: tshark is not installed");
    }
    let mut tshark = Command::new("tshark");
    tshark.args(["-T", "fields", "-e", "frame.encap_type", "-r"]).arg(file);
    // Wiretap's number for the first user-defined link type.
    assert_eq!(String::from_utf8(tshark.output().unwrap().stdout).unwrap(), "45\n".repeat(9));
}

fn dissected(file: &Path) {
    if Command::new("tshark").arg("--version").output().is_err() {
        return eprintln!("skipped: tshark is not installed");
    }
    let fields = ["frame.interface_name", "infiniband.bth.opcode", "udp.dstport"];
    let mut tshark = Command::new("tshark");
    tshark.args(["--disable-heuristic", "rpcrdma_infiniband", "-T", "fields"]).arg("-r").arg(file);
    let shown = tshark.args(fields.iter().flat_map(|field| ["-e", field])).output().unwrap();
    let lines = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(lines, "port.in\t4\t4791\n".repeat(7), "{}", String::from_utf8_lossy(&shown.stderr));
}

#[test]
fn the_latest_files_are_kept_and_each_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let run = endless(folder.path(), &[]).start();
    await_run(folder.path());
    let file = folder.path().join("ring.pcapng");
    let words = ["--count", "200", "--file-size", "4KiB", "--files", "2", "--port", "out"];
    let done = captured(folder.path(), &file, &words);
    assert!(done.status.success(), "{}", said(&done).1);
    let mut kept: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    kept.retain(|path| path.extension().is_some_and(|ending| ending == "pcapng"));
    kept.sort();
    assert_eq!(kept.len(), 2, "{kept:?}");
    for path in &kept {
        let [interfaces, packets] = blocks(path);
        assert!(interfaces == 1 && packets > 0 && fs::metadata(path).unwrap().len() <= 4096 + 128, "{path:?}");
    }
    assert!(!kept[0].ends_with("ring_00001.pcapng"), "{kept:?}");
    end(run);
}

#[test]
fn a_full_disk_a_signal_and_a_pipe_end_a_capture_and_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let run = endless(folder.path(), &[]).start();
    await_run(folder.path());
    let full = captured(folder.path(), Path::new("/dev/full"), &["--force"]);
    let told = unwrapped(&said(&full).1);
    assert!(full.status.code() == Some(1) && told.contains("/dev/full can't be written: No space left"), "{told}");

    let mut full = rig(folder.path(), &["capture", "-w", "-"]).command();
    let full = full.stdout(File::create("/dev/full").unwrap()).stderr(Stdio::piped()).spawn().unwrap();
    let full = full.wait_with_output().unwrap();
    let told = unwrapped(&said(&full).1);
    assert!(full.status.code() == Some(1) && told.contains("standard output can't be written: No space"), "{told}");

    let mut piped = rig(folder.path(), &["capture", "-w", "-"]).command();
    let mut piped = piped.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut begin = [0; 4096];
    piped.stdout.as_mut().unwrap().read_exact(&mut begin).unwrap();
    assert_eq!(begin[..4], 0x0A0D_0D0A_u32.to_le_bytes());
    kill_process(Pid::from_child(&piped), Signal::INT).unwrap();
    let mut rest = Vec::new();
    piped.stdout.as_mut().unwrap().read_to_end(&mut rest).unwrap();
    assert!(piped.wait().unwrap().success());
    let shown = look(folder.path(), &["stats"]);
    assert!(said(&shown).0.contains("drops    none"), "{}", said(&shown).0);
    end(run);
}

/// Regression: both were refused for want of 160 MiB, for an arena that a thread no longer has.
#[test]
fn a_run_with_the_address_space_of_its_sum_is_captured_and_traced() {
    let folder = tempfile::tempdir().unwrap();
    // On pages of which the sum is.
    let run = endless(folder.path(), &["--set", "pool.packets.pages=4KiB"]);
    let run = run.start_behind(limited_mappings(address_space_sum()));
    await_run(folder.path());
    for words in [&["capture", "-w", "/dev/null", "--force", "--count", "100"][..], &["trace", "--for", "100ms"]] {
        let looked = look(folder.path(), words);
        assert!(looked.status.success(), "{words:?}: {}", said(&looked).1);
    }
    end(run);
}

/// Starts a capture, and waits until it has begun.
fn begun(command: &mut Command, file: &Path) -> Child {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    until(|| fs::metadata(file).is_ok_and(|file| file.len() > 0));
    child
}

fn until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "waited in vain");
        std::thread::sleep(Duration::from_millis(10));
    }
}

// A capture under nohup(1) ended at a hangup.
#[test]
fn a_hangup_that_is_ignored_ends_no_capture() {
    let folder = tempfile::tempdir().unwrap();
    let run = endless(folder.path(), &[]).start();
    await_run(folder.path());
    let file = folder.path().join("run.pcapng");
    let program = rig(folder.path(), &["capture", "-w", file.to_str().unwrap()]);
    let mut capture = begun(&mut program.behind(["env", "--ignore-signal=HUP"]), &file);
    kill_process(Pid::from_child(&capture), Signal::HUP).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(capture.try_wait().unwrap(), None);
    kill_process(Pid::from_child(&capture), Signal::INT).unwrap();
    assert!(capture.wait().unwrap().success());
    end(run);
}

// A capture waited for its pipe, and only SIGKILL ended it.
#[test]
fn a_second_signal_ends_a_capture_whose_pipe_nobody_reads() {
    let folder = tempfile::tempdir().unwrap();
    let run = endless(folder.path(), &BUSY).start();
    await_run(folder.path());
    let mut capture = rig(folder.path(), &["capture", "-w", "-"]).start();
    let waits = format!("/proc/{}/wchan", capture.child().id());
    until(|| fs::read_to_string(&waits).is_ok_and(|call| call.contains("pipe_write")));
    capture.signal(Signal::INT);
    capture.await_delivery();
    capture.signal(Signal::INT);
    assert_eq!(capture.status().code(), Some(130));
    end(run);
}
