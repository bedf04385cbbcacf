//! `top`: a run on the whole screen, live: lcores and the reasons why they are awake, stages,
//! ports, connections, rings, pools and drops, and their last minutes.

mod asking;
mod grid;
mod lcores;
mod palette;
mod screen;
mod state;
mod terminal;
#[cfg(test)]
mod tests;

use std::io::{self, stdin, stdout};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use rustix::io::Errno;
use verbline_operate::client::open;

use super::args_operate::TopOptions;
use super::output::{is_coloured, message, moves_cursor};
use super::run::fail;
use asking::News;
use palette::Palette;
use state::{After, State};
use terminal::{Did, Taken};

/// The time until a report is on the screen, or a signal is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(50);

const NO_SCREEN: &str = "top draws on a terminal that moves its cursor, and this is none (TERM, or a pipe); \
                         `stats --every 1s` prints the same as lines";

/// The reason for leaving the screen.
enum End {
    Quit,
    Over,
}

/// Shows a run until its user leaves or the run ends.
pub(super) fn top(options: &TopOptions) -> ExitCode {
    if !moves_cursor(&stdout()) || !io::IsTerminal::is_terminal(&stdin()) {
        return fail(NO_SCREEN);
    }
    let opened = open(options.name.as_deref()).and_then(|mut client| Ok((client.hello()?, client)));
    let (hello, client) = match opened {
        Ok(opened) => opened,
        Err(error) => return fail(&error.to_string()),
    };
    let mut state = State::new(hello.clone());
    let ended = asking::start(client, hello, options.every).and_then(|news| {
        let mut taken = Taken::take()?;
        show(&mut taken, &mut state, &news)
    });
    match ended {
        Ok(End::Quit) => ExitCode::SUCCESS,
        Ok(End::Over) => {
            message(&format!("{}: the run is over", state.hello.plan));
            ExitCode::SUCCESS
        }
        Err(error) => fail(&format!("the terminal can't be used: {error}; `stats --every 1s` needs none")),
    }
}

fn show(taken: &mut Taken, state: &mut State, news: &Receiver<News>) -> io::Result<End> {
    let palette = Palette { is_coloured: is_coloured(&stdout()) };
    let mut is_changed = true;
    loop {
        if is_changed {
            match taken.terminal.draw(|frame| screen::draw(frame, state, palette)) {
                // The terminal is gone (tty(4)), and its user with it.
                Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => return Ok(End::Quit),
                drawn => drawn?,
            };
        }
        let did = taken.wait(LOOK_EVERY)?;
        is_changed = did != Did::Nothing;
        match did {
            Did::Left => return Ok(End::Quit),
            Did::Pressed(key) if state.press(key) == After::Quits => return Ok(End::Quit),
            Did::Pressed(_) | Did::Resized | Did::Nothing => {}
        }
        match news.try_recv() {
            Ok(News::Seen(seen)) => state.take(*seen),
            Ok(News::Trouble(why)) => state.trouble = Some(why),
            Ok(News::Over) if state.end() == After::Quits => return Ok(End::Over),
            Ok(News::Over) => {}
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => continue,
        }
        is_changed = true;
    }
}
