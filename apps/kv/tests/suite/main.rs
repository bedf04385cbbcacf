//! The integration tests of `kv`: one program, a module a theme.

mod command;
mod two_processes;
