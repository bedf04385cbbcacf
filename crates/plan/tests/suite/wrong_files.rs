//! Texts that are no plan are refused soon, briefly, and truthfully: at any size, and from any
//! file.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::{GOOD, catalog, loader, machine};
use verbline_plan::{Diagnostics, Loader, Machine};

/// A thousand times the duration of these checks where the work is linear, and a fraction of their
/// former duration where it was not.
const PATIENCE: Duration = Duration::from_secs(20);

/// The text of a hundred faults, each of a limited length, for any file.
const RENDERED_BYTES_MAX: usize = 100 * 4096;

/// The faults of a refused text, all of them rendered.
#[track_caller]
fn refused(what: &str, text: &str) -> Diagnostics {
    refused_by(loader(), what, text)
}

#[track_caller]
fn refused_by(loader: Loader, what: &str, text: &str) -> Diagnostics {
    let start = Instant::now();
    let inspection = loader.inspect_str("wrong.toml", text);
    assert!(inspection.plan.is_none(), "{what} is no plan");
    let faults = inspection.diagnostics;
    let (shown, json) = (faults.render(false), serde_json::to_string(&faults).unwrap());
    inspection.drawing.to_dot();
    inspection.drawing.to_mermaid();
    assert!(start.elapsed() < PATIENCE, "{what}: {} bytes took {:?}", text.len(), start.elapsed());
    assert!(shown.len().max(json.len()) < RENDERED_BYTES_MAX, "{what}: {} bytes are shown", shown.len());
    assert!(faults.errors().count() > 0 && faults.errors().count() <= 100, "{what}");
    faults
}

fn repeated(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect()
}

#[test]
fn files_of_other_kinds_are_refused_soon() {
    let mib = 1 << 20;
    let texts = [
        ("lines of =", "=\n".repeat(mib / 2)),
        ("a CSV", repeated(30_000, |at| format!("{at},order{at},buy,{}.5,XNAS\n", at * 7))),
        (
            "a JSON of many lines",
            repeated(17_000, |at| format!("  {{\n   \"id\": {at},\n   \"name\": \"n{at}\"\n  }},\n")),
        ),
        (
            "a JSON of one line",
            format!("[{}]", repeated(30_000, |at| format!("{{\"id\": {at}, \"name\": \"n{at}\"}},"))),
        ),
        ("one word", "x".repeat(mib)),
        ("one line of letters", "ä".repeat(mib / 2)),
        ("quotes", "\"\n".repeat(mib / 2)),
        ("equal keys", "a = 1\n".repeat(mib / 6)),
        ("equal headers", "[a]\n".repeat(mib / 4)),
        ("unknown keys", repeated(60_000, |at| format!("key{at} = {at}\n"))),
        ("unknown tables", repeated(60_000, |at| format!("[table{at}]\n"))),
        ("a table of many", "[[stage]]\n".repeat(mib / 10)),
        ("brackets", format!("a = {}", "[".repeat(mib))),
        ("dots", format!("{}a = 1", "a.".repeat(mib / 2))),
        ("a long key", format!("{} = 1", "a".repeat(mib))),
        ("a long name", format!("[lcore.{}]\ncpu = 0\n", "a".repeat(mib))),
        ("a long reference", GOOD.replace("lcore = \"trader\"", &format!("lcore = \"{}\"", "a".repeat(mib / 8)))),
        ("a long array", format!("lcore = [{}]", "1, ".repeat(mib / 4))),
        ("a long value", GOOD.replace("\"239.1.1.1\"", &format!("\"\"\"\n{}\"\"\"", "word \n".repeat(mib / 8)))),
        (
            "faults on one line",
            format!("lcore = {{ {} }}", repeated(9_000, |at| format!("l{at} = {{ cpu = -{at}, x = 1 }}, "))),
        ),
    ];
    for (what, text) in texts {
        refused(what, &text);
    }
}

#[test]
fn the_first_hundred_faults_are_shown_and_the_rest_counted() {
    let faults = refused("unknown keys", &repeated(1234, |at| format!("key{at} = {at}\n")));
    // All of these faults, and the missing lcore.
    assert_eq!((faults.len(), faults.more()), (100, 1135));
    let last = faults.iter().last().unwrap();
    assert_eq!(last.location().to_string(), "wrong.toml:100:1");
    assert!(faults.to_string().ends_with("\n100 errors, and 1135 more that are not shown\n"));
}

#[test]
fn a_hundred_faults_hide_no_warning_and_no_error() {
    let devices = |count| repeated(count, |at| format!("[device.d{at}]\nprovider = \"soft\"\n"));
    let inspection = loader().inspect_str("many.toml", &format!("{GOOD}\n{}", devices(50)));
    assert!(inspection.diagnostics.warnings().count() == 50 && inspection.plan.is_some(), "{}", inspection.diagnostics);
    let faults = refused("too many devices", &format!("{GOOD}\n{}[pool.late]\n", devices(300)));
    assert!(faults.errors().any(|fault| fault.message().contains("[pool.late] needs `device`")), "{faults}");
}

