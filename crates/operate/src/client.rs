//! Finds the runs of this user, and queries them.
//!
//! Guarantees: no run is waited for longer than [`PATIENCE`], and no answer is longer than
//! [`ANSWER_BYTES_MAX`].

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::asks::{CaptureAsk, TraceAsk};
use crate::capture::blocks::Blocks;
use crate::client_report::Seen;
use crate::place::{self, NoPlace};
use crate::protocol::{Answer, Ask, Body, CaptureHead, Hello, Refusal, Request, TraceHead, VERSION};
use crate::trace::events::Events;
use crate::trace::kept::Kept;

/// The time limit for one answer.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// The most bytes of an answer.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The reason why a run was not asked, or did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No run listens there, or not for this user.
    #[error("no run answers at {}: {source}", path.display())]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No answer came within [`PATIENCE`].
    #[error("the run at {} has not answered for {PATIENCE:?}; is its process stopped?", path.display())]
    Late {
        /// The socket.
        path: PathBuf,
    },
    /// The answer makes no sense.
    #[error("what the run at {} answers is not understood: {why}", path.display())]
    Malformed {
        /// The socket.
        path: PathBuf,
        /// The fault of the answer.
        why: String,
    },
    /// The run refused.
    #[error("the run refuses: {}", .0.message)]
    Refused(Refusal),
    /// The folder of sockets does not exist.
    #[error(transparent)]
    NoPlace(#[from] NoPlace),
    /// No run of this user has that name.
    #[error("no run is called {name:?}; {}", listed(.runs))]
    NoSuch {
        /// The name.
        name: String,
        /// The names of the runs that exist.
        runs: Vec<String>,
    },
    /// There is no run.
    #[error("no run of this user listens; start one, or write the path of its socket as its name")]
    NoRun,
    /// Several runs match.
    #[error("which run? {}; say its name, its process or its socket", listed(.runs))]
    Several {
        /// Their names.
        runs: Vec<String>,
    },
}

fn listed(runs: &[String]) -> String {
    match runs {
        [] => "no run of this user listens".to_owned(),
        runs => format!("these run: {}", runs.join(", ")),
    }
}

/// A connection to a run.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    path: PathBuf,
    /// Bytes received behind the last answer.
    read: Vec<u8>,
    last_id: u64,
}

fn request(ask: Ask) -> Request {
    Request { verbline: VERSION, id: None, ask, capture: None, trace: None, log: None }
}

/// A run that was found.
#[derive(Debug)]
pub struct Found {
    /// Its socket.
    pub path: PathBuf,
    /// Its hello, or the reason why there is none.
    pub hello: Result<Hello, ClientError>,
}

/// `NAME (process PID)`.
impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hello {
            Ok(hello) => write!(f, "{} (process {})", hello.plan, hello.pid),
            Err(_) => write!(f, "{}", self.path.display()),
        }
    }
}

/// The runs of this user that listen in its folder. Removes sockets of dead processes.
///
/// # Errors
/// There is no such folder.
pub fn find() -> Result<Vec<Found>, NoPlace> {
    Ok(find_in(&place::folder()?))
}

fn find_in(folder: &Path) -> Vec<Found> {
    let paths = place::listed(folder).into_iter().filter(|path| !place::clear(path).unwrap_or(false));
    let hello = |path: &Path| Client::connect(path)?.hello();
    paths.map(|path| Found { hello: hello(&path), path }).collect()
}

/// Opens the run that `name` means: a plan's name, a process's number or a socket's path; without a
/// name, the only run there is.
///
/// # Errors
/// None or several match, or the run does not answer.
pub fn open(name: Option<&str>) -> Result<Client, ClientError> {
    meant(name, find)
}

