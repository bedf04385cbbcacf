//! Counts the errors that a piece of code logs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Counts errors.
struct Errors(Arc<AtomicUsize>);

impl Subscriber for Errors {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        // Relaxed: a count that this thread alone changes and reads.
        self.0.fetch_add(usize::from(*event.metadata().level() == Level::ERROR), Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Returns how many errors `what` logs, on this thread.
pub(crate) fn errors_of(what: impl FnOnce()) -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    tracing::subscriber::with_default(Errors(Arc::clone(&count)), || {
        // Another thread that logs for the first time, as this subscriber is made, may have noted
        // that nobody wants what it logs.
        tracing::callsite::rebuild_interest_cache();
        what();
    });
    // Relaxed: as above.
    count.load(Ordering::Relaxed)
}
