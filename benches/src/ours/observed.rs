//! The cost of being observed. A plan has a client that works like `top`, scraped metrics and the
//! live page, each at a fixed rate, and optionally records the slowest packets of the last minute:
//! by a client's trace of everything, or by the run itself, of one millisecond in N. It is compared
//! with the same plan without observers.

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

/// The length of a moment at a plan's rate, and the observers' interval.
const EVERY: Duration = Duration::from_secs(1);

/// The length of a moment at full rate, and the observers' interval: a tenth.
const MOMENT: Duration = Duration::from_millis(100);

/// The pause between a change of the observers and such a moment.
const SETTLED: Duration = Duration::from_millis(50);

/// The time span of the slowest packets.
const LAST: Duration = Duration::from_secs(60);

/// Their number.
const SLOWEST: u16 = 10;

/// The recorder of a run's slowest packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    /// None.
    Not,
    /// A client that traces everything.
    Whole,
    /// The run itself, for one millisecond in this many.
    OneIn(NonZeroU32),
}

/// All observers of one run; they stop when this is dropped.
struct Observers {
    stop: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
    /// The service that they use.
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
        // It allocates its memory as it starts.
        while is_kept && observers.operate.kept().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        observers
    }

    /// Records the slowest packets of the last minute, like `trace --last 1m`.
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

    /// Calls `look` at once, and then at each interval.
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

/// Requests a report, reads it, and computes rates from it and the one before, like `top`, but
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

/// The response for a path.
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

/// Tick-to-trade, observed and not, in this many pairs of moments of one run, whose order
/// alternates: `observed_…` and `alone_…` of `ticks_per_s` or of `p99_ns`, and `…_ratio` for each.
/// A neighbour on a virtual CPU's core takes up to half of its rate, for seconds at a time; two
/// separate runs can't tell that from the cost of an observation.
///
/// At full rate (0 ticks per second) a pair has a rate for each side, and the figures are medians
/// over the pairs. At a plan's rate some 450 orders per second arrive, too few for a percentile of
/// a moment: the figure is over all moments of a side.
///
/// With a spare CPU the plan has one lcore, and the observers have the other CPU.
///
/// # Panics
/// If a run fails, or an observer gets no answer.
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
