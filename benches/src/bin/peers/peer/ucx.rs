//! UCX: `ucx_perftest`, a server on one CPU and a client on the other, over shared memory.

use verbline_benches::Figures;
use verbline_benches::pair::cpus;

use super::{free_port, serve};
use crate::contender::{Contender, Needs};
use crate::error::RunError;
use crate::process::Line;

const NEEDS: &[Needs] = &[Needs { program: "ucx_perftest", package: "ucx-utils" }];

/// The environment and the arguments of a test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Test {
    /// `NAME=VALUE` words.
    pub(crate) env: &'static str,
    /// Arguments of both sides.
    pub(crate) args: &'static str,
}

/// A test of UCX. If there are several, each round counts the one with the higher message rate:
/// UCX's best settings for the work.
pub(crate) fn contender(name: &'static str, tests: &'static [Test]) -> Contender {
    let commands = tests.iter().map(|test| {
        let [server, client] = lines(test, None);
        format!("{server} & {client}")
    });
    let run = move || {
        let measured: Result<Vec<Figures>, RunError> = tests.iter().map(run).collect();
        let rate = |figures: &Figures| figures.value("messages_per_s").unwrap_or(0.0);
        Ok(measured?.into_iter().max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or_default())
    };
    Contender { name, commands: commands.collect(), needs: NEEDS, hugepages: false, run: Box::new(run) }
}

fn run(test: &Test) -> Result<Figures, RunError> {
    let port = free_port();
    let [server, client] = lines(test, Some(port));
    let output = serve(&server, &client, port)?;
    parse(&output).ok_or_else(|| RunError::unreadable(&client, "line `Final:`", &output))
}

fn lines(test: &Test, port: Option<u16>) -> [Line; 2] {
    let [near, far] = cpus();
    let line = |cpu: usize| {
        let line = Line::new("ucx_perftest").args(["-c".to_owned(), cpu.to_string()]).env(test.env);
        let port = port.map(|port| ["-p".to_owned(), port.to_string()]);
        line.args(test.args.split_whitespace()).args(port.into_iter().flatten())
    };
    [line(far.id), line(near.id).args(["127.0.0.1"])]
}

/// Reads the last line of the table: iterations, then percentile, average and overall time in µs,
/// then bandwidth and message rate, each average and overall. Overall is over all iterations.
/// Returns `ns`, one way, and `messages_per_s`.
fn parse(output: &str) -> Option<Figures> {
    let last = output.lines().find_map(|line| line.strip_prefix("Final:"))?;
    let numbers: Vec<f64> = last.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let [_iterations, _percentile_us, _average_us, overall_us, _, _, _, rate] = numbers[..] else { return None };
    Some(Figures::of("ns", overall_us * 1e3).and("messages_per_s", rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_test_is_read() {
        let figures = parse(include_str!("samples/ucx_am_lat.txt")).unwrap();
        assert_eq!(figures, Figures::of("ns", 133.0).and("messages_per_s", 7_520_650.0));
    }

    #[test]
    fn a_bandwidth_test_is_read_past_its_progress_lines() {
        let figures = parse(include_str!("samples/ucx_am_bw.txt")).unwrap();
        assert_eq!(figures.value("messages_per_s"), Some(634_878.0));
    }

    #[test]
    fn a_refusal_is_no_figure() {
        assert_eq!(parse(include_str!("samples/ucx_refused.txt")), None);
    }

    #[test]
    fn both_sides_have_a_cpu_of_their_own() {
        let test = Test { env: "UCX_TLS=posix,self", args: "-t tag_bw -s 64" };
        let [server, client] = lines(&test, Some(9)).map(|line| line.to_string());
        assert!(server.starts_with("UCX_TLS=posix,self ucx_perftest -c 1 -t tag_bw -s 64 -p 9"), "{server}");
        assert!(client.ends_with("-c 0 -t tag_bw -s 64 -p 9 127.0.0.1"), "{client}");
    }
}
