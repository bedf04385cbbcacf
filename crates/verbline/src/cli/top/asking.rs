//! The thread that asks the run for its reports, so that keys work even while the run does not
//! answer.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use verbline_operate::client::{Client, ClientError};
use verbline_operate::client_report::Seen;
use verbline_operate::protocol::Hello;

use super::super::again::Again;

/// A message of the thread.
#[derive(Debug)]
pub(crate) enum News {
    Seen(Box<Seen>),
    /// The run answers late or wrongly; the thread asks again.
    Trouble(String),
    Over,
}

/// The time until the second report, since rates need two.
const FIRST: Duration = Duration::from_millis(200);

/// Starts a thread that asks every `every`, until the receiver is dropped or the run ends.
///
/// # Errors
/// No thread can be made.
pub(crate) fn start(client: Client, hello: Hello, every: Duration) -> io::Result<Receiver<News>> {
    let (news, receiver) = sync_channel(1);
    let run = Again::new(client, hello);
    thread::Builder::new().name("verbline-top".into()).spawn(move || ask(run, every, &news))?;
    Ok(receiver)
}

fn ask(mut run: Again, every: Duration, news: &SyncSender<News>) {
    let mut wait = FIRST.min(every);
    loop {
        let asked = Instant::now();
        let told = match run.ask(Client::seen) {
            Ok(seen) => News::Seen(Box::new(seen)),
            Err(ClientError::Refused(why)) if why.code == "over" => News::Over,
            Err(ClientError::Unreachable { .. }) => News::Over,
            Err(error) => News::Trouble(error.to_string()),
        };
        let is_over = matches!(told, News::Over);
        if news.send(told).is_err() || is_over {
            return;
        }
        thread::sleep(wait.saturating_sub(asked.elapsed()));
        wait = every;
    }
}
