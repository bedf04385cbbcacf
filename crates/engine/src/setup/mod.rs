//! Sets a run up: makes everything that a plan names, on one thread: devices, pools, queue pairs,
//! stages, lcores.

pub(crate) mod assemble;
mod attributes;
pub(crate) mod devices;
pub(crate) mod lcore_parts;
pub(crate) mod many_ports;
pub(crate) mod memory;
mod operating;
pub(crate) mod queue_pairs;
mod reach;
pub(crate) mod regions;
pub(crate) mod rings;
pub(crate) mod select_device;
pub(crate) mod stages;
pub(crate) mod stats;
