//! Plans that fan out and in: their batches and depths, their sums, and their drawings.

use crate::common::{catalog_with, machine};
use verbline_plan::{Loader, Plan, Producer, SpreadBy, StageKind, StageSpec, Target};

/// A loader with a kind that makes packets and has one output.
fn loader() -> Loader {
    let spec = StageSpec { outputs: &["made"], source: true, ..StageSpec::default() };
    Loader::new(catalog_with([StageKind { name: "gen", spec, needs: None }]), machine())
}

/// Two lcores receive, and share their packets between two workers, the second on a third lcore.
const SHARED: &str = r#"
[device.nic0]
provider = "soft"
name = "soft0"

[pool.packets]
device = "nic0"
packets = 4096
data_bytes = 2048
cache_packets = 0

[lcore.a]
cpu = 0
burst = 16

[lcore.b]
cpu = 1

[lcore.c]
cpu = 2

[stage.left]
use = "gen"
lcore = "a"
pool = "packets"
out = { made = "spread.workers" }

[stage.right]
use = "gen"
lcore = "b"
pool = "packets"
out = { made = "spread.workers" }

[stage.more]
use = "gen"
lcore = "a"
pool = "packets"
out = { made = "ring.one" }

[spread.workers]
to = ["ring.one", "ring.two"]
by = "key"

[ring.one]
to = "stage.one"
depth = 64

[ring.two]
to = "stage.two"
depth = 128

[stage.one]
use = "sign"
lcore = "c"
out = { signed = "drop" }

[stage.two]
use = "sign"
lcore = "c"
out = { signed = "drop" }
"#;

fn shared() -> Plan {
    loader().load_str("shared.toml", SHARED).unwrap_or_else(|faults| panic!("{faults}"))
}

#[test]
fn a_ring_has_a_lane_for_each_lcore_that_fills_it() {
    let plan = shared();
    let [a, b, c] = plan.lcores() else { panic!("three lcores") };
    let [one, two] = plan.rings() else { panic!("two rings") };
    let name = |from: &Producer| match from {
        Producer::Stage(id) => plan[*id].name.clone(),
        Producer::Port(id) => plan[*id].name.clone(),
    };
    let lanes = |ring: &verbline_plan::Ring| -> Vec<_> {
        let from = |lane: &verbline_plan::Lane| lane.from.iter().map(name).collect::<Vec<_>>().join(" ");
        ring.lanes.iter().map(|lane| (plan[lane.lcore].name.clone(), from(lane), lane.batch_packets)).collect()
    };
    let lane = |lcore: &str, from: &str, batch| (lcore.to_owned(), from.to_owned(), batch);
    assert_eq!(lanes(one), [lane("a", "left more", 32), lane("b", "right", 32)], "two bursts of 16; one of 32");
    assert_eq!(lanes(two), [lane("a", "left", 16), lane("b", "right", 32)]);
    assert_eq!((&a.rings_out, &b.rings_out, &c.rings_in), (&vec![one.id, two.id], &a.rings_out, &a.rings_out));
    let batches = ["one", "two"].map(|name| plan.stages().iter().find(|stage| stage.name == name).unwrap());
    assert_eq!(batches.map(|stage| stage.batch_packets), [64, 64], "a burst from each lane");
    let [spread] = plan.spreads() else { panic!("one spread") };
    assert_eq!((spread.by, &spread.to), (SpreadBy::Key, &vec![Target::Ring(one.id), Target::Ring(two.id)]));
    assert_eq!(plan.target_name(plan.stages()[0].outputs[0]), "spread.workers");
}

#[test]
fn lanes_stand_in_the_sums_and_in_the_drawing() {
    let plan = shared();
    insta::assert_snapshot!("shared_sums", plan.explain());
    insta::assert_snapshot!("shared_dot", plan.to_dot());
    insta::assert_snapshot!("shared_mermaid", plan.to_mermaid());
    for sum in plan.sums() {
        assert_eq!(sum.needed, sum.terms.iter().map(|term| term.value).sum::<u64>(), "{}", sum.of);
    }
}

/// A spread that copies, and the paths from its targets meet again.
#[test]
fn copies_are_counted_where_they_are_made_and_where_they_meet() {
    let text = SHARED.replace("by = \"key\"", "by = \"copy\"").replace("to = \"stage.two\"", "to = \"stage.one\"");
    let text = text.replace("[stage.two]\nuse = \"sign\"\nlcore = \"c\"\nout = { signed = \"drop\" }\n", "");
    let plan = loader().load_str("copies.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
    let pool = plan.sums().iter().find(|sum| sum.of == "pool.packets").unwrap();
    let copied: Vec<_> = pool.terms.iter().filter(|term| term.what.starts_with("copied")).collect();
    let copied: Vec<_> = copied.iter().map(|term| (term.what.as_str(), term.how.as_str(), term.value)).collect();
    // A source's packets: a burst of its own, and the burst of its empty input.
    assert_eq!(
        copied,
        [("copied by stage.left", "1 of each of 32", 32), ("copied by stage.right", "1 of each of 64", 64)]
    );

    let text = text.replace("[\"ring.one\", \"ring.two\"]", "[\"stage.near\", \"stage.far\"]");
    let near = |name| format!("[stage.{name}]\nuse = \"sign\"\nlcore = \"a\"\nout = {{ signed = \"stage.end\" }}\n");
    let text = text.replace("made = \"ring.one\"", "made = \"stage.near\"");
    let end = "[stage.end]\nuse = \"sign\"\nlcore = \"a\"\nout = { signed = \"ring.one\" }\n";
    let text = text.replace("[stage.right]", &(near("near") + &near("far") + end + "[stage.right]"));
    let text = text.replace(
        "lcore = \"b\"\npool = \"packets\"\nout = { made = \"spread.workers\" }",
        "lcore = \"b\"\npool = \"packets\"\nout = { made = \"ring.two\" }",
    );
    let plan = loader().load_str("meet.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
    let batch = |name: &str| plan.stages().iter().find(|stage| stage.name == name).unwrap().batch_packets;
    assert_eq!((batch("near"), batch("far"), batch("end")), (32, 16, 64), "two bursts of 16, and 32 copies");
}

#[test]
fn a_ring_that_holds_names_what_it_holds_and_one_that_drops_the_oldest_keeps_as_many() {
    let text = SHARED.replace("to = \"stage.one\"", "to = \"stage.one\"\nfull = \"hold\"");
    let text = text.replace("to = \"stage.two\"", "to = \"stage.two\"\nfull = \"displace\"\npriority = 2");
    let plan = loader().load_str("full.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
    let held = |ring: usize, lane: usize| -> Vec<&str> {
        plan.rings()[ring].lanes[lane].held.iter().map(|id| plan[*id].name.as_str()).collect()
    };
    assert_eq!((held(0, 0), held(0, 1), held(1, 0)), (vec!["left", "more"], vec!["right"], vec![]));
    let batches: Vec<u32> = plan.rings()[1].lanes.iter().map(|lane| lane.batch_packets).collect();
    assert_eq!((batches, plan.rings()[1].priority), (vec![128, 128], 2), "as many wait as the lane holds");
    assert!(plan.to_dot().contains("ring.two (128, displace, priority 2)"), "{}", plan.to_dot());
    assert!(plan.to_mermaid().contains("ring.one (64, hold)"), "{}", plan.to_mermaid());
}
