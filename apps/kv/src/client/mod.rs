//! The load: a client with many connections, which knows the right answers.

mod in_flight;
mod oracle;
mod peers;
mod stage;
mod work;

pub(crate) use stage::register;
