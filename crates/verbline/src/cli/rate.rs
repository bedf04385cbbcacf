//! Limits warnings and errors of one place in the code to a few a second. The rest is counted, and
//! the count is written a second later. Without a limit, every lcore would write about a fault that
//! each command meets.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};
use std::time::Instant;

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::figures::count;
use super::said::{self, Out};
use super::visible::visible;

/// The most records of one place in the code in one second.
const PER_SECOND: u64 = 10;

static PLACES: LazyLock<Places> = LazyLock::new(|| Places { since: Instant::now(), all: RwLock::default() });

/// The places in the code that have warned.
struct Places {
    since: Instant,
    /// Read by every thread that warns, lcores too; written once for each place.
    all: RwLock<HashMap<Identifier, Arc<Place>>>,
}

/// A place in the code. Its numbers are relaxed: two threads that warn at the turn of a second may
/// write a record more or less.
struct Place {
    level: Level,
    /// The message of a record that was left out.
    words: Mutex<String>,
    /// The second of the last record.
    second: AtomicU64,
    said: AtomicU64,
    left_out: AtomicU64,
    /// The second of the first record left out and not reported yet.
    untold_since: AtomicU64,
}

/// The limit, as a layer of a subscriber.
pub(super) struct RateLimit;

impl<S: Subscriber> Layer<S> for RateLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        // Levels finer than a warning were requested by the user.
        *event.metadata().level() > Level::WARN || place_of(event).takes(event, PLACES.since.elapsed().as_secs())
    }
}

/// Lines about records left out in past seconds, one per place; with `all`, in this second, too.
pub(super) fn left_out(all: bool) -> Vec<Out> {
    let places = PLACES.all.read().unwrap_or_else(PoisonError::into_inner);
    let second = PLACES.since.elapsed().as_secs();
    let is_over = |place: &&Arc<Place>| all || place.untold_since.load(Ordering::Relaxed) < second;
    places.values().filter(is_over).filter_map(|place| place.tell()).collect()
}

fn place_of(event: &Event<'_>) -> Arc<Place> {
    let (id, level) = (event.metadata().callsite(), *event.metadata().level());
    if let Some(place) = PLACES.all.read().unwrap_or_else(PoisonError::into_inner).get(&id) {
        return Arc::clone(place);
    }
    let new = || Place {
        level,
        words: Mutex::default(),
        second: AtomicU64::new(0),
        said: AtomicU64::new(0),
        left_out: AtomicU64::new(0),
        untold_since: AtomicU64::new(0),
    };
    let mut all = PLACES.all.write().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(all.entry(id).or_insert_with(|| Arc::new(new())))
}

impl Place {
    /// Whether a record of this second may be written; if not, it is counted.
    fn takes(&self, event: &Event<'_>, second: u64) -> bool {
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.said.store(0, Ordering::Relaxed);
        }
        if self.said.fetch_add(1, Ordering::Relaxed) < PER_SECOND {
            return true;
        }
        if self.left_out.fetch_add(1, Ordering::Relaxed) == 0 {
            self.untold_since.store(second, Ordering::Relaxed);
            // Once a second. While the words are being written they stay: no thread waits here.
            if let Ok(mut words) = self.words.try_lock() {
                event.record(&mut Message(&mut words));
            }
        }
        false
    }

    /// A line about the records left out since the last one; `None` if there are none.
    fn tell(&self) -> Option<Out> {
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        if left_out == 0 {
            return None;
        }
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let words = format!("{} more were left out: {}\n", count(left_out), visible(&words, false));
        let line = if said::is_text() { format!("{} {:>5} {words}", said::now(), self.level) } else { words };
        Some(said::with_level(self.level, line))
    }
}

/// Keeps the words of a record, without its fields.
struct Message<'a>(&'a mut String);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            *self.0 = format!("{value:?}");
        }
    }
}
