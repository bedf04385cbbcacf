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
mod live;
mod names;
mod namespaces;
mod parked;
mod pauses;
mod pipelined;
mod places;
mod protection;
mod service;
mod several;
mod slow_readers;
mod strangers;
