//! Namespaces on their way to stages, and back.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::*;
use crate::settings::Settings;

/// The shipped plan with these namespaces.
fn plan(namespaces: &str) -> verbline::plan::Plan {
    let mut registry = verbline::engine::Registry::new("nvme-target");
    verbline::cli::App::register(&crate::NvmeTarget::default(), &mut registry);
    let text = include_str!("../../../../config/nvme-target.toml");
    let (front, rest) = text.split_once("[nvme.namespace.1]").expect("a namespace");
    let (_, rest) = rest.split_once("\n\n").expect("a section behind it");
    let text = format!("{front}{namespaces}\n{rest}");
    let loader = verbline::plan::Loader::new(registry.catalog(), verbline::plan::Machine::detect());
    loader.load_str("test.toml", &text).unwrap_or_else(|faults| panic!("{faults}"))
}

/// The settings of the same plan.
fn settings(namespaces: &str) -> Settings {
    let plan = plan(namespaces);
    Settings::read(plan.section("nvme").expect("a section")).unwrap_or_else(|error| panic!("{error}"))
}

/// A stage's pool, of one packet.
fn pool() -> DataPool {
    use verbline::mem::{PageChoice, PageSize, Pool, PoolSpec, Region, RegionSpec};
    let plan = plan(&null(1, 4096));
    let plan = plan.pools().iter().find(|pool| pool.name == "data").expect("a pool").clone();
    let spec = PoolSpec { name: "data".into(), packets: 1, data_bytes: 4096, headroom_bytes: 0 };
    let (len_bytes, pages) = (Pool::required_bytes(&spec), PageChoice::Exactly(PageSize::Small4K));
    let region = Region::map(&RegionSpec { name: "data".into(), len_bytes, pages, lock: false }).expect("memory");
    DataPool { plan, memory: Pool::new(region, spec).expect("a pool") }
}

fn null(nsid: u32, bytes: u32) -> String {
    format!("[nvme.namespace.{nsid}]\nnull_bytes = {bytes}\n")
}

fn open(nsid: u32, how: &NamespaceSettings, settings: &Settings) -> Result<Space, String> {
    let shared = Shared::new(crate::shared::OwnStores::default());
    Space::open(nsid, how, settings, 4, &shared, None).map_err(|error| error.to_string())
}

fn added(changes: &[Change]) -> Vec<u32> {
    changes.iter().filter(|change| matches!(change, Change::Add(_))).map(nsid_of).collect()
}

fn nsid_of(change: &Change) -> u32 {
    match change {
        Change::Add(space) => space.nsid,
        Change::Remove(nsid) => *nsid,
    }
}

/// While a namespace is being opened, which may take seconds, stages take and give up namespaces
/// without waiting.
#[test]
fn two_lcores_stages_wait_for_nobody_who_opens() {
    let namespaces = Namespaces::default();
    let plan = settings(&null(1, 4096));
    namespaces.begin("a", &pool(), 4, &plan);
    let space = open(1, &plan.numbered()[&1], &plan).expect("a namespace");
    let wanted = settings(&null(2, 4096));
    let (opening, is_opening) = channel();
    let (go_on, may_go_on) = channel::<()>();
    thread::scope(|scope| {
        let (namespaces, wanted) = (&namespaces, &wanted);
        let renewed = scope.spawn(move || {
            namespaces.renew_with(wanted, |nsid, how, settings, _| {
                opening.send(()).expect("the test waits");
                may_go_on.recv().expect("the test says so");
                open(nsid, how, settings)
            })
        });
        is_opening.recv_timeout(Duration::from_secs(20)).expect("it is being opened");
        assert!(namespaces.state.try_lock().is_ok(), "the thread that opens holds no lock of the stages");
        assert!(namespaces.take("a").is_empty());
        assert!(namespaces.leave(space).is_ok(), "a stage gives up what it has");
        go_on.send(()).expect("it waits");
        renewed.join().expect("no panic").expect("taken");
    });
    let changes = namespaces.take("a");
    assert_eq!(changes.iter().map(nsid_of).collect::<Vec<_>>(), [1, 2]);
}

/// A number is used again, with other blocks, only when every stage has given it up. A namespace
/// that was withdrawn before the stages took it never appears.
#[test]
fn two_lcores_a_number_comes_again_when_every_stage_has_left_it() {
    let namespaces = Namespaces::default();
    let plan = settings(&null(1, 4096));
    for stage in ["a", "b"] {
        namespaces.begin(stage, &pool(), 4, &plan);
    }
    let held = ["a", "b"].map(|_| open(1, &plan.numbered()[&1], &plan).expect("a namespace"));
    let renew = |text: &str| {
        namespaces.renew_with(&settings(text), |nsid, how, settings, _| open(nsid, how, settings)).expect("taken")
    };
    renew(&null(3, 4096));
    assert_eq!(added(&namespaces.take("a")), [3]);
    assert_eq!(added(&namespaces.take("b")), [3]);
    let said = renew(&(null(3, 4096) + &null(1, 8192)));
    assert!(said.contains("[1] come when nothing"), "{said}");
    let [first, second] = held;
    assert!(added(&namespaces.take("a")).is_empty());
    assert!(namespaces.leave(first).is_ok());
    assert!(added(&namespaces.take("a")).is_empty(), "stage b has it still");
    // Withdrawn, and asked for once more.
    renew(&null(3, 4096));
    renew(&(null(3, 4096) + &null(1, 12_288)));
    assert!(namespaces.leave(second).is_ok());
    for stage in ["a", "b"] {
        let changes = namespaces.take(stage);
        assert_eq!(added(&changes), [1], "stage {stage}");
        let blocks = changes.iter().filter_map(|change| match change {
            Change::Add(space) => Some(space.store.geometry().blocks),
            Change::Remove(_) => None,
        });
        assert_eq!(blocks.collect::<Vec<_>>(), [3], "the last that was asked for");
    }
}
