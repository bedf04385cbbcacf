//! The integration tests of `kv`: one program, a module a theme.

mod command;
mod prometheus;
mod two_processes;
