//! The figures in docs/performance.md are those of the results page that it names.

use std::fs;

use verbline_tests::root;

#[test]
fn the_picked_figures_are_those_of_the_results() {
    let read = |name: &str| fs::read_to_string(root().join("docs").join(name)).expect("a page");
    let (page, results) = (read("performance.md"), read("performance/results-zen5.md"));
    let rows = |page: &str| page.lines().filter(|line| line.starts_with("| `")).map(cells).collect::<Vec<_>>();
    let (picked, all) = (rows(&page), rows(&results));
    assert!(picked.len() >= 10, "{picked:?}");
    for row in picked {
        // row, meaning, ours, the peer's, the peer
        let whole = all.iter().find(|one| one[0] == row[0]).unwrap_or_else(|| panic!("no row {}", row[0]));
        let shown = format!("{} {}", whole[2], whole[1]);
        assert_eq!((&row[2], &row[3], &row[4]), (&shown, &whole[3], &whole[4]), "{}", row[0]);
    }
    // Each missed goal, and no other, has its line.
    let missed = |page: &str| {
        let links = page.split("why.md#").skip(1).map(|behind| behind.split(')').next().unwrap_or_default().to_owned());
        let mut links: Vec<String> = links.collect();
        links.sort();
        links.dedup();
        links
    };
    let goals: String =
        results.lines().filter(|line| line.contains("**missed**")).map(|line| format!("{line}\n")).collect();
    assert_eq!(missed(&page), missed(&goals));
}

fn cells(line: &str) -> Vec<String> {
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}
