//! The plots, as SVG.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use verbline_benches::drawing::{Drawn, FAINT, FONT, INK};

use crate::error::RunError;
use crate::row::{Goal, RowResult, round_to};

/// The requested and the drawn size differ: plotters divides by 1.24.
const LARGE: u32 = 17;
const SMALL: u32 = 15;
/// Room for a row's name to the left of a full-width plot.
pub(super) const LEFT: u32 = 236;
const MET: RGBColor = RGBColor(17, 99, 41);
const MISSED: RGBColor = RGBColor(180, 35, 24);
pub(super) const OURS: RGBColor = RGBColor(9, 105, 218);
pub(super) const GOAL: RGBColor = RGBColor(87, 96, 106);

/// Whether a row has a ratio.
pub(super) fn has_ratio(result: &&RowResult) -> bool {
    let ratio = result.ratio();
    ratio.is_finite() && ratio > 0.0
}

/// One line per row on a logarithmic axis: the spread as a bar, the ratio as a dot, the goal as a
/// tick.
pub(super) fn ratios(rows: &[&RowResult]) -> Result<String, RunError> {
    let values = rows
        .iter()
        .flat_map(|result| result.spread().into_iter().chain([result.ratio()]).chain(result.row.goal.ratio()));
    let values = values.filter(|value| value.is_finite() && *value > 0.0);
    let [least, most] = values.fold([0.5, 2.0f64], |[least, most], value| [value.min(least), value.max(most)]);
    let (least, most) = (least.log2().floor(), most.log2().ceil());
    drawn(|svg| draw_ratios(svg, rows, least..most))
}

/// The picture that `draw` makes from an empty one.
pub(super) fn drawn(draw: impl FnOnce(&mut String) -> Drawn<()>) -> Result<String, RunError> {
    let mut svg = String::new();
    draw(&mut svg).map_err(|error| RunError::Plot(error.to_string()))?;
    Ok(svg)
}

/// The chart of a plot with one line per row.
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws the axis below a chart.
pub(super) fn draw_axis(
    chart: &mut Chart<'_, '_>,
    name: &str,
    labels: usize,
    label: &dyn Fn(&f64) -> String,
) -> Drawn<()> {
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_labels(labels)
        .x_label_formatter(label)
        .x_desc(name)
        .axis_desc_style((FONT, LARGE, &INK))
        .label_style((FONT, LARGE, &INK))
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .draw()?;
    Ok(())
}

/// The style of a text aligned by `side`.
pub(super) fn label(side: HPos) -> TextStyle<'static> {
    TextStyle::from((FONT, LARGE).into_font()).color(&INK).pos(Pos::new(side, VPos::Center))
}

fn draw_ratios(svg: &mut String, rows: &[&RowResult], span: std::ops::Range<f64>) -> Drawn<()> {
    let area = SVGBackend::with_string(svg, (1100, 74 + 28 * rows.len() as u32)).into_drawing_area();
    let lines = rows.len() as f64;
    let mut chart = ChartBuilder::on(&area)
        .margin_right(124)
        .margin_top(8)
        .x_label_area_size(56)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(span.clone(), lines..0.0)?;
    // Whole powers of two on the axis, a grid line each.
    let powers = (span.end - span.start) as usize + 1;
    let name = "ours ÷ peer (dot: ratio of the medians; bar: least to greatest of the rounds; tick: goal)";
    draw_axis(&mut chart, name, powers, &|power| power_of_two(*power))?;
    chart.draw_series([PathElement::new([(0.0, 0.0), (0.0, lines)], GOAL.stroke_width(1))])?;
    for (index, result) in rows.iter().enumerate() {
        let y = index as f64 + 0.5;
        let colour = match result.row.goal {
            Goal::Reported => OURS,
            _ if result.met() => MET,
            _ => MISSED,
        };
        let [least, most] =
            result.spread().map(|ratio| ratio.max(f64::MIN_POSITIVE).log2().clamp(span.start, span.end));
        chart.draw_series([PathElement::new([(least, y), (most, y)], colour.mix(0.45).stroke_width(7))])?;
        if let Some(goal) = result.row.goal.ratio() {
            let tick = [(goal.log2(), y - 0.38), (goal.log2(), y + 0.38)];
            chart.draw_series([PathElement::new(tick, GOAL.stroke_width(3))])?;
        }
        let ratio = result.ratio();
        chart.draw_series([Circle::new((ratio.log2(), y), 5, colour.filled())])?;
        let (_, at) = chart.backend_coord(&(span.start, y));
        area.draw(&Text::new(result.row.name, (LEFT as i32 - 8, at), label(HPos::Right)))?;
        let sign = match result.row.goal {
            Goal::RatioAtMost(goal) => format!("{ratio:.2} (≤ {goal})"),
            Goal::RatioAtLeast(goal) => format!("{ratio:.2} (≥ {goal})"),
            Goal::OursBelow(_) | Goal::Reported => format!("{ratio:.2}"),
        };
        let beside = TextStyle::from((FONT, SMALL).into_font()).color(&colour).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(sign, (1096, at), beside))?;
    }
    area.present()?;
    Ok(())
}

