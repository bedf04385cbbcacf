//! The terminal: taken for a screen, and given back as it was, however the command ends.

use std::io::{self, Stdout, stdin, stdout};
use std::mem::ManuallyDrop;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers, read};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use rustix::event::{self, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::super::signals;
use super::state::Key;

/// The terminal in use as a screen; dropping it gives the terminal back.
pub(crate) struct Taken {
    /// Never dropped: its `Drop` prints that the cursor can't be shown, and panics if standard
    /// error has gone with the terminal. [`give_back`] shows the cursor.
    pub(crate) terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    /// Set by a signal that asks for the end.
    asked: Arc<AtomicBool>,
    did: Receiver<io::Result<Did>>,
}

/// An action of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    Nothing,
    Pressed(Key),
    /// The size of the screen has changed.
    Resized,
    /// Ctrl-C, or a signal from elsewhere.
    Left,
}

impl Taken {
    /// Takes the terminal over: another screen, without a cursor, and each key as it is pressed.
    ///
    /// # Errors
    /// It is not a terminal, or refuses.
    pub(crate) fn take() -> io::Result<Taken> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, Arc::clone(&asked))?;
        }
        signals::hear()?;
        // A panic's words are for the screen that was there before.
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            give_back();
            tell(panic);
        }));
        enable_raw_mode()?;
        let entered = execute!(stdout(), EnterAlternateScreen);
        let terminal = entered.and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        match terminal.and_then(|terminal| Ok((ManuallyDrop::new(terminal), listen()?))) {
            Ok((terminal, did)) => Ok(Taken { terminal, asked, did }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    /// The user's action, at the latest after `patience`.
    ///
    /// # Errors
    /// The terminal can't be read.
    pub(crate) fn wait(&self, patience: Duration) -> io::Result<Did> {
        let did = self.did.recv_timeout(patience);
        // Relaxed: the flag carries no data; a look later is soon enough.
        if self.asked.load(Ordering::Relaxed) || is_gone()? {
            return Ok(Did::Left);
        }
        match did {
            Ok(did) => did,
            Err(RecvTimeoutError::Timeout) => Ok(Did::Nothing),
            // The reader ends after an error, and the error came first.
            Err(RecvTimeoutError::Disconnected) => Ok(Did::Left),
        }
    }
}

/// Reads what the user does, in a thread of its own until the process ends. crossterm reads the end
/// of a closed terminal again and again and never returns, so nobody may wait for it who has to
/// leave then.
fn listen() -> io::Result<Receiver<io::Result<Did>>> {
    let (sender, did) = channel();
    thread::Builder::new().name("keyboard".to_owned()).spawn(move || {
        loop {
            let event = read();
            let is_last = event.is_err();
            if sender.send(event.map(|event| meant(&event))).is_err() || is_last {
                return;
            }
        }
    })?;
    Ok(did)
}

/// Whether the terminal is closed.
fn is_gone() -> io::Result<bool> {
    let keyboard = stdin();
    let mut looked = [PollFd::new(&keyboard, PollFlags::empty())];
    match event::poll(&mut looked, Some(&Timespec::default())) {
        Err(Errno::INTR) => Ok(false),
        polled => polled
            .map(|_| looked[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
            .map_err(io::Error::from),
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

/// Gives the terminal back. May be called twice.
fn give_back() {
    // On failure there is no terminal left.
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

fn meant(event: &Event) -> Did {
    let Event::Key(key) = event else { return if let Event::Resize(..) = event { Did::Resized } else { Did::Nothing } };
    if key.kind == KeyEventKind::Release {
        return Did::Nothing;
    }
    let pressed = match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Did::Left,
        KeyCode::Char(_) if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => return Did::Nothing,
        KeyCode::Char(letter) => Key::Char(letter),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Erase,
        _ => return Did::Nothing,
    };
    Did::Pressed(pressed)
}
