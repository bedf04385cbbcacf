//! Every operation with every memory, by every posting function, on every transport, with all
//! flags, in every state: posted to the software RNIC, and judged by the manual pages.
//!
//! Combinations that the pages do not allow cannot be written, or are refused, and move no byte.
//! Allowed ones have their specified effect, or no function takes them. Before each, the thread has
//! posted work requests with forbidden values in every field.

mod cell;
mod poison;
mod posting;
mod rig;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cell::{Became, Cell, Flags, MEMORIES, ROUTES, Route, STATES, State, TRANSPORTS, WHATS, all_flags};
use rig::Rig;

use crate::common::only_soft;
use verbline_verbs::Transport;

fn judge(cell: &Cell, became: Became) {
    match became {
        // No function takes it, even if the pages allow it.
        Became::Unwritten => {}
        // A list's type limits its operations.
        _ if cell.route == Route::Listed && cell.transport == Transport::Uc => {
            assert!(cell.is_allowed(), "{cell:?}: it can be written, and the pages don't allow it");
            assert_eq!(became, cell.in_its_state(), "{cell:?}");
        }
        _ if !cell.is_allowed() => {
            let refused = matches!(became, Became::Refused | Became::Failed);
            let flushed = became == Became::Flushed && matches!(cell.state, State::Sqe | State::Err);
            let waited = became == Became::Flushed && cell.state == State::Sqd;
            assert!(refused || flushed || waited, "{cell:?}: the pages don't allow it, and it {became:?}");
        }
        _ => assert_eq!(became, cell.in_its_state(), "{cell:?}"),
    }
}

#[test]
fn every_operation_takes_the_memory_transport_and_flags_that_the_pages_allow_and_no_other() {
    only_soft!("the judge knows which signature keys and windows the software RNIC has");
    let mut plain = BTreeMap::new();
    let mut counts: BTreeMap<(usize, Became), usize> = BTreeMap::new();
    let mut by_flag: BTreeMap<(usize, Became), usize> = BTreeMap::new();
    let mut total = 0;
    for (at, transport) in TRANSPORTS.into_iter().enumerate() {
        let mut rig = Rig::new(transport);
        for (row, what) in WHATS.into_iter().enumerate() {
            for (column, memory) in MEMORIES.into_iter().enumerate() {
                for (place, route) in ROUTES.into_iter().enumerate() {
                    for flags in all_flags() {
                        for (number, state) in STATES.into_iter().enumerate() {
                            let cell = Cell { what, memory, route, transport, flags, state };
                            if !cell.is_reachable() {
                                continue;
                            }
                            let became = rig.run(&cell);
                            judge(&cell, became);
                            total += 1;
                            *counts.entry((number, became)).or_default() += 1;
                            if state == State::Rts {
                                for (bit, set) in
                                    [flags.imm, flags.fence, flags.solicited, flags.signaled].into_iter().enumerate()
                                {
                                    *by_flag.entry((bit, became)).or_default() += usize::from(set);
                                }
                            }
                            if state == State::Rts && flags == Flags::default() {
                                plain.insert((row, column, at, place), became);
                            }
                        }
                    }
                }
            }
        }
        rig.finish();
    }
    insta::assert_snapshot!("combinations", written(total, &plain, &counts, &by_flag));
}

fn written(
    total: usize,
    plain: &BTreeMap<(usize, usize, usize, usize), Became>,
    counts: &BTreeMap<(usize, Became), usize>,
    by_flag: &BTreeMap<(usize, Became), usize>,
) -> String {
    let mut text = format!("{total} combinations\n\nIn RTS, without flags (+ done, q done without a completion, ");
    text += "- refused, x failed, blank: can't be written)\n\n";
    text += "                                 RC       UC       UD\n";
    text += "                                 a i l b  a i l b  a i l b\n";
    for (row, what) in WHATS.iter().enumerate() {
        for (column, memory) in MEMORIES.iter().enumerate() {
            let mut line = format!("{:<20} {:<11}", format!("{what:?}"), format!("{memory:?}"));
            for at in 0..TRANSPORTS.len() {
                for place in 0..ROUTES.len() {
                    let mark = match plain[&(row, column, at, place)] {
                        Became::Unwritten => ' ',
                        Became::Refused => '-',
                        Became::Failed => 'x',
                        Became::Done => '+',
                        Became::DoneQuietly => 'q',
                        Became::DoneLater | Became::Flushed => '?',
                    };
                    let _ = write!(line, " {mark}");
                }
                line.push(' ');
            }
            if line.len() > 32 && line[32..].trim().is_empty() {
                continue;
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text += "\na: alone, by a typed handle; i: the same, inline; l: in a list; b: in a batch\n\n";
    text += "By state, with all flags\n\n";
    for (number, state) in STATES.iter().enumerate() {
        let _ = writeln!(text, "{:<6} {}", format!("{state:?}"), tally(counts, number));
    }
    text += "\nIn RTS, with a flag and all others\n\n";
    for (bit, name) in ["imm", "fence", "solicited", "signaled"].into_iter().enumerate() {
        let _ = writeln!(text, "{name:<10} {}", tally(by_flag, bit));
    }
    text
}

fn tally(counts: &BTreeMap<(usize, Became), usize>, of: usize) -> String {
    let of = counts.iter().filter(|((number, _), count)| *number == of && **count > 0);
    of.map(|((_, became), count)| format!("{became:?} {count}")).collect::<Vec<_>>().join(", ")
}
