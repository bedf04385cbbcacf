//! The integration tests of `nvme`: one program, a module a theme.

mod auth;
mod properties;
mod protection;
mod wire;
