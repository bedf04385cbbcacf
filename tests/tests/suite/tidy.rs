//! Rules that no compiler checks: the width of lines and the length of files; SAFETY comments that
//! say something; no circles of imports within a crate; links between documents that lead
//! somewhere; a reason for the soundness of every public function that reaches a device's memory;
//! the same features chosen by cargo, whatever is built.
//!
//! Every rule is a function over text, with a test beside it that plants an offence. Remaining
//! offences are counted here, crate by crate. Both a lower and a higher count than the listed one
//! fail, so the lists can only shrink. Git is not asked: a rule judges the files on the disk.
mod counts;
mod features;
mod imports;
mod lengths;
mod links;
mod members;
mod paths;
mod safety;
mod soundness;
mod tree;
mod widths;

use std::process::Command;

use counts::held;
use tree::Tree;
use verbline_tests::root;

/// Files of more than 400 lines: the allowed length of each, and the reason why it is not two
/// files.
const LONG: &[(&str, usize, &str)] = &[
    ("benches/src/bin/peers/groups.rs", 512, "a table: one function a comparison"),
    ("crates/engine/tests/suite/reconnect.rs", 470, "one test a way to lose a connection"),
    ("crates/mem/src/packet.rs", 446, "every method of a packet, each with its words"),
    ("crates/softnic/src/objects/qp_table.rs", 452, "the table of states, and the check that reads it"),
    ("crates/softnic/src/provider.rs", 452, "one function an entry of ibv_context_ops"),
    ("crates/softnic/tests/suite/harness/mod.rs", 530, "what every test of the C interface is made of"),
    ("crates/softnic/tests/suite/messages.rs", 511, "one test a rule of messages"),
    ("crates/sync/tests/loom.rs", 567, "one model a protocol"),
    ("crates/verbs/conformance/src/rows/mw.rs", 406, "one row a rule of memory windows"),
    ("crates/verbs/src/memory/mr.rs", 436, "a memory region, and its tests"),
    ("crates/verbs/src/scripted_device.rs", 419, "a device for tests: one function a verb"),
];

#[test]
fn lines_are_at_most_100_columns_of_prose_or_120_of_code() {
    let tree = Tree::of_the_repository();
    held(tree.texts().flat_map(|(path, text)| widths::wide(path, text)), &[]).unwrap();
}

#[test]
fn files_are_at_most_400_lines_long() {
    let tree = Tree::of_the_repository();
    lengths::held(tree.sources().map(|(path, text)| (path, text.lines().count())), LONG).unwrap();
}

#[test]
fn safety_comments_name_an_invariant() {
    let tree = Tree::of_the_repository();
    held(tree.sources().flat_map(|(path, text)| safety::empty(path, text)), &[]).unwrap();
}

#[test]
fn files_of_a_crate_import_one_another_in_no_circle() {
    let tree = Tree::of_the_repository();
    held(tree.crates().into_iter().flat_map(|sources| imports::circles(&sources)), &[]).unwrap();
}

#[test]
fn folders_of_a_crate_do_not_import_each_other() {
    let tree = Tree::of_the_repository();
    held(tree.crates().into_iter().flat_map(|sources| imports::two_ways(&sources)), &[]).unwrap();
}

#[test]
fn links_between_documents_lead_somewhere() {
    let tree = Tree::of_the_repository();
    held(tree.documents().flat_map(|(path, text)| links::dead(path, text, &tree)), &[]).unwrap();
}

#[test]
fn sources_that_documents_name_exist() {
    let tree = Tree::of_the_repository();
    held(tree.documents().flat_map(|(path, text)| paths::missing(path, text, &tree)), &[]).unwrap();
}

#[test]
fn functions_are_in_the_sources_that_documents_name() {
    let tree = Tree::of_the_repository();
    held(tree.documents().flat_map(|(path, text)| paths::misplaced(path, text, &tree)), &[]).unwrap();
}

#[test]
fn functions_and_fields_that_documents_name_exist() {
    let tree = Tree::of_the_repository();
    let types = members::types(&tree);
    held(tree.documents().flat_map(|(path, text)| members::missing(path, text, &types)), &[]).unwrap();
}

/// With other features a build of one crate would build half of the workspace again.
#[test]
fn a_crate_beside_the_runner_has_the_features_of_the_whole_workspace() {
    let tree = |of: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["tree", "--offline", "--locked", "--edges", "normal,build,dev", "--prefix", "none"]);
        let output = cargo.args(["--format", "{p} {f}"]).args(of).current_dir(root()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let missing = features::missing(&tree(&["-p", "test-runner"]), &tree(&["--workspace"]));
    assert!(missing.is_empty(), "tests/runner/Cargo.toml doesn't name what turns these on:\n{}", missing.join("\n"));
}
