//! What a port that makes many connections tells the listener of each, by the app and not the plan.

mod common;

use common::desk;
use common::porter::{self, Seen};
use common::{assert_clean, plan, until};
use verbline_engine::{RequestData, Runtime};

const CALLER: &str = r#"
[device.nic1]
provider = "soft"
name = "soft1"
[pool.c]
device = "nic1"
packets = 2048
data_bytes = 128
pages = "4KiB"
[lcore.other]
cpu = "allowed:1"
[port.caller]
lcore = "other"
device = "nic1"
pool = "c"
transport = "rc"
connect = "10.9.9.1:7380"
connections = 4
rx_shared_wr = 64
tx_depth_wr = 16
next = "drop"
"#;

#[test]
fn two_lcores_make_connections_that_each_say_something_else() {
    if common::lacks_cpus(2) {
        return;
    }
    let (mut registry, seen) = (desk::desk(), Seen::default());
    porter::register(&mut registry, &seen);
    registry.requests(|plan, port| {
        assert_eq!((plan.ports().len(), port.name.as_str()), (2, "caller"), "only ports that connect are asked for");
        let data: RequestData = Box::new(|place| format!("queue {place}").into_bytes());
        Some(data)
    });
    let keys = "acceptor = \"porter\"\nacceptor_params = { at_most = 8 }\nconnections_max = 8";
    let text = desk::server(7380, &format!("{keys}\nrx_shared_wr = 256\ntx_depth_wr = 16\n")) + CALLER;
    let running = Runtime::build(&plan(&registry, &text), &registry).unwrap().start().unwrap();
    until(&running, |report| report.port("caller").unwrap().connections.as_ref().unwrap().open == 4);
    assert_clean(&running.stop().unwrap());
    let mut said: Vec<_> = seen.lock().unwrap().iter().map(|(data, ..)| data.clone()).collect();
    said.sort();
    assert_eq!(said, [0, 1, 2, 3].map(|place| format!("queue {place}").into_bytes()));
}
