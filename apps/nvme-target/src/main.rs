//! The command: `nvme-target run config/nvme-target.toml`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use nvme_target::NvmeTarget;

fn main() -> ExitCode {
    verbline::cli::main(&NvmeTarget::default())
}
