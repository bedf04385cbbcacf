//! Metrics: a snapshot in the formats that Prometheus reads, and what a plan says about them.

pub(crate) mod exposition;
pub(crate) mod families;
pub mod settings;
#[cfg(test)]
mod tests;
