//! The thread that asks the run for its reports, so that a run that doesn't answer keeps no key
//! waiting.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use verbline_operate::client::{Client, ClientError};
use verbline_operate::client_report::Seen;
use verbline_operate::protocol::Hello;

/// What the thread tells.
#[derive(Debug)]
pub(crate) enum News {
    Seen(Box<Seen>),
    /// The run answers late or wrongly; it is asked again.
    Trouble(String),
    Over,
}

/// The second report follows the first at once: rates are of two.
const FIRST: Duration = Duration::from_millis(200);

/// Has a thread ask every `every`, until the receiver is dropped or the run is over.
///
/// # Errors
/// No thread can be made.
pub(crate) fn start(client: Client, hello: Hello, every: Duration) -> io::Result<Receiver<News>> {
    let (news, receiver) = sync_channel(1);
    let asking = Asking { path: client.path().to_owned(), client: Some(client), hello };
    thread::Builder::new().name("verbline-top".into()).spawn(move || asking.run(every, &news))?;
    Ok(receiver)
}

struct Asking {
    path: PathBuf,
    /// `None`: the last answer was late or wrong, and a later one can't be told from it.
    client: Option<Client>,
    hello: Hello,
}

impl Asking {
    fn run(mut self, every: Duration, news: &SyncSender<News>) {
        let mut wait = FIRST.min(every);
        loop {
            let due = Instant::now() + wait;
            let told = self.ask();
            let is_over = matches!(told, News::Over);
            if news.send(told).is_err() || is_over {
                return;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            wait = every;
        }
    }

    fn ask(&mut self) -> News {
        match self.seen() {
            Ok(seen) => News::Seen(Box::new(seen)),
            Err(ClientError::Refused(why)) if why.code == "over" => News::Over,
            Err(ClientError::Unreachable { .. }) => News::Over,
            Err(error) => News::Trouble(error.to_string()),
        }
    }

    fn seen(&mut self) -> Result<Seen, ClientError> {
        if let Some(mut client) = self.client.take() {
            match client.seen() {
                Ok(seen) => {
                    self.client = Some(client);
                    return Ok(seen);
                }
                // A run that was stopped for some time has hung up when it goes on.
                Err(ClientError::Unreachable { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let mut client = Client::connect(&self.path)?;
        let hello = client.hello()?;
        if hello.pid != self.hello.pid {
            let source = io::Error::new(io::ErrorKind::NotFound, "another process listens there now");
            return Err(ClientError::Unreachable { path: self.path.clone(), source });
        }
        let seen = client.seen()?;
        self.client = Some(client);
        Ok(seen)
    }
}
