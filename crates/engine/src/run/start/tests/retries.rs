//! The plan's retries of a reliable connection reach its queue pairs.

use std::collections::BTreeSet;

use verbline_plan::{Loader, Machine, Plan};
use verbline_verbs::expert::AttrMask;

use super::{COMMON, lcores, registry};
use crate::errors::error::EngineError;
use crate::setup::assemble::{Built, build};

const RETRIES: AttrMask =
    AttrMask::TIMEOUT.with(AttrMask::RETRY_CNT).with(AttrMask::RNR_RETRY).with(AttrMask::MIN_RNR_TIMER);

pub(super) fn built(text: &str) -> Built {
    tried(text).unwrap()
}

/// The reason why it can't be built.
pub(super) fn refusal(text: &str) -> String {
    tried(text).map(|_| ()).unwrap_err().to_string()
}

fn tried(text: &str) -> Result<Built, EngineError> {
    build(&loaded(text), &registry())
}

pub(super) fn loaded(text: &str) -> Plan {
    let machine = Machine { cpus: BTreeSet::from([0, 1, 2, 3]), ..Machine::detect() };
    let loaded = Loader::new(registry().catalog(), machine).load_str("test.toml", &(COMMON.to_owned() + text));
    loaded.unwrap_or_else(|faults| panic!("{faults}"))
}

pub(super) fn port(name: &str, keys: &str) -> String {
    let receives = "pool = \"p\"\nrx_depth_wr = 4\nnext = \"drop\"";
    format!(
        "[port.{name}]\nlcore = \"a\"\ndevice = \"nic0\"\ntransport = \"rc\"\ntx_depth_wr = 4\n{receives}\n{keys}\n"
    )
}

const TOLD: &str = "timeout = 11\nretry_cnt = 5\nrnr_retry = 3\nmin_rnr_timer = 20";

#[test]
fn queue_pairs_of_peers_are_told_the_retries_of_their_own_ports() {
    let told = port("told", &format!("peer = \"port.usual\"\n{TOLD}"));
    let mut built = built(&(lcores(&["a"], "event") + &told + &port("usual", "peer = \"port.told\"")));
    let seen: Vec<_> = built.lcores[0].ports.iter_mut().map(|port| port.qp.query(RETRIES).unwrap()).collect();
    let seen: Vec<_> =
        seen.iter().map(|attr| (attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer)).collect();
    assert_eq!(seen, [(11, 5, 3, 20), (14, 7, 7, 1)]);
}

#[test]
fn connections_by_address_ask_for_the_retries_of_their_ports() {
    let connects = |name, keys: &str| port(name, &format!("connect = \"10.9.9.1:4711\"\n{keys}"));
    let built = built(&(lcores(&["a"], "event") + &connects("told", TOLD) + &connects("usual", "")));
    let asked = built.to_connect.iter().map(|spec| spec.port.options.now());
    let asked: Vec<_> = asked
        .map(|options| (options.timeout, options.retry_count, options.rnr_retry_count, options.min_rnr_timer))
        .collect();
    assert_eq!(asked, [(Some(11), 5, 3, 20), (None, 7, 7, 1)]);
}
