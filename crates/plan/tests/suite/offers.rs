//! Needs of stages beside memory and packets: operations over an output, timers, and rights of
//! regions. A missing offer is refused at its place.

use crate::common::{catalog_with, machine};
use verbline_plan::{
    Asked, Loader, Needs, OperationKind, OutputOperations, Plan, RegionNeed, Rights, SendsNeed, StageKind, StageSpec,
};

/// A client of a server: it READs, binds windows, and has a timer for operations under way.
const PLAN: &str = r#"
[device.nic]
provider = "soft"
[pool.p]
device = "nic"
packets = 4096
data_bytes = 64
[lcore.one]
cpu = 0
[region.table]
device = "nic"
bytes = 4096
rights = ["local-write"]
[port.servers]
lcore = "one"
device = "nic"
pool = "p"
transport = "rc"
connect = "10.9.9.1:7000"
connections = 4
rx_shared_wr = 64
tx_depth_wr = 8
ops_depth_wr = 8
windows = 2
next = "stage.client"
[stage.client]
use = "client"
lcore = "one"
pool = "p"
timers_max = 13
regions = ["table"]
out = { to = "port.servers", other = "drop" }
params = { under_way = 3 }
"#;

const KINDS: &[OperationKind] = &[OperationKind::Read, OperationKind::Bind];

#[derive(serde::Deserialize)]
struct Params {
    under_way: u64,
}

fn needs(asked: &Asked<'_>) -> Needs {
    assert_eq!((asked.connections("other"), asked.connections("nothing")), (None, None));
    assert_eq!((asked.region_bytes("table"), asked.region_bytes("nowhere")), (Some(4096), None));
    let Ok(params) = asked.params().parse::<Params>() else { return Needs::default() };
    Needs {
        timers: vec![("under way", u64::from(asked.connections("to").unwrap_or(1)) * params.under_way)],
        regions: vec![
            RegionNeed { region: "table".to_owned(), rights: Rights::LOCAL_WRITE, what: "it reads into it" },
            RegionNeed { region: "nowhere".to_owned(), rights: Rights::BIND, what: "the factory says so" },
        ],
        sends: vec![SendsNeed { output: "to", at_once: params.under_way, what: "what is under way" }; 2],
        ..Needs::default()
    }
}

fn load(sets: &[&str]) -> Result<Plan, verbline_plan::Diagnostics> {
    let spec = StageSpec {
        outputs: &["to", "other"],
        source: true,
        operations: &[OutputOperations { output: "to", kinds: KINDS }],
        timers: 1,
        ..StageSpec::default()
    };
    let client = StageKind { name: "client", spec, needs: Some(needs) };
    Loader::new(catalog_with([client]), machine()).sets(sets.iter().copied()).load_str("plan.toml", PLAN)
}

#[test]
fn what_is_offered_is_proved_and_the_plan_says_where_operations_go() {
    let plan = load(&[]).unwrap_or_else(|faults| panic!("{faults}"));
    let stage = &plan.stages()[0];
    assert_eq!(stage.operates, [true, false]);
    let sum = plan.sums().iter().find(|sum| sum.of == "timers of stage.client").expect("a sum of timers");
    assert_eq!((sum.needed, sum.terms.len(), sum.holds()), (13, 2, true), "{sum:?}");
}

/// Each way in which the plan can offer too little, with the code, the place and the remedy.
#[test]
fn what_is_not_offered_is_refused_at_its_place() {
    let cases: [(&[&str], &str, &str, &str); 9] = [
        (&["port.servers.ops_depth_wr=0"], "no-operations", "carries out no operations", "add `ops_depth_wr = 16`"),
        (&["port.servers.windows=0"], "no-operations", "has no memory windows", "add `windows = 16`"),
        (&["stage.client.out.to=drop"], "no-operations", "leads to no port", "write `to = \"port.NAME\"`"),
        (&["stage.client.timers_max=0"], "too-few-timers", "13 timers at once", "write `timers_max = 13` or more"),
        (&["stage.client.timers_max=12"], "too-few-timers", "and may arm 12", "write `timers_max = 13` or more"),
        (&["port.servers.connections=5"], "too-few-timers", "16 timers at once", "write `timers_max = 16` or more"),
        (
            &["stage.client.params.under_way=1_000_000"],
            "too-few-timers",
            "4000001 timers at once",
            "a stage may have 1048576 timers",
        ),
        (&["region.table.rights=[\"bind\"]"], "missing-right", "lacks \"local-write\"", "add \"local-write\""),
        (&["region.table.rights=[]"], "missing-right", "which stage.client needs", "add \"local-write\""),
    ];
    for (sets, code, says, remedy) in cases {
        let faults = load(sets).expect_err("it is refused");
        let fault = faults.errors().find(|fault| fault.code() == code).unwrap_or_else(|| panic!("{sets:?}: {faults}"));
        assert_eq!(faults.errors().count(), 1, "{sets:?}: {faults}");
        assert!(fault.message().contains(says), "{sets:?}: {faults}");
        assert!(fault.help_texts().iter().any(|help| help.contains(remedy)), "{sets:?}: {faults}");
    }
}

