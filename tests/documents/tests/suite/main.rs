//! Every command of README.md, CONTRIBUTING.md and docs/*.md runs as written, in a checkout with
//! this build's apps. A command that only builds, or measures for minutes, is held against the
//! driver: its verb and its options must exist. Marked commands are passed over, with the reason.

mod checkout;
mod commands;
mod drawings;
mod figures;
mod judge;
mod keys;
mod samples;
mod schema;

use std::fs;
use std::path::PathBuf;

use checkout::Checkout;
use commands::{Command, commands};
use judge::Verdict;
use verbline_tests::root;

/// The documents whose commands a reader types.
fn documents() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).expect("docs/").map(|entry| entry.expect("an entry of docs/").path());
    let mut documents: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    documents.extend(["README.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    documents.sort();
    documents
}

#[test]
fn two_lcores_do_what_every_command_of_the_documents_says() {
    let checkout = Checkout::new();
    let mut all: Vec<(PathBuf, Command)> = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap_or_else(|error| panic!("{}: {error}", document.display()));
        let found = commands(&text).unwrap_or_else(|error| panic!("{}: {error}", document.display()));
        all.extend(found.into_iter().map(|command| (document.clone(), command)));
    }
    assert!(all.len() > 40, "the documents have more commands than {}", all.len());
    let mut faults = Vec::new();
    let mut seen: Vec<(Command, String)> = Vec::new();
    for (document, command) in all {
        let place = format!("{}:{}", document.file_name().unwrap_or_default().display(), command.line);
        let known = seen.iter().find(|(known, _)| (&known.text, &known.mark) == (&command.text, &command.mark));
        if let Some((_, first)) = known {
            println!("{place}: {} — as {first}", command.text);
            continue;
        }
        match judge::judge(&command, &checkout) {
            Verdict::Holds(how) => println!("{place}: {} — {how}", command.text),
            Verdict::Fault(why) => faults.push(format!("{place}: {}: {why}", command.text)),
        }
        seen.push((command, place));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
