//! The integration tests of `nvme-target`: one program, a module a theme.

mod admission;
mod authentication;
mod command;
mod common;
mod corruption;
mod crash;
mod discovery;
mod fields;
mod files;
mod hostile;
mod interruptions;
mod live;
mod many_namespaces;
mod names;
mod namespaces;
mod one_lcore;
mod parked;
mod pauses;
mod pieces;
mod pipelined;
mod places;
mod protection;
mod service;
mod several;
mod slow_readers;
mod strangers;
