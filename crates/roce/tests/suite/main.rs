//! The integration tests of `roce`: one program, with a module for each theme.

mod asking;
mod changes;
mod cm;
mod cm_giving_up;
mod cm_lossy;
mod cm_stale;
mod cm_tshark;
mod cm_wire;
mod engine;
mod hostile;
mod invalid_requests;
mod keep_alive;
mod local;
mod lossy;
mod missing;
mod not_ready;
mod pair;
mod posting;
mod refusals;
mod reliable;
mod restarts;
mod sim;
mod unreliable;
mod wire;
mod wire_properties;
mod wire_tshark;
