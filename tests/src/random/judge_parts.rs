//! The conditions on operations, and on connections that come and go.

use serde::Deserialize;
use verbline::engine::ConnectionsReport;

use super::judge::{Judge, was_cut};
use super::marks::{OPERATIONS, OPERATOR, OWNER, SECTION, VISITOR, doors};

#[derive(Deserialize)]
struct Ends {
    /// The sources have ended by themselves, so that nothing was under way as the stages stopped.
    ends: bool,
}

impl Judge<'_> {
    pub(super) fn parts(&mut self) {
        self.operations();
        self.windows();
        self.connections("visitors", VISITOR);
        doors().for_each(|(door, desk)| self.connections(&door, desk));
        self.spread_out();
        self.polls();
        self.watches();
    }

    /// A counter of the stage of this number.
    fn own(&self, node: usize, counter: &str) -> u64 {
        self.report.stage(&format!("s{node}")).and_then(|stage| stage.counter(counter)).unwrap_or(u64::MAX)
    }

    /// Each operation was carried out once, and came back once.
    fn operations(&mut self) {
        let report = self.report;
        let Some(told) = report.port("tops").and_then(|port| port.operations.as_ref()) else { return };
        self.equal(|| "operations under way, and none".into(), told.under_way, 0);
        self.equal(|| "operations declined, twice".into(), told.declined, self.own(OPERATOR, "declined"));
        let all: u64 = told.kinds.iter().map(|kind| kind.posted).sum();
        let asked: u64 = OPERATIONS.iter().filter_map(|kind| told.kind(kind.name())).map(|kind| kind.posted).sum();
        self.equal(|| "operations posted, and those asked for".into(), all, asked);
        for kind in OPERATIONS {
            let name = kind.name();
            let (posted, completed, failed) =
                told.kind(name).map_or((0, 0, 0), |kind| (kind.posted, kind.completed, kind.failed));
            self.equal(|| format!("{name}: posted and completed"), posted, completed);
            self.equal(|| format!("{name}: failed, and none"), failed, 0);
            self.equal(
                || format!("{name}: completed and given back"),
                completed,
                self.own(OPERATOR, &format!("did_{name}")),
            );
        }
        let ended = self.plan.section(SECTION).and_then(|section| section.parse::<Ends>().ok());
        if ended.is_some_and(|run| run.ends) && self.side.is_none() && !was_cut(report) {
            self.equal(|| "what was added, and the sum".into(), self.own(OPERATOR, "added"), self.own(OWNER, "sum"));
        }
    }

    /// Each key of a window that was given back came back, and the window was bound again.
    fn windows(&mut self) {
        let report = self.report;
        let Some(told) = report.port("qops").and_then(|port| port.operations.as_ref()) else { return };
        let windows = self.plan.ports().iter().find(|port| port.name == "qops").map_or(0, |port| port.windows);
        self.equal(|| "operations of windows under way, and none".into(), told.under_way, 0);
        self.equal(|| "operations of windows declined, and none".into(), told.declined, 0);
        for (name, own) in [("bind", "bound"), ("invalidate", "took_back")] {
            let (posted, completed, failed) =
                told.kind(name).map_or((0, 0, 0), |kind| (kind.posted, kind.completed, kind.failed));
            self.equal(|| format!("{name}: posted and completed"), posted, completed);
            self.equal(|| format!("{name}: failed, and none"), failed, 0);
            self.equal(|| format!("{name}: completed and given back"), completed, self.own(OWNER, own));
        }
        let (bound, came_back) = (self.own(OWNER, "bound"), self.own(OWNER, "came_back"));
        let all = u64::from(windows) + came_back;
        if self.side.is_none() {
            self.equal(|| "keys given back and come back".into(), self.own(OPERATOR, "given_back"), came_back);
        }
        self.equal(|| "windows bound, and to be bound".into(), bound + self.own(OWNER, "stayed_free"), all);
    }

    /// Each that opened has closed, or is open at the end.
    fn connections(&mut self, port: &str, node: usize) {
        let Some(told) = self.report.port(port).and_then(|port| port.connections.clone()) else { return };
        let ConnectionsReport { max, opened, closed, failed, open, open_max, forced, .. } = told;
        let name = format!("port.{port}");
        self.equal(|| format!("{name}: opened, and closed, failed or open"), opened, closed + failed + open);
        self.equal(|| format!("{name}: opened, twice"), opened, self.own(node, "opened"));
        self.equal(|| format!("{name}: closed, twice"), closed, self.own(node, "ended"));
        self.equal(|| format!("{name}: failed, twice"), failed, self.own(node, "failed"));
        self.equal(|| format!("{name}: forced, and none"), forced, 0);
        if self.is_strict {
            self.equal(|| format!("{name}: failed, and none"), failed, 0);
        }
        let reached = open_max.max(open);
        if reached > max {
            self.faults.push(format!("{name}: {reached} were open at once, of {max} at most"));
        }
        let told = &told;
        // The listening port counts the requests that it hands to the ports that share its
        // listener.
        let sharing = if port == "door" { self.sharing().map(|told| told.requests).sum() } else { 0 };
        let made = opened + told.unanswered + told.rejected_full + told.rejected_acceptor + sharing;
        let others = told.rejected_device + told.rejected_resources;
        if others > 0 || made != told.requests {
            self.faults.push(format!("{name}: {made} of {} requests are accounted for: {told:?}", told.requests));
        }
    }

    /// The ports that share the listener of another one.
    fn sharing(&self) -> impl Iterator<Item = &ConnectionsReport> {
        doors().skip(1).filter_map(|(door, _)| self.report.port(&door)?.connections.as_ref())
    }

    /// Each connection of the visitors is one of some door.
    fn spread_out(&mut self) {
        let of = |port: &str| self.report.port(port).and_then(|port| port.connections.as_ref());
        let (Some(near), Some(far)) = (of("visitors"), of("door")) else { return };
        let opened = far.opened + self.sharing().map(|told| told.opened).sum::<u64>();
        let unanswered = far.unanswered + self.sharing().map(|told| told.unanswered).sum::<u64>();
        // One end may hear of it, and the run be over.
        if near.opened > opened + unanswered || opened > near.opened + near.unanswered {
            self.faults.push(format!("the visitors opened {}, and the doors {opened}", near.opened));
        }
    }
}
