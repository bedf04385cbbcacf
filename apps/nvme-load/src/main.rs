//! The command: `nvme-load run PLAN`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use nvme_load::NvmeLoad;

fn main() -> ExitCode {
    verbline::cli::main(&NvmeLoad::default())
}
