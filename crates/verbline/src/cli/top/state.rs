//! The content of the screen, and its changes by keys. It knows neither a terminal nor a clock.

use std::collections::VecDeque;

use verbline_operate::change::Change;
use verbline_operate::client_report::Seen;
use verbline_operate::protocol::Hello;

use super::grid::{Grid, View};

/// The number of reports kept: five minutes of one a second.
const KEPT: usize = 300;

/// The number of reports that `[` and `]` step over.
const LEAP: usize = 10;

/// A key with a meaning here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    Tab,
    BackTab,
    Enter,
    Escape,
    Erase,
}

/// Whether the screen stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Stays,
    Quits,
}

/// The marked row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Lcore(usize),
    Row(usize),
}

/// The shown report, and the change since the one before.
#[derive(Debug)]
pub(crate) struct Shown<'a> {
    pub(crate) later: &'a Seen,
    pub(crate) change: Change,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) hello: Hello,
    /// The reports, the latest last.
    history: VecDeque<Seen>,
    /// The distance from the latest report in reports; `None` while the screen follows.
    behind: Option<usize>,
    /// The fault of the run's answers.
    pub(crate) trouble: Option<String>,
    /// The run has ended: no report follows.
    is_over: bool,
    pub(crate) view: View,
    /// The chosen lcore, if only its rows are listed.
    pub(crate) lcore: Option<String>,
    /// The number of the marked row, over the lcores and then the rows of the grid.
    marked: usize,
    pub(crate) sorted_by: Option<usize>,
    pub(crate) filter: String,
    pub(crate) is_typing: bool,
    pub(crate) shows_help: bool,
}

impl State {
    pub(crate) fn new(hello: Hello) -> State {
        State {
            hello,
            history: VecDeque::with_capacity(KEPT),
            behind: None,
            trouble: None,
            is_over: false,
            view: View::Stages,
            lcore: None,
            marked: 0,
            sorted_by: None,
            filter: String::new(),
            is_typing: false,
            shows_help: false,
        }
    }

    /// Adds a new report.
    pub(crate) fn take(&mut self, seen: Seen) {
        if self.history.len() == KEPT {
            self.history.pop_front();
        }
        self.history.push_back(seen);
        self.trouble = None;
        // The shown report stays while more arrive, until it is dropped as the oldest.
        if let Some(behind) = &mut self.behind {
            *behind = (*behind + 1).min(self.history.len().saturating_sub(2));
        }
    }

    /// Called when the run has ended. A user who is looking back goes on looking.
    pub(crate) fn end(&mut self) -> After {
        self.is_over = true;
        self.trouble = Some("the run is over".to_owned());
        self.after()
    }

    fn after(&self) -> After {
        if self.is_over && self.behind.is_none() { After::Quits } else { After::Stays }
    }

    /// The age of the shown report compared with the latest, in nanoseconds; `None` if the screen
    /// follows the latest.
    pub(crate) fn age_ns(&self) -> Option<u64> {
        self.behind?;
        Some(self.history.back()?.elapsed_ns.saturating_sub(self.history.get(self.place()?)?.elapsed_ns))
    }

    /// The place of the shown report in the history.
    fn place(&self) -> Option<usize> {
        self.history.len().checked_sub(self.behind.unwrap_or(0) + 1)
    }

