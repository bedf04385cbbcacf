//! `peers ours SUBJECT`: one measurement of ours, with its figures as a line of JSON.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use tick_to_trade::generator::GeneratorSpec;
use verbline_benches::Figures;
use verbline_benches::ours::observed::Traced;
use verbline_benches::ours::{
    self, connections, feed, graph, hop, idle, itch, lcores, messages, nvme, observed, opening, operations, pool,
    post_poll, ring, store, trading, wire,
};

use crate::error::RunError;
use crate::machine;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Subject {
    /// A cache line one way between two cores
    CacheLine,
    /// Hand-off through a ring, bulk 32
    Ring,
    /// A message of 64 bytes handed on, at full speed
    HopRate,
    /// The same, one at a time
    HopLatency,
    /// The hand-off through rtrb alone
    Rtrb,
    /// Packets got from a pool and put back, bulk 32
    Pool,
    /// The same, from a pool of this many packets of which half are out
    PoolOf { packets: u32 },
    /// ITCH messages read from a file
    ItchParse { feed: PathBuf },
    /// ITCH messages read from a file into books
    ItchBook { books: Books, feed: PathBuf },
    /// The same, after the messages were put into MoldUDP64 packets
    MoldBook { books: Books, feed: PathBuf },
    /// A SEND one way between two lcores
    OneWay { bytes: u32 },
    /// SENDs a second between two lcores
    SendRate { bytes: u32 },
    /// SENDs a second, sent and received on one core
    SendRateOneCore { bytes: u32 },
    /// RDMA WRITEs or READs a second
    OneSided { verb: messages::OneSided, bytes: u32 },
    /// SENDs over this many queue pairs in turn
    QueuePairs { count: u16 },
    /// The same with one shared receive queue for all
    QueuePairsShared { count: u16 },
    /// A stage's call in batches of this many packets
    StageCall { batch: usize },
    /// What each of this many stages adds, a packet
    Stages { count: usize },
    /// Packets a second of this many lcores
    Lcores { count: usize },
    /// Null port to null port
    NullPorts {
        #[arg(long)]
        macswap: bool,
    },
    /// From a tick on one lcore to a stage on another that sleeps
    WakeUp,
    /// From write(eventfd) to epoll_wait(2)'s return on another core
    BareWakeUp,
    /// CPU time of lcores in event mode
    IdleCpu { ticks_per_s: u64 },
    /// CPU time of a thread in epoll_wait(2)
    BareIdleCpu { ticks_per_s: u64 },
    /// Packets a second between two lcores, adaptive beside poll mode, in this many pairs of short
    /// runs
    Saturated { pairs: usize },
    /// Tick-to-trade at this many ticks a second, 0 for as fast as it goes
    TickToTrade { ticks_per_s: u64 },
    /// Tick-to-trade at this many ticks a second, looked at beside not, in this many pairs
    Observed {
        ticks_per_s: u64,
        pairs: usize,
        /// Also by a trace that keeps the slowest packets
        #[arg(long)]
        traced: bool,
        /// While the run itself keeps its slowest packets, of one millisecond in N
        #[arg(long, value_name = "N", conflicts_with = "traced")]
        one_in: Option<NonZeroU32>,
        /// On one lcore, which leaves a CPU for those who look
        #[arg(long)]
        spare: bool,
    },
    /// RDMA WRITEs or READs a second, from a stage
    StageOneSided { verb: messages::OneSided, bytes: u32 },
    /// Messages over this many connections of a port in turn
    Connections { count: u32 },
    /// Connections that open beside one that runs, this many a second or as fast as they can
    Opening {
        #[arg(long)]
        pace_per_s: Option<u32>,
    },
    /// Packets spread by key over two rings, beside a ring for each source
    FanOut,
    /// Two rings into one stage, beside one
    FanIn,
    /// Random reads of a file at depth 32, or writes
    Store {
        path: PathBuf,
        #[arg(long)]
        writes: bool,
    },
    /// Commands of 4 KiB to the NVMe-oF target that ships, over this many connections
    Nvme {
        connections: u32,
        #[arg(long)]
        depth: Option<u32>,
        #[arg(long)]
        writes: bool,
        /// Its blocks have protection information, which that one checks
        #[arg(long)]
        checks: Option<nvme::Checks>,
    },
    /// A SEND one way over UDP to another process
    WireOneWay { bytes: u32 },
    /// RDMA WRITEs over UDP to another process
    WireWrite { bytes: u32 },
    /// SENDs over UDP to another process, over this many connections in turn
    WireConnections { count: u32 },
    /// This many connections over UDP between two processes, without traffic
    WireIdle { count: u32 },
    /// The other process of one of these
    WireFar { role: wire::Role, number: u32, of: u32 },
    /// Posts and polls for callgrind to count
    PostAndPoll { lists: u64, burst: usize },
}

/// Which feed, and books of which size.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Books {
    Small,
    Large,
}

impl Books {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Books::Small => "small",
            Books::Large => "large",
        }
    }

    fn spec(self) -> GeneratorSpec {
        match self {
            Books::Small => feed::SMALL,
            Books::Large => feed::LARGE,
        }
    }
}

