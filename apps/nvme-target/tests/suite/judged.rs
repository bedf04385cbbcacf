//! The load as a judge: what it makes of a target that is wrong.

use nvme_load::NvmeLoad;
use serde_json::{Map, Value};
use verbline::cli::App;
use verbline_tests::two_lcores;

use crate::common::liar::{Asked, BLOCK, Lies, Serving};
use crate::interruptions::{goes_on, halves, start};
use verbline_nvme::opcode;

/// It sends all of the block.
const HONEST: Lies = Lies { sends: |_| 0..BLOCK, refuses: &[] };

/// What a load says of a target, after as many commands of one queue, one at a time; and what the
/// target was asked.
fn judged(port: u16, lies: Lies, commands: u64) -> Option<(Map<String, Value>, Asked)> {
    two_lcores(["load", "load"])?;
    let serving = Serving::begin(port, lies);
    let (_, text) = halves(port, "", "discover = false\n");
    let [depth, share, flush, queues] =
        ["depth = 1\n", "read_share = 0.9\n", "flush_every = 4\n", "connections = 1\nrx_shared_wr = 256"];
    let text = text.replace("depth = 32\n", depth).replace("read_share = 0.7\n", share);
    let text = text.replace("flush_every = 64\n", flush).replace("connections = 4\nrx_shared_wr = 256", queues);
    let load = NvmeLoad::default();
    let running = start(&load, &text);
    goes_on(&running, commands);
    let report = running.stop().unwrap_or_else(|error| panic!("{error}"));
    Some((load.outcome(&report).json, serving.end()))
}

/// A good status and no data, or a part of it, where the memory of the command still holds the
/// block as it was read before.
#[test]
fn two_lcores_data_that_never_came_is_not_verified() {
    let Some((json, _)) = judged(7960, HONEST, 60) else { return };
    assert!(json["verified"].as_u64() > Some(0) && json["mismatches"] == 0, "{json:?}");
    let lies: [fn(u32) -> _; 3] = [
        |read| if read == 1 { 0..BLOCK } else { 0..0 },
        |read| if read == 1 { 0..BLOCK } else { 0..BLOCK - 512 },
        |read| if read == 1 { 0..BLOCK } else { 512..BLOCK },
    ];
    for (port, sends) in (7961..).zip(lies) {
        let Some((json, _)) = judged(port, Lies { sends, ..HONEST }, 60) else { return };
        assert!(json["mismatches"].as_u64() > Some(20), "at {port}: {json:?}");
    }
}

/// A request for events that is refused is not sent again, nor is it an event; a Flush that failed
/// is none that was answered well.
#[test]
fn two_lcores_what_is_refused_is_neither_repeated_nor_counted_as_done() {
    let refuses = &[opcode::admin::ASYNC_EVENT_REQUEST, opcode::io::FLUSH];
    let Some((json, asked)) = judged(7965, Lies { refuses, ..HONEST }, 100) else { return };
    let counts = &json["counts"];
    assert_eq!((asked.event_requests, &counts["events"], &counts["flushed"]), (1, &0.into(), &0.into()), "{json:?}");
    assert!(counts["failed"].as_u64() > Some(0), "{json:?}");
}
