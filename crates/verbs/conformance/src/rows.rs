//! Every row, by theme. A row is safe code: `rig` wraps the verbs that it uses.

mod async_event;
mod atomics;
mod channel;
mod common;
mod cq;
mod device;
mod errors;
mod flags;
mod flags_combined;
mod mcast;
mod messages;
mod migration;
mod modify;
mod modify_raw;
mod modify_rc;
mod modify_uc;
mod modify_ud;
mod modify_values;
mod mr;
mod mw;
mod mw_transports;
mod notify;
mod opcodes;
mod peers;
mod post_recv;
mod post_send;
mod retries;
mod sge;
mod sig_cancel;
mod sig_keys;
mod sig_pipelining;
mod sig_transfers;
mod srq;
mod states;
mod ud;

use crate::rig::Kind;
use crate::suite::Row;

/// Every row, in the order in which they are printed.
pub(crate) fn all() -> Vec<Row> {
    let themes: [fn() -> Vec<Row>; 33] = [
        post_send::rows,
        opcodes::rows,
        messages::rows,
        flags::rows,
        flags_combined::rows,
        sge::rows,
        states::rows,
        modify_rc::rows,
        migration::rows,
        modify_uc::rows,
        modify_ud::rows,
        modify_raw::rows,
        modify_values::rows,
        peers::rows,
        notify::rows,
        channel::rows,
        post_recv::rows,
        ud::rows,
        mcast::rows,
        srq::rows,
        mw::rows,
        mw_transports::rows,
        mr::rows,
        cq::rows,
        atomics::rows,
        errors::rows,
        retries::rows,
        async_event::rows,
        sig_keys::rows,
        sig_transfers::rows,
        sig_pipelining::rows,
        sig_cancel::rows,
        device::rows,
    ];
    themes.into_iter().flat_map(|rows| rows()).map(by_its_wire).collect()
}

/// Declares the differences of the software RNIC by its wire: work requests that it does not post.
fn by_its_wire(row: Row) -> Row {
    if !row.theme().starts_with("sig_") {
        return row;
    }
    const DOES: &str = "keys that sign are refused, and so is cancelling";
    const WHY: &str = "the wire's transport moves packets, not blocks, and gives nothing back that was posted";
    ["EOPNOTSUPP", "got 95"].into_iter().fold(row, |row, seen| row.may_lack(Kind::SoftUdp, seen, DOES, WHY))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn rules_are_named_once_and_by_theme() {
        let rows = super::all();
        let names: HashSet<&str> = rows.iter().map(|row| row.rule.as_str()).collect();
        assert_eq!(names.len(), rows.len(), "a rule is there twice");
        assert!(names.iter().all(|name| name.contains('/')));
    }

    #[test]
    fn differences_md_lists_what_is_declared() {
        let declared = crate::report::differences(&super::all());
        let written = include_str!("../DIFFERENCES.md");
        assert!(
            written.contains(&declared),
            "conformance/DIFFERENCES.md is out of date: replace its table with what `conformance --differences` prints"
        );
    }

    /// Compares a rule with a pattern, where `*` stands for any text.
    fn matches(pattern: &str, rule: &str) -> bool {
        let mut rest = rule;
        let mut parts = pattern.split('*').peekable();
        let Some(tail) = rest.strip_prefix(parts.next().unwrap_or_default()) else { return false };
        rest = tail;
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return rest.ends_with(part);
            }
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.is_empty()
    }

    #[test]
    fn pages_md_names_what_there_is() {
        use super::common::page;
        let rows = super::all();
        let text = include_str!("../PAGES.md");
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("| ") && !line.contains("---")).collect();
        let reason = |cell: &str| ["type: ", "none: "].iter().any(|word| cell.trim().starts_with(word));
        let cells = lines.iter().filter_map(|line| line.trim_end_matches('|').rsplit('|').next());
        let cells: Vec<&str> = cells.filter(|cell| cell.trim() != "rules").collect();
        assert!(cells.len() > 318, "{} statements", cells.len());
        let empty: Vec<&&str> = cells.iter().filter(|cell| !reason(cell) && !cell.contains('`')).collect();
        assert!(empty.is_empty(), "PAGES.md has neither a row nor a reason: {empty:?}");
        let with_rows = cells.iter().filter(|cell| !reason(cell));
        let named: Vec<&str> = with_rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        for pattern in &named {
            assert!(rows.iter().any(|row| matches(pattern, &row.rule)), "PAGES.md names {pattern}: no such row");
        }
        let pages = [page::POST_SEND, page::NOTIFY, page::MODIFY_QP, page::CANCEL];
        for row in rows.iter().filter(|row| pages.contains(&row.seed)) {
            assert!(named.iter().any(|pattern| matches(pattern, &row.rule)), "PAGES.md lacks {}", row.rule);
        }
    }

    /// `planted-faults` must name existing rows, and lines that occur once.
    #[test]
    fn planted_faults_are_of_rows_and_lines_that_there_are() {
        let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
        let rows = super::all();
        let faults = include_str!("../planted").lines().filter(|line| !line.starts_with('#'));
        let mut count = 0;
        for line in faults {
            let parts: Vec<&str> = line.split('\t').collect();
            let [rule, file, old, new] = parts[..] else { panic!("not four parts: {line}") };
            assert!(rows.iter().any(|row| row.rule == rule), "no row is named {rule}");
            let source = std::fs::read_to_string(root.join(file)).unwrap();
            assert_eq!(source.matches(old).count(), 1, "{file} has this not once: {old}");
            assert!(new.contains("PLANTED"), "{rule}: nothing turns its fault on");
            count += 1;
        }
        assert!(count > 20, "{count} faults");
    }

    #[test]
    fn a_star_is_any_text() {
        assert!(matches("a/b", "a/b") && !matches("a/b", "a/bc"));
        assert!(matches("a/*-x", "a/b-x") && !matches("a/*-x", "a/b-xy"));
        assert!(matches("*lkey*", "a/lkey-b") && matches("a/*b*c", "a/1b2c") && !matches("a/*b*c", "a/1c2b"));
    }
}
