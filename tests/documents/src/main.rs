//! Stands for every app, by the name under which it is called: the program that `./x` would build,
//! in a checkout to which the tests have added links to it.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use kv::KeyValue;
use nvme_load::NvmeLoad;
use nvme_target::NvmeTarget;
use pingpong::PingPong;
use tick_to_trade::TickToTrade;
use verbline::cli;

fn main() -> ExitCode {
    let called = std::env::args().next().unwrap_or_default();
    match Path::new(&called).file_name().and_then(|name| name.to_str()) {
        Some("kv") => cli::main(&KeyValue::default()),
        Some("nvme-load") => cli::main(&NvmeLoad::default()),
        Some("nvme-target") => cli::main(&NvmeTarget::default()),
        Some("pingpong") => cli::main(&PingPong::default()),
        Some("tick-to-trade") => cli::main(&TickToTrade::default()),
        _ => {
            eprintln!("any-app: call it by the name of an app, not {called}");
            ExitCode::from(2)
        }
    }
}
