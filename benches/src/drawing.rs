//! The common parts of the pictures of docs/performance and of the peers' page: colours, legend and
//! axis labels.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The font of all texts.
pub const FONT: &str = "system-ui, sans-serif";
/// The size of texts within a panel.
pub const SIZE: u32 = 15;
/// The colour of texts and axes.
pub const INK: RGBColor = RGBColor(27, 31, 36);
/// The colour of the background behind the lines.
pub const FAINT: RGBColor = RGBColor(208, 215, 222);
/// The colours of the lines, in their order.
pub const COLOURS: [RGBColor; 3] = [RGBColor(180, 35, 24), RGBColor(17, 99, 41), RGBColor(9, 105, 218)];

/// A picture, a part of one, or an error.
pub type Drawn<T> = Result<T, Box<dyn std::error::Error>>;

/// The lines' names and colours, at the top right of 1,100 pixels.
pub fn legend<'a>(area: &DrawingArea<SVGBackend<'_>, Shift>, names: impl Iterator<Item = &'a str>) -> Drawn<()> {
    for (at, (name, colour)) in names.zip(COLOURS).enumerate() {
        let x = 640 + 140 * at as i32;
        area.draw(&PathElement::new([(x, 26), (x + 28, 26)], colour.stroke_width(3)))?;
        let style = TextStyle::from((FONT, SIZE).into_font()).color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(name.to_owned(), (x + 36, 26), style))?;
    }
    Ok(())
}

/// A label of a logarithmic axis.
#[must_use]
pub fn power_of_ten(power: f64) -> String {
    match power.round() as i32 {
        power @ ..0 => format!("0.{}1", "0".repeat((-power - 1) as usize)),
        power @ 0..4 => format!("{}", 10_u32.pow(power as u32)),
        power => format!("10^{power}"),
    }
}
