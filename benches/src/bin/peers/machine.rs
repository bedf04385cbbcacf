//! The machine: installs and reserves the peers' requirements, and describes the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use core_affinity::get_core_ids;
use serde_json::{Value, json};

use crate::contender::{Contender, Needs};
use crate::error::RunError;
use crate::process::{Line, tail};

/// 2 MiB pages for a DPDK program (`-m 256`), and some for our own pools.
const HUGEPAGES_FREE: u64 = 192;
/// The number to reserve if there are too few.
const HUGEPAGES: u64 = 512;
const NR_HUGEPAGES: &str = "/proc/sys/vm/nr_hugepages";
const INSTALL_LIMIT: Duration = Duration::from_secs(600);

/// Provides all requirements of these contenders. Nothing is undone afterwards.
pub(crate) fn provide(contenders: &[&Contender]) -> Result<(), RunError> {
    let found = get_core_ids().map_or(0, |cpus| cpus.len());
    if found < 2 {
        return Err(RunError::Cpus { found });
    }
    install(contenders.iter().flat_map(|contender| contender.needs))?;
    if contenders.iter().any(|contender| contender.hugepages) {
        hugepages()?;
    }
    Ok(())
}

fn install<'a>(needs: impl Iterator<Item = &'a Needs>) -> Result<(), RunError> {
    let mut missing: Vec<&str> = needs.filter(|need| !is_there(need.program)).map(|need| need.package).collect();
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let packages = missing.join(" ");
    if !may_be_root() || !is_there("apt-get") {
        return Err(RunError::Packages { packages });
    }
    eprintln!("peers: installing {packages}");
    let apt = |what: &str| as_root(&format!("env DEBIAN_FRONTEND=noninteractive apt-get {what}")).run(INSTALL_LIMIT);
    let install = format!("install -y -qq {packages}");
    let installed = apt(&install).or_else(|_| apt("update -qq").and_then(|_| apt(&install)));
    installed.map(drop).map_err(|error| RunError::Install { packages, reason: error.to_string() })
}

fn is_there(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn may_be_root() -> bool {
    is_root() || Command::new("sudo").args(["-n", "true"]).output().is_ok_and(|output| output.status.success())
}

fn as_root(text: &str) -> Line {
    if is_root() { Line::new(text) } else { Line::new(&format!("sudo -n {text}")) }
}

fn hugepages() -> Result<(), RunError> {
    let refused = |reason: String| RunError::Hugepages { wanted: HUGEPAGES, reason };
    if hugepages_free() < HUGEPAGES_FREE {
        let all: u64 = fs::read_to_string(NR_HUGEPAGES).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let wanted = HUGEPAGES.max(all + HUGEPAGES_FREE);
        as_root("sh -c")
            .args([format!("echo {wanted} > {NR_HUGEPAGES}")])
            .run(INSTALL_LIMIT)
            .map_err(|error| refused(error.to_string()))?;
    }
    let free = hugepages_free();
    if free < HUGEPAGES_FREE {
        return Err(refused(format!("the kernel has {free} free: its memory is used or in pieces")));
    }
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    if !mounts.lines().any(|line| line.split(' ').nth(2) == Some("hugetlbfs")) {
        as_root("mkdir -p /dev/hugepages").run(INSTALL_LIMIT).map_err(|error| refused(error.to_string()))?;
        let mounted = as_root("mount -t hugetlbfs nodev /dev/hugepages").run(INSTALL_LIMIT);
        mounted.map_err(|error| refused(error.to_string()))?;
    }
    Ok(())
}

fn hugepages_free() -> u64 {
    let path = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// The folder of the built rivals and the feed: beside this program.
pub(crate) fn work_dir() -> Result<PathBuf, RunError> {
    let exe = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("."));
    let path = exe.parent().unwrap_or(Path::new(".")).join("peers-work");
    fs::create_dir_all(&path).map_err(|source| RunError::File { path: path.clone(), source })?;
    Ok(path)
}

/// The machine's facts behind the figures.
pub(crate) fn describe() -> Value {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let about = |key: &str| {
        cpuinfo
            .lines()
            .find_map(|line| line.split_once(':').filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim()))
    };
    // A guest often has a meaningless CPU name; the numbers identify the CPU.
    let [family, model, stepping] = ["cpu family", "model", "stepping"].map(|key| about(key).unwrap_or("?"));
    let cpu =
        format!("{}, family {family} model {model} stepping {stepping}", about("model name").unwrap_or("unknown"));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let date = Line::new("date -u").args(["+%Y-%m-%d %H:%M UTC"]).run(Duration::from_secs(5)).unwrap_or_default();
    json!({
        "cpu": cpu,
        "cpus": get_core_ids().map_or(0, |cpus| cpus.len()),
        "copies": verbline_softnic::tuning::copies(),
        "kernel": kernel.trim(),
        "date": date.trim(),
        "load_after": load.split(' ').next().unwrap_or(""),
        "command": std::env::args().skip(1).fold("peers".to_owned(), |line, word| line + " " + &tail(&word)),
    })
}
