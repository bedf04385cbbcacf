//! The integration tests of `roce`: one program, a module a theme.

mod wire;
mod wire_properties;
mod wire_tshark;
