//! The integration tests of `plan`: one program, with a module for each theme.

mod app;
mod broken_plans;
mod by_address;
mod changes;
mod common;
mod completions;
mod consequences;
mod cpus;
mod crowded;
mod diagnostics;
mod fuzz;
mod good_plan;
mod injectors;
mod limits;
mod needs;
mod nodes;
mod offers;
mod params;
mod peers_of_datagrams;
mod prepended;
mod reference;
mod regions;
mod send_options;
mod sets;
mod spreads;
mod wrong_files;
