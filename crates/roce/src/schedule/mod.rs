//! The order and the deadlines of queue pairs and connections.

mod deadlines;
mod turns;

pub(crate) use deadlines::{Deadlines, sooner};
pub(crate) use turns::Turns;
