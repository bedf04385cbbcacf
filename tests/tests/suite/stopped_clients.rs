//! Clients of a run that are stopped, as by `kill -STOP`: neither the run nor its other clients
//! notice.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::operate::{BUSY, await_run, end, endless, look, received, rig, said};

/// A stopped client. Dropping it kills the client.
struct Stopped(Child);

impl Stopped {
    /// Starts a client, and stops it once it prints something: it is being served then.
    fn start(folder: &Path, words: &[&str]) -> Stopped {
        let mut command = rig(folder, words).command();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0];
        // A verb with a lasting request prints that it asks; a repeating verb prints its results.
        match words[0] {
            "stats" => child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap(),
            _ => child.stderr.as_mut().unwrap().read_exact(&mut first).unwrap(),
        }
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::STOP).unwrap();
        let stopped = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        assert!(stopped.is_some_and(|(_, status)| status.stopped()), "{words:?}: {stopped:?}");
        Stopped(child)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn clients_that_are_stopped_are_noticed_neither_by_the_run_nor_by_others() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run = endless(folder, &BUSY).start();
    await_run(folder);
    let file = folder.join("stopped.pcapng");
    let stopped = [
        &["stats", "--every", "20ms", "--json"][..],
        &["trace", "--for", "10m", "--json"],
        &["capture", "-w", file.to_str().unwrap()],
    ]
    .map(|words| Stopped::start(folder, words));

    // Each of these questions is answered at once.
    let (began, mut before) = (Instant::now(), received(folder));
    while began.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(250));
        run.wait_for("packets", || received(folder) > before);
        before = received(folder);
    }
    let (shown, _) = said(&look(folder, &["stats"]));
    assert!(shown.contains("drops    none"), "{shown}");
    // A client that reads nothing loses its trace two seconds after its socket is full.
    let traced = || look(folder, &["trace", "--packets", "10", "--for", "5s"]);
    let began = Instant::now();
    while !traced().status.success() {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", said(&traced()).1);
        std::thread::sleep(Duration::from_millis(100));
    }

    let began = Instant::now();
    end(run);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop(stopped);
}
