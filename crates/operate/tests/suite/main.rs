//! The integration tests of `operate`: one program, a module a theme.

mod answers;
mod capture;
mod common;
mod hostile;
mod kept;
mod trace;
