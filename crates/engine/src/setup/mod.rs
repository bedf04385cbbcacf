//! Sets a run up: makes everything that a plan names, on one thread: devices, pools, queue pairs,
//! stages, lcores.

pub(crate) mod assemble;
mod attributes;
pub(crate) mod changes;
mod datagrams;
pub(crate) mod devices;
pub(crate) mod lcore_parts;
pub(crate) mod memory;
pub(crate) mod multi_ports;
mod operations;
pub(crate) mod queue_pairs;
mod reach;
pub(crate) mod regions;
pub(crate) mod rings;
pub(crate) mod select_device;
mod sinks;
pub(crate) mod stages;
pub(crate) mod stats;
