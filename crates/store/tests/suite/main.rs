//! The integration tests of `store`: one program, one module per theme.

mod claims;
mod common;
mod crash;
mod file;
mod file_faults;
mod memory;
mod new_files;
mod no_io_uring;
