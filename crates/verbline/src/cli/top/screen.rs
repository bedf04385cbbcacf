//! The screen as lines of text: the content of [`State`] in a given number of columns and rows.

use std::time::Duration;

use indicatif::FormattedDuration;
use ratatui::Frame;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::super::figures::{duration, rate};
use super::super::line::fitted;
use super::super::visible::visible_name;
use super::grid::{Grid, View};
use super::lcores;
use super::palette::{Meaning, Palette};
use super::state::{Mark, Shown, State};

const HELP: &[(&str, &str)] = &[
    ("q, Ctrl-C", "leave; the run goes on"),
    ("up, down", "move the mark over lcores and rows"),
    ("Enter", "from an lcore to its stages, its ports, a port's connections"),
    ("Esc", "back: end the filter, show all lcores"),
    ("1 to 7, Tab", "stages, ports, connections, rings, pools, drops, times"),
    ("s", "sort by the next column (*); behind the last in the plan's order"),
    ("/", "list rows with these letters in a name or a peer"),
    ("p, space", "hold the screen still, and follow again"),
    ("left, right", "one report back or forward; [ and ] ten of them"),
    ("Home, End", "the oldest report that is kept (of 300); the latest"),
];

const KEYS: &str = "q quit  ? help  Enter in  Esc back  p pause  left/right time  s sort  / filter";

/// Draws the screen on a whole frame.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &State, palette: Palette) {
    let area = frame.area();
    let lines = lines(state, (area.width.into(), area.height.into()), palette);
    frame.render_widget(Paragraph::new(lines), area);
}

/// At most as many lines as the screen has rows.
pub(crate) fn lines(state: &State, size: (usize, usize), palette: Palette) -> Vec<Line<'static>> {
    let (width, height) = size;
    let shown = state.shown();
    let mut lines = vec![title(state, shown.as_ref(), width, palette)];
    match shown {
        _ if state.shows_help => lines.extend(help(palette)),
        None => lines.push(Line::raw("waiting for the first report")),
        Some(shown) => lines.extend(body(state, &shown, (width, height.saturating_sub(2)), palette)),
    }
    lines.resize(height.saturating_sub(1).max(1), Line::default());
    let keys = match state.is_typing {
        true => format!("filter: {}_   (Enter keeps it, Esc ends it)", visible_name(&state.filter)),
        false => KEYS.to_owned(),
    };
    lines.push(Line::styled(fitted(&keys, width), palette.style(Meaning::Quiet)));
    lines
}

fn title(state: &State, shown: Option<&Shown<'_>>, width: usize, palette: Palette) -> Line<'static> {
    let hello = &state.hello;
    let age = Duration::from_nanos(shown.map_or(0, |shown| shown.later.elapsed_ns));
    let name = match hello.app == hello.plan {
        true => visible_name(&hello.plan),
        false => format!("{} ({})", visible_name(&hello.plan), visible_name(&hello.app)),
    };
    let left = format!("{name}, process {}, up {}  ", hello.pid, FormattedDuration(age));
    let (right, meaning) = match (&state.trouble, state.age_ns()) {
        (Some(trouble), _) => (trouble.clone(), Meaning::Alarm),
        (None, Some(0)) => ("PAUSED".to_owned(), Meaning::Marked),
        (None, Some(age_ns)) => (format!("PAUSED, {} ago", duration(age_ns)), Meaning::Marked),
        (None, None) => {
            let over = shown.map_or(0, |shown| shown.change.counts().elapsed_ns);
            (format!("in the last {}", duration(over)), Meaning::Quiet)
        }
    };
    let left = fitted(&left, width);
    let right = fitted(&right, width.saturating_sub(left.chars().count()));
    let gap = width.saturating_sub(left.chars().count() + right.chars().count());
    let left = Span::styled(left, palette.style(Meaning::Header));
    Line::from(vec![left, Span::raw(" ".repeat(gap)), Span::styled(right, palette.style(meaning))])
}

fn help(palette: Palette) -> Vec<Line<'static>> {
    let row = |(keys, what): &(&str, &str)| {
        Line::from(vec![
            Span::styled(format!("  {keys:<13}"), palette.style(Meaning::Header)),
            Span::raw((*what).to_owned()),
        ])
    };
    std::iter::once(Line::default()).chain(HELP.iter().map(row)).collect()
}

