//! The command: `pingpong run config/pingpong.toml`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use pingpong::PingPong;

fn main() -> ExitCode {
    verbline::cli::main(&PingPong::default())
}
