//! The two stages: a client that starts each exchange and times it, and an echo that sends
//! everything back.

use serde::Deserialize;
use verbline::plan::{Asked, Needs, SendsNeed};
use verbline::prelude::*;

use crate::results::{Results, Timings};

/// The only output of either stage.
const SEND: OutId = OutId(0);

const SECTION: &str = "pingpong";

/// `[pingpong]` in the plan.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    size_bytes: usize,
    window: usize,
    warm_up: u64,
    resend_after_ms: Option<u32>,
}

impl Keys for Settings {
    const KEYS: &'static [AppKey] = &[
        AppKey::integer(
            "size_bytes",
            STAMP_BYTES as u64..=DATA_BYTES_MAX,
            "payload of each message; its pool has room",
        )
        .unit("bytes"),
        AppKey::integer("window", 1..=WINDOW_MAX, "messages under way; 1 measures latency, more the rate")
            .or(1)
            .unit("messages"),
        AppKey::integer("warm_up", 0..=WARM_UP_MAX, "exchanges before the first that counts").or(10_000),
        // For connections that may be lost. Costs a reading of the clock in every turn.
        AppKey::integer("resend_after_ms", 1..=RESEND_AFTER_MS_MAX, "unanswered for so long, a message is sent anew")
            .unit("ms")
            .optional("never"),
    ];
}

/// Registers both kinds, and the section that the client reads.
pub(crate) fn register(registry: &mut Registry, results: &Results) {
    let results = results.clone();
    let client = StageSpec {
        outputs: &["send"],
        source: true,
        summary: "starts each exchange, and times it",
        ..StageSpec::default()
    };
    registry.section_of::<Settings>(SECTION, "what the client sends").stage("client", client, move |stage| {
        let settings = Settings::read(stage)?;
        let answered = stage.counter("answered");
        Ok(Box::new(Client {
            timings: Timings::new(&results, settings.size_bytes)?,
            settings,
            in_flight: 0,
            heard_ns: 0,
            lone: Lone::default(),
            answers: Vec::with_capacity(stage.batch_max()),
            stopping: false,
            answered,
        }))
    });
    let echo = StageSpec { outputs: &["send"], summary: "sends everything back", ..StageSpec::default() };
    registry.stage("echo", echo, |_| Ok(Box::new(Echo)));
    registry.needs("client", needs).needs("echo", needs);
}

/// Both ends send as many messages at once as the window has. The plan of an echo of its own need
/// not have the section.
fn needs(asked: &Asked<'_>) -> Needs {
    let settings = asked.section(SECTION).and_then(|section| section.read::<Settings>().ok());
    let what = "the messages of a window";
    let send = |settings: Settings| SendsNeed { output: "send", at_once: settings.window as u64, what };
    Needs { sends: settings.map(send).into_iter().collect(), ..Needs::default() }
}

impl Settings {
    fn read(stage: &StageContext<'_>) -> Result<Settings, StageError> {
        let section = stage.raw_section(SECTION)?;
        let settings: Settings = section.read()?;
        let room = stage.pool().map_or(0, |pool| pool.data_bytes as usize);
        if settings.size_bytes > room {
            let message = format!("{} bytes do not fit: {room} are the most in this pool", settings.size_bytes);
            return Err(section.refuse("size_bytes", message).into());
        }
        Ok(settings)
    }
}

/// More than any send queue holds, more exchanges than a week has, and an hour.
const WINDOW_MAX: u64 = 1 << 20;
const WARM_UP_MAX: u64 = 1_000_000_000_000;
const RESEND_AFTER_MS_MAX: u64 = 3_600_000;
/// The greatest packet of any pool.
const DATA_BYTES_MAX: u64 = 1 << 26;

/// Each message carries the time of its departure, so that any number may be in flight.
const STAMP_BYTES: usize = size_of::<u64>();

struct Client {
    settings: Settings,
    timings: Timings,
    in_flight: usize,
    /// The time of the last answer, or of the last message sent in place of a lost one.
    heard_ns: Tick,
    lone: Lone,
    /// The departures and arrivals of the messages answered in the last turn: recorded once their
    /// successors are sent.
    answers: Vec<(Tick, Tick)>,
    /// Answers are no longer followed by new messages, so that the run comes to rest.
    stopping: bool,
    answered: verbline::engine::Counter,
}

