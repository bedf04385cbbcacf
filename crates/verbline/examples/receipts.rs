//! Sends with options, and a receipt for the important ones.
//!
//! A desk sends a hundred orders over an RC pair of the software RNIC. Each carries its kind as
//! immediate data. Every tenth is a large one, and the desk wants to know that the peer has it: it
//! asks for the packet back (`SendWith::returned`), and finds in it how its send ended. The other
//! orders cost nothing extra but their immediate data.

use std::time::Duration;

use verbline::engine::{Counter, OutputSends, SendOption, SendWith, immediate, send_result};
use verbline::prelude::*;

const PLAN: &str = r#"
name = "receipts"

[device.nic]
provider = "soft"
name = "soft0"

[pool.packets]
device = "nic"
packets = 1024
data_bytes = 256

[lcore.main]
cpu = "allowed:0"

[port.orders]
lcore = "main"
device = "nic"
transport = "rc"
peer = "port.exchange"
tx_depth_wr = 64
send_options = true         # packets are sent as stages ask
sent = "stage.desk"         # where those go that ask to come back

[port.exchange]
lcore = "main"
device = "nic"
pool = "packets"
transport = "rc"
peer = "port.orders"
rx_depth_wr = 128
immediates = true           # packets carry the immediate data that came with them
next = "stage.book"

[stage.desk]
use = "desk"
lcore = "main"
pool = "packets"
out = { orders = "port.orders" }

[stage.book]
use = "book"
lcore = "main"
"#;

const ORDERS: OutId = OutId(0);
/// `check` compares the plan with this: the port must read the options of packets.
const SENDS: &[OutputSends] =
    &[OutputSends { output: "orders", options: &[SendOption::Immediate, SendOption::Returned] }];
const SMALL: u32 = 1;
const LARGE: u32 = 2;

struct Desk {
    sent: u64,
    receipts: Counter,
}

impl Stage for Desk {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.sent == 100 {
            // Wait for every receipt.
            return if self.receipts.value() == 10 { Next::Done } else { Next::Idle };
        }
        let Some(mut order) = out.alloc() else { return Next::Busy };
        if !order.fill(&self.sent.to_le_bytes()) {
            return Next::Done;
        }
        let options = match self.sent % 10 {
            0 => SendWith::new().imm(LARGE).returned(),
            _ => SendWith::new().imm(SMALL),
        };
        out.send_with(ORDERS, order, options);
        self.sent += 1;
        Next::Busy
    }

    /// Only receipts arrive here.
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        for order in input.drain_front(input.len()) {
            match send_result(&order) {
                Some(Ok(())) => self.receipts.add(1),
                failed => eprintln!("an order may not have arrived: {failed:?}"),
            }
        }
    }
}

struct Book {
    large: Counter,
}

impl Stage for Book {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        self.large.add(input.iter().filter(|order| immediate(order) == Some(LARGE)).count() as u64);
        input.clear();
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _log = verbline::cli::log_to_stderr();
    let mut registry = Registry::new("receipts");
    let desk =
        StageSpec { outputs: &["orders"], source: true, sends: SENDS, summary: "orders", ..StageSpec::default() };
    registry.stage("desk", desk, |stage| Ok(Box::new(Desk { sent: 0, receipts: stage.counter("receipts") })));
    let book = StageSpec { summary: "reads the kinds", ..StageSpec::default() };
    registry.stage("book", book, |stage| Ok(Box::new(Book { large: stage.counter("large") })));

    let plan = Loader::new(registry.catalog(), Machine::detect()).load_str("receipts.toml", PLAN)?;
    eprint!("{}", plan.warnings());
    let running = Runtime::build(&plan, &registry)?.start()?;
    running.wait(Some(Duration::from_secs(5)));
    let report = running.stop()?;
    assert_eq!(report.stage("book").and_then(|book| book.counter("large")), Some(10));
    assert_eq!(report.stage("desk").and_then(|desk| desk.counter("receipts")), Some(10));
    assert_eq!(report.packets.held, 0);
    println!("100 orders sent, 10 receipts");
    Ok(())
}
