//! "Did you mean": the nearest known name, or the list of all.

/// Similarity (Jaro-Winkler, 0 to 1) below which a name is no suggestion.
const SIMILAR: f64 = 0.8;

/// No table has a longer name, so longer ones resemble none.
const NAME_BYTES_MAX: usize = 128;

/// The most names that are listed.
const LISTED_MAX: usize = 12;

/// The known name most similar to `name`, if any is similar.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let fits = |name: &&str| name.len() <= NAME_BYTES_MAX;
    let known = known.into_iter().filter(|known| fits(known) && fits(&name));
    let scored = known.map(|one| (score(name, one), one));
    scored.filter(|(score, _)| *score >= SIMILAR).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, one)| one)
}

/// `did you mean …?`, or `otherwise` and the known names.
pub(crate) fn suggest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>, otherwise: &str) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    if let Some(one) = nearest(name, known.iter().copied()) {
        return format!("did you mean `{one}`?");
    }
    match known.len() {
        0 => "there are none to choose from".to_owned(),
        n if n > LISTED_MAX => format!("{otherwise} {} and {} more", quote(&known[..LISTED_MAX]), n - LISTED_MAX),
        _ => format!("{otherwise} {}", quote(&known)),
    }
}

fn quote(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn score(a: &str, b: &str) -> f64 {
    // A name with a part left out or put in front ("depth" for "depth_wr") counts as similar.
    if a.len() >= 4 && b.len() >= 4 && (b.starts_with(a) || b.ends_with(a) || a.starts_with(b)) {
        return 0.9 + 0.1 * strsim::normalized_levenshtein(a, b);
    }
    strsim::jaro_winkler(&a.to_lowercase(), &b.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_typos_and_lists_otherwise() {
        let known = ["rx_depth_wr", "tx_depth_wr", "inline_bytes"];
        assert_eq!(nearest("rx_dept_wr", known), Some("rx_depth_wr"));
        assert_eq!(nearest("inline", known), Some("inline_bytes"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(suggest("colour", ["a", "b"], "the keys are"), "the keys are `a`, `b`");
        assert_eq!(suggest("x", [], "the keys are"), "there are none to choose from");
    }
}
