//! Lists of CPUs and nodes in the kernel's notation, e.g. `0-3,8`.

use std::collections::BTreeSet;

/// Reads a list; malformed parts are left out.
pub(crate) fn parse_number_list(list: &str) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse()) {
            numbers.extend(first..=last);
        }
    }
    numbers
}

/// Writes a list for people, e.g. `0-3, 8`.
pub(crate) fn show_number_list(numbers: impl Iterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let word = |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    runs.into_iter().map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_read_and_written() {
        assert_eq!(parse_number_list("0-2,8\n"), BTreeSet::from([0, 1, 2, 8]));
        assert_eq!(parse_number_list("x,1-"), BTreeSet::new());
        assert_eq!(show_number_list([0, 1, 2, 5, 7, 8].into_iter()), "0-2, 5, 7-8");
        assert_eq!(show_number_list([].into_iter()), "");
    }
}