/// How long an idle process is observed.
const IDLE_TIME: Duration = Duration::from_secs(3);
/// How long connections stay open without traffic.
const WIRE_IDLE_TIME: Duration = Duration::from_secs(22);
/// How long tick-to-trade runs.
const TRADING_TIME: Duration = Duration::from_millis(2_500);

pub(crate) fn run(subject: &Subject) -> Result<(), RunError> {
    let figures = match subject {
        Subject::CacheLine => ours::cache_line(),
        Subject::Ring => ring::ours(),
        Subject::HopRate => hop::rate(),
        Subject::HopLatency => hop::latency(),
        Subject::Rtrb => ring::rtrb(),
        Subject::Pool => pool::get_and_put(),
        Subject::PoolOf { packets } => pool::of_size(*packets),
        Subject::ItchParse { feed } => itch::parse(&read(feed)?),
        Subject::ItchBook { books, feed } => itch::parse_and_book(books.spec(), &read(feed)?),
        Subject::MoldBook { books, feed } => itch::mold_and_book(books.spec(), &read(feed)?),
        Subject::OneWay { bytes } => messages::one_way(*bytes),
        Subject::SendRate { bytes } => messages::send_rate(*bytes),
        Subject::SendRateOneCore { bytes } => messages::send_rate_on_one_core(*bytes),
        Subject::OneSided { verb, bytes } => messages::one_sided_rate(*verb, *bytes),
        Subject::StageOneSided { verb, bytes } => operations::rate(*verb, *bytes),
        Subject::Connections { count } => connections::in_turn(*count),
        Subject::Opening { pace_per_s } => opening::opening(*pace_per_s),
        Subject::FanOut => graph::fan_out(),
        Subject::FanIn => graph::fan_in(),
        Subject::QueuePairs { count } => messages::over_queue_pairs(*count),
        Subject::QueuePairsShared { count } => messages::over_shared_receives(*count),
        Subject::StageCall { batch } => lcores::stage_call(*batch),
        Subject::Stages { count } => lcores::stages(*count),
        Subject::Lcores { count } => lcores::lcores(*count),
        Subject::NullPorts { macswap } => lcores::null_ports(*macswap),
        Subject::WakeUp => idle::wake_up(),
        Subject::BareWakeUp => idle::bare_wake_up(),
        Subject::IdleCpu { ticks_per_s } => idle::idle_cpu(*ticks_per_s, IDLE_TIME),
        Subject::BareIdleCpu { ticks_per_s } => idle::bare_idle_cpu(*ticks_per_s, IDLE_TIME),
        Subject::Saturated { pairs } => idle::adaptive_beside_poll(*pairs),
        Subject::TickToTrade { ticks_per_s } => trading::tick_to_trade(*ticks_per_s, TRADING_TIME),
        Subject::Observed { ticks_per_s, pairs, traced, one_in, spare } => {
            let whole = if *traced { Traced::Whole } else { Traced::Not };
            observed::observed(*ticks_per_s, *pairs, one_in.map_or(whole, Traced::OneIn), *spare)
        }
        Subject::Store { path, writes } => store::random(path, *writes, 32),
        Subject::Nvme { connections, depth, writes, checks } => {
            let load = nvme::Load::reads(*connections);
            let read_share = if *writes { 0.0 } else { load.read_share };
            let checks = checks.unwrap_or(nvme::Checks::None);
            nvme::commands(nvme::Load { depth: depth.unwrap_or(load.depth), read_share, checks, ..load })
        }
        Subject::WireOneWay { bytes } => wire::one_way(far(), *bytes),
        Subject::WireWrite { bytes } => wire::write_rate(far(), *bytes),
        Subject::WireConnections { count } => wire::in_turn(far(), *count),
        Subject::WireIdle { count } => wire::idle(far(), *count, WIRE_IDLE_TIME),
        Subject::WireFar { role, number, of } => {
            wire::play(*role, *number, *of);
            return Ok(());
        }
        Subject::PostAndPoll { lists, burst } => {
            post_poll::post_and_poll(*lists, *burst);
            Figures::of("messages", (*lists * *burst as u64) as f64)
        }
    };
    println!("{}", serde_json::json!(figures));
    Ok(())
}

/// The command that runs this program as the other process of a measurement over UDP.
fn far() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "peers".into()));
    command.args(["ours", "wire-far"]);
    command
}

fn read(path: &PathBuf) -> Result<Vec<u8>, RunError> {
    std::fs::read(path).map_err(|source| RunError::File { path: path.clone(), source })
}

/// Writes a feed for all parsers, once, and returns its path.
pub(crate) fn feed_file(books: Books) -> Result<PathBuf, RunError> {
    let path = machine::work_dir()?.join(format!("feed-{}-{}.itch", books.name(), feed::MESSAGES));
    if std::fs::metadata(&path).is_err() {
        // Under a temporary name first, so that a killed run leaves no partial feed.
        let half = path.with_extension(std::process::id().to_string());
        let written = std::fs::write(&half, feed::generate(books.spec(), feed::MESSAGES))
            .and_then(|()| std::fs::rename(&half, &path));
        written.map_err(|source| RunError::File { path: path.clone(), source })?;
    }
    Ok(path)
}
