//! The integration tests of `operate`: one program, a module per theme.

mod answers;
mod capture;
mod common;
mod hostile;
mod kept;
mod trace;
