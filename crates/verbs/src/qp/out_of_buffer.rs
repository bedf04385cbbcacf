//! Messages that found no receive posted, as counted by the device.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::QueuePair;
use crate::device::context::Context;
use crate::device::provider::Provider;

/// Counts the messages that found no receive posted. On UD and UC these are lost; on RC their
/// sender waits. It may outlive its QP, and any thread may read it.
///
/// The software RNIC counts per QP. A card counts per port, for all its QPs together
/// (`out_of_buffer` of `/sys/class/infiniband/*/ports/*/hw_counters`); some cards do not count.
#[derive(Clone, Debug)]
pub struct OutOfBuffer(Counted);

#[derive(Clone, Debug)]
enum Counted {
    Nowhere,
    Soft(Arc<AtomicU64>),
    /// The counter's file, and its first value.
    Card(Arc<PathBuf>, u64),
}

impl OutOfBuffer {
    /// The count since the QP was created; on a card, since this `OutOfBuffer` was. `None` if the
    /// device does not count.
    pub fn value(&self) -> Option<u64> {
        match &self.0 {
            Counted::Nowhere => None,
            // Relaxed: a figure, which orders nothing.
            Counted::Soft(counter) => Some(counter.load(Ordering::Relaxed)),
            Counted::Card(path, before) => Some(read(path)?.saturating_sub(*before)),
        }
    }

    /// The counter of a port of a kernel device; its driver may not have one.
    fn of_card(device: &str, port: u8) -> OutOfBuffer {
        let path = format!("/sys/class/infiniband/{device}/ports/{port}/hw_counters/out_of_buffer").into();
        OutOfBuffer(read(&path).map_or(Counted::Nowhere, |before| Counted::Card(Arc::new(path), before)))
    }

    pub(super) fn new(context: &Context, port: u8, soft: &Arc<AtomicU64>) -> OutOfBuffer {
        match context.provider() {
            Provider::Soft => OutOfBuffer(Counted::Soft(soft.clone())),
            Provider::Kernel => OutOfBuffer::of_card(context.name(), port),
        }
    }
}

fn read(path: &PathBuf) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

impl QueuePair {
    /// The counter of messages to this QP that found no receive posted. Known from INIT on.
    pub fn out_of_buffer(&self) -> OutOfBuffer {
        let context = Context { inner: self.keep().pd.context.clone() };
        OutOfBuffer::new(&context, self.local.port, &self.keep().out_of_buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_the_counter_counts_nothing() {
        assert_eq!(OutOfBuffer::of_card("none", 1).value(), None);
    }

    #[test]
    fn a_cards_counter_starts_where_it_is() {
        let file = std::env::temp_dir().join(format!("verbline-out-of-buffer-{}", std::process::id()));
        let write = |text: &str| std::fs::write(&file, text).expect("a file of this test's");
        write("41\n");
        let counter = OutOfBuffer(Counted::Card(Arc::new(file.clone()), read(&file).expect("a number")));
        assert_eq!(counter.value(), Some(0));
        write("45\n");
        assert_eq!(counter.value(), Some(4));
        std::fs::remove_file(&file).expect("it is there");
        assert_eq!(counter.value(), None);
    }
}