fn meant(name: Option<&str>, find: impl FnOnce() -> Result<Vec<Found>, NoPlace>) -> Result<Client, ClientError> {
    // A plan's name may contain slashes, too.
    let path = name.filter(|name| name.contains('/')).map(Path::new);
    if let Some(path) = path.filter(|path| path.symlink_metadata().is_ok()) {
        return Client::connect(path);
    }
    let mut found = match (find(), path) {
        (Err(_), Some(path)) => return Client::connect(path),
        (found, _) => found?,
    };
    let runs: Vec<String> = found.iter().map(Found::to_string).collect();
    if let Some(name) = name {
        let is_meant = |hello: &Hello| hello.plan == name || hello.pid.to_string() == name;
        found.retain(|found| found.hello.as_ref().is_ok_and(is_meant));
    }
    match (&found[..], name) {
        ([one], _) => Client::connect(&one.path),
        ([], Some(name)) => match path {
            Some(path) => Client::connect(path),
            None => Err(ClientError::NoSuch { name: name.to_owned(), runs }),
        },
        ([], None) => Err(ClientError::NoRun),
        (_, _) => Err(ClientError::Several { runs }),
    }
}

impl Client {
    /// Connects to a run by its socket.
    ///
    /// # Errors
    /// No run listens there, or not for this user; or its process takes no connections.
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        // Sets the same limit for its writes.
        let stream = place::connected(path, PATIENCE).map_err(|source| match source.kind() {
            ErrorKind::WouldBlock => ClientError::Late { path: path.to_owned() },
            _ => ClientError::Unreachable { path: path.to_owned(), source },
        })?;
        Ok(Client { stream, path: path.to_owned(), read: Vec::new(), last_id: 0 })
    }

    /// The run's socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run's identity and state.
    ///
    /// # Errors
    /// The run does not answer, or refuses.
    pub fn hello(&mut self) -> Result<Hello, ClientError> {
        match self.ask(Ask::Hello)? {
            Body::Hello(hello) => Ok(hello),
            other => Err(self.unexpected(&other)),
        }
    }

    /// The run's report so far, as `docs/report.schema.json` describes it.
    ///
    /// # Errors
    /// The run does not answer, or refuses.
    pub fn report(&mut self) -> Result<Value, ClientError> {
        match self.ask(Ask::Report)? {
            Body::Report(report) => Ok(report),
            other => Err(self.unexpected(&other)),
        }
    }

    /// The part of the report that this crate reads.
    ///
    /// # Errors
    /// The run does not answer, refuses, or answers something else than a report.
    pub fn seen(&mut self) -> Result<Seen, ClientError> {
        let report = self.report()?;
        serde_json::from_value(report).map_err(|error| self.malformed(error.to_string()))
    }

    /// Begins a capture, which uses up the connection.
    ///
    /// # Errors
    /// The run does not answer, or refuses.
    pub fn capture(mut self, ask: CaptureAsk) -> Result<(CaptureHead, Blocks), ClientError> {
        match self.ask_for(Request { capture: Some(ask), ..request(Ask::Capture) })? {
            Body::Capture(head) => Ok((head, Blocks::new(self.stream, self.read))),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Begins a trace, which uses up the connection.
    ///
    /// # Errors
    /// The run does not answer, or refuses.
    pub fn trace(mut self, ask: TraceAsk) -> Result<(TraceHead, Events), ClientError> {
        match self.ask_for(Request { trace: Some(ask), ..request(Ask::Trace) })? {
            Body::Trace(head) => {
                let events = Events::new(self.stream, self.read, head.lcores.len());
                Ok((head, events))
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// The slowest packets of the run's last minute.
    ///
    /// # Errors
    /// The run does not answer, or refuses: its plan has no `[trace]`.
    pub fn kept(&mut self) -> Result<Kept, ClientError> {
        match self.ask(Ask::Kept)? {
            Body::Kept(kept) => serde_json::from_value(kept).map_err(|error| self.malformed(error.to_string())),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the filter of the run's log; with `filter`, sets it first.
    ///
    /// # Errors
    /// The run does not answer, or refuses the filter.
    pub fn log(&mut self, filter: Option<&str>) -> Result<String, ClientError> {
        match self.ask_for(Request { log: filter.map(str::to_owned), ..request(Ask::Log) })? {
            Body::Log(filter) => Ok(filter),
            other => Err(self.unexpected(&other)),
        }
    }

    fn ask(&mut self, ask: Ask) -> Result<Body, ClientError> {
        self.ask_for(request(ask))
    }

    fn ask_for(&mut self, request: Request) -> Result<Body, ClientError> {
        self.last_id += 1;
        let request = Request { id: Some(self.last_id), ..request };
        let mut line = serde_json::to_vec(&request).map_err(|error| self.malformed(error.to_string()))?;
        line.push(b'\n');
        let deadline = Instant::now() + PATIENCE;
        // A run that refuses to serve says so before the request, and may have hung up.
        let sent = self.stream.write_all(&line);
        let answer = match (self.line(deadline), sent) {
            (Ok(answer), _) => answer,
            (Err(error), Ok(())) | (Err(_), Err(error)) => return Err(self.failed(error)),
        };
        let answer: Answer = serde_json::from_slice(&answer).map_err(|error| self.malformed(error.to_string()))?;
        match answer.body {
            Body::Error(refusal) => Err(ClientError::Refused(refusal)),
            _ if answer.id != Some(self.last_id) => Err(self.malformed(format!("it answers request {:?}", answer.id))),
            body => Ok(body),
        }
    }

    fn line(&mut self, deadline: Instant) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; 64 << 10];
        let mut looked = 0;
        loop {
            if let Some(end) = self.read[looked..].iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.read.drain(..=looked + end).collect();
                line.pop();
                return Ok(line);
            }
            looked = self.read.len();
            if looked > ANSWER_BYTES_MAX {
                return Err(ErrorKind::FileTooLarge.into());
            }
            let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
            self.stream.set_read_timeout(Some(left.ok_or(ErrorKind::TimedOut)?))?;
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.read.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn failed(&self, error: io::Error) -> ClientError {
        let path = self.path.clone();
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => ClientError::Late { path },
            ErrorKind::FileTooLarge => self.malformed(format!("it is longer than {ANSWER_BYTES_MAX} bytes")),
            _ => ClientError::Unreachable { path, source: error },
        }
    }

    fn malformed(&self, why: String) -> ClientError {
        ClientError::Malformed { path: self.path.clone(), why }
    }

    fn unexpected(&self, body: &Body) -> ClientError {
        self.malformed(format!("it answers another question: {body:?}").chars().take(200).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::protocol::State;

    #[test]
    fn a_plan_whose_name_looks_like_a_path_is_meant_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let [named, other] = ["1.sock", "2.sock"].map(|name| folder.path().join(name));
        let _listen = [&named, &other].map(|path| UnixListener::bind(path).unwrap());
        let found = || {
            let of = |path: &Path, plan: &str| {
                let (app, version) = ("rig".to_owned(), "0".to_owned());
                let hello =
                    Hello { app, plan: plan.to_owned(), pid: 7, version, since_unix_ms: 0, state: State::Running };
                Found { path: path.to_owned(), hello: Ok(hello) }
            };
            Ok(vec![of(&named, "east/feed"), of(&other, "feed")])
        };
        let path_of = |name: &str| meant(Some(name), found).map(|client| client.path().to_owned());
        assert_eq!(path_of("east/feed").unwrap(), named);
        assert_eq!(path_of(other.to_str().unwrap()).unwrap(), other, "a path that is there is that");
        let error = path_of("west/feed").unwrap_err();
        assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
        let nowhere = || Err(NoPlace { why: "none".to_owned(), remedy: "none".to_owned(), is_unset: false });
        assert!(meant(other.to_str(), nowhere).is_ok(), "a path needs no folder");
    }
}
