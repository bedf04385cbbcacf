//! Completion channels and asynchronous events: how a program that sleeps learns of something.

pub(crate) mod acknowledged;
pub(crate) mod async_event;
pub(crate) mod channel;
pub(crate) mod event_queue;
