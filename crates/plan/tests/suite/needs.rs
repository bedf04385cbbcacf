//! Needs of stages beyond packets: memory and packet lengths, as terms of the sums, and refused
//! before anything is allocated.

use crate::common::{GOOD, catalog, machine};
use serde::Deserialize;
use verbline_plan::{Asked, Loader, Needs};

#[derive(Deserialize)]
struct Feed {
    #[serde(default)]
    books: u64,
    #[serde(default)]
    longest: u64,
}

/// The needs that `[feed]` asks for.
fn needs(asked: &Asked<'_>) -> Needs {
    let feed = asked.section("feed").expect("it is registered");
    let Ok(feed) = feed.parse::<Feed>() else { return Needs::default() };
    assert_eq!((asked.section("nothing").is_some(), asked.params().path()), (false, "stage.publish.params"));
    Needs {
        memory_bytes: vec![("books", feed.books)],
        packet_bytes: vec![("header", 20), ("longest message", feed.longest)],
        ..Needs::default()
    }
}

fn loader(set: &str) -> Loader {
    let mut catalog = catalog();
    let kind = catalog.kinds.iter_mut().find(|kind| kind.name == "publish").expect("the source");
    kind.needs = Some(needs);
    Loader::new(catalog, machine()).sets([set])
}

fn code(set: &str) -> (&'static str, String) {
    let faults = loader(set).load_str("plan.toml", GOOD).expect_err("it is refused");
    assert_eq!(faults.errors().count(), 1, "{faults}");
    let fault = faults.errors().next().expect("one");
    (fault.code(), faults.to_string())
}

#[test]
fn they_are_terms_of_the_sums() {
    let plan = loader("feed.books=12345").load_str("plan.toml", GOOD).unwrap_or_else(|faults| panic!("{faults}"));
    let sum = |of: &str| plan.sums().iter().find(|sum| sum.of.starts_with(of)).unwrap_or_else(|| panic!("no sum {of}"));
    let memory = sum("memory on pages of 4 KiB");
    assert!(memory.terms.iter().any(|term| term.value == 12_345 && term.how == "books"), "{memory:?}");
    let packet = sum("packet of stage.publish");
    assert_eq!((packet.needed, packet.terms[0].what.as_str()), (20, "header"));
}

#[test]
fn timers_are_memory_as_well() {
    let set = "stage.publish.timers_max=1000";
    let plan = loader(set).load_str("plan.toml", GOOD).unwrap_or_else(|faults| panic!("{faults}"));
    let publish = plan.stages().iter().find(|stage| stage.name == "publish").expect("it has one");
    assert_eq!(publish.timers_max, 1000);
    let term = plan.sums().iter().flat_map(|sum| &sum.terms).find(|term| term.how == "its timers").expect("a term");
    assert!(term.what == "stage.publish" && (48_000..64_000).contains(&term.value), "{term:?}");
    assert!(!loader("feed.books=1").load_str("plan.toml", GOOD).unwrap().explain().contains("timers"));
}

#[test]
fn more_memory_than_there_is_is_refused_at_the_stage() {
    let (code, said) = code("feed.books=1_000_000_000_000");
    assert!(code == "too-much-memory" && said.contains("[stage.publish]"), "{said}");
    assert!(said.contains("the run needs 1000") && said.contains("its stages take the most"), "{said}");
}

#[test]
fn a_packet_that_is_too_short_is_refused_at_its_pool() {
    let (code, said) = code("feed.longest=1_000_000");
    assert!(code == "packets-too-short" && said.contains("write `data_bytes = 1000020` or more"), "{said}");
}

#[test]
fn a_stage_that_writes_packets_needs_a_pool() {
    let text = GOOD.lines().scan(false, |is_stage, line| {
        if line.starts_with('[') {
            *is_stage = line == "[stage.publish]";
        }
        Some(if *is_stage && line.starts_with("pool") { "" } else { line })
    });
    let text = text.collect::<Vec<_>>().join("\n");
    let faults = loader("feed.longest=1").load_str("plan.toml", &text).expect_err("it is refused");
    assert!(faults.errors().any(|fault| fault.code() == "pool-needed"), "{faults}");
}
