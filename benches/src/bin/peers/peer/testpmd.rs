//! DPDK's packet forwarder: `dpdk-testpmd` between two null devices, on one core.

use std::time::Duration;

use verbline_benches::Figures;
use verbline_benches::figures::median;

use super::LIMIT;
use super::dpdk_test::eal;
use crate::contender::{Contender, Needs};
use crate::error::RunError;
use crate::process::Line;

const NEEDS: &[Needs] = &[Needs { program: "dpdk-testpmd", package: "dpdk-dev" }];
/// Long enough for three statistics after the first, which includes the start.
const TIME: Duration = Duration::from_millis(4_700);

/// `packets_per_s` per port in this forwarding mode; with `copy`, 64 bytes are copied on the way in
/// and out.
pub(crate) fn contender(name: &'static str, mode: &'static str, copy: bool) -> Contender {
    let copy = if copy { ",copy=1" } else { "" };
    let line = Line::new(&format!(
        "dpdk-testpmd {} --vdev=net_null0,size=64{copy} --vdev=net_null1,size=64{copy} -- --forward-mode={mode} \
         --auto-start --stats-period 1 --total-num-mbufs=8192 --burst=32",
        eal()
    ));
    let commands = vec![line.to_string()];
    let run = move || {
        let running = line.start()?;
        std::thread::sleep(TIME);
        running.interrupt();
        let output = running.finish(LIMIT)?;
        parse(&output).ok_or_else(|| RunError::unreadable(&line, "`Tx-pps:` of both ports", &output))
    };
    Contender { name, commands, needs: NEEDS, hugepages: true, run: Box::new(run) }
}

/// The mean of the two ports' median transmit rates, over all statistics but the first.
fn parse(output: &str) -> Option<Figures> {
    let mut rates = [Vec::new(), Vec::new()];
    let mut port = None;
    for line in output.lines() {
        if let Some((_, rest)) = line.split_once("NIC statistics for port ") {
            port = rest.split_whitespace().next().and_then(|number| number.parse::<usize>().ok());
        }
        if let (Some(rates), Some(rate)) = (port.and_then(|port| rates.get_mut(port)), tx_rate(line)) {
            rates.push(rate);
        }
    }
    // The first statistic has no time before it and shows 0; the second includes the start.
    let after_start = |rates: &[f64]| median(rates.iter().copied().skip_while(|rate| *rate == 0.0).skip(1));
    let [first, second] = [after_start(&rates[0]), after_start(&rates[1])];
    let mean = (first + second) / 2.0;
    mean.is_finite().then(|| Figures::of("packets_per_s", mean))
}

fn tx_rate(line: &str) -> Option<f64> {
    line.trim_start().strip_prefix("Tx-pps:")?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_both_ports_is_read() {
        let output = include_str!("samples/testpmd.txt");
        let rate = parse(output).unwrap().value("packets_per_s").unwrap();
        assert!((3.4e7..3.8e7).contains(&rate), "{rate}");
        assert_eq!(parse("EAL: Cannot get hugepage information."), None);
    }
}
