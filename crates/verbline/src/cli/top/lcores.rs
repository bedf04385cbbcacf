//! The upper part of the screen: lcores as bars, with the reasons why they are awake.

use ratatui::text::{Line, Span};
use verbline_operate::awake::{Shares, why_awake};
use verbline_operate::client_report::Lcore;

use super::super::figures::{percent, rate};
use super::super::line::fitted;
use super::super::visible::visible_name;
use super::palette::{Meaning, Palette};
use super::state::{Mark, Shown};

/// Columns of a bar.
const BAR: usize = 16;

/// Columns of a name; longer ones are cut.
const NAME: usize = 12;

/// The parts of a bar: shares of the time, each with its letter.
const PARTS: [(char, Meaning); 4] =
    [('#', Meaning::Busy), ('-', Meaning::Idle), ('.', Meaning::Asleep), ('!', Meaning::Stolen)];

/// At most `height` lines: a header, the lcores, and below each lcore the reason why it is awake,
/// or below the marked one alone if there is no room for more.
pub(crate) fn lines(shown: &Shown<'_>, mark: Mark, size: (usize, usize), palette: Palette) -> Vec<Line<'static>> {
    let (width, height) = size;
    let lcores = &shown.change.counts().lcores;
    let marked = if let Mark::Lcore(marked) = mark { marked } else { 0 };
    let room = height.saturating_sub(1);
    let explains_all = lcores.len() * 2 <= room;
    let listed = if explains_all { lcores.len() } else { room.saturating_sub(1).max(1) };
    let first = (marked + 1).saturating_sub(listed);
    let mut lines = vec![header(palette)];
    for (place, lcore) in lcores.iter().enumerate().skip(first).take(listed) {
        lines.push(row(shown, lcore, mark == Mark::Lcore(place), palette));
        if explains_all || place == marked {
            let why = format!("    {}", visible_name(&why_awake(&shown.change, lcore)));
            lines.push(Line::styled(fitted(whole_clauses(&why, width), width), palette.style(Meaning::Quiet)));
        }
    }
    lines.truncate(height);
    lines
}

fn header(palette: Palette) -> Line<'static> {
    let shares = ["busy #", "idle -", "asleep .", "stolen !"].map(|word| format!(" {word:>8}")).concat();
    let text = format!("  {:<NAME$} cpu {:<BAR$}{shares} sleeps/s", "lcore", "");
    Line::styled(text, palette.style(Meaning::Header))
}

fn row(shown: &Shown<'_>, lcore: &Lcore, is_marked: bool, palette: Palette) -> Line<'static> {
    let Shares { busy, idle, asleep, stolen } = Shares::of(lcore);
    let shares = [busy, idle, asleep, stolen];
    let name = fitted(&visible_name(&lcore.name), NAME);
    let head = format!("{} {name:<NAME$} {:>3} ", if is_marked { '>' } else { ' ' }, lcore.cpu);
    let marked = if is_marked { Meaning::Marked } else { Meaning::Plain };
    let mut spans = vec![Span::styled(head, palette.style(marked))];
    spans.extend(
        bar(shares).into_iter().zip(PARTS).map(|(columns, (letter, meaning))| {
            Span::styled(letter.to_string().repeat(columns), palette.style(meaning))
        }),
    );
    let used: usize = bar(shares).iter().sum();
    spans.push(Span::raw(" ".repeat(BAR - used)));
    let is_robbed = stolen > 0.1;
    for (share, is_alarm) in shares.into_iter().zip([false, false, false, is_robbed]) {
        let meaning = if is_alarm { Meaning::Alarm } else { Meaning::Plain };
        spans.push(Span::styled(format!(" {:>8}", percent(share)), palette.style(meaning)));
    }
    spans.push(Span::raw(format!(" {:>8}", rate(shown.change.per_second(lcore.sleeps)))));
    Line::from(spans)
}

/// As many clauses, from the first on, as fit a line.
fn whole_clauses(words: &str, width: usize) -> &str {
    let mut whole = words;
    while whole.chars().count() > width
        && let Some((shorter, _)) = whole.rsplit_once("; ")
    {
        whole = shorter;
    }
    whole
}

/// The columns of each share; together [`BAR`], once the lcore has run. A share too small for a
/// column still gets one.
fn bar(shares: [f64; 4]) -> [usize; 4] {
    let mut columns = shares.map(|share| match share {
        share if share < 0.005 => 0,
        share => ((share * BAR as f64).round() as usize).max(1),
    });
    while columns.iter().sum::<usize>() > BAR {
        let most = (0..4).max_by_key(|&part| columns[part]).unwrap_or(0);
        columns[most] -= 1;
    }
    let sum: usize = columns.iter().sum();
    if sum > 0 {
        let most = (0..4).max_by_key(|&part| columns[part]).unwrap_or(0);
        columns[most] += BAR - sum;
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_go_into_a_line_is_left_out_by_clauses() {
        assert_eq!(whole_clauses("awake; kept away; late", 22), "awake; kept away; late");
        assert_eq!(whole_clauses("awake; kept away; late", 21), "awake; kept away");
        assert_eq!(whole_clauses("awake; kept away; late", 3), "awake", "the rest is cut");
    }

    #[test]
    fn a_bar_is_full_and_shows_what_is_little() {
        assert_eq!(bar([0.0; 4]), [0; 4], "it has not run");
        assert_eq!(bar([1.0, 0.0, 0.0, 0.0]), [16, 0, 0, 0]);
        assert_eq!(bar([0.97, 0.01, 0.01, 0.01]), [13, 1, 1, 1]);
        for part in 0..=100 {
            let busy = f64::from(part) / 100.0;
            let rest = (1.0 - busy) / 3.0;
            assert_eq!(bar([busy, rest, rest, rest]).iter().sum::<usize>(), BAR);
        }
    }
}