fn body(state: &State, shown: &Shown<'_>, (width, height): (usize, usize), palette: Palette) -> Vec<Line<'static>> {
    let grid = state.grid(shown);
    let mark = state.mark(shown.later.lcores.len(), grid.rows.len());
    let mut lines = vec![timeline(state, width, palette), Line::default()];
    lines.extend(failures(shown, width, palette));
    // Half of the rest, without the lines between the two tables and the header of the second.
    let half = (height.saturating_sub(lines.len() + 3) / 2).max(2);
    lines.extend(lcores::lines(shown, mark, (width, half), palette));
    lines.push(Line::default());
    lines.push(tabs(state, palette));
    let room = height.saturating_sub(lines.len());
    lines.extend(rows(state, &grid, mark, (width, room), palette));
    lines
}

fn failures(shown: &Shown<'_>, width: usize, palette: Palette) -> Vec<Line<'static>> {
    let line = |failure: &verbline_operate::client_report::Failure| {
        let text = visible_name(&format!("FAILED lcore {}: {}", failure.lcore, failure.message));
        Line::styled(fitted(&text, width), palette.style(Meaning::Alarm))
    };
    shown.later.failures.iter().take(2).map(line).collect()
}

/// The packets of the ports over the kept reports, the latest at the right.
fn timeline(state: &State, width: usize, palette: Palette) -> Line<'static> {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let (rates, place) = state.rates();
    let now = place.and_then(|place| rates.get(place).copied());
    let head = format!("rx+tx/s {:>8} ", now.map_or("-".to_owned(), rate));
    let room = width.saturating_sub(head.len()).min(rates.len());
    let from = match place {
        // The shown report is always within the bars.
        Some(place) => place.min(rates.len() - room),
        None => rates.len() - room,
    };
    let most = rates[from..from + room].iter().copied().fold(1.0, f64::max);
    let mut spans = vec![Span::raw(head)];
    spans.extend(rates[from..from + room].iter().zip(from..).map(|(rate, at)| {
        let level = (rate / most * 7.0).round() as usize;
        let is_shown = state.age_ns().is_some() && Some(at) == place;
        let meaning = if is_shown { Meaning::Marked } else { Meaning::Busy };
        Span::styled(BARS[level.min(7)].to_string(), palette.style(meaning))
    }));
    Line::from(spans)
}

fn tabs(state: &State, palette: Palette) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    for (view, digit) in View::ALL.into_iter().zip(1..) {
        let meaning = if view == state.view { Meaning::Marked } else { Meaning::Plain };
        spans.push(Span::styled(format!(" {digit} {} ", view.word()), palette.style(meaning)));
    }
    if let Some(lcore) = &state.lcore {
        spans.push(Span::raw(format!(" of {}", visible_name(lcore))));
    }
    if !state.filter.is_empty() {
        spans.push(Span::raw(format!(" /{}", visible_name(&state.filter))));
    }
    Line::from(spans)
}

fn rows(
    state: &State,
    grid: &Grid,
    mark: Mark,
    (width, height): (usize, usize),
    palette: Palette,
) -> Vec<Line<'static>> {
    let (header, rows) = grid.lines(width.saturating_sub(2), state.sorted_by);
    let mut lines = vec![Line::styled(format!("  {header}"), palette.style(Meaning::Header))];
    if rows.is_empty() {
        lines.push(Line::styled("  none", palette.style(Meaning::Quiet)));
    }
    let room = height.saturating_sub(1);
    let marked = if let Mark::Row(marked) = mark { marked } else { 0 };
    let first = (marked + 1).saturating_sub(room);
    lines.extend(rows.into_iter().enumerate().skip(first).take(room).map(|(place, row)| {
        match mark == Mark::Row(place) {
            true => Line::styled(format!("> {row}"), palette.style(Meaning::Marked)),
            false => Line::raw(format!("  {row}")),
        }
    }));
    lines.truncate(height);
    lines
}
