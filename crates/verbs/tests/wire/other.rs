//! The other process: this program, started in a role.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::{PARENT, ROLE, address};

/// The other process.
pub(crate) struct Other {
    pub(crate) child: Child,
    stdin: ChildStdin,
    lines: BufReader<std::process::ChildStdout>,
    pub(crate) last: u8,
}

impl Other {
    /// Starts the process in a role, with an address of its own.
    pub(crate) fn start(role: &str) -> Other {
        static NEXT: Mutex<u8> = Mutex::new(10);
        let last = {
            let mut next = NEXT.lock().unwrap();
            *next += 1;
            *next
        };
        Other::start_at(role, last)
    }

    /// Starts the process with an address that others may have.
    pub(crate) fn start_at(role: &str, last: u8) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["the_other_process", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{role} {last}"))
            .env(PARENT, std::process::id().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, lines) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Other { child, stdin, lines, last }
    }

    /// Waits for a line with `what=`; returns the rest of the line.
    pub(crate) fn says(&mut self, what: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it says {what} before it ends");
            if let Some((_, rest)) = line.split_once(&format!("{what}=")) {
                return rest.trim().to_owned();
            }
        }
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    pub(crate) fn listens(&mut self) -> SocketAddr {
        let port = self.says("port").parse().unwrap();
        SocketAddr::new(address(std::process::id(), self.last), port)
    }

    /// Stops the process, as `kill -STOP` does, until [`goes_on`](Self::goes_on). It does nothing
    /// more when this returns: the signal alone leaves its threads some time.
    pub(crate) fn stops(&self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::STOP).unwrap();
        let stopped = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        assert!(stopped.is_some_and(|(_, status)| status.stopped()), "{stopped:?}");
    }

    pub(crate) fn goes_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }

    pub(crate) fn ends_well(mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
