//! A stream that does not wake its reader, with requests in it that do.
//!
//! A sensor sends a record each millisecond; every fiftieth is a request, whose send asks for a
//! solicited event (`SendWith::solicited`). The reading lcore sleeps through the records, since its
//! plan says `unsolicited_wait`, and reads them together with the next request. Without that key
//! each record wakes it.

use std::time::Duration;

use verbline::engine::{OutputSends, SendOption, SendWith};
use verbline::prelude::*;

const PLAN: &str = r#"
name = "solicited"

[device.nic]
provider = "soft"
name = "soft0"

[pool.packets]
device = "nic"
packets = 2048
data_bytes = 256

[lcore.sensor]
cpu = "allowed:0"
idle = "event"

[lcore.reader]
cpu = "allowed:1"
idle = "event"
unsolicited_wait = "500ms"  # records wait for the next request, and so long at most

[port.records]
lcore = "sensor"
device = "nic"
transport = "rc"
peer = "port.reader"
tx_depth_wr = 64
send_options = true         # packets are sent as stages ask

[port.reader]
lcore = "reader"
device = "nic"
pool = "packets"
transport = "rc"
peer = "port.records"
rx_depth_wr = 512           # what comes in that time must find room
next = "stage.reader"

[stage.sensor]
use = "sensor"
lcore = "sensor"
pool = "packets"
out = { records = "port.records" }

[stage.reader]
use = "reader"
lcore = "reader"
"#;

const RECORDS: OutId = OutId(0);
/// `check` compares the plan with this: the port must read the options of packets.
const SENDS: &[OutputSends] = &[OutputSends { output: "records", options: &[SendOption::Solicited] }];
const GAP_NS: Tick = 1_000_000;
const COUNT: u64 = 500;
const REQUEST_EACH: u64 = 50;

#[derive(Default)]
struct Sensor {
    sent: u64,
    due_ns: Tick,
}

impl Stage for Sensor {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.sent == COUNT {
            return Next::Done;
        }
        let now_ns = out.fresh_ns();
        if now_ns < self.due_ns {
            return Next::At(self.due_ns);
        }
        let Some(mut record) = out.alloc() else { return Next::Busy };
        self.sent += 1;
        let options = match self.sent % REQUEST_EACH {
            0 => SendWith::new().solicited(),
            _ => SendWith::new(),
        };
        if !record.fill(&self.sent.to_le_bytes()) || !out.send_with(RECORDS, record, options) {
            eprintln!("record {} was not sent", self.sent);
        }
        self.due_ns = now_ns + GAP_NS;
        Next::At(self.due_ns)
    }
}

struct Reader;

impl Stage for Reader {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        input.clear();
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _log = verbline::cli::log_to_stderr();
    let mut registry = Registry::new("solicited");
    let sensor =
        StageSpec { outputs: &["records"], source: true, sends: SENDS, summary: "records", ..StageSpec::default() };
    registry.stage("sensor", sensor, |_| Ok(Box::new(Sensor::default())));
    let reader = StageSpec { summary: "reads records", ..StageSpec::default() };
    registry.stage("reader", reader, |_| Ok(Box::new(Reader)));

    let plan = Loader::new(registry.catalog(), Machine::detect()).load_str("solicited.toml", PLAN)?;
    eprint!("{}", plan.warnings());
    let running = Runtime::build(&plan, &registry)?.start()?;
    running.wait(Some(Duration::from_secs(10)));
    let report = running.stop()?;
    assert_eq!(report.stage("reader").map(|reader| reader.packets_in), Some(COUNT));
    assert_eq!(report.packets.held, 0);
    let woken = report.lcore("reader").map_or(0, |lcore| lcore.woken_by("completion"));
    assert!(woken < COUNT / 10, "{woken} completions woke the reader");
    println!("{COUNT} records read, {} of them requests; {woken} completions woke the reader", COUNT / REQUEST_EACH);
    Ok(())
}
