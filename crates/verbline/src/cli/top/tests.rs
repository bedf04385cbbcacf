//! The screen, and its changes by keys, for reports that depend on no machine.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};
use verbline_engine::{
    ConnectionReport, ConnectionsReport, DropReport, FailureReport, HistogramReport, HolderReport, IncidentsReport,
    LcoreReport, PacketReport, PoolReport, PortReport, Report, RingReport, StageReport, TimeBin, TimesReport,
    WakeReport,
};
use verbline_operate::client_report::Seen;
use verbline_operate::protocol::{Hello, State as RunState};

use super::super::screens::assert_shown;
use super::palette::Palette;
use super::screen::draw;
use super::state::{After, Key, State};

const COLOURED: Palette = Palette { is_coloured: true };
const PLAIN: Palette = Palette { is_coloured: false };

fn hello() -> Hello {
    Hello {
        app: "tick-to-trade".into(),
        plan: "tick-to-trade".into(),
        pid: 4711,
        version: "0.1.0".into(),
        since_unix_ms: 0,
        state: RunState::Running,
    }
}

/// This number of times, all of about one length.
fn times(count: u64, below_ns: u64) -> TimesReport {
    let bins = if count == 0 { Vec::new() } else { vec![TimeBin { below_ns, count }] };
    TimesReport { count, sum_ns: count * below_ns, max_ns: below_ns, bins, ..TimesReport::default() }
}

fn stage(name: &str, lcore: &str, packets: u64, ns_each: u64) -> StageReport {
    StageReport {
        name: name.into(),
        kind: name.into(),
        lcore: lcore.into(),
        calls: packets / 16,
        packets_in: packets,
        packets_out: packets / 2,
        timed: packets / 64,
        busy_ns: packets * ns_each,
        call_times: times(packets / 16, ns_each * 40),
        ..StageReport::default()
    }
}

fn port(name: &str, lcore: &str, packets: u64) -> PortReport {
    PortReport {
        name: name.into(),
        lcore: lcore.into(),
        device: "nic".into(),
        transport: "rc",
        rx_packets: packets,
        rx_bytes: packets * 64,
        ..PortReport::default()
    }
}

/// The report of a run after this number of seconds.
fn report(seconds: u64) -> Seen {
    let all_ns = seconds * 1_000_000_000;
    let share = |percent: u64| all_ns / 100 * percent;
    let feed = LcoreReport {
        name: "feed".into(),
        cpu: 2,
        policy: "poll".into(),
        busy_loops: 830_000 * seconds,
        busy_ns: share(71),
        idle_ns: share(16),
        stolen_ns: share(13),
        ..LcoreReport::default()
    };
    let orders = LcoreReport {
        name: "orders".into(),
        cpu: 3,
        policy: "adaptive".into(),
        spin_ns: 21_000,
        busy_ns: share(1) / 2,
        idle_ns: share(1) / 2,
        asleep_ns: share(99),
        sleeps: 1200 * seconds,
        wakes: vec![WakeReport { cause: "ring", count: 1200 * seconds }],
        wake_late: times(seconds, 61_000),
        ..LcoreReport::default()
    };
    let mut exchange = port("exchange", "orders", 1200 * seconds);
    let many = ConnectionsReport { max: 64, role: "listens", open: 3, opened: 5, closed: 2, ..Default::default() };
    exchange.connections = Some(many);
    let by_address = ConnectionReport {
        port: "feed-a".into(),
        role: "connects",
        address: "10.0.0.7:4791".into(),
        peer_address: "10.0.0.7:4791".into(),
        link: "udp",
        wire: Some(IncidentsReport { retransmitted: 12, rnr_naks_received: 3, ..IncidentsReport::default() }),
        attempts: 4,
        times_connected: 2,
        ..ConnectionReport::default()
    };
    let ring = RingReport {
        name: "trades".into(),
        producer: "feed".into(),
        consumer: "orders".into(),
        depth: 256,
        most: 17,
        pushed: 1200 * seconds,
        popped: 1200 * seconds,
        ..RingReport::default()
    };
    let drop = |place: &str, reason: &str, packets| DropReport { place: place.into(), reason: reason.into(), packets };
    let holder = |place: &str, packets| HolderReport { place: place.into(), packets };
    let report = Report {
        plan: "tick-to-trade".into(),
        elapsed_ns: all_ns,
        lcores: vec![feed, orders],
        stages: vec![
            stage("arbiter", "feed", 2_000_000 * seconds, 21),
            stage("book", "feed", 1_000_000 * seconds, 260),
            StageReport {
                histograms: vec![HistogramReport {
                    name: "tick_to_trade".into(),
                    times: times(1200 * seconds, 57_344),
                }],
                ..stage("risk", "orders", 1200 * seconds, 95)
            },
        ],
        ports: vec![port("feed-a", "feed", 1_000_000 * seconds), port("feed-b", "feed", 1_000_000 * seconds), exchange],
        connections: vec![by_address],
        rings: vec![ring],
        pools: vec![PoolReport {
            name: "packets".into(),
            packets: 4096,
            free: 2048,
            cached: 512,
            held: 1536,
            ..PoolReport::default()
        }],
        drops: vec![drop("stage.arbiter", "duplicate", 999_000 * seconds), drop("port.feed-b", "rx_starved", 40)],
        packets: PacketReport {
            held: 1536,
            holders: vec![holder("port.feed-a rx", 1024), holder("elsewhere", 512)],
            ..PacketReport::default()
        },
        ..Report::default()
    };
    serde_json::from_value(serde_json::to_value(report).unwrap()).unwrap()
}

