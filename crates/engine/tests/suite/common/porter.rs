//! An acceptor with rules of each kind, which records the requests.

use std::sync::{Arc, Mutex};

use serde::Deserialize;
use verbline_engine::{Acceptor, Answer, Clock, ConnParam, ConnectionRequest, Registry, Tick};

/// The requests as the acceptor saw them: private data, parameters, and the number of connections
/// at the time.
pub(crate) type Seen = Arc<Mutex<Vec<(Vec<u8>, ConnParam, usize)>>>;
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Rules {
    /// By number: this many connections at once.
    at_most: Option<usize>,
    /// By rate: this many connections in an hour.
    an_hour: Option<usize>,
    /// By identity: these accounts, each once at a time. The private data is an account's name.
    accounts: Vec<String>,
    /// Panics when asked about this account, or at the end of any connection.
    panic_at: Option<String>,
    panic_at_end: bool,
    /// By the app's own choice: to the place named by the first letter of the private data.
    by_letter: bool,
    /// The length of the private data in its answers.
    answer_bytes: Option<usize>,
}

struct Porter {
    rules: Rules,
    clock: Clock,
    /// The times of connections let in within the last hour.
    let_in: Vec<Tick>,
    /// The connected accounts, as indices of `accounts`.
    inside: Vec<u64>,
    connected: usize,
    seen: Seen,
}

const HOUR_NS: u64 = 3_600_000_000_000;

impl Porter {
    fn refusal(&mut self, name: &str) -> Option<String> {
        let now = self.clock.now_ns();
        self.let_in.retain(|at| now < at + HOUR_NS);
        let account = self.rules.accounts.iter().position(|known| known == name);
        match (&self.rules, account) {
            (rules, _) if rules.at_most.is_some_and(|most| self.connected >= most) => Some("too many".to_owned()),
            (rules, _) if rules.an_hour.is_some_and(|most| self.let_in.len() >= most) => Some("too often".to_owned()),
            (rules, None) if !rules.accounts.is_empty() => Some(format!("no account {name}")),
            (_, Some(place)) if self.inside.contains(&(place as u64 + 1)) => Some(format!("{name} is here already")),
            _ => None,
        }
    }
}

impl Acceptor for Porter {
    fn decide(&mut self, request: &ConnectionRequest<'_>) -> Answer {
        assert_eq!((request.device, request.connections_max() % 8), ("soft0", 0));
        assert_eq!(request.peer.ip().to_string(), "10.9.9.2");
        self.seen.lock().unwrap().push((request.private_data.to_vec(), request.param, request.connections()));
        let name = String::from_utf8_lossy(request.private_data).into_owned();
        assert_ne!(Some(&name), self.rules.panic_at.as_ref(), "as asked");
        if let Some(reason) = self.refusal(&name) {
            return Answer::reject().private_data(reason.as_bytes()).unwrap();
        }
        self.connected += 1;
        self.let_in.push(self.clock.now_ns());
        let tag = self.rules.accounts.iter().position(|known| *known == name).map_or(0, |place| place as u64 + 1);
        self.inside.push(tag);
        let words = match self.rules.answer_bytes {
            Some(count) => vec![0xff; count],
            None => format!("welcome {name}").into_bytes(),
        };
        match Answer::accept().tag(tag).private_data(&words) {
            Ok(answer) if self.rules.by_letter => answer.place(usize::from(name.as_bytes()[0] - b'a')),
            Ok(answer) => answer,
            Err(error) => Answer::reject().private_data(error.to_string().as_bytes()).unwrap(),
        }
    }

    fn ended(&mut self, tag: u64) {
        assert!(!self.rules.panic_at_end, "as asked");
        self.connected -= 1;
        let place = self.inside.iter().position(|inside| *inside == tag).expect("each ends once");
        self.inside.swap_remove(place);
    }
}

/// Registers the acceptor `porter`, whose rules are its params.
pub(crate) fn register(registry: &mut Registry, seen: &Seen) {
    let shared = Arc::clone(seen);
    registry.acceptor("porter", move |context| {
        let (rules, clock) = (context.params::<Rules>()?, context.clock());
        if rules.at_most == Some(0) {
            return Err(context.raw_params().refuse("at_most", "nobody could come in").into());
        }
        let seen = Arc::clone(&shared);
        Ok(Box::new(Porter { rules, clock, let_in: Vec::new(), inside: Vec::new(), connected: 0, seen }))
    });
}
