//! Tables that an app reads itself: all faults that its declarations can tell are found at once,
//! beside those of the plan's own tables.

use verbline_plan::{AppKey, AppTable, Catalog, Inspection, Loader};

use crate::common::{GOOD, catalog, machine};

const PEER: &[AppKey] = &[
    AppKey::text("address", "an address", "where it is"),
    AppKey::integer("weight", 1..=9, "its share").or(1),
    AppKey::flag("is_last", "whether it is asked last").or_flag(false),
];

const FEED: &[AppKey] = &[
    AppKey::text("dir", "a folder", "where it lies"),
    AppKey::real("speed", 0.5..=8.0, "how fast it is played").or_real(1.0),
    AppKey::share("lost", "how much of it is lost").or_real(0.0),
    AppKey::flag("loops", "whether it begins anew").or_flag(false),
    AppKey::choice("mode", &["live", "replay"], "where it comes from").optional("live"),
    AppKey::texts("groups", "groups", "where it goes"),
    AppKey::map("names", "names by number", "what they are called"),
    AppKey::tables("peer", "any", PEER, "who sends it"),
];

const SEED: &[AppKey] = &[AppKey::integer("seed", 0..=99, "for all choices"), AppKey::flag("is_fair", "whether fair")];

const BOOK: &[AppKey] =
    &[AppKey::integer("depth", 1..=64, "price levels"), AppKey::share("slack", "spare room").or_real(0.0)];

fn inspect(text: &str, flags: &[&str]) -> Inspection {
    let table = |name, is_params, meaning, keys| AppTable { name, is_params, meaning, keys };
    let tables = vec![
        table("feed", false, "what is played", FEED),
        table("feed", false, "what is made up", SEED),
        table("book", true, "how deep", BOOK),
    ];
    Loader::new(Catalog { tables, ..catalog() }, machine()).sets(flags.iter().copied()).inspect_str("good.toml", text)
}

fn shown(text: &str, flags: &[&str]) -> String {
    let inspected = inspect(text, flags);
    assert!(inspected.plan.is_none(), "it is refused");
    assert!(!inspected.sums.is_empty(), "the sums do not depend on it");
    inspected.diagnostics.render(false)
}

/// The good plan without its own `[feed]`, and with this one.
fn with_feed(feed: &str) -> String {
    let own = GOOD.find("[feed]").expect("the good plan has one");
    let behind = GOOD[own + 1..].find("\n[").expect("it is not the last table") + own + 2;
    format!("{}\n{feed}\n{}", &GOOD[..own], &GOOD[behind..])
}

#[test]
fn every_fault_of_every_table_is_found_at_once() {
    let feed = "[feed]\nspeed = 9\nlost = \"1\"\nloops = 1\nmode = \"Live\"\ngroups = \"239.1.1.1\"\nspede = 1\n\
                names = { one = 1, two = \"b\", three = [] }\npeer.a = { weight = 0, is_last = \"true\" }\npeer.b = 3";
    insta::assert_snapshot!(shown(&with_feed(feed), &["stage.book.params={ depth = 65, slack = nan, deep = 3 }"]));
}

#[test]
fn they_stand_beside_faults_of_the_plans_own_tables() {
    let text = with_feed("[feed]\ndir = 7");
    let found = inspect(&text, &["lcore.trader.burst=0", "feed.speed=9", "name=3"]).diagnostics;
    let places: Vec<String> = found.errors().map(|one| one.location().to_string()).collect();
    assert_eq!(places.len(), 4, "{found}");
    for flag in ["lcore.trader.burst=0", "feed.speed=9", "name=3"] {
        assert!(places.contains(&format!("--set {flag}")), "{places:?}");
    }
}

/// More faults than are shown are counted, as those of the plan's own tables are.
#[test]
fn those_beyond_the_hundredth_are_counted() {
    let peers: String = (0..150).map(|number| format!("peer.n{number} = {{ weight = 0 }}\n")).collect();
    let said = shown(&with_feed(&format!("[feed]\ndir = \"x\"\n{peers}")), &[]);
    assert!(said.contains("100 errors, and 200 more"), "each needs an address too: {said}");
}

/// A section that several kinds read, each by its own declaration.
#[test]
fn of_several_declarations_the_nearest_one_is_meant() {
    assert!(inspect(&with_feed("[feed]\ndir = \"x\""), &[]).plan.is_some());
    assert!(inspect(&with_feed("[feed]\nseed = 3\nis_fair = true"), &[]).plan.is_some());
    let said = shown(&with_feed("[feed]\nseed = 300\nis_fair = true"), &[]);
    assert!(said.contains("`seed` is 300, which is out of range") && said.contains("1 error"), "{said}");
}

#[test]
fn a_table_that_nobody_declared_is_left_to_the_app() {
    let text = with_feed("[feed]\ndir = \"x\"\n[risk]\nanything = [1, { goes = true }]");
    assert!(inspect(&text, &[]).plan.is_some());
}
