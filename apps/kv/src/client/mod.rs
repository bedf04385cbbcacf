//! The load: a client with many connections, which knows what the server must answer.

mod in_flight;
mod oracle;
mod peers;
mod stage;
mod work;

pub(crate) use stage::register;
