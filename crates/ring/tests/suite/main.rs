//! The integration tests of `ring`: one program, a module a theme.
#![cfg(not(loom))]

mod doorbell;
mod oracle;
mod stress;
