//! The trader's books in the report: the recovery, and whether each book equals the exchange's at
//! the end.

use std::fmt::Write as _;

use serde_json::{Value, json};
use verbline::cli::{count, duration, percent};
use verbline::prelude::*;

use crate::book::BookImage;
use crate::recovery::ServicesCounts;
use crate::stages::{ItchTally, OriginTally};

/// The books of the generated feed.
pub(super) fn itch(report: &Report, itch: &ItchTally, origin: Option<&OriginTally>, outcome: &mut Outcome) {
    let follower = &itch.follower;
    outcome.json.insert(
        "itch".into(),
        json!({ "messages": follower.applied, "contradictions": follower.contradictions,
                "malformed": follower.malformed, "crossed": follower.crossed, "told": itch.told,
                "untold": itch.untold, "levels": itch.levels, "live_orders": itch.live_orders }),
    );
    let _ = writeln!(
        outcome.text,
        "books    {} messages applied, {} malformed, {} contradict a book",
        count(follower.applied),
        count(follower.malformed),
        count(follower.contradictions),
    );
    match origin {
        Some(origin) => equal(report, itch, origin, outcome),
        None => of_trader(itch, outcome),
    }
    recovery(report, itch, outcome);
    if let Some(origin) = origin {
        outcome.json["recovery"]["served"] = served_json(&origin.services);
    }
}

/// The services of an exchange without a trader in its process.
pub(super) fn served(services: &ServicesCounts, outcome: &mut Outcome) {
    outcome.json.insert("recovery".into(), json!({ "served": served_json(services) }));
    let _ = writeln!(
        outcome.text,
        "served   {} requests, with {} messages sent again; {} snapshots\n         \
         {} for messages that are not kept any more, {} refused",
        count(services.answered),
        count(services.messages),
        count(services.snapshots),
        count(services.not_kept),
        count(services.refused),
    );
}

fn served_json(services: &ServicesCounts) -> Value {
    json!({ "answers": services.answered, "messages": services.messages, "not_kept": services.not_kept,
            "refused": services.refused, "snapshots": services.snapshots })
}

/// The exchange is another process: there are no books to compare with.
fn of_trader(itch: &ItchTally, outcome: &mut Outcome) {
    outcome.json.insert("books".into(), json!({ "known": itch.books.len(), "stale": itch.stale_books }));
    let _ = writeln!(
        outcome.text,
        "         {} books at the end, {} of them known not to be right",
        count(itch.books.len() as u64),
        count(itch.stale_books as u64)
    );
}

fn recovery(report: &Report, itch: &ItchTally, outcome: &mut Outcome) {
    let follower = &itch.follower;
    let withheld = follower.withheld + itch.taken_back;
    outcome.json.insert(
        "recovery".into(),
        json!({ "gaps": follower.gaps, "missing": follower.missing, "retransmitted": follower.retransmitted,
                "late": follower.late, "requests": follower.requests, "requests_again": follower.requests_again,
                "unasked": follower.unasked, "given_up": follower.given_up, "abandoned": follower.abandoned,
                "skipped": follower.skipped, "books_suspected": follower.suspected,
                "begun_anew": follower.begun_anew,
                "snapshots": follower.snapshots, "snapshots_late": follower.snapshots_late,
                "snapshots_refused": follower.snapshots_refused, "books_rebuilt": follower.rebuilt,
                "changes_withheld": withheld, "stale_ns": follower.stale_ns }),
    );
    let _ = writeln!(
        outcome.text,
        "recovery {} gaps with {} messages: {} sent again, by {} requests\n         \
         {} of these once more; {} times given up, {} messages passed over\n         \
         {} books put in doubt, {} rebuilt, by {} snapshots\n         \
         not right for {} ({}): {} changes not traded on",
        count(follower.gaps),
        count(follower.missing),
        count(follower.retransmitted),
        count(follower.requests),
        count(follower.requests_again),
        count(follower.given_up),
        count(follower.abandoned),
        count(follower.suspected),
        count(follower.rebuilt),
        count(follower.snapshots),
        duration(follower.stale_ns),
        percent(follower.stale_ns as f64 / report.elapsed_ns.max(1) as f64),
        count(withheld),
    );
    if follower.begun_anew > 0 {
        let _ = writeln!(
            outcome.text,
            "         {} times the feed began anew: all books were given up",
            count(follower.begun_anew)
        );
    }
}

