//! `run`: takes a plan from its file to its report.
//!
//! A run ends when its time is up, its sources are done, an lcore fails, or the user or the app
//! asks. Each way drains and reports.

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use verbline_engine::{ChangeOutcome, ChangedPort, Ended, EngineError, Registry, Report, Running, Runtime};
use verbline_operate::trace::kept::Kept;
use verbline_operate::{LogControl, MetricsSettings, Operate, OperateError, Options, TraceSettings, write_heap_room};
use verbline_plan::{Diagnostic, Diagnostics, Plan, is_stdin};

use super::args::RunOptions;
use super::check::{EXIT_PLAN, load, registry, show, show_notes};
use super::figures::{count, percent};
use super::live::{LiveLine, PERIOD};
use super::log;
use super::output::{advise, alarming, document, is_coloured, labelled, message, result, sentence};
use super::signals::{ReloadRequest, StopRequest};
use super::trace_text::kept_slowest;
use super::{App, console, text};

/// The time after which the user is told that the run waits for its ports.
const WAITED_LONG: Duration = Duration::from_secs(2);

/// Runs the plan and prints its report.
pub(super) fn run(app: &dyn App, options: &RunOptions) -> ExitCode {
    // First of all: without a handler the signal ends the process.
    let reload = match ReloadRequest::install() {
        Ok(reload) => reload,
        Err(error) => return fail(&format!("cannot handle signals: {error}")),
    };
    let registry = registry(app);
    let plan = match load(&registry, &options.plan, &options.socket.choice()) {
        Ok(plan) => plan,
        Err(diagnostics) => return refuse(&diagnostics),
    };
    show(plan.warnings());
    let stop = match StopRequest::install(reload) {
        Ok(stop) => stop,
        Err(error) => return fail(&format!("cannot handle signals: {error}")),
    };
    let served = match served(&plan, options) {
        Ok(served) => served,
        Err(fault) => return refuse(&fault.into()),
    };
    let built = Runtime::build(&plan, &registry);
    let operate = match built.is_ok().then(|| serve(app, &plan, served, options.quiet)).transpose() {
        Ok(operate) => operate,
        Err(error) => return fail(&error.to_string()),
    };
    let running = match built.and_then(|runtime| start(runtime, options.length.0, &stop)) {
        Ok(running) => running,
        // A fault that only the app can find is still a fault of the plan.
        Err(EngineError::Params(diagnostic)) => return refuse(&diagnostic.into()),
        Err(error) => return fail(&error.to_string()),
    };
    if let Some(operate) = &operate {
        operate.observe(running.observer());
    }
    let mut line = LiveLine::new(plan.name(), options.length.0, options.quiet);
    let started = Instant::now();
    let is_ready = app.started(&plan, &running);
    if is_ready.is_ok() {
        watch((app, &registry, options), &running, started, &mut line, &stop);
    }
    let ran = started.elapsed();
    line.draining(ran);
    let ended = running.stop();
    line.clear();
    tell_early(ran, options.length.0, &stop);
    let kept = operate.as_ref().and_then(Operate::kept);
    conclude(app, ended, is_ready.err(), kept, options.json, &stop)
}

/// The services that the run offers to observers.
fn served(plan: &Plan, options: &RunOptions) -> Result<Options, Diagnostic> {
    let (metrics, trace) = (MetricsSettings::of(plan)?, TraceSettings::of(plan)?);
    Ok(Options { socket: options.socket.choice(), metrics, trace, log: Some(LogControl(log::filter)) })
}

/// Listens for observers of the run. If that fails, the run goes on without them.
fn serve(app: &dyn App, plan: &Plan, served: Options, is_quiet: bool) -> Result<Operate, OperateError> {
    let operate = Operate::start(plan, app.name(), served)?;
    match operate.no_place() {
        Some(why) if why.is_unset => tracing::info!("`ps` and `stats` won't see this run: {why}"),
        Some(why) => tracing::warn!("`ps` and `stats` won't see this run: {why}"),
        None => {}
    }
    if let Some(address) = operate.metrics().filter(|_| !is_quiet) {
        message(&format!("this run is shown at http://{address}/, and its metrics at /metrics"));
    }
    Ok(operate)
}

