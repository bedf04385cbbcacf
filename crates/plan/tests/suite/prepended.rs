//! Prepended headers: the headroom that they need, and the lengths of the sent messages.

use crate::common::{catalog_with, machine};
use verbline_plan::{Diagnostics, Loader, OutputPrepends, Plan, StageKind, StageSpec};

/// Two paths to one port: over two stages and a ring, and over one stage.
const PLAN: &str = r#"
[device.nic]
provider = "soft"
[pool.p]
device = "nic"
packets = 8192
data_bytes = 256
[pool.far]
device = "nic"
packets = 4096
data_bytes = 304
[lcore.one]
cpu = 0
[lcore.two]
cpu = 1
[port.in]
lcore = "one"
device = "nic"
pool = "p"
transport = "ud"
join = ["239.1.1.1"]
rx_depth_wr = 64
next = "stage.inner"
[port.out]
lcore = "two"
device = "nic"
transport = "rc"
peer = "port.far"
tx_depth_wr = 64
[port.far]
lcore = "one"
device = "nic"
pool = "far"
transport = "rc"
peer = "port.out"
rx_depth_wr = 64
next = "drop"
[ring.there]
to = "stage.outer"
depth = 64
[ring.beside]
to = "stage.other"
depth = 64
[stage.inner]
use = "inner"
lcore = "one"
out = { a = "ring.there", b = "ring.beside" }
[stage.outer]
use = "outer"
lcore = "two"
out = { to = "port.out" }
[stage.other]
use = "other"
lcore = "two"
out = { to = "port.out" }
"#;

fn load(text: &str) -> Result<Plan, Diagnostics> {
    let kinds: [(_, &[_], &[_]); 3] = [
        ("inner", &["a", "b"], &[OutputPrepends { output: "a", bytes: 8 }]),
        ("outer", &["to"], &[OutputPrepends { output: "to", bytes: 40 }]),
        ("other", &["to"], &[OutputPrepends { output: "to", bytes: 20 }]),
    ];
    let kinds = kinds.map(|(name, outputs, prepends)| StageKind {
        name,
        spec: StageSpec { outputs, prepends, ..StageSpec::default() },
        needs: None,
    });
    Loader::new(catalog_with(kinds), machine()).load_str("plan.toml", text)
}

#[test]
fn headers_add_up_along_the_longest_way() {
    let plan = load(PLAN).unwrap_or_else(|faults| panic!("{faults}"));
    let sum = plan.sums().iter().find(|sum| sum.of == "headroom of pool.p").expect("a sum");
    let terms: Vec<_> = sum.terms.iter().map(|term| (term.what.as_str(), term.value)).collect();
    assert_eq!(terms, [("prepended by stage.inner", 8), ("prepended by stage.outer", 40)]);
    assert!(sum.needed == 48 && sum.holds(), "{sum:?}");
    assert!(!plan.sums().iter().any(|sum| sum.of.contains("headroom of pool.far")), "nothing is prepended there");
    assert!(plan.warnings().is_empty(), "{}", plan.warnings());
}

#[test]
fn headroom_that_is_too_short_is_refused_at_its_pool() {
    let short = |bytes: u32| {
        load(&PLAN.replacen("data_bytes = 256", &format!("data_bytes = 256\nheadroom_bytes = {bytes}"), 1))
    };
    assert!(short(48).is_ok());
    let faults = short(47).expect_err("a byte is missing");
    let fault = faults.errors().next().expect("one");
    assert_eq!((fault.code(), faults.errors().count()), ("headroom-too-small", 1), "{faults}");
    assert!(fault.help_texts().iter().any(|help| help.contains("`headroom_bytes = 48`")), "{faults}");
}

#[test]
fn what_a_port_sends_is_longer_by_them() {
    let plan = load(&PLAN.replace("data_bytes = 304", "data_bytes = 303")).unwrap_or_else(|faults| panic!("{faults}"));
    let warnings = plan.warnings().to_string();
    assert!(warnings.contains("port.out can send 304 bytes, port.far receives 303"), "{warnings}");
    assert!(warnings.contains("with 48 prepended"), "{warnings}");
}