/// Compares each of the trader's books with the exchange's.
fn equal(report: &Report, itch: &ItchTally, origin: &OriginTally, outcome: &mut Outcome) {
    let (compared, differing) = compare(&itch.books, &origin.books);
    let same = compared - differing.len();
    outcome.json.insert(
        "books".into(),
        json!({ "of_exchange": origin.books.len(), "compared": compared, "equal": same, "stale": itch.stale_books }),
    );
    let _ = writeln!(
        outcome.text,
        "         {} of {} equal the exchange's at the end",
        count(same as u64),
        count(compared as u64)
    );
    if !report.failures.is_empty() {
        // The run was aborted: the books are of different moments.
        return;
    }
    if let Some((symbol, difference)) = differing.first() {
        outcome.failures.push(format!(
            "{} of {} books differ from the exchange's at the end, of which {} are known to be wrong: {symbol} has \
             {difference}; the trader stands at sequence number {}, the exchange at {}",
            count(differing.len() as u64),
            count(compared as u64),
            count(itch.stale_books as u64),
            count(itch.next_sequence),
            count(origin.next_sequence),
        ));
    }
}

/// The number of books compared, and the differences by symbol. A book known to one side only
/// counts as empty on the other. If the trader's books are full, books of further instruments are
/// not compared.
fn compare(books: &[BookImage], truth: &[BookImage]) -> (usize, Vec<(String, String)>) {
    let followed = if books.len() == usize::from(crate::stages::INSTRUMENTS_MAX) { books.len() } else { truth.len() };
    let mut differing = Vec::new();
    let (mut compared, mut unknown) = (0, Vec::new());
    for true_book in truth {
        let Some(book) = books.iter().find(|book| book.locate == true_book.locate) else {
            unknown.push(true_book);
            continue;
        };
        compared += 1;
        differing.extend(book.difference(true_book).map(|difference| (true_book.symbol.to_string(), difference)));
    }
    for true_book in unknown.into_iter().take(followed - compared) {
        compared += 1;
        if !true_book.orders.is_empty() {
            let difference = format!("no order, not {}", true_book.orders.len());
            differing.push((true_book.symbol.to_string(), difference));
        }
    }
    (compared, differing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::{ImageOrder, Level};
    use crate::itch::Symbol;

    fn book(locate: u16, shares: u32) -> BookImage {
        let level = Level { price_e4: 100, orders: 1, shares: shares.into() };
        BookImage {
            locate,
            symbol: Symbol(*b"VRBL    "),
            orders: vec![ImageOrder { reference: 1, sells: false, price_e4: 100, shares }],
            levels: [vec![level], vec![]],
        }
    }

    #[test]
    fn every_book_is_held_against_the_exchanges() {
        let truth = [book(1, 5), book(2, 6), BookImage { orders: vec![], ..book(3, 7) }];
        assert_eq!(compare(&[book(2, 6), book(1, 5)], &truth), (3, vec![]));
        let (compared, differing) = compare(&[book(1, 4)], &truth);
        assert_eq!((compared, differing.len()), (3, 2));
        assert!(differing[0].1.contains("shares: 4") && differing[1].1 == "no order, not 1", "{differing:?}");
        let other_level = BookImage { levels: [vec![], vec![]], ..book(1, 5) };
        assert!(compare(&[other_level], &truth[..1]).1[0].1.contains("Buy side"));
    }
}
