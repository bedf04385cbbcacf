//! Who is next, and when: of queue pairs, and of connections.

mod deadlines;
mod turns;

pub(crate) use deadlines::{Deadlines, sooner};
pub(crate) use turns::Turns;