fn power_of_two(power: f64) -> String {
    if power < 0.0 { format!("1/{}", 2f64.powf(-power)) } else { format!("{}", 2f64.powf(power)) }
}

/// A scaling row's curve over a logarithmic axis, with y from zero, and a line at the goal relative
/// to its first point.
pub(super) fn curve(result: &RowResult) -> Result<String, RunError> {
    let points: Vec<(f64, f64)> =
        serde_json::from_value(result.extra["points"].clone()).map_err(|error| RunError::Plot(error.to_string()))?;
    let name = |key: &str| result.extra[key].as_str().unwrap_or_default().to_owned();
    drawn(|svg| draw_curve(svg, &points, &name("x"), &name("y"), result.row.goal))
}

fn draw_curve(svg: &mut String, points: &[(f64, f64)], x_name: &str, y_name: &str, goal: Goal) -> Drawn<()> {
    let area = SVGBackend::with_string(svg, (520, 320)).into_drawing_area();
    let powers: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.log2(), *y)).collect();
    let (first, last) = (powers.first().map_or(0.0, |point| point.0), powers.last().map_or(1.0, |point| point.0));
    let goal_y = goal.ratio().unwrap_or(0.0) * powers.first().map_or(0.0, |point| point.1);
    let top = powers.iter().map(|point| point.1).fold(goal_y, f64::max) * 1.2;
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .x_label_area_size(52)
        .y_label_area_size(72)
        .build_cartesian_2d(first - 0.2..last + 0.2, 0.0..top.max(f64::MIN_POSITIVE))?;
    chart
        .configure_mesh()
        .x_labels((last - first) as usize + 1)
        .x_label_formatter(&|power| count(2f64.powf(*power)))
        .y_labels(6)
        .y_label_formatter(&|y| format!("{}", round_to(*y, 3)))
        .x_desc(x_name)
        .y_desc(y_name)
        .axis_desc_style((FONT, LARGE, &INK))
        .label_style((FONT, SMALL, &INK))
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .draw()?;
    if let (Some(limit), Some((_, base))) = (goal.ratio(), powers.first()) {
        let line = [(first - 0.2, base * limit), (last + 0.2, base * limit)];
        chart.draw_series(DashedLineSeries::new(line, 6, 4, GOAL.stroke_width(1)))?;
        let sign = if matches!(goal, Goal::RatioAtLeast(_)) { '≥' } else { '≤' };
        let (_, at) = chart.backend_coord(&(first, base * limit));
        let style = TextStyle::from((FONT, SMALL).into_font()).color(&GOAL).pos(Pos::new(HPos::Left, VPos::Bottom));
        area.draw(&Text::new(format!("goal: {sign} {limit} × the first"), (90, at - 3), style))?;
    }
    chart.draw_series(LineSeries::new(powers.iter().copied(), OURS.stroke_width(2)))?;
    chart.draw_series(powers.iter().map(|point| Circle::new(*point, 4, OURS.filled())))?;
    area.present()?;
    Ok(())
}

/// A count for people: 1024 as 1 Ki.
fn count(value: f64) -> String {
    let value = value.round() as u64;
    match value {
        0..1024 => value.to_string(),
        1024..1_048_576 => format!("{} Ki", value >> 10),
        _ => format!("{} Mi", value >> 20),
    }
}
