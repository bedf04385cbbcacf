//! The CPU of an lcore: a number, or a place among the process's CPUs; and the diagnostics if there
//! is none.

use crate::common::{GOOD, catalog, machine};
use verbline_plan::{Diagnostics, Loader, Machine, Plan};

/// Loads a plan where somebody else has picked the CPUs.
fn on(cpus: &[u32], text: &str) -> Result<Plan, Diagnostics> {
    let machine = Machine { cpus: cpus.iter().copied().collect(), ..machine() };
    Loader::new(catalog(), machine).load_str("good.toml", text)
}

/// The good plan with these CPUs for its three lcores.
fn plan_with(cpus: [&str; 3]) -> String {
    (0..3).fold(GOOD.to_owned(), |text, lcore| {
        text.replace(&format!("cpu = {lcore}\n"), &format!("cpu = {}\n", cpus[lcore]))
    })
}

const PLACES: [&str; 3] = ["\"allowed:0\"", "\"allowed:1\"", "\"allowed:2\""];

#[test]
fn a_place_is_whichever_cpu_is_there() {
    for cpus in [[0, 1, 2], [3, 5, 7], [1, 64, 65_536]] {
        let plan = on(&cpus, &plan_with(PLACES)).unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(plan.lcores().iter().map(|lcore| lcore.cpu).collect::<Vec<_>>(), cpus);
        assert!(plan.to_dot().contains(&format!("lcore.trader: CPU {}, adaptive", cpus[1])), "{}", plan.to_dot());
    }
    // Places may have gaps, and mix with numbers.
    let mixed = plan_with(["5", "\"allowed:3\"", "\"allowed:0\""]);
    let plan = on(&[3, 5, 7, 9], &mixed).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(plan.lcores().iter().map(|lcore| lcore.cpu).collect::<Vec<_>>(), [5, 9, 3]);
}

#[test]
fn what_cannot_be_says_what_there_is() {
    let cases = [
        // More lcores than CPUs: one error, with both numbers.
        (&[5, 7][..], plan_with(PLACES)),
        (&[5], plan_with(["0", "1", "2"])),
        // Two ways to name one CPU.
        (&[3, 5, 7], plan_with(["7", "\"allowed:2\"", "\"allowed:0\""])),
        (&[3, 5, 7], plan_with(["\"allowed:1\"", "\"allowed:1\"", "3"])),
        // A place beyond the last, and a number that is not allowed.
        (&[3, 5, 7], plan_with(["\"allowed:3\"", "0", "\"allowed:2\""])),
    ];
    let said = cases.map(|(cpus, text)| on(cpus, &text).expect_err(&text).render(false));
    for line in said.iter().flat_map(|text| text.lines()) {
        assert!(line.chars().count() <= 80, "wider than 80 columns: {line}");
    }
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn what_is_no_cpu_is_refused_where_it_stands() {
    for wrong in
        ["allowed", "allowed:", "allowed:-1", "allowed:+1", "allowed: 0", "allowed:65537", "any", "", "0-1", "1.5"]
    {
        let faults = on(&[3, 5, 7], &plan_with([&format!("\"{wrong}\""), "5", "7"])).expect_err(wrong);
        let found: Vec<_> = faults.iter().map(|fault| (fault.code(), fault.location().line)).collect();
        assert_eq!(found, [("bad-value", 19)], "{wrong}: {faults}");
    }
    for wrong in ["-1", "65537", "99999999999999999999", "true", "[0]", "1.5", "\"5\""] {
        let faults = on(&[3, 5, 7], &plan_with([wrong, "5", "7"])).expect_err(wrong);
        assert!(faults.iter().all(|fault| ["bad-value", "wrong-type", "syntax"].contains(&fault.code())), "{faults}");
    }
}

#[test]
fn a_flag_may_name_a_place() {
    let machine = Machine { cpus: [3, 5, 7].into(), ..machine() };
    let sets = [0, 1, 2].map(|place| format!("lcore.{}.cpu=allowed:{place}", ["exchange", "trader", "gateway"][place]));
    let plan = Loader::new(catalog(), machine).sets(sets).load_str("good.toml", GOOD);
    let plan = plan.unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(plan.lcores().iter().map(|lcore| lcore.cpu).collect::<Vec<_>>(), [3, 5, 7]);
}
