//! The picture: four panels over the arrivals per second, a line per policy.

use plotters::prelude::*;
use verbline_benches::drawing::{COLOURS, Drawn, FAINT, FONT, INK, SIZE, legend, power_of_ten};
use verbline_benches::ours::curve::{Curve, Point};

/// A panel: its name, and the value of a point.
struct Panel {
    name: &'static str,
    value: fn(&Point) -> f64,
    /// Whether the scale is by powers of ten; otherwise it is in percent, from 0 to 100.
    logarithmic: bool,
}

const PANELS: [Panel; 4] = [
    Panel { name: "CPU of its lcore, %", value: |point| 100.0 * point.cpu_share, logarithmic: false },
    Panel { name: "batches that found it asleep, %", value: |point| 100.0 * point.late_share, logarithmic: false },
    Panel { name: "p50, µs", value: |point| point.p50_ns as f64 / 1e3, logarithmic: true },
    Panel { name: "p99, µs", value: |point| point.p99_ns as f64 / 1e3, logarithmic: true },
];

/// The picture of one spacing of arrivals, with the machine's facts below it.
pub(crate) fn curves(title: &str, curves: &[Curve], facts: &[String]) -> Drawn<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (1100, 760)).into_drawing_area();
        area.fill(&WHITE)?;
        let style = |size: u32| TextStyle::from((FONT, size).into_font()).color(&INK);
        area.draw(&Text::new(format!("{title}, a policy each"), (24, 16), style(20)))?;
        legend(&area, curves.iter().map(|curve| curve.policy))?;
        let (_, below) = area.split_vertically(48);
        let (panels, foot) = below.split_vertically(660);
        for (panel, area) in PANELS.iter().zip(panels.split_evenly((2, 2))) {
            draw(&area, panel, curves)?;
        }
        for (line, fact) in facts.iter().enumerate() {
            foot.draw(&Text::new(fact.clone(), (24, 4 + 20 * line as i32), style(SIZE)))?;
        }
        area.present()?;
    }
    Ok(svg)
}

fn draw(area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>, panel: &Panel, curves: &[Curve]) -> Drawn<()> {
    let scale = |value: f64| if panel.logarithmic { value.max(0.1).log10() } else { value };
    let points = |curve: &Curve| -> Vec<(f64, f64)> {
        curve.points.iter().map(|point| (point.arrivals_per_s.max(0.1).log10(), scale((panel.value)(point)))).collect()
    };
    let most = curves.iter().flat_map(&points).map(|point| point.1).fold(0.0_f64, f64::max);
    let top = if panel.logarithmic { most.ceil().max(1.0) } else { 105.0 };
    let bottom = if panel.logarithmic { -1.0 } else { 0.0 };
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(70)
        .build_cartesian_2d(-0.2..6.2, bottom..top)?;
    chart
        .configure_mesh()
        .x_labels(7)
        .x_label_formatter(&|power| power_of_ten(*power))
        .y_labels(if panel.logarithmic { (top - bottom) as usize + 1 } else { 6 })
        .y_label_formatter(&|y| if panel.logarithmic { power_of_ten(*y) } else { format!("{y:.0}") })
        .x_desc("arrivals a second")
        .y_desc(panel.name)
        .axis_desc_style((FONT, SIZE, &INK))
        .label_style((FONT, SIZE, &INK))
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .draw()?;
    for (curve, colour) in curves.iter().zip(COLOURS) {
        chart.draw_series(LineSeries::new(points(curve), colour.stroke_width(2)))?;
        chart.draw_series(points(curve).into_iter().map(|point| Circle::new(point, 4, colour.filled())))?;
    }
    Ok(())
}
