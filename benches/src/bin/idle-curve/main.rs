//! The idle policies on real arrivals, from one a second to a million: `./x bench idle-curve
//! [--write DIR] [--patterns] [--solicited] [--rate PER_S] [--json]`.
//!
//! Each run is a plan of two lcores on the software RNIC: one sends, the other receives under the
//! policy. `--write` draws the pictures of docs/performance; `--patterns` checks `late_share` on
//! every pattern of arrivals that the policy was made for; `--solicited` sends an unsolicited
//! stream, and solicited requests beside it. All need a quiet machine.

#![forbid(unsafe_code)]

mod draw;
mod power;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use verbline_benches::arrivals::{PATTERNS, even_gaps, random_gaps};
use verbline_benches::ours::curve::{Curve, Point, beside_stream, point};

/// Measures the idle policies on real arrivals.
#[derive(Debug, Parser)]
#[command(name = "idle-curve")]
struct Arguments {
    /// Draw the pictures into this folder
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,

    /// Hold `late_share` against every pattern of arrivals instead
    #[arg(long)]
    patterns: bool,

    /// Send a stream, and few requests beside it, to lcores that all wake or only the requests
    #[arg(long, conflicts_with = "patterns")]
    solicited: bool,

    /// Measure at this many arrivals a second only: 1, 10, 100 and so on (may be given several
    /// times)
    #[arg(long = "rate", value_name = "PER_S", value_parser = rate)]
    rates: Vec<u32>,

    /// Run each point for this many tenths of the time: for a look, not for figures
    #[arg(long, default_value_t = 10, value_name = "TENTHS")]
    tenths: u32,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn wants(&self, per_s: u32) -> bool {
        self.rates.is_empty() || self.rates.contains(&per_s)
    }
}

/// Parses one of the measured rates.
fn rate(text: &str) -> Result<u32, String> {
    let known = RATES.map(|(per_s, _)| per_s.to_string());
    let found = RATES.into_iter().find(|(per_s, _)| per_s.to_string() == text);
    found.map(|(per_s, _)| per_s).ok_or_else(|| format!("the rates are {}", known.join(", ")))
}

/// Arrivals per second, and the duration of such a run.
const RATES: [(u32, Duration); 8] = [
    (1, Duration::from_secs(8)),
    (10, Duration::from_secs(4)),
    (100, Duration::from_secs(2)),
    (1_000, Duration::from_secs(2)),
    (10_000, Duration::from_secs(2)),
    (25_000, Duration::from_secs(2)),
    (100_000, Duration::from_secs(2)),
    (1_000_000, Duration::from_secs(2)),
];

/// The policies, as the keys of an lcore.
const POLICIES: [(&str, &str); 3] =
    [("poll", "idle = \"poll\""), ("event", "idle = \"event\""), ("adaptive", "idle = \"adaptive\"")];

type Gaps = fn(u32, u64) -> Vec<u64>;

/// The spacings of arrivals: a picture's file, a name, and the gaps by rate and seed.
const SPACINGS: [(&str, &str, Gaps); 2] = [
    ("idle-even.svg", "evenly spaced arrivals", even_gaps),
    ("idle-random.svg", "random arrivals (Poisson)", random_gaps),
];

/// Messages per second of an unsolicited stream, and solicited requests per second beside it.
const STREAMS: [u32; 3] = [100, 1_000, 10_000];
const REQUESTS_PER_S: u32 = 10;

/// Policies that every message wakes, and ones that only requests wake. At the fastest stream four
/// fifths of the receive queue fill during the wait.
const WOKEN_BY: [(&str, &str); 4] = [
    ("event", "idle = \"event\""),
    ("event, solicited", "idle = \"event\", unsolicited_wait = \"40ms\""),
    ("adaptive", "idle = \"adaptive\""),
    ("adaptive, solicited", "idle = \"adaptive\", unsolicited_wait = \"40ms\""),
];

