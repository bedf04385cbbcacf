//! The command: `tick-to-trade run config/tick-to-trade.toml`.
//!
//! That plan generates NASDAQ TotalView-ITCH; `config/moex-replay.toml` plays a recorded FAST feed.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use tick_to_trade::TickToTrade;

fn main() -> ExitCode {
    verbline::cli::main(&TickToTrade::default())
}
