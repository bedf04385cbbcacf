//! The integration tests of `tick-to-trade`: one program, one module per theme.

mod arbitration;
mod command;
mod common;
mod fast_decoder;
mod follower;
mod forts_books;
mod hostile_datagram;
mod hostile_table;
mod itch_book;
mod itch_statuses;
mod moex;
mod page;
mod recovery;
mod two_processes;
