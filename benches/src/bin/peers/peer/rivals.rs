//! Peers that are libraries: a package and C programs in `rivals/`, compiled here and not by the
//! workspace's build.
//!
//! `rivals/` is a package outside the workspace, so that no peer is a dependency of the build or of
//! the tests. `rivals/dpdk.c` calls DPDK's libraries where `dpdk-test` is of no use: its mempool
//! test takes an hour. `rivals/udp.c` calls sockets in ways that Rust's standard library can't.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use verbline_benches::Figures;

use super::LIMIT;
use crate::contender::{Contender, Needs, figures};
use crate::error::RunError;
use crate::machine;
use crate::ours::{Books, feed_file};
use crate::process::Line;

const CARGO: &[Needs] = &[Needs { program: "cargo", package: "cargo" }, Needs { program: "cc", package: "gcc" }];
const CC: &[Needs] = &[Needs { program: "cc", package: "gcc" }];
const DPDK: &[Needs] = &[
    Needs { program: "/usr/include/dpdk/rte_mempool.h", package: "libdpdk-dev" },
    Needs { program: "pkg-config", package: "pkg-config" },
    Needs { program: "cc", package: "gcc" },
];
const BUILD_LIMIT: Duration = Duration::from_secs(900);

fn sources() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/rivals"))
}

/// A parser or a book of another crate, over the same feed: `ns` per message, and the checksum of
/// the fields read.
pub(crate) fn itch(name: &'static str, subject: &'static str, books: Books) -> Contender {
    let run = move || {
        let arguments = [program()?, subject.to_owned(), path(&feed_file(books)?)];
        figures(&Line::new("").args(arguments), LIMIT)
    };
    let commands = vec![format!("rivals {subject} FEED-{}", books.name())];
    Contender { name, commands, needs: CARGO, hugepages: false, run: Box::new(run) }
}

/// Messages of 64 bytes from core to core by another crate, at full `rate` or one at a time for
/// their `latency`: `ns` per message.
pub(crate) fn hop(library: &'static str, by: &'static str) -> Contender {
    let run = move || figures(&Line::new("").args([program()?]).args(["hop", library, by]), LIMIT);
    let commands = vec![format!("rivals hop {library} {by}")];
    Contender { name: library, commands, needs: CARGO, hugepages: false, run: Box::new(run) }
}

/// The path of a program, below the folder for work; built there at first use.
fn built(
    known: &'static OnceLock<String>,
    name: &str,
    build: impl FnOnce(&Path) -> Result<Line, RunError>,
) -> Result<String, RunError> {
    if let Some(built) = known.get() {
        return Ok(built.clone());
    }
    let program = machine::work_dir()?.join(name);
    build(&program)?.run(BUILD_LIMIT)?;
    Ok(known.get_or_init(|| path(&program)).clone())
}

/// The path of the package's program.
pub(crate) fn program() -> Result<String, RunError> {
    static BUILT: OnceLock<String> = OnceLock::new();
    built(&BUILT, "rivals/release/rivals", |_| {
        let target = machine::work_dir()?.join("rivals");
        eprintln!("peers: building rivals/ (once)");
        let manifest = path(&sources().join("Cargo.toml"));
        let line = Line::new("cargo build --release --quiet --locked --manifest-path");
        Ok(line.args([manifest, "--target-dir".to_owned(), path(&target)]))
    })
}

/// `rivals/dpdk.c` with this subject: figures of rte_mempool, rte_mbuf or rte_ring.
pub(crate) fn dpdk(name: &'static str, subject: &'static str) -> Contender {
    let commands = vec![format!("rivals-dpdk {} -- {subject}", super::dpdk_test::eal())];
    let run = move || dpdk_figures(subject);
    Contender { name, commands, needs: DPDK, hugepages: true, run: Box::new(run) }
}

/// `rivals/udp.c` with these arguments: figures of UDP sockets alone.
pub(crate) fn udp(name: &'static str, arguments: &str) -> Contender {
    let commands = vec![format!("rivals-udp {arguments}")];
    let arguments = arguments.to_owned();
    let run = move || figures(&Line::new("").args([udp_program()?]).args(arguments.split_whitespace()), LIMIT);
    Contender { name, commands, needs: CC, hugepages: false, run: Box::new(run) }
}

fn udp_program() -> Result<String, RunError> {
    static BUILT: OnceLock<String> = OnceLock::new();
    built(&BUILT, "rivals-udp", |program| Ok(cc(program, "udp.c")))
}

/// A C program's compilation; DPDK's own build uses -O3.
fn cc(program: &Path, source: &str) -> Line {
    Line::new("cc -O3 -Wall -Wextra -Werror -o").args([path(program), path(&sources().join(source))])
}

fn dpdk_figures(subject: &str) -> Result<Figures, RunError> {
    let line = Line::new("").args([dpdk_program()?]).args(super::dpdk_test::eal().split_whitespace());
    figures(&line.args(["--", subject]), LIMIT)
}

fn dpdk_program() -> Result<String, RunError> {
    static BUILT: OnceLock<String> = OnceLock::new();
    built(&BUILT, "rivals-dpdk", |program| {
        let flags = |what: &str| Line::new(&format!("pkg-config {what} libdpdk")).run(Duration::from_secs(20));
        let (cflags, libs) = (flags("--cflags")?, flags("--libs")?);
        Ok(cc(program, "dpdk.c").args(cflags.split_whitespace()).args(libs.split_whitespace()))
    })
}

fn path(path: &Path) -> String {
    path.display().to_string()
}
