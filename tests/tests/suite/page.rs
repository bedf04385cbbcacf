//! The live page in a real browser: its display of a run until the run's end, and the effects of
//! keys.

use verbline_tests::{Browser, free_port, skipped};

use crate::operate::{end, endless};

fn text(browser: &mut Browser, selector: &str) -> String {
    let found = browser.value(&format!("document.querySelector('{selector}')?.textContent ?? ''"));
    found.as_str().expect("a text").to_owned()
}

#[test]
fn a_page_shows_a_run_until_its_end_and_says_so() {
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    let listen = format!("metrics.listen=\"127.0.0.1:{port}\"");
    let run = endless(folder.path(), &["--set", &listen, "--set", "trace.one_in=1"]).start();
    let Some(mut browser) = Browser::of_run(port) else { return skipped("no Chromium is installed") };
    browser.wait_for("document.querySelector('#state').textContent === 'running'");
    assert_eq!(text(&mut browser, "#plan"), "rig");
    assert!(text(&mut browser, "#lcores").contains("main"));
    browser.wait_for("document.querySelector('#lcores .why').textContent !== ''");
    let nodes =
        browser.value("[...document.querySelectorAll('.node text:first-of-type')].map(text => text.textContent)");
    assert_eq!(nodes, serde_json::json!(["out", "in", "numbers", "sink"]), "ports, and stages");
    // The numbers' path shows its rate at each arrow.
    browser.wait_for("[...document.querySelectorAll('.rate')].filter(rate => rate.textContent !== '0').length === 2");
    let ports = text(&mut browser, "#table-ports");
    assert!(["out", "in", "up"].iter().all(|word| ports.contains(word)), "{ports}");

    // Rates just below a unit, and counts of a run of days.
    let numbers = "[0, 0.4, 99, 999.4, 999.6, 12345, 999499, 999700, 999700000, 84e6, 999.7e9, 1.5e12, 3.4e15]";
    let shown = browser.value(&format!("{numbers}.map(short)"));
    let figures =
        ["0", "0.40", "99", "999", "1.00k", "12.3k", "999k", "1.00M", "1.00G", "84.0M", "1.00T", "1.50T", "3400T"];
    assert_eq!(shown, serde_json::json!(figures));

    // The durations of calls, once one was timed.
    browser.wait_for("document.querySelectorAll('#times figure .count').length > 0");
    assert!(text(&mut browser, "#times").contains("p99 "));

    browser.wait_for("samples.all.length > 3");
    browser.press(" ");
    assert_eq!(text(&mut browser, "#state"), "held");
    let shown = "samples.all[samples.place()].report.elapsed_ns";
    let (held, before) = (browser.value(shown), browser.value("samples.all.length"));
    browser.wait_for(&format!("samples.all.length > {before}"));
    assert_eq!(browser.value(shown), held, "the page stands still");
    browser.press("ArrowLeft");
    assert!(browser.value(shown).as_u64() < held.as_u64());
    browser.press("End");
    assert_eq!(text(&mut browser, "#state"), "running");
    browser.press("?");
    assert_eq!(browser.value("document.querySelector('#keys').open"), true);

    // The slowest packets, which this run keeps.
    browser.wait_for("document.querySelectorAll('#kept tr').length > 3");
    assert!(text(&mut browser, "#kept").contains("stage.sink"));

    assert!(browser.faults().is_empty(), "{:?}", browser.faults());
    end(run);
    browser.wait_for("document.querySelector('#notice').textContent.includes('the run has ended')");
    assert_eq!(text(&mut browser, "#state"), "no answer");
}