/// The only message in flight (`window = 1`). A round trip lasts from one departure to the next,
/// and a departure is timed only in the turn after it: between a message's arrival and its
/// successor's departure neither a clock nor a payload is read.
///
/// If the thread is kept from its CPU between a departure and that turn, the answer has already
/// come by then. The time of that departure is unknown, and its trip is not recorded.
#[derive(Debug, Default)]
struct Lone {
    departed_ns: Tick,
    /// The turn of `departed_ns`.
    departed_in: u64,
    answered: bool,
    /// Whether the answer came in a later turn than the departure.
    known: bool,
}

impl Lone {
    fn departs(&mut self, turn: u64, now_ns: Tick) {
        (self.departed_in, self.departed_ns) = (turn, now_ns);
    }

    /// Notes that the answer has come; its successor departs now.
    fn answered(&mut self, turn: u64) {
        (self.answered, self.known) = (true, turn != self.departed_in);
    }

    /// The departure of the message answered in the turn before, if there is one and its time is
    /// known. Its successor has just departed.
    fn take(&mut self, turn: u64, now_ns: Tick) -> Option<Tick> {
        if !std::mem::take(&mut self.answered) {
            return None;
        }
        let departed_ns = self.departed_ns;
        self.departs(turn, now_ns);
        self.known.then_some(departed_ns)
    }
}

impl Stage for Client {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        self.answered.add(input.len() as u64);
        if self.stopping {
            return input.clear();
        }
        match self.settings.window {
            1 => self.lone.answered(out.turn()),
            _ => self.restamp(input, out.now_ns()),
        }
        out.send_batch(SEND, input);
        // Messages without room are dropped as unclaimed, and others take their places in the
        // window.
        self.in_flight = self.in_flight.saturating_sub(input.len());
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        self.record(out.turn(), out.now_ns());
        self.give_up(out);
        while self.in_flight < self.settings.window && out.room(SEND) > 0 {
            let Some(mut packet) = out.alloc() else { return Next::Busy };
            // `check` compared the size with this pool.
            let fits = packet.set_len(self.settings.size_bytes);
            debug_assert!(fits, "{} bytes in {}", self.settings.size_bytes, packet.capacity());
            self.lone.departs(out.turn(), out.fresh_ns());
            stamp(&mut packet, self.lone.departed_ns);
            self.timings.begin(self.lone.departed_ns);
            // There is room; a plan without an output for messages counts them as dropped.
            out.send(SEND, packet);
            self.in_flight += 1;
        }
        // The window is full: the next event is an answer.
        match self.in_flight < self.settings.window {
            true => Next::Busy,
            false => Next::At(self.patience_ns().map_or(Tick::MAX, |patience_ns| self.heard_ns + patience_ns)),
        }
    }

    fn port_event(&mut self, event: PortEvent, _: &mut Outputs<'_>) {
        // The messages under way were the last connection's: none of them is answered any more.
        if event.change == PortChange::Up {
            self.in_flight = 0;
        }
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        // Answers of the last turn stay unrecorded: no turn follows to time them.
        self.stopping = true;
        self.timings.end(out.now_ns());
    }
}

impl Client {
    /// One reading per exchange: the end of one is the beginning of the next.
    fn restamp(&mut self, input: &mut Batch, now_ns: Tick) {
        for packet in input.iter_mut() {
            self.answers.push((departed_ns(packet), now_ns));
            stamp(packet, now_ns);
        }
    }

    fn patience_ns(&self) -> Option<u64> {
        self.settings.resend_after_ms.map(|ms| u64::from(ms) * 1_000_000)
    }

    fn give_up(&mut self, out: &Outputs<'_>) {
        let Some(patience_ns) = self.patience_ns() else { return };
        if out.now_ns() >= self.heard_ns + patience_ns {
            (self.in_flight, self.heard_ns) = (0, out.now_ns());
        }
    }

    fn record(&mut self, turn: u64, now_ns: Tick) {
        if self.lone.answered || !self.answers.is_empty() {
            self.heard_ns = now_ns;
        }
        if let Some(departed_ns) = self.lone.take(turn, now_ns) {
            self.timings.record(departed_ns, now_ns, self.settings.warm_up);
        }
        for (departed_ns, now_ns) in self.answers.drain(..) {
            self.timings.record(departed_ns, now_ns, self.settings.warm_up);
        }
    }
}

fn departed_ns(packet: &Packet) -> u64 {
    packet.data().first_chunk().map_or(0, |stamp| u64::from_le_bytes(*stamp))
}

fn stamp(packet: &mut Packet, now_ns: u64) {
    if let Some(place) = packet.data_mut().first_chunk_mut() {
        *place = now_ns.to_le_bytes();
    }
}

struct Echo;

