//! The stages of an lcore that hear of its ports' events: those that a port leads to and those that
//! lead to it, at any distance, and those that asked for it. No other stage hears of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::common::peers::Peers;
use crate::common::{OUT, device, plan, provider, registry, until};
use verbline_engine::{ConnectionEvent, Outputs, Registry, Runtime, Stage, StageSpec};
use verbline_mem::Batch;
use verbline_verbs::Provider;

/// The number of events by stage and port.
type Told = Arc<Mutex<BTreeMap<(String, u16), u64>>>;

/// Sends its packets on, and records its events.
struct Notes {
    name: String,
    told: Told,
}

impl Stage for Notes {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        out.send_batch(OUT, input);
    }

    fn connection_event(&mut self, event: ConnectionEvent, _: &mut Outputs<'_>) {
        *self.told.lock().unwrap().entry((self.name.clone(), event.port)).or_default() += 1;
    }
}

fn app() -> (Registry, Told) {
    let (mut registry, told) = (registry(), Told::default());
    for (kind, asks) in [("notes", None), ("asks", Some("second"))] {
        let told = Arc::clone(&told);
        let spec = StageSpec { outputs: &["out"], summary: "notes what it is told", ..StageSpec::default() };
        registry.stage(kind, spec, move |context| {
            asks.map(|port| context.port(port).unwrap());
            Ok(Box::new(Notes { name: context.name().to_owned(), told: Arc::clone(&told) }))
        });
    }
    (registry, told)
}

/// Two servers on one lcore, the second with three stages; a stage that feeds it; and two stages
/// apart from both, one of which asks for their events.
fn text([first, second]: [u16; 2]) -> String {
    let provider = if provider() == Provider::Soft { "soft" } else { "kernel" };
    let mut text = format!(
        "[lcore.only]\ncpu = \"allowed:0\"\nidle = \"event\"\n\
         [device.nic0]\nprovider = \"{provider}\"\nname = \"{}\"\n\
         [pool.p]\ndevice = \"nic0\"\npackets = 4096\ndata_bytes = 4096\npages = \"4KiB\"\n\
         [spread.both]\nto = [\"stage.last\", \"stage.other\"]\nby = \"round-robin\"\n",
        device(0)
    );
    for (name, port, next) in [("first", first, "alone"), ("second", second, "front")] {
        text += &format!(
            "[port.{name}]\nlcore = \"only\"\ndevice = \"nic0\"\npool = \"p\"\ntransport = \"rc\"\n\
             listen = \"10.9.9.1:{port}\"\nconnections_max = 8\nrx_shared_wr = 256\ntx_depth_wr = 16\n\
             next = \"stage.{next}\"\n"
        );
    }
    for (name, kind, out) in [
        ("alone", "notes", "port.first"),
        ("front", "notes", "spread.both"),
        ("last", "notes", "port.second"),
        ("other", "notes", "drop"),
        ("apart", "notes", "drop"),
        ("asker", "asks", "drop"),
    ] {
        text += &format!("[stage.{name}]\nuse = \"{kind}\"\nlcore = \"only\"\nout = {{ out = \"{out}\" }}\n");
    }
    for (name, to) in [("feeds_apart", "apart"), ("feeds_asker", "asker"), ("feeds_last", "last")] {
        text += &format!(
            "[stage.{name}]\nuse = \"generator\"\nlcore = \"only\"\npool = \"p\"\n\
             out = {{ out = \"stage.{to}\" }}\nparams = {{ count = 1 }}\n"
        );
    }
    text
}

// Regression: two servers of one lcore took each other's connections, which have the same slots,
// for their own: the first host of one was never answered again.
#[test]
fn a_stage_is_told_of_the_ports_around_it_and_of_those_that_it_asks_for() {
    let (registry, told) = app();
    let ports = [7393, 7394];
    let plan = plan(&registry, &text(ports));
    let running = Runtime::build(&plan, &registry).unwrap().start().unwrap();
    let mut peers = ports.map(Peers::new);
    for peers in &mut peers {
        peers.ask().unwrap();
    }
    let opened =
        |report: &verbline_engine::Report, name: &str| report.port(name).unwrap().connections.as_ref().unwrap().opened;
    until(&running, |report| ["first", "second"].iter().all(|name| opened(report, name) == 1));
    let told: Vec<(String, u16)> = {
        let wanted = 5;
        let deadline = std::time::Instant::now() + crate::common::PATIENCE;
        while told.lock().unwrap().values().sum::<u64>() < wanted && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        let _ = running.stop().unwrap();
        let told = told.lock().unwrap();
        assert!(told.values().all(|times| *times == 1), "{told:?}");
        told.keys().cloned().collect()
    };
    let of = |name: &str, port| (name.to_owned(), port);
    let wanted = [of("alone", 0), of("asker", 1), of("front", 1), of("last", 1), of("other", 1)];
    assert_eq!(told, wanted);
}
