//! The integration tests of `nvme`: one program, one module per theme.

mod auth;
mod properties;
mod protection;
mod wire;
