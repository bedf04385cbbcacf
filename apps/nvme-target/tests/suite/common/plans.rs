//! Plans of a target.

use nvme_target::NvmeTarget;
use verbline::cli::App;
use verbline::engine::Registry;
use verbline::plan::{Loader, Machine, Plan};

use super::SUBSYSTEM;

/// A second port, on an lcore of its own, that shares the listener.
pub(crate) const SECOND: &str = r#"
        [lcore.second]
        cpu = "allowed:1"
        [pool.packets2]
        device = "nic0"
        packets = 4160
        data_bytes = 8192
        pages = "4KiB"
        [port.hosts2]
        lcore = "second"
        device = "nic0"
        pool = "packets2"
        transport = "rc"
        listen_with = "port.hosts"
        connections_max = 8
        rx_shared_wr = 256
        tx_depth_wr = 1
        ops_depth_wr = 64
        ops_shared_wr = 256
        next = "stage.target2"
        [stage.target2]
        use = "target"
        lcore = "second"
        pool = "packets2"
        timers_max = 32
        out = { host = "port.hosts2" }
"#;

/// Loads a plan. Returns it with the registrations of `app`.
#[track_caller]
pub(crate) fn load(app: &dyn App, text: &str) -> (Registry, Plan) {
    let mut registry = Registry::new(app.name());
    app.register(&mut registry);
    let plan = Loader::new(registry.catalog(), Machine::detect()).load_str("plan.toml", text);
    (registry, plan.unwrap_or_else(|faults| panic!("{faults}")))
}

/// A plan for a target to reload.
#[track_caller]
pub(crate) fn changed(text: &str) -> Plan {
    load(&NvmeTarget::default(), text).1
}

pub(crate) fn plan(port: u16, settings: &str) -> String {
    format!(
        r#"
        app = "nvme-target"
        [nvme]
        subsystem = "{SUBSYSTEM}"
        transfer_bytes_max = 8192
        {settings}
        [nvme.namespace.1]
        memory = "disk"
        [nvme.namespace.2]
        null_bytes = 1_048_576
        read_only = true
        [device.nic0]
        provider = "soft"
        [lcore.target]
        cpu = "allowed:0"
        [pool.packets]
        device = "nic0"
        packets = 4160
        data_bytes = 8192
        pages = "4KiB"
        [region.disk]
        device = "nic0"
        bytes = 1_048_576
        pages = "4KiB"
        rights = ["local-write"]
        [port.hosts]
        lcore = "target"
        device = "nic0"
        pool = "packets"
        transport = "rc"
        listen = "10.9.9.1:{port}"
        connections_max = 8
        acceptor = "nvme-queues"
        rx_shared_wr = 256
        tx_depth_wr = 1
        ops_depth_wr = 64
        ops_shared_wr = 256
        next = "stage.target"
        [stage.target]
        use = "target"
        lcore = "target"
        pool = "packets"
        regions = ["disk"]
        timers_max = 32
        out = {{ host = "port.hosts" }}
        "#
    )
}
