//! Ports whose packets choose their send options, and the way back of packets. An option that a
//! stage asks for and its port lacks is refused at its place.

use crate::common::{catalog_with, machine};
use verbline_plan::{Catalog, Diagnostics, Loader, OutputSends, Plan, SendOption, StageKind, StageSpec, Target};

const PLAN: &str = r#"
[device.nic]
provider = "soft"
[pool.p]
device = "nic"
packets = 8192
data_bytes = 64
[lcore.one]
cpu = 0
[lcore.two]
cpu = 1
[port.out]
lcore = "one"
device = "nic"
transport = "rc"
peer = "port.in"
tx_depth_wr = 8
send_options = true
sent = "stage.desk"
[port.in]
lcore = "two"
device = "nic"
pool = "p"
transport = "rc"
peer = "port.out"
rx_depth_wr = 64
next = "drop"
[ring.there]
to = "port.out"
depth = 64
[ring.back]
to = "stage.desk"
depth = 64
[stage.desk]
use = "desk"
lcore = "one"
pool = "p"
out = { to = "port.out" }
"#;

fn desks(options: &'static [OutputSends]) -> Catalog {
    let spec = StageSpec { outputs: &["to"], source: true, sends: options, ..StageSpec::default() };
    catalog_with([StageKind { name: "desk", spec, needs: None }])
}

const ALL: &[OutputSends] = &[OutputSends {
    output: "to",
    options: &[SendOption::Immediate, SendOption::Fence, SendOption::Solicited, SendOption::Returned],
}];

fn load(text: &str, sets: &[&str]) -> Result<Plan, Diagnostics> {
    let text = text.replace("[ring.there]\nto = \"port.out\"\ndepth = 64\n", "");
    let text = text.replace("[ring.back]\nto = \"stage.desk\"\ndepth = 64\n", "");
    Loader::new(desks(ALL), machine()).sets(sets.iter().copied()).load_str("plan.toml", &text)
}

#[test]
fn packets_come_back_to_where_the_plan_says() {
    let plan = load(PLAN, &[]).unwrap_or_else(|faults| panic!("{faults}"));
    let port = &plan.ports()[0];
    assert!(port.send_options);
    assert_eq!(port.sent, Some(Target::Stage(plan.stages()[0].id)));
    // One burst of the stage's own, and one of returned packets.
    let alone = load(&PLAN.replace("send_options = true\nsent = \"stage.desk\"", "send_options = true"), &[]);
    let faults = alone.expect_err("its stage wants packets back");
    assert!(faults.to_string().contains("gives no packet back"), "{faults}");
    assert_eq!(plan.stages()[0].batch_packets, 32);
    let pool = plan.sums().iter().find(|sum| sum.of.contains("pool.p")).expect("a sum");
    assert!(pool.holds());
}

/// The stage and its port are on two lcores: over rings both ways.
#[test]
fn what_is_asked_over_a_ring_is_held_against_the_port_behind_it() {
    let text = PLAN
        .replace("[port.out]\nlcore = \"one\"", "[port.out]\nlcore = \"two\"")
        .replace("sent = \"stage.desk\"", "sent = \"ring.back\"")
        .replace("out = { to = \"port.out\" }", "out = { to = \"ring.there\" }");
    let whole =
        |sets: &[&str]| Loader::new(desks(ALL), machine()).sets(sets.iter().copied()).load_str("plan.toml", &text);
    let plan = whole(&[]).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(plan.ports()[0].sent, Some(Target::Ring(plan.rings()[1].id)));
    assert_eq!(plan.rings()[1].lanes.len(), 1, "the port's lcore fills it");
    let deaf = text
        .replace("send_options = true\nsent = \"ring.back\"", "")
        .replace("[ring.back]\nto = \"stage.desk\"\ndepth = 64\n", "");
    let faults = Loader::new(desks(ALL), machine()).load_str("plan.toml", &deaf).expect_err("it does not look");
    assert!(faults.errors().any(|fault| fault.code() == "no-send-options"), "{faults}");
    // A port can't wait for a ring.
    let faults = whole(&["ring.back.full=hold"]).expect_err("it would hold back the port");
    assert!(faults.errors().any(|fault| fault.code() == "holds-a-port"), "{faults}");
}

#[test]
fn what_a_port_does_not_do_is_refused_at_its_place() {
    let uc = PLAN.replace("\"rc\"", "\"uc\"");
    let cases: [(&str, &[&str], &str, &str, &str); 5] = [
        (PLAN, &["port.out.send_options=false"], "missing-key", "does not look", "add `send_options = true`"),
        (&uc, &[], "no-send-options", "has no fences", "write `transport = \"rc\"`"),
        (PLAN, &["port.out.sent=stage.nobody"], "dangling", "nobody", "desk"),
        (PLAN, &["port.out.sent=port.in"], "wrong-sort", "a port can't stand here", "stage.desk"),
        (PLAN, &["port.out.sent=drop"], "dangling", "`drop` names nothing", "stage.desk"),
    ];
    for (text, sets, code, says, remedy) in cases {
        let faults = load(text, sets).expect_err("it is refused");
        let fault = faults.errors().find(|fault| fault.code() == code).unwrap_or_else(|| panic!("{sets:?}: {faults}"));
        assert!(fault.message().contains(says), "{sets:?}: {faults}");
        assert!(fault.help_texts().iter().any(|help| help.contains(remedy)), "{sets:?}: {faults}");
    }
}

#[test]
fn keys_without_effect_are_warned_of() {
    let text = PLAN.replace(
        "rx_depth_wr = 64\nnext = \"drop\"",
        "rx_depth_wr = 64\nnext = \"drop\"\nsend_options = true\nsent = \"stage.desk\"",
    );
    let text =
        text.replace("[port.in]\nlcore = \"two\"", "[port.in]\nlcore = \"one\"").replace("[lcore.two]\ncpu = 1\n", "");
    let plan = load(&text, &[]).unwrap_or_else(|faults| panic!("{faults}"));
    let warnings = plan.warnings().to_string();
    assert!(
        warnings.contains("`send_options` has no effect") && warnings.contains("`sent` has no effect"),
        "{warnings}"
    );
    assert_eq!(plan.ports()[1].sent, None);
}
