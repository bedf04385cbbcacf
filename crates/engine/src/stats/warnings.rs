//! Warnings of a report: problems that do not end the run, each with what to do.

use std::fmt;

use crate::stats::counters::{LcoreReport, PortReport};
use crate::stats::report::Report;

/// The share of an lcore's time that may be stolen without a warning.
const STOLEN_SHARE_MAX: f64 = 0.01;
/// How much may be stolen in all without a warning: one turn of another thread, in a run too short
/// for a judgement.
const STOLEN_NS_MAX: u64 = 1_000_000;

impl LcoreReport {
    /// Whether so much of its time was stolen that its figures are not those of an lcore with a CPU
    /// to itself.
    pub fn is_robbed(&self) -> bool {
        self.stolen_share > STOLEN_SHARE_MAX && self.stolen_ns > STOLEN_NS_MAX
    }
}

/// A problem that does not end the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// A stable name: `port-down`, `link-down` or `stolen-time`.
    pub code: &'static str,
    /// What is wrong, where, and how much.
    pub message: String,
    /// What to do.
    pub remedy: &'static str,
}

/// `warning[code]: message; remedy`.
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warning[{}]: {}; {}", self.code, self.message, self.remedy)
    }
}

impl Report {
    /// Problems that do not end the run: ports that are down, links without a signal, time that was
    /// stolen from the lcores. Ports come first, then lcores; a good run has none. An app without a
    /// `tracing` subscriber reads them from a [snapshot](crate::Running::snapshot) now and then.
    pub fn warnings(&self) -> Vec<Warning> {
        let ports = self.ports.iter().flat_map(|port| [down(port), link_down(port)]);
        ports.chain(self.lcores.iter().map(|lcore| stolen(self, lcore))).flatten().collect()
    }
}

fn down(port: &PortReport) -> Option<Warning> {
    let reason = port.down_reason.as_deref().unwrap_or("for a reason that is not known");
    port.down.then(|| Warning {
        code: "port-down",
        message: format!("port {} is down: its queue pair is in the error state ({reason})", port.name),
        remedy: "see its errors in the report; a port with an address is connected again unless the plan forbids it",
    })
}

fn link_down(port: &PortReport) -> Option<Warning> {
    port.link_down.then(|| Warning {
        code: "link-down",
        message: format!("port {}: the link of {} is down", port.name, port.device),
        remedy: "see to its cable and to the other end; it is used again once it is up",
    })
}

fn stolen(report: &Report, lcore: &LcoreReport) -> Option<Warning> {
    lcore.is_robbed().then(|| {
        let (share, name, cpu) = (lcore.stolen_share * 100.0, &lcore.name, lcore.cpu);
        let mut message =
            format!("{share:.1} % of the time of lcore {name} was stolen while it wanted to run on CPU {cpu}");
        if lcore.stalls > 0 {
            message += &format!(", {:.1?} at once at most", std::time::Duration::from_nanos(lcore.stall_max_ns));
        }
        Warning { code: "stolen-time", message, remedy: thief(report, lcore) }
    })
}

/// What took the time, as far as the kernel knows. A cause of less than a tenth of the stolen time
/// doesn't explain it.
fn thief(report: &Report, lcore: &LcoreReport) -> &'static str {
    let much = |ns: Option<u64>| ns.is_some_and(|ns| ns > lcore.stolen_ns / 10);
    // A thread whose group has used up its quota, or whose CPU the hypervisor has, may wait for it
    // as well.
    if much(report.throttled_ns) {
        "the CPU quota of its control group was used up: raise or remove it (cpu.max)"
    } else if much(lcore.hypervisor_ns) {
        "the hypervisor gave its CPU to others: ask for dedicated CPUs"
    } else if much(lcore.queued_ns) {
        "other threads ran on its CPU: keep them off it (isolcpus, cpusets), or give the lcore another"
    } else {
        "the kernel doesn't tell by whom: look for interrupts and for quotas of the host"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_run_has_none_and_a_bad_one_names_the_thief() {
        let lcore = LcoreReport {
            name: "main".into(),
            cpu: 3,
            stolen_ns: 100_000_000,
            stolen_share: 0.01,
            ..LcoreReport::default()
        };
        let mut report = Report { lcores: vec![lcore], ..Report::default() };
        assert_eq!(report.warnings(), []);
        report.lcores[0].stolen_share = 0.125;
        report.lcores[0].stalls = 1;
        report.lcores[0].stall_max_ns = 39_400_000;
        let said = |report: &Report| report.warnings().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let head = "warning[stolen-time]: 12.5 % of the time of lcore main was stolen while it wanted to run on \
                    CPU 3, 39.4ms at once";
        assert!(said(&report).starts_with(head) && said(&report).contains("doesn't tell"), "{}", said(&report));
        report.lcores[0].queued_ns = Some(90_000_000);
        assert!(said(&report).contains("other threads"));
        report.lcores[0].hypervisor_ns = Some(50_000_000);
        assert!(said(&report).contains("hypervisor"));
        report.throttled_ns = Some(60_000_000);
        assert!(said(&report).contains("quota"));
        report.lcores[0].stolen_ns = STOLEN_NS_MAX;
        assert_eq!(report.warnings(), [], "a run that was too short to say anything");
    }

    #[test]
    fn a_port_that_is_down_is_told_with_its_reason() {
        let port =
            PortReport { name: "orders".into(), device: "mlx5_0".into(), link_down: true, ..PortReport::default() };
        let port = PortReport { down: true, down_reason: Some("IBV_WC_RETRY_EXC_ERR".into()), ..port };
        let warnings = Report { ports: vec![port], ..Report::default() }.warnings();
        assert_eq!(warnings.iter().map(|warning| warning.code).collect::<Vec<_>>(), ["port-down", "link-down"]);
        assert!(
            warnings[0].message.contains("port orders is down") && warnings[0].message.contains("IBV_WC_RETRY_EXC_ERR")
        );
        assert!(warnings[1].message.contains("mlx5_0"));
    }
}
