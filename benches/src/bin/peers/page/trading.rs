//! Tick-to-trade's plots: its percentiles at each rate, and the share of each step.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use verbline_benches::drawing::Drawn;

use super::plots::{LEFT, draw_axis, drawn, label};
use crate::error::RunError;
use crate::row::{RowResult, rounded};

const COLOURS: [RGBColor; 4] =
    [RGBColor(9, 105, 218), RGBColor(191, 135, 0), RGBColor(17, 99, 41), RGBColor(130, 80, 223)];
const WIDTH: u32 = 1100;

/// One line per row on a logarithmic axis of microseconds: the median of the rounds, and their
/// span.
pub(super) fn latencies(rows: &[&RowResult]) -> Result<String, RunError> {
    let values = rows.iter().flat_map(|row| row.ours.iter().copied()).filter(|value| *value > 0.0);
    let [least, most] = values.fold([1.0, 10.0f64], |[least, most], us| [us.min(least), us.max(most)]);
    let span = least.log10().floor()..most.log10().ceil();
    drawn(|svg| draw_latencies(svg, rows, span))
}

fn draw_latencies(svg: &mut String, rows: &[&RowResult], span: std::ops::Range<f64>) -> Drawn<()> {
    let area = SVGBackend::with_string(svg, (WIDTH, 74 + 28 * rows.len() as u32)).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin_right(124)
        .margin_top(8)
        .x_label_area_size(56)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(span.clone(), rows.len() as f64..0.0)?;
    let (name, powers) =
        ("µs (dot: median of the rounds; bar: least to greatest)", (span.end - span.start) as usize + 1);
    draw_axis(&mut chart, name, powers, &|power| format!("{}", rounded(10f64.powf(*power))))?;
    for (index, row) in rows.iter().enumerate() {
        let y = index as f64 + 0.5;
        let log = |us: f64| us.max(f64::MIN_POSITIVE).log10().clamp(span.start, span.end);
        let [least, most] = row.spread().map(|ratio| log(ratio * row.ours_median()));
        chart.draw_series([PathElement::new([(least, y), (most, y)], COLOURS[0].mix(0.45).stroke_width(7))])?;
        chart.draw_series([Circle::new((log(row.ours_median()), y), 5, COLOURS[0].filled())])?;
        let (_, at) = chart.backend_coord(&(span.start, y));
        area.draw(&Text::new(row.row.name, (LEFT as i32 - 8, at), label(HPos::Right)))?;
        let value = format!("{} µs", rounded(row.ours_median()));
        area.draw(&Text::new(value, (WIDTH as i32 - 4, at), label(HPos::Right)))?;
    }
    area.present()?;
    Ok(())
}

/// One bar per rate, cut into its steps; the rows of one rate have the same shares.
pub(super) fn shares(rows: &[&RowResult]) -> Result<String, RunError> {
    let mut runs = rows.to_vec();
    runs.dedup_by_key(|row| row.row.what);
    drawn(|svg| draw_shares(svg, &runs))
}

fn draw_shares(svg: &mut String, runs: &[&RowResult]) -> Drawn<()> {
    let area = SVGBackend::with_string(svg, (WIDTH, 106 + 44 * runs.len() as u32)).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin_right(24)
        .margin_top(38)
        .x_label_area_size(56)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(0.0..100.0, runs.len() as f64..0.0)?;
    draw_axis(&mut chart, "% of the mean time from tick to order", 11, &|percent| format!("{percent:.0}"))?;
    for (index, run) in runs.iter().enumerate() {
        let (top, bottom) = (index as f64 + 0.15, index as f64 + 0.85);
        let mut from = 0.0;
        for ((_, share), colour) in steps(run).into_iter().zip(COLOURS) {
            let to = from + share;
            chart.draw_series([Rectangle::new([(from, top), (to, bottom)], colour.filled())])?;
            // A step too narrow for its figure has none.
            if share >= 4.0 {
                let (x, y) = chart.backend_coord(&((from + to) / 2.0, index as f64 + 0.5));
                area.draw(&Text::new(format!("{share:.0} %"), (x, y), label(HPos::Center).color(&WHITE)))?;
            }
            from = to;
        }
        let (_, at) = chart.backend_coord(&(0.0, index as f64 + 0.5));
        let rate = run.extra["ticks_per_s"].as_f64().unwrap_or(f64::NAN);
        let name = format!("{:.0} thousand ticks/s", rate / 1e3);
        area.draw(&Text::new(name, (LEFT as i32 - 8, at), label(HPos::Right)))?;
    }
    let names = runs.first().map(|run| steps(run)).unwrap_or_default();
    for (index, ((name, _), colour)) in names.into_iter().zip(COLOURS).enumerate() {
        let x = LEFT as i32 + 110 * index as i32;
        area.draw(&Rectangle::new([(x, 12), (x + 14, 26)], colour.filled()))?;
        area.draw(&Text::new(name, (x + 20, 19), label(HPos::Left)))?;
    }
    area.present()?;
    Ok(())
}

/// The steps in their order, with their shares in percent.
fn steps(run: &RowResult) -> Vec<(&'static str, f64)> {
    let shares = &run.extra["shares"];
    let percent = |step: &'static str| Some((step, 100.0 * shares.get(step)?.as_f64()?));
    tick_to_trade::stages::STEPS.into_iter().filter_map(percent).collect()
}
