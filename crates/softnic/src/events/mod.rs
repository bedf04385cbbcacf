//! Queues of events, and counts of acknowledged events.

pub(crate) mod acknowledged;
pub(crate) mod async_event;
pub(crate) mod event_queue;
