//! Diagnostics for programs and terminals, and files that can't be read.

use crate::common::loader;
use verbline_plan::{Diagnostics, Severity};

const BROKEN: &str = "[lcore.a]\ncpu = 9\n\n[lcore.b]\ncpu = 9\n";

#[test]
fn serialize_for_programs() {
    let faults = loader().load_str("broken.toml", BROKEN).unwrap_err();
    insta::assert_snapshot!(serde_json::to_string_pretty(&faults).unwrap());
}

#[test]
fn colour_is_optional() {
    let faults = loader().load_str("broken.toml", BROKEN).unwrap_err();
    assert!(!faults.render(false).contains('\x1b'));
    assert!(faults.render(true).contains('\x1b'));
}

#[test]
fn are_sorted_by_position_and_counted() {
    let faults = loader().load_str("broken.toml", BROKEN).unwrap_err();
    let places: Vec<_> = faults.iter().map(|fault| (fault.location().line, fault.code(), fault.severity())).collect();
    assert_eq!(places, [(2, "cpu-not-allowed", Severity::Error), (5, "cpu-twice", Severity::Error)]);
    assert!(faults.to_string().ends_with("\n2 errors\n"));
}

#[test]
fn a_file_that_cannot_be_read_is_a_diagnostic() {
    let faults = loader().load_path("no/such/plan.toml").unwrap_err();
    let fault = faults.iter().next().unwrap();
    assert_eq!((fault.code(), fault.location().to_string().as_str()), ("unreadable", "no/such/plan.toml"));
    insta::assert_snapshot!(faults.render(false));
}

#[test]
fn columns_count_characters() {
    let faults = loader().load_str("broken.toml", "name = 'ä' x\n[lcore.a]\ncpu = 0").unwrap_err();
    assert_eq!(faults.iter().next().unwrap().location().to_string(), "broken.toml:1:12");
}

// A `main` that returned them printed all on one line, with the text of the plan in it.
#[test]
fn a_main_that_returns_them_prints_what_a_person_reads() {
    let faults = loader().load_str("broken.toml", BROKEN).unwrap_err();
    assert_eq!(format!("{faults:?}"), faults.to_string());
    let fault = faults.iter().next().unwrap();
    assert_eq!(format!("{fault:?}"), fault.to_string());
    assert_eq!(format!("{:?}", Diagnostics::default()), "no diagnostics");
}
