//! `stats`: a run's activity, as tables or as JSON, once or repeatedly.

use std::process::ExitCode;

use verbline_operate::change::Change;
use verbline_operate::client::{Client, ClientError, open};
use verbline_operate::client_report::Seen;
use verbline_operate::protocol::Hello;

use super::again::Again;
use super::args_operate::StatsOptions;
use super::output::{message, part};
use super::run::fail;
use super::stats_tables::{Figures, text};
use super::times::Times;

/// Prints the run's activity until it ends, the reader has enough, or the count is reached.
pub(super) fn stats(options: &StatsOptions) -> ExitCode {
    let ended = open(options.name.as_deref()).and_then(|mut client| {
        let hello = client.hello()?;
        match options.every {
            None => once(options, &mut client, &hello),
            Some(_) => again(options, client, &hello),
        }
    });
    match ended {
        Ok(code) => code,
        Err(error) => fail(&error.to_string()),
    }
}

fn once(options: &StatsOptions, client: &mut Client, hello: &Hello) -> Result<ExitCode, ClientError> {
    let shown = match options.json {
        true => format!("{}\n", client.report()?),
        false => text(hello, &Change::since_start(&client.seen()?), None, Figures::Rates),
    };
    Ok(part(&shown, options.json).unwrap_or(ExitCode::SUCCESS))
}

fn again(options: &StatsOptions, client: Client, hello: &Hello) -> Result<ExitCode, ClientError> {
    let Some(every) = options.every else { return Ok(ExitCode::SUCCESS) };
    let mut run = Again::new(client, hello.clone());
    let mut before = run.ask(Client::seen)?;
    let mut times = Times::new(every);
    for time in 0.. {
        times.wait();
        let (shown, now) = match next(options, &mut run, hello, &before, time) {
            Ok(next) => next,
            // It has stopped meanwhile, which is the normal end of a run.
            Err(ClientError::Refused(why)) if why.code == "over" => return Ok(over(hello)),
            Err(ClientError::Unreachable { .. }) => return Ok(over(hello)),
            Err(error) => return Err(error),
        };
        if let Some(code) = part(&shown, options.json) {
            return Ok(code);
        }
        before = now;
        if options.count.is_some_and(|count| time + 1 >= count) {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The text to print this time, and the report to compare the next one with.
fn next(
    options: &StatsOptions,
    run: &mut Again,
    hello: &Hello,
    before: &Seen,
    time: u64,
) -> Result<(String, Seen), ClientError> {
    if options.json && !options.deltas {
        return Ok((format!("{}\n", run.ask(Client::report)?), before.clone()));
    }
    let now = run.ask(Client::seen)?;
    let change = Change::between(before, &now);
    let shown = if options.json {
        serde_json::to_string(&change).unwrap_or_default() + "\n"
    } else {
        let gap = if time == 0 { "" } else { "\n" };
        let figures = if options.deltas { Figures::Counts } else { Figures::Rates };
        format!("{gap}{}", text(hello, &change, Some(now.elapsed_ns), figures))
    };
    Ok((shown, now))
}

fn over(hello: &Hello) -> ExitCode {
    message(&format!("{}: the run is over", hello.plan));
    ExitCode::SUCCESS
}
