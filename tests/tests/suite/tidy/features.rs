//! Features: whether naming a package beside others makes cargo choose the features of the whole
//! workspace, as tests/runner/Cargo.toml promises.

use std::collections::{BTreeMap, BTreeSet};

/// The features of each crate, from the output of `cargo tree --format "{p} {f}" --prefix none`.
pub(super) fn features(tree: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in tree.lines() {
        let line = line.strip_suffix(" (*)").unwrap_or(line);
        // `libc v0.2.1 default,std`, `errno v0.3.1`, `kv v0.1.0 (/a/path) `.
        let mut words = line.split(' ').filter(|word| !word.starts_with('('));
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            let of = crates.entry(format!("{name} {version}")).or_default();
            of.insert(words.next().unwrap_or_default().to_owned());
        }
    }
    crates
}

/// The crates in both sets that have fewer features in `one` than in `all`.
pub(super) fn missing(one: &str, all: &str) -> Vec<String> {
    let one = features(one);
    let missing = features(all).into_iter().filter_map(|(name, wanted)| {
        let there = one.get(&name)?;
        (!wanted.is_subset(there)).then(|| format!("{name} has {there:?}, and in the workspace {wanted:?}"))
    });
    missing.collect()
}

#[test]
fn features_that_are_missing_are_named() {
    let all = "a v1.0.0 x,y\nb v2.0.0\n\nkv v0.1.0 (/here/kv) z\na v1.0.0 x,y (*)\nc v1.0.0 \n";
    assert!(missing(all, all).is_empty());
    // Extra features of build dependencies do no harm; absent crates are left out.
    assert!(missing("a v1.0.0 x,y\na v1.0.0 \nkv v0.1.0 z\n", all).is_empty());
    let said = missing("a v1.0.0 x\nkv v0.1.0 (/here/kv) \n", all);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("a v1.0.0 has {\"x\"}") && said[1].starts_with("kv v0.1.0 has"), "{said:?}");
}
