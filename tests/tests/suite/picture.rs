//! Draws the README's picture: the plan of `./x run`, with the figures of the run in
//! docs/report.md.
//!
//! After a change of that report, draw the picture again:
//! `DRAW=1 cargo test -p verbline-tests --test suite -- picture`.

use std::fmt::Write as _;
use std::fs;

use verbline_tests::root;

/// The colours of one theme of GitHub's.
struct Theme {
    file: &'static str,
    text: &'static str,
    faint: &'static str,
    panel: &'static str,
    border: &'static str,
    box_fill: &'static str,
    wire: &'static str,
    flow: &'static str,
}

const THEMES: [Theme; 2] = [
    Theme {
        file: "docs/picture/plan-light.svg",
        text: "#1f2328",
        faint: "#59636e",
        panel: "#f6f8fa",
        border: "#d1d9e0",
        box_fill: "#ffffff",
        wire: "#0969da",
        flow: "#1a7f37",
    },
    Theme {
        file: "docs/picture/plan-dark.svg",
        text: "#f0f6fc",
        faint: "#9198a1",
        panel: "#151b23",
        border: "#3d444d",
        box_fill: "#0d1117",
        wire: "#4493f8",
        flow: "#3fb950",
    },
];

const WIDTH: u32 = 860;
const HEIGHT: u32 = 432;
const FONTS: &str = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif";
/// The ports of both lcores, a pair a line: the position, the name at either end, and the packets
/// between them.
const WIRES: [(u32, &str, &str, &str); 5] = [
    (96, "feed_a", "md_a", "239.1.1.1"),
    (142, "feed_b", "md_b", "239.1.1.2"),
    (212, "rerequests", "recovery", "lost messages"),
    (258, "snapshot_server", "snapshots", "whole books"),
    (346, "gateway", "orders", "orders, reports"),
];
const LEFT_PORTS: u32 = 184;
const RIGHT_PORTS: u32 = 486;
/// The stages of the trader.
const STAGES: u32 = 664;
const PORT: (u32, u32) = (126, 34);

/// The rows of a report, as printed for people.
struct Report(Vec<Vec<String>>);

impl Report {
    /// The report that docs/report.md shows whole.
    fn shown() -> Report {
        let text = fs::read_to_string(root().join("docs/report.md")).expect("docs/report.md");
        let lines = text.lines().skip_while(|line| !line.starts_with("    tick-to-trade: ran"));
        let lines = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
        Report(lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect())
    }

    /// The cells of a row behind these first words.
    fn row(&self, begin: &[&str]) -> &[String] {
        let row = self.0.iter().find(|row| row.len() > begin.len() && row.iter().zip(begin).all(|(a, b)| a == b));
        &row.unwrap_or_else(|| panic!("the report has no row {begin:?}"))[begin.len()..]
    }

    /// The word behind another, wherever it stands.
    fn behind(&self, word: &str) -> &str {
        let words: Vec<&String> = self.0.iter().flatten().collect();
        let at = words.iter().position(|known| *known == word).unwrap_or_else(|| panic!("the report has no {word}"));
        words[at + 1]
    }
}

/// `1,207`, as all other figures are written.
fn grouped(number: &str) -> String {
    match number.len().checked_sub(3) {
        Some(at @ 1..) => format!("{},{}", &number[..at], &number[at..]),
        _ => number.to_owned(),
    }
}

struct Drawing<'a> {
    theme: &'a Theme,
    svg: String,
}

