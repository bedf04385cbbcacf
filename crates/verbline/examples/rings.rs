//! Three rings between two lcores, each with another policy when it is full, and one with priority.
//!
//! A feed sends quotes to a screen, which wants the newest (its ring displaces older ones), and a
//! copy of each to an archive, which wants all of them (its ring holds the feed up). Orders among
//! them go to a desk by a ring of their own, which the desk empties before that of its notices.

use std::time::Duration;

use verbline::engine::Counter;
use verbline::prelude::*;

const PLAN: &str = r#"
name = "rings"

[device.nic]
provider = "soft"
name = "soft0"

[pool.packets]
device = "nic"
packets = 4096
data_bytes = 64

[lcore.feed]
cpu = "allowed:0"

[lcore.office]
cpu = "allowed:1"

[stage.feed]
use = "feed"
lcore = "feed"
pool = "packets"            # also of the copies
out = { quotes = "spread.quotes", orders = "ring.orders", notices = "ring.notices" }

[spread.quotes]
by = "copy"
to = ["ring.screen", "ring.archive"]

[ring.screen]
to = "stage.screen"
depth = 8
full = "displace"           # the newest eight

[ring.archive]
to = "stage.archive"
depth = 64
full = "hold"               # the feed waits

[ring.orders]
to = "stage.desk"
depth = 64
full = "hold"
priority = 1                # before ring.notices

[ring.notices]
to = "stage.desk"
depth = 64
full = "hold"

[stage.screen]
use = "newest"
lcore = "office"

[stage.archive]
use = "all"
lcore = "office"

[stage.desk]
use = "desk"
lcore = "office"
"#;

const QUOTES: OutId = OutId(0);
const ORDERS: OutId = OutId(1);
const NOTICES: OutId = OutId(2);
/// The packet's mark for the desk: an order.
const ORDER: u64 = 1;
const COUNT: u64 = 3200;
/// More packets at once than the screen's ring holds.
const BURST: u64 = 32;

#[derive(Default)]
struct Feed {
    sent: u64,
}

impl Feed {
    fn send(&self, to: OutId, mark: u64, out: &mut Outputs<'_>) -> bool {
        let Some(mut packet) = out.alloc() else { return false };
        packet.set_mark(mark);
        packet.fill(&self.sent.to_le_bytes()) && out.send(to, packet)
    }
}

impl Stage for Feed {
    /// Not called while an archive or a desk has no room.
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        for _ in 0..BURST {
            self.sent += 1;
            let is_sent = self.send(QUOTES, 0, out)
                && (!self.sent.is_multiple_of(10) || self.send(ORDERS, ORDER, out))
                && (self.sent % 10 != 5 || self.send(NOTICES, 0, out));
            assert!(is_sent, "the plan has a packet for every place, and nothing is dropped on the way");
        }
        if self.sent < COUNT { Next::Busy } else { Next::Done }
    }
}

/// Checks that no quote arrives behind a newer one.
struct Reader {
    newest: Counter,
}

impl Stage for Reader {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        for quote in input.drain_front(input.len()) {
            let number = quote.data().try_into().map(u64::from_le_bytes).unwrap_or(0);
            assert!(number > self.newest.value(), "quote {number} behind {}", self.newest.value());
            self.newest.set(number);
        }
    }
}

struct Desk {
    orders: Counter,
}

impl Stage for Desk {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        self.orders.add(input.iter().filter(|packet| packet.mark() == ORDER).count() as u64);
        input.clear();
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _log = verbline::cli::log_to_stderr();
    let mut registry = Registry::new("rings");
    let feed = StageSpec {
        outputs: &["quotes", "orders", "notices"],
        source: true,
        summary: "sends quotes, orders and notices",
        ..StageSpec::default()
    };
    registry.stage("feed", feed, |_| Ok(Box::new(Feed::default())));
    for kind in ["newest", "all"] {
        let reader = StageSpec { summary: "reads quotes", ..StageSpec::default() };
        registry.stage(kind, reader, |stage| Ok(Box::new(Reader { newest: stage.counter("newest") })));
    }
    let desk = StageSpec { summary: "takes orders", ..StageSpec::default() };
    registry.stage("desk", desk, |stage| Ok(Box::new(Desk { orders: stage.counter("orders") })));

    let plan = Loader::new(registry.catalog(), Machine::detect()).load_str("rings.toml", PLAN)?;
    eprint!("{}", plan.warnings());
    let running = Runtime::build(&plan, &registry)?.start()?;
    running.wait(Some(Duration::from_secs(10)));
    let report = running.stop()?;
    let took = |stage: &str| report.stage(stage).map_or(0, |stage| stage.packets_in);
    let displaced: u64 = report.drops.iter().map(|drop| drop.packets).sum();
    assert_eq!((took("archive"), took("screen") + displaced), (COUNT, COUNT));
    assert_eq!(took("desk"), COUNT / 5);
    for reader in ["archive", "screen"] {
        assert_eq!(report.stage(reader).and_then(|stage| stage.counter("newest")), Some(COUNT), "{reader}");
    }
    assert_eq!(report.stage("desk").and_then(|desk| desk.counter("orders")), Some(COUNT / 10));
    assert_eq!((report.packets.held, report.failures.len()), (0, 0));
    println!("{COUNT} quotes archived, {displaced} of them displaced before the screen saw them");
    Ok(())
}
