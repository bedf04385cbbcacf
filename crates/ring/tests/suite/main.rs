//! The integration tests of `ring`: one program, one module per theme.
#![cfg(not(loom))]

mod doorbell;
mod oracle;
mod stress;
