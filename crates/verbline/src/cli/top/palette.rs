//! The display of meanings: in colours, or without them by letters and weight alone.

use ratatui::style::{Color, Modifier, Style};

/// The meaning of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Plain,
    /// The header of a table.
    Header,
    /// The row or view that keys act on.
    Marked,
    /// An explanation of something else.
    Quiet,
    Alarm,
    Busy,
    Idle,
    Asleep,
    Stolen,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    pub(crate) is_coloured: bool,
}

impl Palette {
    pub(crate) fn style(self, meaning: Meaning) -> Style {
        let (colour, modifier) = match meaning {
            Meaning::Plain => return Style::new(),
            Meaning::Header => (None, Modifier::BOLD),
            Meaning::Marked => (None, Modifier::REVERSED),
            Meaning::Quiet => (None, Modifier::DIM),
            Meaning::Alarm => (Some(Color::Red), Modifier::BOLD),
            Meaning::Busy => (Some(Color::Green), Modifier::empty()),
            Meaning::Idle => (Some(Color::Yellow), Modifier::empty()),
            Meaning::Asleep => (Some(Color::Blue), Modifier::empty()),
            Meaning::Stolen => (Some(Color::Red), Modifier::empty()),
        };
        let style = Style::new().add_modifier(modifier);
        colour.filter(|_| self.is_coloured).map_or(style, |colour| style.fg(colour))
    }
}
