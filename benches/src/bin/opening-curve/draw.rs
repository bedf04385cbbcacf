//! The picture: round trips over time, with the time in which connections opened behind them.

use plotters::prelude::*;
use verbline_benches::drawing::{COLOURS, Drawn, FAINT, FONT, INK, SIZE, legend, power_of_ten};
use verbline_benches::ours::opening::{Course, Slot};

/// A line: its name, and the value of a slot.
type Line = (&'static str, fn(&Slot) -> u64);

const LINES: [Line; 3] = [("most", |slot| slot.max_ns), ("p99", |slot| slot.p99_ns), ("p50", |slot| slot.p50_ns)];

/// The picture of one run.
pub(crate) fn picture(course: &Course) -> Drawn<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (1100, 480)).into_drawing_area();
        area.fill(&WHITE)?;
        let style = TextStyle::from((FONT, 20).into_font()).color(&INK);
        let title = format!("round trips while {} connections open (grey)", course.opened);
        area.draw(&Text::new(title, (24, 16), style))?;
        legend(&area, LINES.iter().map(|(name, _)| *name))?;
        let (_, panel) = area.split_vertically(48);
        draw(&panel, course)?;
        area.present()?;
    }
    Ok(svg)
}

fn draw(area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>, course: &Course) -> Drawn<()> {
    let ms = |ns: u64| ns as f64 / 1e6;
    let us = |ns: u64| (ns.max(100) as f64 / 1e3).log10();
    let last_ms = course.slots.last().map_or(1.0, |slot| ms(slot.from_ns));
    let top = course.slots.iter().map(|slot| us(slot.max_ns)).fold(1.0_f64, f64::max).ceil();
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..last_ms, -1.0..top)?;
    let opening = [(0.0, -1.0), (ms(course.took_ns), top)];
    chart.draw_series([Rectangle::new(opening, FAINT.mix(0.4).filled())])?;
    chart
        .configure_mesh()
        .x_desc("ms since the first connection opened")
        .y_labels(top as usize + 2)
        .y_label_formatter(&|power| power_of_ten(*power))
        .y_desc("a round trip, µs")
        .axis_desc_style((FONT, SIZE, &INK))
        .label_style((FONT, SIZE, &INK))
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .draw()?;
    for ((_, value), colour) in LINES.iter().zip(COLOURS) {
        let points = course.slots.iter().map(|slot| (ms(slot.from_ns), us(value(slot))));
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    Ok(())
}
