//! The command: `kv run config/kv.toml`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use kv::KeyValue;

fn main() -> ExitCode {
    verbline::cli::main(&KeyValue::default())
}
