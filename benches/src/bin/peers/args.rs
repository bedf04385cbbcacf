//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::ours::Subject;
use crate::tables::Table;

/// Measures ours beside the peers on this machine, interleaved, and prints one table.
#[derive(Debug, Parser)]
#[command(name = "peers", args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    /// Which comparisons
    #[arg(long, value_enum, default_value_t)]
    pub(crate) table: Table,

    /// Run this row only (may be given several times; see --list)
    #[arg(long = "row", value_name = "NAME")]
    rows: Vec<String>,

    /// Rounds of each comparison
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// Print one JSON object and nothing else on standard output
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the results as a page of docs/performance, and nothing else on standard output
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,

    /// Measure nothing: make the page of what --json printed into this file
    #[arg(long, value_name = "FILE", requires = "markdown", conflicts_with_all = ["rows", "html"])]
    pub(crate) from: Option<PathBuf>,

    /// Write a page with plots
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// List the rows with their goals and the commands that they run
    #[arg(long)]
    pub(crate) list: bool,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure one of ours and print its figures as JSON: what each row runs as a process of its
    /// own
    #[command(subcommand)]
    Ours(Subject),
}

impl Arguments {
    /// The rows asked for; none means all.
    pub(crate) fn rows(&self) -> &[String] {
        &self.rows
    }
}