/// A run of ten seconds, with the last one shown.
fn ten_seconds() -> State {
    let mut state = State::new(hello());
    (1..=10).for_each(|seconds| state.take(report(seconds)));
    state
}

fn press(state: &mut State, keys: impl IntoIterator<Item = Key>) {
    for key in keys {
        assert_eq!(state.press(key), After::Stays, "{key:?}");
    }
}

fn terminal(state: &State, (width, height): (u16, u16), palette: Palette) -> TestBackend {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, palette)).unwrap();
    terminal.backend().clone()
}

/// The screen's rows, without trailing blanks.
fn screen_of(state: &State, size: (u16, u16)) -> String {
    let backend = terminal(state, size, PLAIN);
    let buffer = backend.buffer();
    let row = |y| (0..size.0).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned() + "\n";
    (0..size.1).map(row).collect()
}

fn screen(state: &State) -> String {
    screen_of(state, (80, 24))
}

#[test]
fn a_run_is_seen_on_80_columns_and_24_rows() {
    insta::assert_snapshot!(screen(&ten_seconds()));
}

#[test]
fn each_view_has_its_table() {
    let mut state = ten_seconds();
    let mut screens = String::new();
    for digit in '2'..='7' {
        press(&mut state, [Key::Char(digit)]);
        // Below the lcores.
        screens.extend(screen(&state).lines().skip(8).map(|line| format!("{line}\n")));
    }
    insta::assert_snapshot!(screens.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_document_shows_what_is_on_the_screen() {
    let mut drilled = ten_seconds();
    press(&mut drilled, [Key::Enter, Key::Enter, Key::Left, Key::Left]);
    let drilled = ("top, an lcore's ports two seconds ago", screen(&drilled));
    assert_shown(&[("top", screen(&ten_seconds())), drilled]);
}

#[test]
fn colours_mean_something_and_without_them_nothing_is_lost() {
    let state = ten_seconds();
    let [coloured, plain] = [COLOURED, PLAIN].map(|palette| terminal(&state, (80, 24), palette));
    let colours = |backend: &TestBackend| {
        let cells = backend.buffer().content.iter();
        cells.map(|cell| cell.fg).filter(|colour| *colour != Color::Reset).collect::<Vec<_>>()
    };
    for colour in [Color::Green, Color::Yellow, Color::Blue, Color::Red] {
        assert!(colours(&coloured).contains(&colour), "{colour:?}");
    }
    assert_eq!(colours(&plain), []);
    let symbols = |backend: &TestBackend| {
        backend.buffer().content.iter().map(|cell| cell.symbol().to_owned()).collect::<String>()
    };
    assert_eq!(symbols(&coloured), symbols(&plain));
    let is_marked = |cell: &ratatui::buffer::Cell| cell.modifier.contains(Modifier::REVERSED);
    assert!(plain.buffer().content.iter().any(is_marked));
}

#[test]
fn keys_lead_from_an_lcore_to_its_stages_to_its_ports_to_their_connections_and_back() {
    let mut state = ten_seconds();
    press(&mut state, [Key::Down, Key::Enter]);
    let stages = screen(&state);
    assert!(stages.contains(" of orders\n") && stages.contains("> risk"), "{stages}");
    assert!(!stages.contains("arbiter"), "{stages}");
    press(&mut state, [Key::Enter]);
    assert!(screen(&state).contains("> exchange"), "{}", screen(&state));
    press(&mut state, [Key::Enter]);
    let connections = screen(&state);
    assert!(connections.contains("> exchange  3 of 64 open") && !connections.contains("10.0.0.7"), "{connections}");
    press(&mut state, [Key::Escape, Key::Escape]);
    let all = screen(&state);
    assert!(all.contains("> orders") && all.contains("arbiter"), "{all}");
    assert_eq!(state.press(Key::Char('q')), After::Quits);
}

#[test]
fn rows_are_sorted_and_filtered() {
    let mut state = ten_seconds();
    let names = |state: &State| {
        let shown = state.shown().unwrap();
        state.grid(&shown).rows.iter().map(|row| row[0].text.clone()).collect::<Vec<_>>()
    };
    // The sixth column: nanoseconds per packet.
    press(&mut state, [Key::Char('s'); 6]);
    assert_eq!(names(&state), ["book", "risk", "arbiter"]);
    press(&mut state, [Key::Char('s'); 3]);
    assert_eq!(names(&state), ["arbiter", "book", "risk"], "the plan's order again");
    press(&mut state, [Key::Char('3'), Key::Char('/')]);
    press(&mut state, "10.0.0.q".chars().map(Key::Char));
    assert!(screen(&state).contains("filter: 10.0.0.q_"), "q is a letter here");
    press(&mut state, [Key::Erase, Key::Char('7'), Key::Enter]);
    assert_eq!(names(&state), ["feed-a"]);
    press(&mut state, [Key::Escape]);
    assert_eq!(names(&state).len(), 2);
}

#[test]
fn a_screen_that_is_held_stays_while_the_run_goes_on_and_goes_back_and_forward() {
    let mut state = ten_seconds();
    press(&mut state, [Key::Char('p')]);
    assert!(screen(&state).contains("up 00:00:10") && screen(&state).contains("PAUSED"));
    (11..=14).for_each(|seconds| state.take(report(seconds)));
    assert!(
        screen(&state).contains("up 00:00:10") && screen(&state).contains("PAUSED, 4.0s ago"),
        "{}",
        screen(&state)
    );
    press(&mut state, [Key::Left, Key::Left, Key::Right]);
    assert!(screen(&state).contains("up 00:00:09") && screen(&state).contains("PAUSED, 5.0s ago"));
    press(&mut state, [Key::Home]);
    assert!(screen(&state).contains("up 00:00:02"), "the oldest that has one before it");
    assert_eq!(state.end(), After::Stays, "somebody looks back");
    assert!(screen(&state).contains("the run is over"));
    assert_eq!(state.press(Key::End), After::Quits);
    // A full history.
    let mut state = State::new(hello());
    (1..=400).for_each(|seconds| state.take(report(seconds)));
    press(&mut state, [Key::Home]);
    assert!(screen(&state).contains("up 00:01:42"), "{}", screen(&state));
    state.take(report(401));
    assert!(screen(&state).contains("up 00:01:43"), "the one that was shown is no longer kept");
    assert_eq!(state.press(Key::End), After::Stays);
    assert_eq!(state.end(), After::Quits);
}

#[test]
fn help_trouble_and_failures_are_shown() {
    let mut state = State::new(hello());
    assert!(screen(&state).contains("waiting for the first report"));
    let mut failed = report(3);
    let failure = FailureReport { lcore: "feed".into(), message: "no memory\x1b[2J".into(), ..Default::default() };
    failed.failures.push(serde_json::from_value(serde_json::to_value(failure).unwrap()).unwrap());
    state.take(failed);
    let shown = screen(&state);
    assert!(shown.contains(r"FAILED lcore feed: no memory\u{1b}[2J") && shown.contains("in the last 3.0s"), "{shown}");
    state.trouble = Some("the run at x has not answered for 2s".into());
    assert!(screen(&state).contains("has not answered"));
    press(&mut state, [Key::Char('?')]);
    insta::assert_snapshot!(screen(&state));
    press(&mut state, [Key::Escape]);
    assert!(!screen(&state).contains("leave; the run goes on"));
}

#[test]
fn a_screen_of_any_size_is_drawn_and_the_marked_row_is_on_it() {
    for height in 1..40 {
        for width in [1, 2, 7, 20, 40, 79, 81, 200] {
            let mut state = ten_seconds();
            let _ = terminal(&state, (width, height), COLOURED);
            press(&mut state, [Key::Down; 4]);
            let shown = screen_of(&state, (width, height));
            assert!(height < 10 || width < 20 || shown.contains("> risk"), "{width} x {height}\n{shown}");
        }
    }
}

#[test]
fn many_lcores_leave_room_for_the_rest_and_the_marked_one_says_why() {
    let mut many = report(5);
    let one = many.lcores[0].clone();
    many.lcores = (0..40)
        .map(|n| verbline_operate::client_report::Lcore { name: format!("worker-{n}"), ..one.clone() })
        .collect();
    let mut state = State::new(hello());
    state.take(many);
    press(&mut state, [Key::Down; 39]);
    let shown = screen(&state);
    assert!(shown.contains("> worker-39") && shown.contains("    works for"), "{shown}");
    assert!(!shown.contains("worker-0 ") && shown.contains("arbiter"), "{shown}");
}
