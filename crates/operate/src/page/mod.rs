//! The live page: one document with its style and script, which loads nothing else.
//!
//! The script fetches `/hello.json`, `/graph.json`, `/report.json`, `/awake.json` and `/kept.json`,
//! which [`crate::http`] answers. It stores five minutes of reports itself: an open page costs the
//! run no more than any other client.

const FRAME: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");

/// In order: counting, the graph, drawing, durations, the slowest packets, and the page's
/// behaviour.
const SCRIPT: [&str; 6] = [
    include_str!("samples.js"),
    include_str!("flows.js"),
    include_str!("draw.js"),
    include_str!("histograms.js"),
    include_str!("kept.js"),
    include_str!("page.js"),
];

/// The document.
pub(crate) fn html() -> String {
    FRAME.replacen("{style}", STYLE, 1).replacen("{script}", &SCRIPT.concat(), 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Names with `_`: the script itself uses none.
    fn keys_of(text: &str) -> BTreeSet<&str> {
        let is_in_name = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
        text.split(|letter: char| !is_in_name(letter))
            .filter(|word| word.len() > 2 && word.trim_matches('_').contains('_'))
            .collect()
    }

    #[test]
    fn each_key_that_the_script_reads_is_in_an_answer() {
        let schema = include_str!("../../../../docs/report.schema.json");
        let others = ["since_unix_ms", "now_ns", "at_ns", "took_ns", "waited_ns"];
        let known: BTreeSet<&str> = keys_of(schema).into_iter().chain(others).collect();
        let read = keys_of(SCRIPT[0]).into_iter().chain(SCRIPT[1..].iter().flat_map(|text| keys_of(text)));
        let (mut count, mut unknown) = (0, Vec::new());
        for key in read.collect::<BTreeSet<_>>() {
            count += 1;
            unknown.extend((!known.contains(key)).then_some(key));
        }
        assert!(unknown.is_empty() && count > 15, "{count} keys, of which no answer has {unknown:?}");
    }

    #[test]
    fn the_document_is_whole_and_asks_nobody_else() {
        let html = html();
        assert!(!html.contains("{style}") && !html.contains("{script}"));
        for outside in ["https://", "src=", "@import"] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert_eq!(html.matches("url(").count(), html.matches("url(#").count(), "parts of itself");
        // The one address is the name of a language, which is never fetched.
        assert_eq!(html.matches("http://").count(), html.matches("\"http://www.w3.org/2000/svg\"").count());
    }
}
