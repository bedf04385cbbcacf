//! `ps`: the runs of this user that listen, whatever their app.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use indicatif::FormattedDuration;
use serde_json::{Value, json};
use verbline_operate::change::Change;
use verbline_operate::client::{Client, ClientError, Found, find};
use verbline_operate::client_report::Seen;
use verbline_operate::protocol::{Hello, State};

use super::args_operate::PsOptions;
use super::figures::rate;
use super::output::{document, labelled, message, result};
use super::run::fail;
use super::tables::table;
use super::visible::visible_name;

/// The time between the two looks that rates are computed from.
const BETWEEN: Duration = Duration::from_millis(80);

/// A run in the list.
struct Listed {
    hello: Hello,
    age: Duration,
    /// Packets received and sent a second; `None` if it has nothing to report.
    rates: Option<[f64; 2]>,
}

/// Lists the runs.
pub(super) fn ps(options: &PsOptions) -> ExitCode {
    let found = match find() {
        Ok(found) => found,
        Err(why) => return fail(&why.to_string()),
    };
    let mut silent = Vec::new();
    let mut open = Vec::new();
    for Found { path, hello } in found {
        match hello.and_then(|hello| Ok((hello, Client::connect(&path)?))) {
            Ok(one) => open.push(one),
            Err(error) => silent.push(error),
        }
    }
    let listed = look(open);
    if options.json {
        silent.iter().for_each(|error| message(&format!("error: {error}")));
        return document(&Value::Array(listed.iter().map(as_json).collect()), code(&silent), None);
    }
    let mut text = match &listed[..] {
        [] if silent.is_empty() => "no run of this user listens\n".to_owned(),
        [] => String::new(),
        listed => format!("{}\n", as_table(listed)),
    };
    for error in &silent {
        text += &format!("{}\n", labelled("silent", &error.to_string()));
    }
    result(&text, code(&silent), None)
}

/// A run that does not answer makes the command fail.
fn code(silent: &[ClientError]) -> ExitCode {
    if silent.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Looks at all runs twice, so that there is only one wait between the looks.
fn look(open: Vec<(Hello, Client)>) -> Vec<Listed> {
    let mut open: Vec<(Hello, Client, Option<Seen>)> = open
        .into_iter()
        .map(|(hello, mut client)| {
            let seen = client.seen().ok();
            (hello, client, seen)
        })
        .collect();
    if open.iter().any(|(_, _, seen)| seen.is_some()) {
        std::thread::sleep(BETWEEN);
    }
    let now = SystemTime::now();
    open.drain(..)
        .map(|(hello, mut client, first)| {
            let second = first.as_ref().and_then(|_| client.seen().ok());
            let age = age(second.as_ref().map(|seen| seen.elapsed_ns), hello.since_unix_ms, now);
            let rates = first.zip(second).map(|(first, second)| rates(&first, &second));
            Listed { age, hello, rates }
        })
        .collect()
}

/// How long a run has lasted: as it says itself, since the time of day may have been set meanwhile.
/// A run that still connects says only when it began.
fn age(elapsed_ns: Option<u64>, since_unix_ms: u64, now: SystemTime) -> Duration {
    let by_clock = || now.duration_since(UNIX_EPOCH + Duration::from_millis(since_unix_ms)).unwrap_or_default();
    elapsed_ns.map_or_else(by_clock, Duration::from_nanos)
}

fn rates(first: &Seen, second: &Seen) -> [f64; 2] {
    let change = Change::between(first, second);
    let sum = |of: fn(&verbline_operate::client_report::Port) -> u64| change.counts().ports.iter().map(of).sum();
    [sum(|port| port.rx_packets), sum(|port| port.tx_packets)].map(|packets| change.per_second(packets))
}

fn word(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Running => "running",
        State::Stopping => "stopping",
    }
}

fn as_json(one: &Listed) -> Value {
    let [rx, tx] = one.rates.map_or([Value::Null, Value::Null], |rates| rates.map(|rate| json!(rate)));
    json!({
        "name": one.hello.plan,
        "app": one.hello.app,
        "pid": one.hello.pid,
        "version": one.hello.version,
        "state": word(one.hello.state),
        "since_unix_ms": one.hello.since_unix_ms,
        "rx_packets_per_second": rx,
        "tx_packets_per_second": tx,
    })
}

fn as_table(listed: &[Listed]) -> String {
    let header = ["name", "app", "state", "process", "for", "rx/s", "tx/s"];
    let rows = listed.iter().map(|one| {
        let [rx, tx] = one.rates.map_or(["-".to_owned(), "-".to_owned()], |rates| rates.map(rate));
        let age = FormattedDuration(one.age).to_string();
        let (name, app) = (visible_name(&one.hello.plan), visible_name(&one.hello.app));
        [name, app, word(one.hello.state).to_owned(), one.hello.pid.to_string(), age, rx, tx]
    });
    table(header, 3, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After the clock was set back by hours, runs of two seconds had lasted for none.
    #[test]
    fn a_clock_that_is_set_changes_no_age() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let since_ms = 1_000_000_000 + 11 * 3_600_000;
        assert_eq!(age(Some(2_000_000_000), since_ms, now), Duration::from_secs(2));
        assert_eq!(age(None, 999_997_000, now), Duration::from_secs(3));
        assert_eq!(age(None, since_ms, now), Duration::ZERO);
    }
}
