//! The integration tests of `kv`: one program, one module per theme.

mod command;
mod live;
mod prometheus;
mod two_processes;
