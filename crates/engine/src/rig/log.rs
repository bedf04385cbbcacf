//! Looks at what a piece of code logs, at the moment when it does.

use std::sync::{Arc, Mutex};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::errors::guarded::lock;

/// Calls the closure with the level of each event.
struct Log<F>(F);

impl<F: Fn(Level) + Send + Sync + 'static> Subscriber for Log<F> {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        (self.0)(*event.metadata().level());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Returns what `look` makes of the level of each event that `what` logs on this thread.
pub(crate) fn at_each_log<T: Send + 'static>(
    look: impl Fn(Level) -> T + Send + Sync + 'static,
    what: impl FnOnce(),
) -> Vec<T> {
    let seen = Arc::<Mutex<Vec<T>>>::default();
    let notes = Arc::clone(&seen);
    let log = Log(move |level| {
        let found = look(level);
        lock(&notes).push(found);
    });
    tracing::subscriber::with_default(log, || {
        // Another thread that logs for the first time, as this subscriber is made, may have noted
        // that nobody wants what it logs.
        tracing::callsite::rebuild_interest_cache();
        what();
    });
    std::mem::take(&mut *lock(&seen))
}

/// Returns how many errors `what` logs, on this thread.
pub(crate) fn errors_of(what: impl FnOnce()) -> usize {
    at_each_log(|level| level == Level::ERROR, what).into_iter().filter(|is_error| *is_error).count()
}