impl Stage for Echo {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        // Messages without room stay in `input`, and are dropped as unclaimed.
        out.send_batch(SEND, input);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use verbline::testing::StageTest;
    use verbline_tests::root;

    use super::*;
    use crate::PingPong;

    /// The client of a process of its own.
    fn client(app: &PingPong, warm_up: u32, window: u32) -> StageTest {
        let mut registry = Registry::new("pingpong");
        app.register(&mut registry);
        let fixed = [r#"device.nic0={provider="soft"}"#, "lcore.ping.cpu=allowed:0"].map(str::to_owned);
        let sets = [format!("pingpong.warm_up={warm_up}"), format!("pingpong.window={window}")];
        let loader = Loader::new(registry.catalog(), Machine::detect()).sets(fixed.into_iter().chain(sets));
        let plan = loader.load_path(root().join("config/two-processes/pingpong-client.toml"));
        let plan = plan.unwrap_or_else(|faults| panic!("{faults}"));
        StageTest::open(&plan, &registry, "client").unwrap_or_else(|error| panic!("{error}"))
    }

    /// The outcome of a client that has `trips` trips of a microsecond in the middle of `lasts`,
    /// after the exchanges that don't count.
    fn outcome(warm_up: u32, window: u32, trips: u32, lasts: Duration) -> Outcome {
        let app = PingPong::default();
        let mut client = client(&app, warm_up, window);
        let answer = |client: &mut StageTest| {
            client.advance(Duration::from_micros(1));
            let echoes = client.sent("send");
            client.process(echoes);
        };
        (0..warm_up).for_each(|_| answer(&mut client));
        client.advance(lasts / 2);
        (0..trips).for_each(|_| answer(&mut client));
        client.turn();
        client.advance(lasts / 2);
        client.stop();
        let report = client.finish();
        app.outcome(&report)
    }

    /// Regression: a client whose peer was gone at the end succeeded, and one without an answer was
    /// told to lower its warm-up.
    #[test]
    fn a_peer_that_is_gone_at_the_end_or_never_answered_is_a_failure() {
        for (trips, lasts_ms, says) in [
            (10, 1_000, None),
            (10, 3_000, Some("no answer at the end: the peer had been silent for 1.5")),
            (0, 100, Some("no message was answered")),
        ] {
            let failures = outcome(0, 1, trips, Duration::from_millis(lasts_ms)).failures;
            let is_so = match says {
                None => failures.is_empty(),
                Some(says) => matches!(&failures[..], [failure] if failure.contains(says)),
            };
            assert!(is_so, "{trips} in {lasts_ms} ms: {failures:?}");
        }
    }

    /// Regression: the rate was that of the time from the first exchange to the last.
    #[test]
    fn a_stall_before_the_first_exchange_or_after_the_last_lowers_the_rate() {
        for (warm_up, window) in [(0, 1), (10, 1), (0, 2), (10, 2)] {
            let exchanges = 100 * window;
            let json = outcome(warm_up, window, 100, Duration::from_secs(2)).json;
            let rate = json["messages_per_second"].as_f64().expect("a rate");
            let expected = f64::from(exchanges);
            assert!(
                (0.9 * expected..1.1 * expected).contains(&rate),
                "{rate} with {warm_up} before, {window} under way"
            );
        }
    }

    /// Regression: a client whose connection was lost sent nothing over the next one.
    #[test]
    fn messages_that_a_lost_connection_took_are_sent_anew_over_the_next() {
        for window in [1, 4] {
            let mut client = client(&PingPong::default(), 0, window);
            client.turn();
            drop(client.sent("send"));
            client.port_event("ping", PortChange::Down);
            assert!(client.sent("send").is_empty());
            client.port_event("ping", PortChange::Up);
            assert_eq!(client.sent("send").len(), window as usize);
        }
    }

    /// Recording a trip of 700 ns, and the trips after it.
    #[test]
    fn a_trip_whose_departure_nobody_saw_is_not_timed() {
        let mut lone = Lone::default();
        lone.departs(1, 1_000);
        lone.answered(20);
        assert_eq!(lone.take(21, 1_700), Some(1_000), "from one departure to the next");
        assert_eq!(lone.take(22, 1_710), None, "and once");
        // Kept from its CPU right after the departure, until long after the answer.
        lone.answered(40);
        assert_eq!(lone.take(41, 9_000), Some(1_700), "which makes this one late");
        lone.answered(41);
        assert_eq!(lone.take(42, 9_100), None, "and that one, answered in the turn of its departure, short");
        lone.answered(60);
        assert_eq!(lone.take(61, 9_800), Some(9_100));
    }
}
