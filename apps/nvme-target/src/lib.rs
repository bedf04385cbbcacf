//! An NVMe over Fabrics target on Verbline: hosts connect by RDMA, find a discovery controller and
//! a subsystem, and read and write its namespaces.
//!
//! Data goes between the store and the wire without a copy: a read is an RDMA WRITE and the SEND of
//! the response, posted as one list; a write is an RDMA READ, or comes in the capsule. Nothing is
//! allocated once the run has started. `docs/nvme-target.md` lists commands, statuses and keys, and
//! describes the treatment of hosts that are silent or gone.
//!
//! `config/nvme-target.toml` is a target and an initiator that verifies, in one process, on the
//! software RNIC.
#![forbid(unsafe_code)]

mod acceptor;
mod admin;
mod admission;
mod answering;
mod authenticate;
mod commands;
mod connections;
mod controller;
mod describe;
mod discards;
mod exchange;
mod fabrics;
mod fair_share;
mod fetching;
mod io;
mod keep_alive;
mod keep_alive_clock;
mod layout;
mod lcore_namespace;
mod logs;
mod namespace_attach;
mod namespace_changes;
mod namespace_settings;
mod namespace_table;
mod pieces;
mod pipelined;
mod port;
mod queue;
mod settings;
mod shared;
mod shutdown;
mod stage;
mod storing;
mod tag;
mod turns;
mod waiting;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvme_load::NvmeLoad;
use verbline::cli::served;
use verbline::prelude::*;
use verbline_store::Store;

use namespace_changes::Namespaces;
use shared::{OwnStores, Shared};

/// The app: the target's stage and acceptor, and those of the initiator.
#[derive(Debug, Default)]
pub struct NvmeTarget {
    load: NvmeLoad,
    stores: OwnStores,
    shared: Mutex<Arc<Shared>>,
    namespaces: Arc<Namespaces>,
}

impl NvmeTarget {
    /// Adds a store of the caller's own for the namespace of that number. The plan gives the
    /// namespace `null_bytes`, the size of the store. `make` is called once per lcore with a depth,
    /// and returns the lcore's store of that depth.
    #[must_use]
    pub fn with_store<S: Store + 'static>(
        mut self,
        nsid: u32,
        make: impl Fn(usize) -> S + Send + Sync + 'static,
    ) -> NvmeTarget {
        self.stores.add(nsid, make);
        self
    }

    fn shared(&self) -> MutexGuard<'_, Arc<Shared>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl App for NvmeTarget {
    fn name(&self) -> &'static str {
        "nvme-target"
    }

    fn about(&self) -> &'static str {
        "an NVMe over Fabrics target on RDMA, and an initiator that verifies"
    }

    fn register(&self, registry: &mut Registry) {
        let shared = Arc::new(Shared::new(self.stores.clone()));
        self.namespaces.reset();
        *self.shared() = Arc::clone(&shared);
        stage::register(registry, &shared, &self.namespaces);
        acceptor::register(registry, &shared);
        self.load.register(registry);
    }

    /// Brings the namespaces to the state of this plan; the rest of the plan is ignored.
    fn reload(&self, plan: &Plan) -> Result<String, String> {
        let section = plan.section(settings::SECTION).ok_or("the plan has no [nvme]")?;
        let settings = settings::Settings::read(section).map_err(|error| error.to_string())?;
        let shared = Arc::clone(&self.shared());
        self.namespaces.renew(&settings, &shared)
    }

    fn live(&self, report: &Report) -> String {
        match report.stages.iter().any(|stage| stage.counter("answered").is_some()) {
            true => self.load.live(report),
            false => served(report, "commands", "commands", "queues"),
        }
    }

    fn outcome(&self, report: &Report) -> Outcome {
        self.load.outcome(report)
    }
}
