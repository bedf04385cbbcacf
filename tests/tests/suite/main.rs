//! The integration tests of `tests`: one program, a module a theme.

mod accounting;
mod broken_plans;
mod capture;
mod config;
mod driver;
mod effects;
mod embedding;
mod failing_runs;
mod first_stage;
mod guest;
mod lacks;
mod live_line;
mod logs;
mod mysteries;
mod operate;
mod outside;
mod page;
mod picture;
mod random_plans;
mod region_sizes;
mod reports;
mod stalled;
mod stopped_clients;
mod tidy;
mod trace;
