//! The command: `cargo run -- run plan.toml`; `--help` has the rest.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use verbline::prelude::*;

struct Command;

impl App for Command {
    fn name(&self) -> &'static str {
        "pulse"
    }

    fn about(&self) -> &'static str {
        "Sends to a multicast group, and hears itself"
    }

    fn register(&self, registry: &mut Registry) {
        pulse::register(registry);
    }
}

fn main() -> ExitCode {
    verbline::cli::main(&Command)
}