/// Faults in one line of any length, and the quotations of them.
#[test]
fn excerpts_say_where_they_are_cut_from() {
    let filler = "1, ".repeat(40_000);
    let text = format!("name = [{filler}]\n[lcore.a]\ncpu = 0\nidle = \"{}\"\n", "z".repeat(500));
    let inspection = loader().inspect_str("long.toml", &text);
    insta::assert_snapshot!(inspection.diagnostics.render(false));
    let text = format!("lcore = {{ a = {{ cpu = 0, drain = \"{}\" }}, b = {{ cpu = 70000 }} }}\n", " ".repeat(20_000));
    let inspection = loader().inspect_str("line.toml", &text);
    insta::assert_snapshot!(inspection.diagnostics.render(false));
}

/// Tables that were refused as a whole still count as present.
#[test]
fn too_many_of_a_sort_is_one_fault() {
    let stages = repeated(50_000, |at| format!("[stage.s{at}]\nuse=\"sink\"\n"));
    let text = format!("{}{stages}", GOOD.split("[stage.").next().unwrap());
    let faults = refused("stages", &text);
    let shown: Vec<String> = faults.errors().map(|fault| format!("{}: {}", fault.code(), fault.message())).collect();
    assert_eq!(shown, ["bad-value: the plan has 50000 stages; it may have 4096"], "{faults}");
    let faults = refused("a stage that is none", &GOOD.replace("[stage.book]", "[stage]\nbook = 1\n[unknown]"));
    assert!(faults.errors().all(|fault| fault.code() != "dangling"), "{faults}");
}

/// The greatest number of everything in one plan, wired so that everything reaches everything.
#[test]
fn a_plan_of_the_largest_size_is_checked_soon() {
    let stages = 4096;
    let mut text = "[device.nic]\nprovider = \"soft\"\n\
                    [pool.p]\ndevice = \"nic\"\npackets = 1000000\nheadroom_bytes=0\ndata_bytes = 1\n\
                    [lcore.a]\ncpu = 0\n"
        .to_owned();
    text += "[stage.s0]\nuse = \"publish\"\nlcore = \"a\"\npool = \"p\"\nout = { a = \"stage.s1\", b = \"drop\" }\n";
    for at in 1..stages {
        let next = if at + 1 == stages { "drop".to_owned() } else { format!("stage.s{}", at + 1) };
        text += &format!("[stage.s{at}]\nuse=\"sign\"\nlcore=\"a\"\nout={{signed=\"{next}\"}}\n");
    }
    let start = Instant::now();
    let inspection = loader().inspect_str("chain.toml", &text);
    assert!(inspection.plan.is_some(), "{}", inspection.diagnostics);
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    let circle = text.replace("signed=\"drop\"", "signed=\"stage.s1\"");
    let faults = refused("a circle", &circle);
    assert!(faults.to_string().contains("stage.s10 -> 4085 more -> stage.s1"), "{faults}");
}

#[track_caller]
fn unreadable(path: &Path) -> String {
    let start = Instant::now();
    let faults = loader().load_path(path).expect_err("is no plan");
    assert!(start.elapsed() < PATIENCE, "{}: {:?}", path.display(), start.elapsed());
    assert_eq!(faults.iter().map(|fault| fault.code()).collect::<Vec<_>>(), ["unreadable"]);
    faults.render(false).replace(&path.display().to_string(), "PATH")
}

#[test]
fn only_regular_files_are_read_and_no_more_than_a_plan_may_have() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    // Terabytes, none of which exist.
    let long = folder.path().join("long");
    fs::File::create(&long).unwrap().set_len(1 << 42).unwrap();
    let shown: Vec<String> = [Path::new("/dev/zero"), &fifo, folder.path(), &long].map(unreadable).into();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn what_is_not_utf8_says_where_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let texts: [(&str, &[u8]); 4] = [
        ("latin1", b"name = \"caf\xe9\"\n[lcore.a]\ncpu = 0\n"),
        ("cut", b"# caf\xc3"),
        ("utf16", b"\xff\xfen\0a\0m\0e\0"),
        ("binary", b"\x7fELF\x02\x01\x01\0\0\0\xff"),
    ];
    let shown = texts.map(|(name, bytes)| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        unreadable(&path)
    });
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn a_completion_queue_that_is_derived_has_a_bound_too() {
    let mut text = "[device.nic]\nprovider = \"soft\"\n[lcore.a]\ncpu = 0\n".to_owned();
    for at in 0..4096 {
        text += &format!(
            "[port.p{at}]\nlcore=\"a\"\ndevice=\"nic\"\ntransport=\"ud\"\ntx_depth_wr=1048576\nsend_to=\"239.1.1.1\"\n"
        );
    }
    let vast = Machine { memory_bytes: u64::MAX, ..machine() };
    let faults = refused_by(Loader::new(catalog(), vast), "ports", &text);
    assert_eq!(faults.errors().map(|fault| fault.code()).collect::<Vec<_>>(), ["cq-too-deep"], "{faults}");
    let faults = refused("ports", &text);
    assert!(faults.errors().any(|fault| fault.code() == "too-much-memory"), "{faults}");
}
