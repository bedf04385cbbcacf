//! A terminal for a tested program, of 80 columns unless the test wants fewer. It shows what a
//! person would see, after all escape sequences have had their effect.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use verbline::plan::Lack;

use crate::notes::taken_out;
use crate::program::{LOOK_EVERY, PATIENCE, Program};
use crate::turn::Turn;

const ROWS: NonZero<u16> = NonZero::new(60).unwrap();
const COLUMNS: NonZero<u16> = NonZero::new(80).unwrap();

/// A program running in a terminal. Dropping it kills the program.
pub struct Terminal {
    child: Child,
    taken_away: Vec<Lack>,
    screen: vt100::Parser,
    output: Receiver<Vec<u8>>,
    keyboard: File,
    columns: NonZero<u16>,
    _turn: Arc<Turn>,
}

impl Terminal {
    /// Starts a program in a new terminal.
    pub fn start(program: &Program) -> Terminal {
        Terminal::start_in(program, COLUMNS)
    }

    /// Starts a program in a new terminal of this width.
    pub fn start_in(program: &Program, columns: NonZero<u16>) -> Terminal {
        let turn = Turn::take();
        let (master, slave) = terminal_pair(columns).unwrap_or_else(|error| panic!("no terminal: {error}"));
        let mut command = program.command();
        let end = || slave.try_clone().unwrap_or_else(|error| panic!("no terminal: {error}"));
        command.stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?} did not start: {error}"));
        let (screen, taken_away) = (vt100::Parser::new(ROWS, columns, 0), program.taken_away().to_vec());
        let keyboard = master.try_clone().unwrap_or_else(|error| panic!("no terminal: {error}"));
        Terminal { child, taken_away, screen, output: read(master), keyboard, columns, _turn: turn }
    }

    /// Types these keys, e.g. `Ctrl-S` as `\x13`.
    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap_or_else(|error| panic!("no key pressed: {error}"));
    }

    /// Waits until `is_there` accepts the screen, and returns the screen without notes.
    ///
    /// # Panics
    /// If that never happens.
    pub fn wait_for(&mut self, is_there: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let shown = self.shown();
            if is_there(&shown) {
                return shown;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(error) => panic!("waited in vain ({error}); the screen shows\n{shown}"),
            }
        }
    }

    /// Whether `text` is on the screen, and red wherever it is.
    pub fn is_red(&self, text: &str) -> bool {
        let screen = self.screen.screen();
        let mut found = screen.rows(0, self.columns.get()).zip(0..).filter_map(|(row, y)| {
            // A tested program's output here is one column a character.
            let x = row[..row.find(text)?].chars().count() as u16;
            Some(screen.cell(y, x).is_some_and(|cell| cell.fgcolor() == vt100::Color::Idx(1)))
        });
        found.next().is_some_and(|first| first && found.all(|red| red))
    }

    /// Sends the program a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap_or_else(|error| panic!("no signal sent: {error}"));
    }

    /// Waits for the program's end. Returns its exit status and the screen without notes.
    ///
    /// # Panics
    /// If it hangs.
    pub fn finish(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                break status;
            }
            assert!(Instant::now() < deadline, "it hangs; the screen shows\n{}", self.shown());
            std::thread::sleep(LOOK_EVERY);
        };
        // The reader ends with the terminal, and the channel with it.
        while let Ok(bytes) = self.output.recv() {
            self.screen.process(&bytes);
        }
        (status, self.shown())
    }

    /// The screen without notes; the whole screen while a note is only half written, because waits
    /// look again.
    fn shown(&self) -> String {
        let contents = self.screen.screen().contents();
        let is_whole = |(at, _): (usize, &str)| contents[at..].contains("\n  = help: ");
        let begun = ["note[", "warning[stolen-time]"].into_iter().flat_map(|start| contents.match_indices(start));
        match begun.into_iter().all(is_whole) {
            true => taken_out(&contents, &self.taken_away).1,
            false => contents,
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Fails if the program has ended, which does no harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both ends of a new pseudo-terminal (pty(7)): the screen and keyboard, and the programs' end.
pub fn terminal_pair(columns: NonZero<u16>) -> std::io::Result<(File, File)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let slave = OpenOptions::new().read(true).write(true).open(OsStr::from_bytes(name.as_bytes()))?;
    tcsetwinsize(&slave, Winsize { ws_row: ROWS.get(), ws_col: columns.get(), ws_xpixel: 0, ws_ypixel: 0 })?;
    Ok((File::from(master), slave))
}

/// Reads until the last process has closed the terminal (the kernel then says EIO).
fn read(mut master: File) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = master.read(&mut buffer) {
            if sender.send(buffer[..len].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}