impl Drawing<'_> {
    fn text(&mut self, (x, y): (u32, u32), size: u32, style: &str, fill: &str, text: &str) {
        let _ = writeln!(self.svg, r#"<text x="{x}" y="{y}" font-size="{size}" fill="{fill}" {style}>{text}</text>"#);
    }

    fn rectangle(&mut self, (x, y): (u32, u32), (width, height): (u32, u32), radius: u32, fill: &str, stroke: &str) {
        let _ = writeln!(
            self.svg,
            r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}" fill="{fill}" stroke="{stroke}"/>"#
        );
    }

    /// A line, with an arrow at its end.
    fn arrow(&mut self, path: &str, colour: &str, more: &str) {
        let marker = if colour == self.theme.wire { "wire" } else { "flow" };
        let _ = writeln!(
            self.svg,
            r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6" marker-end="url(#{marker})" {more}/>"#
        );
    }

    fn lcore(&mut self, report: &Report, name: &str, (x, width): (u32, u32)) {
        let theme = self.theme;
        let [policy, cpu, busy, _, idle, _, asleep, ..] = report.row(&[name]) else { panic!("no row of {name}") };
        self.rectangle((x, 20), (width, 384), 12, theme.panel, theme.border);
        self.text((x + 18, 44), 15, r#"font-weight="600""#, theme.text, &format!("lcore {name}"));
        let rest = if asleep == "0.0" { format!("{idle} % idle") } else { format!("{asleep} % asleep") };
        let line = format!("CPU {cpu} · {policy} · {busy} % busy, {rest}");
        self.text((x + 18, 62), 12, "", theme.faint, &line);
    }

    fn port(&mut self, report: &Report, lcore: &str, name: &str, (x, y): (u32, u32)) {
        let theme = self.theme;
        let [received, sent, ..] = report.row(&[name, lcore]) else { panic!("no row of port {name}") };
        let line = match (received.as_str(), sent.as_str()) {
            ("0", sent) => format!("{sent} sent"),
            (received, "0") => format!("{received} received"),
            (received, sent) => format!("{received} in · {sent} out"),
        };
        self.rectangle((x, y - PORT.1 / 2), PORT, 17, theme.box_fill, theme.wire);
        let middle = x + PORT.0 / 2;
        self.text((middle, y - 2), 12, r#"font-weight="600" text-anchor="middle""#, theme.text, name);
        self.text((middle, y + 11), 10, r#"text-anchor="middle""#, theme.faint, &line);
    }

    fn stage(&mut self, report: &Report, lcore: &str, name: &str, (x, y): (u32, u32), (width, height): (u32, u32)) {
        let theme = self.theme;
        let [came, left, _, each_ns, of_busy, ..] = report.row(&[name, lcore]) else { panic!("no row of {name}") };
        self.rectangle((x, y - height / 2), (width, height), 8, theme.box_fill, theme.flow);
        let (middle, anchor) = (x + width / 2, r#"text-anchor="middle""#);
        self.text((middle, y - 14), 14, r#"font-weight="600" text-anchor="middle""#, theme.text, name);
        self.text((middle, y + 3), 11, anchor, theme.faint, &format!("{came} in"));
        self.text((middle, y + 17), 11, anchor, theme.faint, &format!("{left} out"));
        // On two lines, if the box is narrow.
        let (cost, share) = (format!("{} ns each", grouped(each_ns)), format!("{of_busy} % of busy"));
        if width < 150 {
            self.text((middle, y + 31), 11, anchor, theme.flow, &cost);
            return self.text((middle, y + 45), 11, anchor, theme.flow, &share);
        }
        self.text((middle, y + 31), 11, anchor, theme.flow, &format!("{cost} · {share}"));
    }

    fn wires(&mut self, report: &Report) {
        let theme = self.theme;
        let (from, to) = (LEFT_PORTS + PORT.0, RIGHT_PORTS);
        for (y, left, right, what) in WIRES {
            self.port(report, "exchange", left, (LEFT_PORTS, y));
            self.port(report, "trader", right, (RIGHT_PORTS, y));
            let is_feed = left.starts_with("feed");
            let both = if is_feed { "" } else { r#" marker-start="url(#back)""# };
            let start = if is_feed { from } else { from + 8 };
            self.arrow(&format!("M{start} {y} H{}", to - 8), theme.wire, &format!(r#"stroke-dasharray="5 4"{both}"#));
            let transport = if is_feed || left == "rerequests" { "UD" } else { "RC" };
            let middle = (from + to) / 2;
            self.text((middle, y - 7), 11, r#"text-anchor="middle""#, theme.wire, what);
            self.text((middle, y + 15), 10, r#"text-anchor="middle""#, theme.faint, transport);
        }
    }

    /// Draws the packets' ways from ports to stages, and between stages.
    fn flows(&mut self) {
        let (flow, both) = (self.theme.flow, r#"marker-start="url(#in)""#);
        let ports = RIGHT_PORTS + PORT.0;
        for (y, left, ..) in WIRES {
            match left.starts_with("feed") {
                true => {
                    self.arrow(&format!("M138 {y} H{}", LEFT_PORTS - 8), flow, "");
                    self.arrow(&format!("M{ports} {y} H{}", STAGES - 8), flow, "");
                }
                false => {
                    self.arrow(&format!("M146 {y} H{}", LEFT_PORTS - 8), flow, both);
                    self.arrow(&format!("M{} {y} H{}", ports + 8, STAGES - 8), flow, both);
                }
            }
        }
        self.arrow("M749 161 V184", flow, "");
        self.arrow("M749 276 V296", flow, "");
    }
}

fn draw(report: &Report, theme: &Theme) -> String {
    let mut drawing = Drawing { theme, svg: String::new() };
    let latency = format!(
        "from the scheduled time of a tick to the arrival of its order: {} (p50)",
        report.behind("p50").replace("µs", " µs").replace("ms", " ms")
    );
    let [taken, _, returned, _, held, ..] = report.row(&["packets"]) else { panic!("no row of packets") };
    drawing.lcore(report, "exchange", (10, 308));
    drawing.lcore(report, "trader", (478, 372));
    drawing.stage(report, "exchange", "exchange", (26, 227), (112, 282));
    drawing.flows();
    drawing.wires(report);
    drawing.stage(report, "trader", "arbiter", (STAGES, 119), (170, 84));
    drawing.stage(report, "trader", "book", (STAGES, 234), (170, 84));
    drawing.stage(report, "trader", "strategy", (STAGES, 346), (170, 84));
    let sums = format!("{taken} packets taken, {returned} returned, {held} held");
    drawing.text((10, 425), 13, "", theme.text, &latency);
    drawing.text((WIDTH - 10, 425), 13, r#"text-anchor="end""#, theme.text, &sums);
    let [wire, back] = ["auto", "auto-start-reverse"].map(|orient| marker(orient, "wire", "back", theme.wire));
    let [flow, into] = ["auto", "auto-start-reverse"].map(|orient| marker(orient, "flow", "in", theme.flow));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 12 {WIDTH} {HEIGHT}\" role=\"img\" \
         font-family=\"{FONTS}\">\n\
         <title>The plan of ./x run: an exchange and a trader, with the figures of a run</title>\n\
         <defs>\n{wire}{back}{flow}{into}</defs>\n{}</svg>\n",
        drawing.svg
    )
}

/// An arrowhead, for the end or the beginning of a line.
fn marker(orient: &str, end: &str, start: &str, colour: &str) -> String {
    let id = if orient == "auto" { end } else { start };
    format!(
        "<marker id=\"{id}\" viewBox=\"0 0 8 8\" refX=\"1\" refY=\"4\" markerWidth=\"5\" markerHeight=\"5\" \
         orient=\"{orient}\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"{colour}\"/></marker>\n"
    )
}

#[test]
fn the_readmes_picture_has_the_figures_of_the_report_that_the_documents_show() {
    let report = Report::shown();
    for theme in THEMES {
        let (path, drawn) = (root().join(theme.file), draw(&report, &theme));
        if std::env::var_os("DRAW").is_some() {
            fs::create_dir_all(path.parent().expect("a folder")).expect("docs/picture");
            fs::write(&path, &drawn).expect("the picture");
        }
        let stored = fs::read_to_string(&path).unwrap_or_default();
        assert!(stored == drawn, "{} is not of docs/report.md's run: draw it again with DRAW=1", theme.file);
    }
}

/// The picture has everything that the plan has.
#[test]
fn every_port_and_stage_of_the_plan_is_in_the_picture() {
    let plan = fs::read_to_string(root().join("config/tick-to-trade.toml")).expect("the plan");
    let picture = draw(&Report::shown(), &THEMES[0]);
    let tables = plan.lines().filter_map(|line| line.strip_prefix('[')?.split(']').next());
    let named = tables.filter_map(|table| table.strip_prefix("port.").or(table.strip_prefix("stage.")));
    let named: Vec<&str> = named.collect();
    assert!(named.len() > 10, "{named:?}");
    let missing: Vec<_> = named.into_iter().filter(|name| !picture.contains(&format!(">{name}<"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
