//! Queues of events, and how many of them a program has acknowledged.

pub(crate) mod acknowledged;
pub(crate) mod async_event;
pub(crate) mod event_queue;
