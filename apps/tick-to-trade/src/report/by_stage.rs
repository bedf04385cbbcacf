//! Reports several stages of one kind separately, under their names.

use serde_json::json;
use verbline::prelude::*;

use crate::stages::ByStage;

/// The part of a stage, if it is the only one of its kind.
pub(super) fn only<T>(parts: &ByStage<T>) -> Option<&T> {
    parts.values().next().filter(|_| parts.len() == 1)
}

/// Reports each part with `tell`. A single part goes to the top level. Several go below `by_stage`
/// and their stages' names, which also prefix their lines and failures.
pub(super) fn each<T>(parts: &ByStage<T>, outcome: &mut Outcome, tell: impl Fn(&T, &mut Outcome)) {
    if let Some(part) = only(parts) {
        return tell(part, outcome);
    }
    for (stage, part) in parts {
        let mut own = Outcome::default();
        tell(part, &mut own);
        if !own.text.is_empty() {
            outcome.text += &format!("stage.{stage}\n{}", own.text);
        }
        outcome.failures.extend(own.failures.iter().map(|failure| format!("stage.{stage}: {failure}")));
        let place = &mut outcome.json.entry("by_stage").or_insert_with(|| json!({}))[stage];
        own.json.into_iter().for_each(|(key, value)| place[key] = value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_of_a_kind_is_told() {
        let tell = |part: &u64, outcome: &mut Outcome| {
            outcome.text += &format!("{part} came\n");
            outcome.json.insert("came".into(), json!(part));
            outcome.failures.extend((*part > 1).then(|| "too many came".to_owned()));
        };
        let mut outcome = Outcome::default();
        let mut parts = ByStage::from([("one".to_owned(), 1)]);
        each(&parts, &mut outcome, tell);
        assert_eq!((outcome.text.as_str(), &outcome.json["came"]), ("1 came\n", &json!(1)));
        parts.insert("two".to_owned(), 2);
        let mut outcome = Outcome::default();
        outcome.json.insert("by_stage".into(), json!({ "two": { "other": 3 } }));
        each(&parts, &mut outcome, tell);
        assert_eq!(outcome.text, "stage.one\n1 came\nstage.two\n2 came\n");
        assert_eq!(outcome.json["by_stage"], json!({ "one": { "came": 1 }, "two": { "came": 2, "other": 3 } }));
        assert_eq!(outcome.failures, ["stage.two: too many came"]);
    }
}
