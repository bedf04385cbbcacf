//! The live page of a shipped plan, on a desk and on a phone, in light and dark.
//!
//! `WRITE=1 cargo test -p tick-to-trade --test suite -- page` writes the pictures of
//! docs/operate.md.

use rustix::process::Signal;
use verbline_tests::{Browser, free_port, root, skipped};

use crate::command::generated;

#[test]
fn two_lcores_have_a_page_that_fits_a_desk_and_a_phone_in_light_and_dark() {
    let port = free_port();
    let metrics = format!("metrics.listen=\"127.0.0.1:{port}\"");
    let Some(run) = generated("1h", &[&metrics]) else { return };
    let run = run.with(["--quiet", "--no-socket"]).start();
    let Some(mut browser) = Browser::of_run(port) else { return skipped("no Chromium is installed") };
    browser.wait_for("samples.all.length > 4");
    for (name, width, height, is_dark) in
        [("light", 1200, 1000, false), ("dark", 1200, 1000, true), ("phone", 390, 844, false)]
    {
        browser.resize(width, height);
        browser.set_dark(is_dark);
        browser.wait_for(&format!(
            "matchMedia('(prefers-color-scheme: dark)').matches === {is_dark} && innerWidth === {width}"
        ));
        // Wide drawings and tables scroll in their boxes, but the page does not.
        browser.wait_for("document.documentElement.scrollWidth <= innerWidth");
        let colors =
            browser.value("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]");
        assert_eq!(brightness(&colors[0]) < brightness(&colors[1]), is_dark, "{name}: {colors}");
        if std::env::var_os("WRITE").is_some() {
            std::fs::write(root().join(format!("docs/picture/page-{name}.png")), browser.picture()).unwrap();
        }
    }
    let unnamed = browser.value(
        "[...document.querySelectorAll('button, svg[role=img]')]
            .filter(it => !(it.textContent.trim() || it.getAttribute('aria-label'))).length",
    );
    assert_eq!(unnamed, 0, "a reader of the screen hears each by name");
    assert!(browser.faults().is_empty(), "{:?}", browser.faults());
    run.signal(Signal::INT);
    run.finish().exited(0);
}

/// The sum of the three parts of `rgb(r, g, b)`.
fn brightness(color: &serde_json::Value) -> u32 {
    let color = color.as_str().expect("a colour");
    color.split(|letter: char| !letter.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok()).sum()
}
