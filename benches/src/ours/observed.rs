//! What it costs to be looked at: a plan with a client that does what `top` does, metrics that are
//! scraped, the live page open, each so often a second, and if asked for the slowest packets of the
//! last minute: by a client's trace of all that there is, or by the run itself, of one millisecond
//! in N; beside the same plan that nobody can look at.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use verbline::engine::{Observer, Running};
use verbline::plan::Plan;
use verbline_operate::change::Change;
use verbline_operate::client::Client;
use verbline_operate::client_report::Seen;
use verbline_operate::trace::{Analysis, Wanted};
use verbline_operate::{MetricsSettings, Operate, Options, SocketChoice, TraceAsk, TraceSettings};

use super::trading::{self, Lcores, OrderTimes};
use crate::Figures;
use crate::figures::{in_turn, median};

/// A moment at a plan's rate, and how often each looks then.
const EVERY: Duration = Duration::from_secs(1);

/// A moment at full rate, and how often each looks then: ten times as often.
const MOMENT: Duration = Duration::from_millis(100);

/// Between the coming or going of those who look and such a moment.
const SETTLED: Duration = Duration::from_millis(50);

/// The last time of which the slowest packets are kept.
const LAST: Duration = Duration::from_secs(60);

/// How many.
const SLOWEST: u16 = 10;

/// Who keeps the slowest packets of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    /// Nobody.
    Not,
    /// A client, of everything.
    Whole,
    /// The run itself, of one millisecond in this many.
    OneIn(NonZeroU32),
}

/// Everybody who looks at one run; they leave when this is dropped.
struct Observers {
    stop: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
    /// Behind them.
    operate: Operate,
    is_kept: bool,
    socket: PathBuf,
}

impl Observers {
    fn of(plan: &Plan, observer: Observer, traced: Traced, every: Duration) -> Observers {
        let socket = std::env::temp_dir().join(format!("verbline-observed-{}.sock", std::process::id()));
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let metrics = MetricsSettings { listen, hosts: Vec::new(), connections_max: 0 };
        let trace = match traced {
            Traced::OneIn(one_in) => Some(TraceSettings { slowest: SLOWEST, last: LAST, one_in }),
            Traced::Not | Traced::Whole => None,
        };
        let (at, is_kept) = (SocketChoice::At(socket.clone()), trace.is_some());
        let options = Options { socket: at, metrics: Some(metrics), trace, ..Options::default() };
        let operate = Operate::start(plan, "observed", options).unwrap_or_else(|error| panic!("{error}"));
        operate.observe(observer);
        let address = operate.metrics().expect("the metrics listen");
        let mut observers = Observers { stop: Vec::new(), threads: Vec::new(), operate, is_kept, socket };
        let top = top(&observers.socket);
        observers.add("top", every, top);
        observers.add("scrape", every, move || {
            let text = get(address, "/metrics", "application/openmetrics-text; version=1.0.0");
            assert!(text.contains("verbline_"), "{text}");
        });
        for path in ["/", "/hello.json", "/graph.json"] {
            get(address, path, "*/*");
        }
        observers.add("page", every, move || {
            for path in ["/report.json", "/awake.json"] {
                get(address, path, "*/*");
            }
        });
        if traced == Traced::Whole {
            observers.trace();
        }
        // It makes its memory as it starts.
        while is_kept && observers.operate.kept().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        observers
    }

    /// Keeps the slowest packets of the last minute, as `trace --last 1m` does.
    fn trace(&mut self) {
        let client = Client::connect(&self.socket).unwrap_or_else(|error| panic!("{error}"));
        let (head, mut events) = client.trace(TraceAsk::default()).unwrap_or_else(|error| panic!("{error}"));
        let (slowest, last_ns) = (SLOWEST.into(), Some(LAST.as_nanos() as u64));
        let wanted = Wanted { at: None, above_ns: 0, packets: u64::MAX, first: 0, slowest, last_ns };
        let mut analysis = Analysis::new(head, wanted);
        let (stop, stopped) = channel::<()>();
        let run = move || {
            let mut asked = false;
            loop {
                if !asked && stopped.try_recv() == Err(TryRecvError::Disconnected) {
                    events.end();
                    asked = true;
                }
                let taken = events.take(Duration::from_millis(50), |lcore, event| analysis.add(lcore, event, &mut ()));
                if taken.is_err() {
                    break;
                }
            }
            assert!(!analysis.finish(&mut ()).slowest.is_empty(), "no packet was followed");
        };
        self.spawn("trace", stop, run);
    }

