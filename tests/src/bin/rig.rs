//! An app whose stages misbehave on purpose: tests check what the command line says of each fault.
//!
//! It also registers the kinds that `tests/broken-plans` name, so that those plans can be given to
//! a real command.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use serde::Deserialize;
use verbline::engine::{Counter, StageError};
use verbline::prelude::*;

const OUT: OutId = OutId(0);

/// The time between two packets of an endless source.
const ENDLESS_INTERVAL_NS: u64 = 1_000_000;

/// The time that a dawdling sink takes for a packet.
const DAWDLE_NS: u64 = 3_000_000;

/// The time that a dozing sink takes for a packet.
const DOZE: Duration = Duration::from_millis(5);

/// The contents of `[stage.numbers.params]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NumbersParams {
    /// Number of packets. Without it they never end, and come at a pace that leaves the CPU mostly
    /// idle.
    count: Option<u64>,
}

/// The contents of `[stage.sink.params]`: the bad habit, and the number of packets that are taken
/// well before.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SinkParams {
    habit: Habit,
    #[serde(default)]
    after: u64,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Habit {
    /// No habit: the sink gives packets back.
    None,
    /// Panics in the middle of a batch.
    Panic,
    /// Loses packets for good.
    Leak,
    /// Sends everything round again, so that the run never comes to rest.
    Bounce,
    /// Never comes back.
    Hang,
    /// Can't be made at all.
    Refuse,
    /// Logs a warning for each packet.
    Shout,
    /// Takes long for every tenth packet.
    Dawdle,
    /// Sleeps at each packet, so that it reads more slowly than packets come.
    Doze,
}

struct Numbers {
    left: u64,
    endless: bool,
}

impl Stage for Numbers {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        input.clear();
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.endless {
            if let Some(packet) = out.alloc() {
                out.send(OUT, packet);
            }
            return Next::At(out.now_ns() + ENDLESS_INTERVAL_NS);
        }
        for _ in 0..out.room(OUT).min(32) {
            if self.left == 0 {
                return Next::Done;
            }
            let Some(mut packet) = out.alloc() else { break };
            assert!(packet.fill(&self.left.to_le_bytes()), "a packet of the plan holds a number");
            out.send(OUT, packet);
            self.left -= 1;
        }
        Next::Busy
    }
}

struct Sink {
    params: SinkParams,
    received: Counter,
}

impl Stage for Sink {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            self.received.add(1);
            if self.received.value() <= self.params.after {
                continue;
            }
            match self.params.habit {
                Habit::None | Habit::Refuse => drop(packet),
                Habit::Panic => panic!("the sink is full to the brim"),
                Habit::Leak => std::mem::forget(packet),
                Habit::Hang => loop {
                    std::thread::park();
                },
                Habit::Bounce => _ = out.send(OUT, packet),
                Habit::Shout => tracing::warn!(bytes = packet.len(), "the sink has a packet"),
                Habit::Dawdle if self.received.value().is_multiple_of(10) => dawdle(out),
                Habit::Dawdle => drop(packet),
                Habit::Doze => std::thread::sleep(DOZE),
            }
        }
    }
}

/// Works for [`DAWDLE_NS`].
fn dawdle(out: &Outputs<'_>) {
    let until_ns = out.fresh_ns() + DAWDLE_NS;
    while out.fresh_ns() < until_ns {
        std::hint::spin_loop();
    }
}

/// The contents of `[press]`: a thread of the app's own that feeds the run, and ends it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Press {
    /// Number of messages for `injector.press`. The thread ends the run once the sink has them.
    /// Without the table there is no such thread.
    messages: Option<u64>,
}

impl Press {
    fn work(messages: u64, injector: &Injector, observer: &Observer, interrupter: &Interrupter) {
        for number in 0..messages {
            injector.try_push(&number.to_le_bytes()).expect("the injector has room for all");
        }
        let received = |report: Report| report.stage("sink").and_then(|sink| sink.counter("received"));
        while observer.snapshot().and_then(received).is_some_and(|received| received < messages) {
            std::thread::sleep(Duration::from_millis(1));
        }
        interrupter.interrupt();
    }
}

struct Rig;

impl App for Rig {
    fn name(&self) -> &'static str {
        "rig"
    }

    fn about(&self) -> &'static str {
        "stages with bad habits"
    }

    fn register(&self, registry: &mut Registry) {
        let numbers = StageSpec { outputs: &["out"], source: true, summary: "counts down", ..StageSpec::default() };
        registry.stage("numbers", numbers, |stage| {
            let NumbersParams { count } = stage.params()?;
            Ok(Box::new(Numbers { left: count.unwrap_or(0), endless: count.is_none() }))
        });
        let sink = StageSpec { outputs: &["back"], summary: "has a habit", ..StageSpec::default() };
        registry.stage("habit", sink, make_sink);
        of_broken_plans(registry);
        registry.section("press");
    }

    fn started(&self, plan: &Plan, running: &Running) -> Result<(), String> {
        let Some(section) = plan.section("press") else { return Ok(()) };
        let Press { messages: Some(messages) } = section.parse().map_err(|error| error.to_string())? else {
            return Ok(());
        };
        let injector = running.injector("press").map_err(|error| error.to_string())?;
        let (observer, interrupter) = (running.observer(), running.interrupter());
        std::thread::spawn(move || Press::work(messages, &injector, &observer, &interrupter));
        Ok(())
    }
}

fn make_sink(stage: &StageContext<'_>) -> Result<Box<dyn Stage>, StageError> {
    let params: SinkParams = stage.params()?;
    if params.habit == Habit::Refuse {
        return Err("the plumber is on holiday; ask again in autumn".into());
    }
    if params.after > 1_000_000 {
        return Err(stage.raw_params().refuse("after", "no sink takes more than a million").into());
    }
    Ok(Box::new(Sink { params, received: stage.counter("received") }))
}

/// Registers the kinds of `tests/broken-plans`. Those plans are refused before any stage is made.
fn of_broken_plans(registry: &mut Registry) {
    const KINDS: [(&str, &[&str], bool, u32); 5] = [
        ("publish", &["a", "b"], true, 0),
        ("arbiter", &["merged", "late"], false, 64),
        ("book", &["changed"], false, 0),
        ("sign", &["signed"], false, 0),
        ("sink", &[], false, 0),
    ];
    for (name, outputs, source, holds_packets) in KINDS {
        let spec = StageSpec { outputs, source, holds_packets, ..StageSpec::default() };
        registry.stage(name, spec, |_| Err("this kind is for plans that are checked only".into()));
    }
    registry.section("feed").section("risk");
}

fn main() -> ExitCode {
    verbline::cli::main(&Rig)
}
