//! The order and the deadlines of queue pairs and connections.

mod deadlines;

pub(crate) use deadlines::{Deadlines, Turns, sooner};
