//! A run under soak: its process, its terminal, and what the terminal shows.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::num::NonZero;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use verbline_tests::{Program, terminal_pair};

/// Time for the drain and the ten seconds after it (docs/stopping.md), on a busy machine.
pub(crate) const STOP_MAX: Duration = Duration::from_secs(30);

/// Wide enough for every number of a live line.
const COLUMNS: NonZero<u16> = NonZero::new(160).unwrap();
const ROWS: NonZero<u16> = NonZero::new(60).unwrap();

/// The interval at which waits look.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running process. Dropping it kills the process.
pub(crate) struct Process {
    child: Child,
    report: File,
    /// Both ends of its terminal, which stay open until the process ends.
    keyboard: File,
    slave: Option<File>,
    screen: Arc<Screen>,
    reader: Option<JoinHandle<()>>,
}

/// The terminal's contents, and whether anybody reads it.
struct Screen {
    shown: Mutex<vt100::Parser>,
    is_read: Mutex<bool>,
    reads_again: Condvar,
}

impl Process {
    /// Starts the program. Its report goes to a file, everything else to its terminal.
    pub(crate) fn start(program: &Program) -> Result<Process, String> {
        let told = |what: &str, error: std::io::Error| format!("{what}: {error}");
        let report = tempfile::tempfile().map_err(|error| told("a file for the report", error))?;
        let (master, slave) = terminal_pair(COLUMNS).map_err(|error| told("a terminal", error))?;
        let clone = |file: &File| file.try_clone().map_err(|error| told("a descriptor", error));
        let mut command = program.command();
        command.stdin(clone(&slave)?).stdout(clone(&report)?).stderr(clone(&slave)?);
        let child = command.spawn().map_err(|error| told(&command.get_program().display().to_string(), error))?;
        let screen = Arc::new(Screen {
            shown: Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)),
            is_read: Mutex::new(true),
            reads_again: Condvar::new(),
        });
        let keyboard = clone(&master)?;
        let of_reader = Arc::clone(&screen);
        let reader = Some(std::thread::spawn(move || of_reader.read(master)));
        Ok(Process { child, report, keyboard, slave: Some(slave), screen, reader })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The current contents of its terminal.
    pub(crate) fn shown(&self) -> String {
        self.screen.shown.lock().unwrap_or_else(PoisonError::into_inner).screen().contents()
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), String> {
        kill_process(self.pid(), signal).map_err(|error| format!("a signal could not be sent: {error}"))
    }

    /// Presses keys on its terminal.
    pub(crate) fn press(&mut self, keys: &[u8]) -> Result<(), String> {
        self.keyboard.write_all(keys).map_err(|error| format!("no key can be pressed: {error}"))
    }

    /// Sets whether somebody reads the terminal. Without a reader it fills up.
    pub(crate) fn reads(&mut self, reads: bool) -> Result<(), String> {
        *self.screen.is_read.lock().unwrap_or_else(PoisonError::into_inner) = reads;
        self.screen.reads_again.notify_all();
        match (reads, &self.slave) {
            (false, Some(slave)) => fill(slave).map_err(|error| format!("its terminal can't be filled: {error}")),
            _ => Ok(()),
        }
    }

    /// The exit status, if the process has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for the end of the process.
    pub(crate) fn finish(&mut self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        None
    }

    /// Stops the process in order. Returns its report, and whether its exit code is 0.
    pub(crate) fn stopped(mut self) -> Result<(Value, bool), String> {
        if self.ended().is_none() {
            self.signal(Signal::TERM)?;
        }
        let status = self.finish(STOP_MAX).ok_or_else(|| format!("no end {STOP_MAX:.0?} after SIGTERM"))?;
        let (report, shown) = self.said();
        match serde_json::from_str(&report) {
            Ok(report) => Ok((report, status.success())),
            Err(error) => Err(format!("{status}, and no report ({error}); it said:\n{shown}")),
        }
    }

    /// Its standard output, and the last contents of its terminal.
    pub(crate) fn said(mut self) -> (String, String) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The reader ends once all have closed the terminal.
        self.slave = None;
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        let mut report = String::new();
        let read = self.report.rewind().and_then(|()| self.report.read_to_string(&mut report));
        (read.map_or_else(|error| error.to_string(), |_| report), self.shown())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has ended, which does no harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The reader must not wait for a disturbance to end.
        let _ = self.reads(true);
    }
}

impl Screen {
    /// Reads until the last one closes the terminal (the kernel then says EIO), and pauses while
    /// nobody is to read it.
    fn read(&self, mut master: File) {
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = master.read(&mut buffer) {
            self.shown.lock().unwrap_or_else(PoisonError::into_inner).process(&buffer[..len]);
            let is_read = self.is_read.lock().unwrap_or_else(PoisonError::into_inner);
            let _reads = self.reads_again.wait_while(is_read, |is_read| !*is_read);
        }
    }
}

/// Writes invisible bytes until the terminal takes no more. It opens the descriptor anew: all users
/// of one description share its non-blocking flag, and the run's writes must wait.
fn fill(slave: &File) -> std::io::Result<()> {
    let path = format!("/proc/self/fd/{}", slave.as_raw_fd());
    let waits_not = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let mut slave = OpenOptions::new().write(true).custom_flags(waits_not).open(path)?;
    for piece in [&[0; 1024][..], &[0]] {
        while let Ok(1..) = slave.write(piece) {}
    }
    Ok(())
}
