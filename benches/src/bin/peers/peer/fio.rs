//! fio's engine for io_uring, and our store on the same file.
//!
//! fio has its cheapest settings: registered files and buffers, submissions and completions in
//! batches of up to 32, no verification, its latency clock on one CPU.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use serde_json::Value;
use verbline_benches::{Figures, pair};

use super::LIMIT;
use crate::contender::{Contender, Needs};
use crate::error::RunError;
use crate::machine;
use crate::process::Line;

const FIO: &[Needs] = &[Needs { program: "fio", package: "fio" }];
const FILE_BYTES: usize = 256 << 20;

/// The location of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Beside this program.
    Disk,
    /// In /dev/shm.
    Memory,
}

impl Place {
    /// The file, written whole at first use: a hole would be read from nowhere.
    fn file(self) -> Result<PathBuf, RunError> {
        let path = match self {
            Place::Disk => machine::work_dir()?.join("store"),
            Place::Memory => PathBuf::from("/dev/shm/verbline-peers-store"),
        };
        if fs::metadata(&path).is_ok_and(|file| file.len() == FILE_BYTES as u64) {
            return Ok(path);
        }
        let write = || -> std::io::Result<()> {
            let mut file = fs::File::create(&path)?;
            let chunk: Vec<u8> = (0..1 << 20).map(|at: u32| at.wrapping_mul(2_654_435_761) as u8).collect();
            (0..FILE_BYTES / chunk.len()).try_for_each(|_| file.write_all(&chunk))?;
            file.sync_all()
        };
        write().map_err(|source| RunError::File { path: path.clone(), source })?;
        Ok(path)
    }
}

/// Our store.
pub(crate) fn ours(place: Place, writes: bool) -> Contender {
    let subject = move |path: &str| format!("store {path}{}", if writes { " --writes" } else { "" });
    let run = move || (Contender::ours(&subject(&place.file()?.display().to_string())).run)();
    let commands = vec![format!("peers ours {}", subject("FILE"))];
    Contender { commands, run: Box::new(run), ..Contender::ours("store") }
}

/// fio.
pub(crate) fn contender(place: Place, writes: bool) -> Contender {
    const ARGUMENTS: &str = "--name=peer --ioengine=io_uring --fixedbufs=1 --registerfiles=1 --direct=1 --bs=4k \
        --iodepth=32 --iodepth_batch_submit=32 --iodepth_batch_complete_max=32 --iodepth_batch_complete_min=1 \
        --norandommap --time_based --ramp_time=300ms --runtime=1500ms --output-format=json";
    let rw = if writes { "--rw=randwrite" } else { "--rw=randread" };
    let line = move |path: &str| {
        let cpu = format!("--cpus_allowed={}", pair::cpus()[0].id);
        Line::new("fio").args(ARGUMENTS.split_whitespace()).args([rw, &cpu, &format!("--filename={path}")])
    };
    let run = move || {
        let line = line(&place.file()?.display().to_string());
        read(&line.run(LIMIT)?, writes, &line)
    };
    let commands = vec![line("FILE").to_string()];
    Contender { name: "fio", commands, needs: FIO, hugepages: false, run: Box::new(run) }
}

/// Reads `per_s` and `p99_ns` from fio's report.
fn read(output: &str, writes: bool, line: &Line) -> Result<Figures, RunError> {
    let report: Option<Value> = output.find('{').and_then(|start| serde_json::from_str(&output[start..]).ok());
    let job = report.as_ref().map(|report| &report["jobs"][0][if writes { "write" } else { "read" }]);
    let per_s = job.and_then(|job| job["iops"].as_f64());
    let p99_ns = job.and_then(|job| job["clat_ns"]["percentile"]["99.000000"].as_f64());
    match (per_s, p99_ns) {
        (Some(per_s), Some(p99_ns)) if per_s > 0.0 => Ok(Figures::of("per_s", per_s).and("p99_ns", p99_ns)),
        _ => Err(RunError::unreadable(line, "iops", output)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_out_of_the_report_and_a_broken_one_is_refused() {
        let side = r#"{"iops": 1234.5, "clat_ns": {"percentile": {"99.000000": 70000}}}"#;
        let report = format!("fio: a note\n{{\"jobs\": [{{\"read\": {side}, \"write\": {{\"iops\": 0.0}}}}]}}");
        let line = Line::new("fio");
        let figures = read(&report, false, &line).unwrap();
        assert_eq!((figures.value("per_s"), figures.value("p99_ns")), (Some(1234.5), Some(70000.0)));
        for (report, writes) in [(report.as_str(), true), ("nothing", false), ("{", false)] {
            assert!(matches!(read(report, writes, &line), Err(RunError::Unreadable { .. })));
        }
    }
}