/// Sends without room are dropped at run time: the plan is warned of them, once a port.
#[test]
fn less_room_than_a_peer_may_ask_for_is_warned_of_once() {
    let plan = load(&["port.servers.tx_depth_wr=3"]).unwrap_or_else(|faults| panic!("{faults}"));
    assert!(!plan.warnings().to_string().contains("too-few-sends"), "{}", plan.warnings());
    let plan = load(&["port.servers.tx_depth_wr=2"]).unwrap_or_else(|faults| panic!("{faults}"));
    // The text may be wrapped anywhere.
    let warnings = plan.warnings().to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(warnings.matches("warning[too-few-sends]").count(), 1, "{warnings}");
    assert!(warnings.contains("room for 2 sends to one peer, which may ask for 3"), "{warnings}");
    assert!(warnings.contains("write `tx_depth_wr = 3` or more"), "{warnings}");
}

/// A port with one connection: sends keep their places until a signaled one behind them is done.
#[test]
fn sends_that_are_not_signaled_take_room_on_a_port_with_one_connection() {
    let one = |sets: &[&str]| {
        let spec = StageSpec { outputs: &["to"], source: true, ..StageSpec::default() };
        let client = StageKind { name: "client", spec, needs: Some(needs_sends) };
        let text =
            PLAN.replace("connections = 4\nrx_shared_wr = 64", "rx_depth_wr = 64").replace(", other = \"drop\"", "");
        let loader = Loader::new(catalog_with([client]), machine()).sets(sets.iter().copied());
        let plan = loader.load_str("plan.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
        plan.warnings().to_string().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let depth = "port.servers.tx_depth_wr=64";
    let cases = [
        (["signal_every_wr=32", "under_way=33"], None),
        (["signal_every_wr=32", "under_way=34"], Some(33)),
        (["signal_every_wr=1", "under_way=64"], None),
        (["signal_every_wr=1", "under_way=65"], Some(64)),
        // One in 32 by default, and no fewer than the queue holds.
        (["tx_depth_wr=8", "under_way=1"], None),
        (["tx_depth_wr=8", "under_way=2"], Some(1)),
    ];
    for (sets, room) in cases {
        let sets = [depth.to_owned(), format!("port.servers.{}", sets[0]), format!("stage.client.params.{}", sets[1])];
        let warnings = one(&sets.each_ref().map(String::as_str));
        match room {
            Some(room) => assert!(warnings.contains(&format!("has room for {room} sends to one peer")), "{warnings}"),
            None => assert!(!warnings.contains("too-few-sends"), "{sets:?}: {warnings}"),
        }
    }
    let warnings = one(&[depth, "stage.client.params.under_way=48"]);
    assert!(warnings.contains("31 more places may be taken: one send in 32 is signaled"), "{warnings}");
    assert!(warnings.contains("write `tx_depth_wr = 79` or more"), "{warnings}");
}

fn needs_sends(asked: &Asked<'_>) -> Needs {
    Needs { sends: needs(asked).sends, ..Needs::default() }
}

#[test]
fn an_unreliable_connection_has_no_reads() {
    let text = PLAN
        .replace("transport = \"rc\"", "transport = \"uc\"")
        .replace("connect = \"10.9.9.1:7000\"", "peer = \"port.other\"")
        .replace("connections = 4\nrx_shared_wr = 64", "rx_depth_wr = 64");
    let other = text[text.find("[port.servers]").unwrap()..text.find("[stage.client]").unwrap()]
        .replace("port.servers", "port.servers2")
        .replace("\"port.other\"", "\"port.servers\"")
        .replace("[port.servers2]", "[port.other]");
    let spec = StageSpec {
        outputs: &["to", "other"],
        operations: &[OutputOperations { output: "to", kinds: KINDS }],
        ..StageSpec::default()
    };
    let catalog = catalog_with([StageKind { name: "client", spec, needs: None }]);
    let faults = Loader::new(catalog, machine()).load_str("plan.toml", &(text + &other)).expect_err("it is refused");
    let fault = faults.errors().find(|fault| fault.code() == "no-operations").unwrap_or_else(|| panic!("{faults}"));
    assert!(fault.message().contains("port.servers is UC, which has no RDMA READs"), "{faults}");
}