/// Prints notes for the user, then connects and starts the run, which lasts `length` from then on.
fn start(mut runtime: Runtime, length: Option<Duration>, stop: &StopRequest) -> Result<Running, EngineError> {
    show_notes(runtime.notes());
    let (began, mut untold) = (Instant::now(), length);
    runtime.connect(|| {
        if let Some(length) = untold.take_if(|_| began.elapsed() >= WAITED_LONG) {
            let length = humantime::format_duration(length);
            message(&format!("the {length} of --for begin once all ports are connected"));
        }
        stop.asked()
    })?;
    runtime.start()
}

/// Shows the live line until the run should end, and reads the plan again when the user asks.
fn watch(
    (app, registry, options): (&dyn App, &Registry, &RunOptions),
    running: &Running,
    started: Instant,
    line: &mut LiveLine,
    stop: &StopRequest,
) {
    let length = options.length.0;
    // For the snapshots of the live line.
    write_heap_room();
    while !stop.asked() {
        if stop.takes_reload() {
            reload(app, registry, running, options);
        }
        let left = length.map(|length| length.checked_sub(started.elapsed()));
        let Some(left) = left.unwrap_or(Some(PERIOD)) else { return };
        if running.wait(Some(left.min(PERIOD))) != Ended::TimedOut {
            return;
        }
        line.show(started.elapsed(), || live(app, &running.snapshot()));
    }
}

/// Reads the plan again, and applies the keys that ports and the app can change. The run goes on,
/// whatever is wrong with the plan.
fn reload(app: &dyn App, registry: &Registry, running: &Running, options: &RunOptions) {
    if is_stdin(&options.plan.plan) {
        return message("the plan came by standard input, which has it once; a run of a file can read it again");
    }
    let read = load(registry, &options.plan, &options.socket.choice());
    let read = read.and_then(|plan| Ok((running.change_ports(&plan)?, plan)));
    let file = options.plan.plan.display();
    let (ports, plan) = match read {
        Ok(read) => read,
        Err(diagnostics) => {
            show(&diagnostics);
            return message(&format!("{file}: not taken: the run goes on as before"));
        }
    };
    ports.iter().for_each(|changed| message(&format!("{file}: {}", change(changed))));
    match app.reload(&plan) {
        Ok(done) if !done.is_empty() => message(&format!("{file}: read again: {done}")),
        Ok(_) if ports.is_empty() => message(&format!("{file}: read again: nothing that can change now differs")),
        Ok(_) => {}
        Err(why) => message(&format!("{file}: not taken: {why}")),
    }
}

/// Describes the outcome of a change of a port's keys.
fn change(ChangedPort { port, keys, outcome }: &ChangedPort) -> String {
    let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
    let keys = if keys.is_empty() { "where it sends to".to_owned() } else { keys.join(", ") };
    match outcome {
        ChangeOutcome::Taken { held } if held.is_zero() => format!("port.{port}: {keys}"),
        ChangeOutcome::Taken { held } => format!("port.{port}: {keys}; its sends waited for {held:.1?}"),
        ChangeOutcome::NextConnection => format!("port.{port}: {keys}, from its next connection on"),
        ChangeOutcome::Draining => format!("port.{port}: {keys}, as soon as its sends before are done"),
        ChangeOutcome::Refused(why) => format!("port.{port}: not taken: {keys}: {why}"),
        _ => format!("port.{port}: {keys}"),
    }
}

/// The app's live line, with a warning about stolen time.
fn live(app: &dyn App, report: &Report) -> String {
    let robbed = report.lcores.iter().filter(|lcore| lcore.is_robbed());
    let stolen = robbed.map(|lcore| format!(", {} of {} stolen", percent(lcore.stolen_share), lcore.name));
    app.live(report) + &stolen.collect::<String>()
}

