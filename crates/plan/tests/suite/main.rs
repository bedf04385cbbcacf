//! The integration tests of `plan`: one program, a module a theme.

mod app;
mod broken_plans;
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
mod reference;
mod regions;
mod sets;
mod spreads;
mod wrong_files;
