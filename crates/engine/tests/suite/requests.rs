//! The private data of each request of a port that makes many connections, set by the app and not
//! by the plan.

use crate::common::desk;
use crate::common::porter::{self, Seen};
use crate::common::{assert_clean, plan, until};
use verbline_engine::{RequestData, Runtime};

#[test]
fn two_lcores_make_connections_that_each_say_something_else() {
    if crate::common::lacks_cpus(2) {
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
    let text = desk::server(7380, &format!("{keys}\nrx_shared_wr = 256\ntx_depth_wr = 16\n"));
    let text = text + &desk::caller(7380, "connections = 4\nnext = \"drop\"\n");
    let running = Runtime::build(&plan(&registry, &text), &registry).unwrap().start().unwrap();
    until(&running, |report| report.port("caller").unwrap().connections.as_ref().unwrap().open == 4);
    assert_clean(&running.stop().unwrap());
    let mut said: Vec<_> = seen.lock().unwrap().iter().map(|(data, ..)| data.clone()).collect();
    said.sort();
    assert_eq!(said, [0, 1, 2, 3].map(|place| format!("queue {place}").into_bytes()));
}