/// Says which signal ended the run early, since the exit code is that of a whole run.
fn tell_early(ran: Duration, length: Option<Duration>, stop: &StopRequest) {
    if let Some((signal, length)) = stop.signal().zip(length.filter(|length| ran < *length)) {
        message(&format!(
            "{signal} has ended the run after {ran:.1?}, before the {} of --for",
            humantime::format_duration(length)
        ));
    }
}

/// Prints the report. Returns the exit code. `not_ready` is the app's reason for stopping the run
/// at its start; `kept` has the slowest packets of its last minute.
fn conclude(
    app: &dyn App,
    ended: Result<Report, EngineError>,
    not_ready: Option<String>,
    kept: Option<Kept>,
    as_json: bool,
    stop: &StopRequest,
) -> ExitCode {
    let report = match ended {
        Ok(report) => report,
        Err(
            EngineError::Panicked { report, .. }
            | EngineError::Failed { report, .. }
            // The process ends after the report, and with it the threads that did not.
            | EngineError::Stuck { report, .. },
        ) => *report,
        Err(error) => return fail(&error.to_string()),
    };
    let mut outcome = app.outcome(&report);
    let (left_out, why) = console::left_out();
    outcome.json.insert("log_left_out".into(), left_out.into());
    if left_out > 0 {
        let line = format!("{} texts were left out, as {why}", count(left_out));
        if !outcome.text.is_empty() && !outcome.text.ends_with('\n') {
            outcome.text.push('\n');
        }
        outcome.text += &format!("{}\n", labelled("log", &line));
    }
    if let Some(kept) = kept {
        outcome.text += &kept_slowest(&kept);
        outcome.json.insert("kept".into(), serde_json::to_value(kept).unwrap_or_default());
    }
    outcome.failures.extend(not_ready);
    outcome.failures.extend(faults(&report));
    let is_good = report.failures.is_empty() && outcome.failures.is_empty();
    let code = if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if !as_json {
        let code = result(&text::report(&report, &outcome, is_coloured(&io::stdout())), code, Some(stop));
        warn(&report);
        return code;
    }
    let code = document(&outcome.whole(&report), code, Some(stop));
    warn(&report);
    // The document goes to a file or a program; the user sees failures here.
    for failure in text::failures(&report, &outcome) {
        message(&alarming(&failure, is_coloured(&io::stderr())));
    }
    code
}

/// Warns on standard error of influences from outside (they are the machine's, not the run's, and
/// so are not in the report's text), of ports that were never reached, and of failed paths. Other
/// warnings have lines in the text.
fn warn(report: &Report) {
    let told = ["stolen-time", "lcore-moved", "not-connected", "path-migrated"];
    for warning in report.warnings().iter().filter(|warning| told.contains(&warning.code)) {
        advise(&format!("warning[{}]: ", warning.code), &warning.message, warning.remedy);
    }
}

/// Faults of any run, whatever the app.
fn faults(report: &Report) -> Vec<String> {
    let mut faults = Vec::new();
    // The packets of a run that did not end may be in the stage that kept it from ending.
    if report.packets.held > 0 && report.ended {
        faults.push(format!("{} packets were not given back", count(report.packets.held)));
    }
    // A failed lcore could not drain: its failure says enough.
    if !report.drained && report.failures.is_empty() {
        faults.push("the run ended with packets still on their way; raise `drain` of the lcores".to_owned());
    }
    for lcore in report.lcores.iter().filter(|lcore| lcore.rescues > 0) {
        faults.push(format!(
            "lcore {} missed {} wake-ups, which its safety time-out repaired",
            lcore.name, lcore.rescues
        ));
    }
    faults
}

fn refuse(diagnostics: &Diagnostics) -> ExitCode {
    show(diagnostics);
    ExitCode::from(EXIT_PLAN)
}

pub(super) fn fail(why: &str) -> ExitCode {
    let head = alarming("error:", is_coloured(&io::stderr()));
    message(&format!("{head} {}", sentence(why, "error: ".len())));
    ExitCode::FAILURE
}
