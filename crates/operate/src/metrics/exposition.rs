//! Metrics as text: OpenMetrics, and the older format of Prometheus for readers that don't ask for
//! OpenMetrics (a person with curl, `promtool check metrics`).

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;
use verbline_engine::Report;

use crate::metrics::families::{Family, Value, families};
use crate::protocol::{ANSWER_BYTES, Hello};

/// The beginning of every name.
const PREFIX: &str = "verbline";

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    OpenMetrics,
    /// Version 0.0.4.
    Prometheus,
}

impl Format {
    /// The client's format, by the Accept header of its request.
    pub(crate) fn accepted(accept: &str) -> Format {
        match accept.contains("application/openmetrics-text") {
            true => Format::OpenMetrics,
            false => Format::Prometheus,
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Room for the lines of an answer, so that no list of them grows; most lines have over 60 bytes.
const LINES: usize = ANSWER_BYTES / 32;

/// A snapshot's metrics.
pub(crate) fn text(hello: &Hello, report: &Report, connections_max: u32, format: Format) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Collected(families(hello, report, connections_max))));
    let mut out = String::with_capacity(ANSWER_BYTES);
    // Writing into a string can't fail.
    let _ = text::encode(&mut out, &registry);
    match format {
        Format::OpenMetrics => out,
        Format::Prometheus => older(&out),
    }
}

#[derive(Debug)]
struct Collected(Vec<Family>);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.0 {
            let (help, unit) = (family.help, family.unit.as_ref());
            let mut metric = encoder.encode_descriptor(family.name, help, unit, family.kind)?;
            for (labels, value) in &family.series {
                let labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
                match (family.kind, labels.is_empty()) {
                    (MetricType::Info, _) => metric.encode_info(&labels)?,
                    (kind, true) => encode(&mut metric, kind, value)?,
                    (kind, false) => encode(&mut metric.encode_family(&labels)?, kind, value)?,
                }
            }
        }
        Ok(())
    }
}

fn encode(metric: &mut MetricEncoder<'_>, kind: MetricType, value: &Value) -> fmt::Result {
    const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;
    match (kind, value) {
        (MetricType::Counter, Value::Whole(count)) => metric.encode_counter(count, NO_EXEMPLAR),
        (MetricType::Counter, Value::Real(real)) => metric.encode_counter(real, NO_EXEMPLAR),
        (_, Value::Whole(count)) => metric.encode_gauge(count),
        (_, Value::Real(real)) => metric.encode_gauge(real),
        (_, Value::Times(sum, buckets)) => {
            let count = buckets.iter().map(|(_, count)| count).sum();
            metric.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
        }
    }
}

/// Converts to the older format: there a counter's own name has `_total`, an info is a gauge, and
/// there are no units and no end mark.
fn older(text: &str) -> String {
    let mut out = String::with_capacity(ANSWER_BYTES);
    let mut lines = Vec::with_capacity(LINES);
    lines.extend(text.lines());
    for (place, line) in lines.iter().enumerate() {
        let Some(comment) = line.strip_prefix("# ") else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        let (word, rest) = comment.split_once(' ').unwrap_or((comment, ""));
        let (name, words) = rest.split_once(' ').unwrap_or((rest, ""));
        // The type follows the help text.
        let kinds = lines[place..].iter().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_prefix(name));
        let kind = kinds.map(str::trim).next().unwrap_or_default();
        let (ending, kind) = match kind {
            "counter" => ("_total", "counter"),
            "info" => ("_info", "gauge"),
            other => ("", other),
        };
        match word {
            "HELP" => out.push_str(&format!("# HELP {name}{ending} {words}\n")),
            "TYPE" => out.push_str(&format!("# TYPE {name}{ending} {kind}\n")),
            _ => {}
        }
    }
    out
}
