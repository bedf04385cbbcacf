//! The integration tests of `engine`: one program, a module a theme.

mod acceptors;
mod by_address;
mod common;
mod connections;
mod descriptors;
mod device_events;
mod errors;
mod fds;
mod hostile_peers;
mod hostile_requests;
mod injectors;
mod many_operations;
mod many_operations_declined;
mod many_peers;
mod operation_kinds;
mod operations;
mod operations_lost;
mod polling;
mod reconnect;
mod requests;
mod rings;
mod shared_listeners;
mod signatures;
mod stolen;
mod stopping;
mod timers;