    /// Has `look` called at once, and then so often.
    fn add(&mut self, name: &str, every: Duration, mut look: impl FnMut() + Send + 'static) {
        let (stop, stopped) = channel::<()>();
        let run = move || {
            loop {
                look();
                match stopped.recv_timeout(every) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        self.spawn(name, stop, run);
    }

    fn spawn(&mut self, name: &str, stop: Sender<()>, run: impl FnOnce() + Send + 'static) {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        self.stop.push(stop);
        self.threads.push(thread.unwrap_or_else(|error| panic!("{error}")));
    }
}

impl Drop for Observers {
    fn drop(&mut self) {
        self.stop.clear();
        for thread in self.threads.drain(..) {
            thread.join().expect("who looks finds what it asks for");
        }
        if self.is_kept {
            let kept = self.operate.kept().expect("the run keeps its slowest packets");
            assert!(!kept.found.slowest.is_empty(), "{:?}", kept.found);
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Asks for a report, reads it, and makes rates of it and of the one before, as `top` does; it
/// draws nothing.
fn top(socket: &Path) -> impl FnMut() + Send + 'static {
    let mut client = Client::connect(socket).unwrap_or_else(|error| panic!("{error}"));
    let mut before: Option<Seen> = None;
    move || {
        let report = client.report().unwrap_or_else(|error| panic!("{error}"));
        let now: Seen = serde_json::from_value(report).unwrap_or_else(|error| panic!("{error}"));
        if let Some(before) = &before {
            let change = Change::between(before, &now);
            std::hint::black_box(change.counts().lcores.len());
        }
        before = Some(now);
    }
}

/// What is at a path.
fn get(address: SocketAddr, path: &str, accept: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let mut stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("{error}"));
    let asked = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_end(&mut answer));
    asked.unwrap_or_else(|error| panic!("{path}: {error}"));
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    answer
}

/// Tick-to-trade, looked at and not, in this many pairs of moments of one run, whose order
/// alternates: `observed_…` and `alone_…` of `ticks_per_s` or of `p99_ns`, and of each `…_ratio`.
/// Who shares a core with a virtual CPU takes up to half of its rate, for seconds at a time, which
/// two runs can't tell from what a look costs.
///
/// As fast as it goes (0 ticks a second) a pair has a rate of each side, and the figures are
/// medians of the pairs'. At a plan's rate some 450 orders a second arrive, so that a moment has no
/// percentile of its own: that of all moments of a side is told.
///
/// With a CPU to spare the plan has one lcore, and who looks on has the other CPU.
///
/// # Panics
/// If a run fails, or an observer is not answered.
pub fn observed(ticks_per_second: u64, pairs: usize, traced: Traced, has_spare: bool) -> Figures {
    let lcores = if has_spare { Lcores::One } else { Lcores::Two };
    let every = if ticks_per_second == 0 { MOMENT } else { EVERY };
    let whole_run = |plan: &Plan, running: &Running| {
        running.wait(Some(EVERY));
        let mut times = [OrderTimes::default(), OrderTimes::default()];
        let rates = in_turn(pairs, [true, false], |is_observed| {
            let looking = is_observed.then(|| Observers::of(plan, running.observer(), traced, every));
            running.wait(Some(SETTLED));
            let before = trading::seen(&running.observer());
            running.wait(Some(every));
            let after = trading::seen(&running.observer());
            drop(looking);
            times[usize::from(is_observed)].add_between(&before.tick_to_trade, &after.tick_to_trade);
            (after.ticks - before.ticks) as f64 * 1e9 / (after.at_ns - before.at_ns) as f64
        });
        (rates, times)
    };
    let (rates, [alone, observed]) = trading::watched(lcores, ticks_per_second, whole_run).1;
    let (name, [observed, alone], ratio) = match ticks_per_second {
        0 => {
            let of = |side: usize| median(rates.iter().map(|pair| pair[side]));
            ("ticks_per_s", [of(0), of(1)], median(rates.iter().map(|[observed, alone]| observed / alone)))
        }
        _ => {
            let p99_ns = [observed, alone].map(|times| times.quantile_ns(0.99));
            ("p99_ns", p99_ns, p99_ns[0] / p99_ns[1])
        }
    };
    Figures::default()
        .and(&format!("observed_{name}"), observed)
        .and(&format!("alone_{name}"), alone)
        .and(&format!("{name}_ratio"), ratio)
}
