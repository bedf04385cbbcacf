//! UD ports with several peers: the groups that they send to, and the senders that they answer.

use crate::common::{catalog_with, machine};
use verbline_plan::{Diagnostics, Loader, Plan, StageKind, StageSpec};

const PLAN: &str = r#"
[device.nic]
provider = "soft"
[pool.p]
device = "nic"
packets = 4096
data_bytes = 64
[lcore.one]
cpu = 0
[port.server]
lcore = "one"
device = "nic"
pool = "p"
transport = "ud"
join = ["239.1.1.1"]
senders_max = 8
rx_depth_wr = 64
tx_depth_wr = 64
next = "stage.echo"
[stage.echo]
use = "echo"
lcore = "one"
out = { to = "port.server" }
"#;

fn load(text: &str) -> Result<Plan, Diagnostics> {
    let spec = StageSpec { outputs: &["to"], ..StageSpec::default() };
    let echo = StageKind { name: "echo", spec, needs: None };
    Loader::new(catalog_with([echo]), machine()).load_str("plan.toml", text)
}

#[test]
fn a_port_that_answers_needs_no_destination_and_may_have_several() {
    let plan = load(PLAN).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!((plan.ports()[0].senders_max, plan.ports()[0].send_to.len()), (8, 0));
    let groups = PLAN.replace("senders_max = 8", "send_to = [\"239.1.1.2\", \"239.1.1.3\"]");
    let plan = load(&groups).unwrap_or_else(|faults| panic!("{faults}"));
    let names: Vec<String> = plan.ports()[0].send_to.iter().map(ToString::to_string).collect();
    assert_eq!((names.as_slice(), plan.ports()[0].senders_max), (&["239.1.1.2".into(), "239.1.1.3".into()][..], 0));
    // Packets are sorted, and wait for their addresses: one batch each, which the pool must supply.
    let term = |plan: &Plan| {
        let sum = plan.sums().iter().find(|sum| sum.of == "pool.p").expect("a sum");
        sum.terms.iter().find(|term| term.what.contains("several peers")).map(|term| term.value)
    };
    assert_eq!(term(&plan), Some(64));
    let alone = load(&PLAN.replace("senders_max = 8", "send_to = \"239.1.1.2\"")).unwrap();
    assert_eq!((term(&alone), alone.ports()[0].send_to.len()), (None, 1));
}

#[test]
fn what_makes_no_sense_is_refused_at_its_place() {
    let twice = PLAN.replace("senders_max = 8", "send_to = [\"239.1.1.2\", \"239.1.1.2\"]");
    let unicast = PLAN.replace("senders_max = 8", "send_to = [\"239.1.1.2\", \"10.0.0.1\"]");
    let reliable = PLAN.replace("\"ud\"", "\"rc\"").replace("join = [\"239.1.1.1\"]\n", "");
    let nobody = PLAN.replace("senders_max = 8\n", "");
    for (text, code, says) in [
        (twice, "duplicate-name", "sends to 239.1.1.2 twice"),
        (unicast, "bad-value", "is not a multicast address"),
        (reliable, "ud-only-key", "`senders_max` is for UD"),
        (nobody, "missing-key", "sends datagrams to nobody"),
    ] {
        let faults = load(&text).expect_err("it is refused");
        let fault = faults.errors().find(|fault| fault.code() == code).unwrap_or_else(|| panic!("{code}: {faults}"));
        assert!(fault.message().contains(says), "{faults}");
    }
}

#[test]
fn places_for_senders_want_both_queues() {
    let deaf = PLAN
        .replace("rx_depth_wr = 64\n", "")
        .replace("next = \"stage.echo\"\n", "send_to = \"239.1.1.1\"\n")
        .replace("join = [\"239.1.1.1\"]\n", "")
        .replace("use = \"echo\"\nlcore = \"one\"", "use = \"publish\"\nlcore = \"one\"\npool = \"p\"")
        .replace("out = { to = \"port.server\" }", "out = { a = \"port.server\", b = \"drop\" }");
    let plan = load(&deaf).unwrap_or_else(|faults| panic!("{faults}"));
    assert!(plan.warnings().to_string().contains("`senders_max` has no effect"), "{}", plan.warnings());
}
