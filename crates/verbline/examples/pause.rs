//! A port that holds its packets while its path changes, and loses none.
//!
//! A feed sends a thousand numbered messages over an RC pair of the software RNIC. Halfway, the
//! program pauses the feed's port (its queue pair drains, SQD), gives it the traffic class of
//! another path, and resumes it. Messages sent meanwhile wait, and arrive in order.

use std::time::Duration;

use verbline::engine::{ChangeOutcome, Counter};
use verbline::prelude::*;

const PLAN: &str = r#"
name = "pause"

[device.nic]
provider = "soft"
name = "soft0"

[pool.packets]
device = "nic"
packets = 1024
data_bytes = 256

[lcore.main]
cpu = "allowed:0"

[port.feed]
lcore = "main"
device = "nic"
transport = "rc"
peer = "port.reader"
tx_depth_wr = 64
traffic_class = 0

[port.reader]
lcore = "main"
device = "nic"
pool = "packets"
transport = "rc"
peer = "port.feed"
rx_depth_wr = 128
next = "stage.reader"

[stage.feed]
use = "feed"
lcore = "main"
pool = "packets"
out = { messages = "port.feed" }

[stage.reader]
use = "reader"
lcore = "main"
"#;

const MESSAGES: OutId = OutId(0);
const GAP_NS: Tick = 500_000;
const COUNT: u64 = 1_000;

#[derive(Default)]
struct Feed {
    sent: u64,
    due_ns: Tick,
}

impl Stage for Feed {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.sent == COUNT {
            return Next::Done;
        }
        let now_ns = out.fresh_ns();
        // A port without room would drop further packets: a feed that can wait asks first.
        if now_ns < self.due_ns || out.room(MESSAGES) == 0 {
            return Next::At(self.due_ns.max(now_ns + GAP_NS));
        }
        let Some(mut message) = out.alloc() else { return Next::Busy };
        if message.fill(&self.sent.to_le_bytes()) && out.send(MESSAGES, message) {
            self.sent += 1;
        }
        self.due_ns = now_ns + GAP_NS;
        Next::At(self.due_ns)
    }
}

struct Reader {
    next: u64,
    out_of_order: Counter,
}

impl Stage for Reader {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        for message in input.drain_front(input.len()) {
            if message.data() != self.next.to_le_bytes() {
                self.out_of_order.add(1);
            }
            self.next += 1;
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _log = verbline::cli::log_to_stderr();
    let mut registry = Registry::new("pause");
    let feed = StageSpec { outputs: &["messages"], source: true, summary: "sends", ..StageSpec::default() };
    registry.stage("feed", feed, |_| Ok(Box::new(Feed::default())));
    let reader = StageSpec { summary: "reads", ..StageSpec::default() };
    registry
        .stage("reader", reader, |stage| Ok(Box::new(Reader { next: 0, out_of_order: stage.counter("out_of_order") })));

    let load = |text: &str| Loader::new(registry.catalog(), Machine::detect()).load_str("pause.toml", text);
    let plan = load(PLAN)?;
    eprint!("{}", plan.warnings());
    let running = Runtime::build(&plan, &registry)?.start()?;
    let read = || running.snapshot().stage("reader").map_or(0, |reader| reader.packets_in);
    while read() < COUNT / 10 {
        std::thread::sleep(Duration::from_millis(1));
    }

    let paused = running.pause_port("feed").map_err(|why| format!("{why:?}"))?;
    let before = read();
    let changed = running.change_ports(&load(&PLAN.replace("traffic_class = 0", "traffic_class = 184"))?)?;
    assert!(matches!(changed[0].outcome, ChangeOutcome::Taken { .. }), "{changed:?}");
    std::thread::sleep(Duration::from_millis(50));
    assert!(matches!(paused.resume(), ChangeOutcome::Taken { .. }));
    running.wait(Some(Duration::from_secs(10)));
    let report = running.stop()?;

    let reader = report.stage("reader").ok_or("the plan has a reader")?;
    assert_eq!((reader.packets_in, reader.counter("out_of_order")), (COUNT, Some(0)));
    assert_eq!(report.packets.held, 0);
    println!("{before} messages read before the pause, {COUNT} at the end, in their order");
    Ok(())
}
