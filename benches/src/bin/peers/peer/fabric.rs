//! libfabric: `fi_pingpong` over its shared-memory provider.

use verbline_benches::Figures;
use verbline_benches::pair::cpus;

use super::{free_port, serve};
use crate::contender::{Contender, Needs};
use crate::error::RunError;
use crate::process::Line;

const NEEDS: &[Needs] =
    &[Needs { program: "fi_pingpong", package: "libfabric-bin" }, Needs { program: "taskset", package: "util-linux" }];

/// Messages of `bytes` back and forth: `ns` one way.
pub(crate) fn contender(bytes: u32, iterations: u32) -> Contender {
    let lines = move |port: u16| {
        let [near, far] = cpus();
        let line = |cpu: usize, side: &str| {
            let text = format!("taskset -c {cpu} fi_pingpong -p shm -e rdm -S {bytes} -I {iterations} {side} {port}");
            Line::new(&text)
        };
        [line(far.id, "-B"), line(near.id, "-P").args(["127.0.0.1"])]
    };
    let [server, client] = lines(47_592);
    let run = move || {
        let port = free_port();
        let [server, client] = lines(port);
        let output = serve(&server, &client, port)?;
        parse(&output).ok_or_else(|| RunError::unreadable(&client, "table with `usec/xfer`", &output))
    };
    let commands = vec![format!("{server} & {client}")];
    Contender { name: "libfabric shm", commands, needs: NEEDS, hugepages: false, run: Box::new(run) }
}

/// Reads the column `usec/xfer` of the table's only row: a transfer is one message, one way.
fn parse(output: &str) -> Option<Figures> {
    let mut lines = output.lines().skip_while(|line| !line.starts_with("bytes"));
    let column = lines.next()?.split_whitespace().position(|title| title == "usec/xfer")?;
    let us: f64 = lines.next()?.split_whitespace().nth(column)?.parse().ok()?;
    Some(Figures::of("ns", us * 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_transfer_is_read() {
        assert_eq!(parse(include_str!("samples/fi_pingpong.txt")), Some(Figures::of("ns", 320.0)));
        assert_eq!(parse("fi_getinfo: -61"), None);
    }
}
