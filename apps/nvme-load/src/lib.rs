//! An NVMe over Fabrics initiator on Verbline: it connects to a target by RDMA as the Linux host
//! does, drives reads and writes by depth, size and mix, and verifies every block that it reads.
//!
//! `tests/plans/nvme-load.toml` is an initiator alone; `config/nvme-target.toml` has a target
//! beside it.
#![forbid(unsafe_code)]

mod auth;
mod blocks;
mod handshake;
mod handshake_state;
mod io;
mod oracle;
mod pattern;
mod queue;
mod requests;
mod results;
mod secret;
mod settings;
mod stage;
mod standing;

use verbline::cli::so_far;
use verbline::prelude::*;

use results::Results;

pub use secret::{ReadSecretError, read_secret};

/// The app: the initiator's stage, and its report.
#[derive(Debug, Default)]
pub struct NvmeLoad {
    results: Results,
}

impl App for NvmeLoad {
    fn name(&self) -> &'static str {
        "nvme-load"
    }

    fn about(&self) -> &'static str {
        "an NVMe over Fabrics initiator on RDMA that drives load and verifies every block"
    }

    fn register(&self, registry: &mut Registry) {
        stage::register(registry, &self.results);
        requests::register(registry);
    }

    fn live(&self, report: &Report) -> String {
        so_far(report, "answered", "commands")
    }

    fn outcome(&self, _: &Report) -> Outcome {
        results::outcome(&self.results)
    }
}