/// The values of `late_share`, and the factor that a run may exceed them by.
const LATE_SHARES: [f64; 2] = [0.01, 0.1];
const FACTOR: f64 = 1.5;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let power = power::read();
    power.iter().for_each(|line| eprintln!("{line}"));
    let done = match () {
        () if arguments.patterns => patterns(&arguments),
        () if arguments.solicited => Ok(solicited(&arguments)),
        () => curves(&arguments, &power),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("idle-curve: {message}");
            ExitCode::from(2)
        }
    }
}

fn scaled(time: Duration, arguments: &Arguments) -> Duration {
    time * arguments.tenths / 10
}

fn curves(arguments: &Arguments, power: &[String]) -> Result<bool, String> {
    let mut all = Vec::new();
    println!(
        "{:<26} {:<9} {:>9} {:>8} {:>8} {:>9} {:>10}",
        "arrivals", "policy", "a second", "CPU", "late", "p50 µs", "p99 µs"
    );
    for (file, spacing, gaps) in SPACINGS {
        let mut curves: Vec<Curve> =
            POLICIES.iter().map(|(policy, _)| Curve { spacing, policy, points: Vec::new() }).collect();
        for (per_s, time) in RATES.into_iter().filter(|(per_s, _)| arguments.wants(*per_s)) {
            // The policies take turns at each rate, so that a drift of the machine affects all of
            // them.
            for ((policy, keys), curve) in POLICIES.iter().zip(&mut curves) {
                let time = scaled(time, arguments);
                let point = point(keys, gaps(per_s, 1), time / 2, time);
                println!("{spacing:<26} {policy:<9} {:>9.0} {}", f64::from(per_s), shown(&point));
                curve.points.push(point);
            }
        }
        if let Some(folder) = &arguments.write {
            let path = folder.join(file);
            let svg = draw::curves(spacing, &curves, power).map_err(|error| format!("{}: {error}", path.display()))?;
            std::fs::write(&path, svg).map_err(|error| format!("{}: {error}", path.display()))?;
            eprintln!("wrote {}", path.display());
        }
        all.extend(curves);
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&all).map_err(|error| error.to_string())?);
    }
    Ok(true)
}

/// Measures the requests' latency and the CPU time, beside a stream.
fn solicited(arguments: &Arguments) -> bool {
    println!("{:<10} {:<20} {:>8} {:>8} {:>9} {:>10}", "stream/s", "policy", "CPU", "late", "p50 µs", "p99 µs");
    for stream in STREAMS {
        for (policy, keys) in WOKEN_BY {
            let time = scaled(Duration::from_secs(6), arguments);
            let requests = random_gaps(REQUESTS_PER_S, 1);
            let point = beside_stream(keys, even_gaps(stream, 1), requests, time / 3, time);
            println!("{stream:<10} {policy:<20} {}", shown(&point));
        }
    }
    true
}

fn shown(point: &Point) -> String {
    format!(
        "{:>7.1}% {:>7.2}% {:>9.1} {:>10.1}",
        100.0 * point.cpu_share,
        100.0 * point.late_share,
        point.p50_ns as f64 / 1e3,
        point.p99_ns as f64 / 1e3
    )
}

/// Returns whether `late_share` held on every pattern.
fn patterns(arguments: &Arguments) -> Result<bool, String> {
    let mut held = true;
    println!("{:<34} {:>10} {:>8} {:>8} {:>9} {:>10}", "arrivals", "late_share", "CPU", "late", "p50 µs", "p99 µs");
    for late_share in LATE_SHARES {
        for pattern in PATTERNS {
            let keys = format!("idle = \"adaptive\", late_share = {late_share}");
            let time = scaled(Duration::from_secs(4), arguments);
            let point = point(&keys, pattern.gaps_ns(1), time / 2, time);
            // With few batches chance decides: three may be late ahead of their share.
            let most = FACTOR * late_share * point.batches as f64 + 3.0;
            let holds = point.late_share * point.batches as f64 <= most;
            held &= holds;
            let verdict = if holds { "" } else { "  NOT HELD" };
            println!("{:<34} {late_share:>10} {}{verdict}", pattern.name, shown(&point));
        }
    }
    Ok(held)
}