    /// The shown report, and the change since the one before; for the first report, since the
    /// start.
    pub(crate) fn shown(&self) -> Option<Shown<'_>> {
        let place = self.place()?;
        let later = self.history.get(place)?;
        let earlier = place.checked_sub(1).and_then(|place| self.history.get(place));
        let change = earlier.map_or_else(|| Change::since_start(later), |earlier| Change::between(earlier, later));
        Some(Shown { later, change })
    }

    /// Packets that ports received and sent a second, between each two reports, the latest last;
    /// and the index of the shown rate.
    pub(crate) fn rates(&self) -> (Vec<f64>, Option<usize>) {
        let packets = |seen: &Seen| seen.ports.iter().map(|port| port.rx_packets + port.tx_packets).sum::<u64>();
        let pairs = self.history.iter().zip(self.history.iter().skip(1));
        let rate = |(earlier, later): (&Seen, &Seen)| {
            let over_ns = later.elapsed_ns.saturating_sub(earlier.elapsed_ns).max(1);
            packets(later).saturating_sub(packets(earlier)) as f64 * 1e9 / over_ns as f64
        };
        (pairs.map(rate).collect(), self.place().and_then(|place| place.checked_sub(1)))
    }

    /// The listed rows, in order.
    pub(crate) fn grid(&self, shown: &Shown<'_>) -> Grid {
        let mut grid = Grid::of(self.view, &shown.change, shown.later, self.lcore.as_deref());
        grid.filter(&self.filter);
        if let Some(column) = self.sorted_by {
            grid.sort(column);
        }
        grid
    }

    /// The marked row, if the run has this number of lcores, and the grid this number of rows.
    pub(crate) fn mark(&self, lcores: usize, rows: usize) -> Mark {
        match self.marked.min((lcores + rows).saturating_sub(1)) {
            marked if marked < lcores => Mark::Lcore(marked),
            marked => Mark::Row(marked - lcores),
        }
    }

    pub(crate) fn press(&mut self, key: Key) -> After {
        if self.is_typing {
            self.type_filter(key);
            return After::Stays;
        }
        match key {
            Key::Char('q') => return After::Quits,
            Key::Char('?' | 'h') => self.shows_help = !self.shows_help,
            Key::Char('p' | ' ') => self.behind = if self.behind.is_some() { None } else { Some(0) },
            Key::Char('/') => (self.is_typing, self.filter) = (true, String::new()),
            Key::Char('s') => self.sort_next(),
            Key::Char(digit @ '1'..='7') => self.show(View::ALL[digit as usize - '1' as usize]),
            Key::Char('[') => self.step_back(LEAP),
            Key::Char(']') => self.step_forward(LEAP),
            Key::Left => self.step_back(1),
            Key::Right => self.step_forward(1),
            Key::Home => self.step_back(KEPT),
            Key::End => self.behind = None,
            Key::Tab => self.turn(1),
            Key::BackTab => self.turn(View::ALL.len() - 1),
            Key::Up => self.move_mark(|marked, _| marked.saturating_sub(1)),
            Key::Down => self.move_mark(|marked, last| (marked + 1).min(last)),
            Key::Enter => self.drill(),
            Key::Escape => self.leave(),
            Key::Char(_) | Key::Erase => {}
        }
        self.after()
    }

    fn type_filter(&mut self, key: Key) {
        match key {
            Key::Char(letter) => self.filter.push(letter),
            Key::Erase => _ = self.filter.pop(),
            Key::Escape => (self.is_typing, self.filter) = (false, String::new()),
            _ => self.is_typing = false,
        }
    }

    fn show(&mut self, view: View) {
        if self.view != view {
            (self.view, self.sorted_by) = (view, None);
        }
    }

    fn turn(&mut self, by: usize) {
        let place = View::ALL.iter().position(|view| *view == self.view).unwrap_or(0);
        self.show(View::ALL[(place + by) % View::ALL.len()]);
    }

    fn sort_next(&mut self) {
        let columns = self.shown().map_or(0, |shown| self.grid(&shown).header.len());
        let next = self.sorted_by.map_or(0, |column| column + 1);
        self.sorted_by = (next < columns).then_some(next);
    }

    fn step_back(&mut self, reports: usize) {
        let oldest = self.history.len().saturating_sub(2);
        self.behind = Some((self.behind.unwrap_or(0) + reports).min(oldest));
    }

    /// Steps towards the latest report; beyond it, the screen follows again.
    fn step_forward(&mut self, reports: usize) {
        self.behind = self.behind.and_then(|behind| behind.checked_sub(reports));
    }

    fn move_mark(&mut self, to: fn(usize, usize) -> usize) {
        let Some(shown) = self.shown() else { return };
        let last = (shown.later.lcores.len() + self.grid(&shown).rows.len()).saturating_sub(1);
        self.marked = to(self.marked.min(last), last);
    }

    /// Goes from an lcore to its stages, from a stage to its lcore's ports, from a port to its
    /// connections.
    fn drill(&mut self) {
        let Some(shown) = self.shown() else { return };
        let (lcores, grid) = (shown.later.lcores.len(), self.grid(&shown));
        let text = |row: usize, column: usize| grid.rows.get(row).map(|row| row[column].text.clone());
        match (self.mark(lcores, grid.rows.len()), self.view) {
            (Mark::Lcore(lcore), _) => {
                self.lcore = shown.later.lcores.get(lcore).map(|lcore| lcore.name.clone());
                self.show(View::Stages);
            }
            (Mark::Row(row), View::Stages) => {
                self.lcore = text(row, 1);
                self.show(View::Ports);
            }
            (Mark::Row(row), View::Ports) => {
                self.filter = text(row, 0).unwrap_or_default();
                self.show(View::Connections);
            }
            (Mark::Row(_), _) => return,
        }
        self.marked = lcores;
    }

    /// Undoes the first that applies: help, filter, lcore.
    fn leave(&mut self) {
        if self.shows_help {
            self.shows_help = false;
        } else if !self.filter.is_empty() {
            self.filter.clear();
        } else if let Some(left) = self.lcore.take() {
            let place = self.shown().and_then(|shown| shown.later.lcores.iter().position(|one| one.name == left));
            (self.view, self.sorted_by, self.marked) = (View::Stages, None, place.unwrap_or(0));
        }
    }
}
