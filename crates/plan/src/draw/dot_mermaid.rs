//! A [`Drawing`] as text: Graphviz and Mermaid.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::draw::graph::{Drawing, Line, Node, Shape, Style};

const WRONG: &str = "#c0392b";

impl Drawing {
    /// Graphviz text, for `dot -Tsvg`. Faulty parts are red.
    pub fn to_dot(&self) -> String {
        let mut out = format!("digraph {} {{\n", quote(&self.name));
        out += "  rankdir=LR;\n  compound=true;\n";
        out += "  node [fontname=\"Helvetica\", fontsize=10];\n  edge [fontname=\"Helvetica\", fontsize=9];\n";
        for cluster in &self.clusters {
            let _ = writeln!(out, "  subgraph {} {{", quote(&format!("cluster {}", cluster.id)));
            let _ = writeln!(
                out,
                "    label={}; style=rounded; color={};",
                quote(&cluster.title),
                colour(cluster.is_wrong)
            );
            for node in &cluster.nodes {
                let _ = writeln!(out, "    {}", dot_node(node));
            }
            out += "  }\n";
        }
        for node in &self.loose {
            let _ = writeln!(out, "  {}", dot_node(node));
        }
        for line in &self.lines {
            let _ = writeln!(out, "  {}", dot_line(line));
        }
        out += "}\n";
        out
    }

    /// Mermaid text, which documentation hosts render. Faulty parts are red.
    pub fn to_mermaid(&self) -> String {
        let mut out = "flowchart LR\n".to_owned();
        let mut ids: Vec<&str> = Vec::new();
        for (index, cluster) in self.clusters.iter().enumerate() {
            let _ = writeln!(out, "  subgraph c{index}[{}]", mermaid_quote(&cluster.title));
            for node in &cluster.nodes {
                let _ = writeln!(out, "    n{}{}", ids.len(), mermaid_shape(node));
                ids.push(&node.id);
            }
            out += "  end\n";
        }
        for node in &self.loose {
            let _ = writeln!(out, "  n{}{}", ids.len(), mermaid_shape(node));
            ids.push(&node.id);
        }
        let places: HashMap<&str, usize> = ids.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        let find = |id: &str| places.get(id).copied();
        let mut drawn = 0;
        let mut wrong_lines = Vec::new();
        for line in &self.lines {
            let Some((from, to)) = find(&line.from).zip(find(&line.to)) else { continue };
            let _ = writeln!(out, "  n{from} {} n{to}", mermaid_arrow(line));
            if line.is_wrong {
                wrong_lines.push(drawn.to_string());
            }
            drawn += 1;
        }
        let nodes = self.clusters.iter().flat_map(|cluster| &cluster.nodes).chain(&self.loose);
        for (index, _) in nodes.enumerate().filter(|(_, node)| node.is_wrong) {
            let _ = writeln!(out, "  style n{index} stroke:{WRONG},stroke-width:3px");
        }
        for (index, _) in self.clusters.iter().enumerate().filter(|(_, cluster)| cluster.is_wrong) {
            let _ = writeln!(out, "  style c{index} stroke:{WRONG},stroke-width:3px");
        }
        if !wrong_lines.is_empty() {
            let _ = writeln!(out, "  linkStyle {} stroke:{WRONG}", wrong_lines.join(","));
        }
        out
    }
}

fn colour(is_wrong: bool) -> String {
    if is_wrong { quote(WRONG) } else { "gray40".to_owned() }
}

fn dot_node(node: &Node) -> String {
    let shape = match node.shape {
        Shape::Port => "cds",
        Shape::Stage => "box",
        Shape::Pool => "cylinder",
        Shape::Group => "ellipse",
        Shape::Drop => "plaintext",
    };
    let width = if node.is_wrong { ", penwidth=2" } else { "" };
    let label = quote(&node.label.join("\n"));
    format!("{} [label={label}, shape={shape}, color={}{width}];", quote(&node.id), colour(node.is_wrong))
}

fn dot_line(line: &Line) -> String {
    let style = match line.style {
        Style::Batch => "",
        Style::Ring => ", style=bold, arrowhead=vee",
        Style::Wire => ", style=dashed, constraint=false",
        Style::Connection => ", style=dashed, dir=both, constraint=false",
    };
    let label = quote(&line.label);
    format!("{} -> {} [label={label}, color={}{style}];", quote(&line.from), quote(&line.to), colour(line.is_wrong))
}

/// A DOT string: quotes and backslashes escaped, line breaks as `\n`.
fn quote(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\r', "");
    format!("\"{escaped}\"")
}

fn mermaid_shape(node: &Node) -> String {
    let label = mermaid_quote(&node.label.join("<br/>"));
    match node.shape {
        Shape::Port => format!("[/{label}/]"),
        Shape::Stage => format!("[{label}]"),
        Shape::Pool => format!("[({label})]"),
        Shape::Group | Shape::Drop => format!("([{label}])"),
    }
}

fn mermaid_arrow(line: &Line) -> String {
    let arrow = match line.style {
        Style::Batch => "-->",
        Style::Ring => "==>",
        Style::Wire => "-.->",
        Style::Connection => "<-.->",
    };
    match line.label.as_str() {
        "" => arrow.to_owned(),
        label => format!("{arrow}|{}|", mermaid_quote(label)),
    }
}

/// A Mermaid string, which takes HTML's entities and no backslashes.
fn mermaid_quote(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "#quot;").replace(['\n', '\r'], " "))
}
