//! Follows docs/first-stage.md word by word: writes the files that it shows, types its commands,
//! and compares what it shows with what appears.
//!
//! A comment before a block gives its purpose: `write FILE`, `in FILE` (an excerpt),
//! `under LINE in FILE` (an addition), or `type` with the exit code. A prompt other than `$` is a
//! terminal of its own: a program started at `server$` runs on, and lines at `server>` are typed
//! into it until it ends. A figure stands for any figure, but 0 for 0; `…` is any text, or any
//! lines.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use verbline_tests::root;

use crate::outside::{as_an_embedder, own_profiles, said};

const DOCUMENT: &str = "docs/first-stage.md";

/// The purpose of the block behind a comment.
#[derive(Debug)]
enum Step<'a> {
    Write(&'a str),
    IsIn(&'a str),
    Under(&'a str, &'a str),
    Type(i32),
}

#[test]
fn two_lcores_do_what_the_tutorial_says() {
    let document = fs::read_to_string(root().join(DOCUMENT)).unwrap();
    let steps = steps(&document);
    assert!(steps.len() >= 20, "{} steps", steps.len());
    let mut reader = Follower::new();
    for (step, block) in steps {
        reader.follow(&step, &block);
    }
    assert!(reader.running.is_empty(), "still running: {:?}", reader.running.keys());
}

/// The marked blocks, in order.
fn steps(document: &str) -> Vec<(Step<'_>, String)> {
    let (mut steps, mut mark, mut block) = (Vec::new(), None, None::<String>);
    for line in document.lines() {
        match (&mut block, line) {
            (Some(_), "```") => steps.extend(mark.take().zip(block.take())),
            (Some(block), line) => *block += &format!("{line}\n"),
            (None, line) if line.starts_with("<!-- ") => mark = Some(step(line)),
            (None, line) if line.starts_with("```") => block = Some(String::new()),
            _ => {}
        }
    }
    steps
}

fn step(line: &str) -> Step<'_> {
    let text = line.trim_start_matches("<!-- ").trim_end_matches(" -->");
    match text.split_once(' ') {
        None if text == "type" => Step::Type(0),
        Some(("type,", ends)) => Step::Type(ends.trim_start_matches("exit ").parse().expect("an exit code")),
        Some(("write", file)) => Step::Write(file),
        Some(("in", file)) => Step::IsIn(file),
        Some(("under", place)) => {
            let (line, file) = place.split_once(" in ").expect("a line and a file");
            Step::Under(line, file)
        }
        _ => panic!("{DOCUMENT}: nothing is called `{text}`"),
    }
}

struct Follower {
    home: TempDir,
    folder: PathBuf,
    /// The running programs, by the prompt of their terminals.
    running: BTreeMap<String, Child>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        for child in self.running.values_mut() {
            // Fails if the program has ended, which does no harm. Cargo's child must end with it.
            let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
            let _ = child.wait();
        }
    }
}

impl Follower {
    fn new() -> Follower {
        let home = tempfile::tempdir().unwrap();
        Follower { folder: home.path().to_owned(), home, running: BTreeMap::new() }
    }

    fn follow(&mut self, step: &Step<'_>, block: &str) {
        match step {
            Step::Write(file) => {
                let path = self.folder.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, block).unwrap();
            }
            Step::IsIn(file) => {
                let text = fs::read_to_string(self.folder.join(file)).unwrap();
                assert!(text.contains(block), "{DOCUMENT}: {file} has no such lines:\n{block}");
            }
            Step::Under(line, file) => {
                let text = fs::read_to_string(self.folder.join(file)).unwrap();
                let (before, behind) = text.split_once(line).unwrap_or_else(|| panic!("{file} has no {line}"));
                fs::write(self.folder.join(file), format!("{before}{line}\n{block}{}", &behind[1..])).unwrap();
            }
            Step::Type(code) => self.type_all(block, *code),
        }
    }

    /// Types the lines of a terminal, and compares the output behind each.
    fn type_all(&mut self, block: &str, code: i32) {
        let mut lines = block.lines().peekable();
        while let Some(typed) = lines.next() {
            let mut wanted = Vec::new();
            while let Some(seen) = lines.next_if(|line| prompt(line).is_none()) {
                wanted.push(seen);
            }
            let (terminal, is_input, text) = prompt(typed).unwrap_or_else(|| panic!("{typed}: no prompt"));
            let starts = !terminal.is_empty() && wanted.is_empty();
            match (is_input, text.strip_prefix("cd ")) {
                (true, _) => self.feed(terminal, text, &wanted),
                (false, Some(folder)) => {
                    self.folder = self.folder.join(folder);
                    own_profiles(&self.folder);
                }
                (false, None) if starts => {
                    let child = self.command(text).stdin(Stdio::piped()).spawn().unwrap();
                    self.running.insert(terminal.to_owned(), child);
                }
                (false, None) => {
                    let output = self.command(text).stdin(Stdio::null()).output().unwrap();
                    compare(text, &wanted, code, &output);
                }
            }
        }
    }

    /// Types a line into a running program, which must end if output follows.
    fn feed(&mut self, terminal: &str, text: &str, wanted: &[&str]) {
        let child = self.running.get_mut(terminal).unwrap_or_else(|| panic!("nothing runs at {terminal}"));
        writeln!(child.stdin.as_mut().expect("piped"), "{text}").unwrap();
        if wanted.is_empty() {
            return;
        }
        let mut child = self.running.remove(terminal).expect("it runs");
        let mut output = Output { status: child.wait().unwrap(), stdout: Vec::new(), stderr: Vec::new() };
        child.stdout.take().expect("piped").read_to_end(&mut output.stdout).unwrap();
        child.stderr.take().expect("piped").read_to_end(&mut output.stderr).unwrap();
        compare(text, wanted, 0, &output);
    }

    fn command(&self, text: &str) -> Command {
        // Under another name the same folder would be built again.
        let text = text.replace("~/verbline", &root().display().to_string());
        let mut command = Command::new("timeout");
        command.args(["-k", "1", "300", "bash", "-c", &format!("exec {text}")]);
        let toolchain = PathBuf::from(env!("CARGO"));
        let path = std::env::var("PATH").unwrap_or_default();
        as_an_embedder(command.current_dir(&self.folder))
            .env("PATH", format!("{}:{path}", toolchain.parent().expect("a folder").display()))
            .env("CARGO_NET_OFFLINE", "true")
            // A folder without this user's other runs.
            .env("XDG_RUNTIME_DIR", self.home.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }
}

/// The terminal of a line (none, at `$`), whether the line goes to its running program, and the
/// text to type.
fn prompt(line: &str) -> Option<(&str, bool, &str)> {
    let (name, text) = line.split_once(' ')?;
    let terminal = name.strip_suffix('$').or(name.strip_suffix('>'))?;
    terminal.chars().all(|char| char.is_ascii_lowercase()).then_some((terminal, name.ends_with('>'), text))
}

fn compare(typed: &str, wanted: &[&str], code: i32, output: &Output) {
    assert_eq!(output.status.code(), Some(code), "{typed}:\n{}", said(output));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = format!("{}{}", of_the_program(&text(&output.stderr)), text(&output.stdout));
    let seen: Vec<String> = all.lines().map(figures).filter(|line| !line.is_empty()).collect();
    let wanted: Vec<String> = wanted.iter().map(|line| figures(line)).filter(|line| !line.is_empty()).collect();
    assert!(matches(&wanted, &seen), "{DOCUMENT}: {typed}\n--- shows\n{wanted:#?}\n--- gives\n{seen:#?}\n{all}");
}

/// Standard error without the notes about the machine.
fn of_the_program(said: &str) -> String {
    let mut is_of_machine = false;
    let lines = said.lines().filter(|line| {
        is_of_machine = ["note[", "warning["].iter().any(|begin| line.starts_with(begin))
            || (is_of_machine && line.starts_with("  "));
        !is_of_machine
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// Whether the lines match. A line `…` stands for any lines; at the end or the start of a line it
/// stands for any text.
fn matches(wanted: &[String], seen: &[String]) -> bool {
    match (wanted, seen) {
        ([], []) => true,
        ([any, rest @ ..], _) if any == "…" => (0..=seen.len()).any(|at| matches(rest, &seen[at..])),
        ([wanted, rest @ ..], [line, others @ ..]) => {
            let is_it = match wanted.split_once('…') {
                Some((begin, end)) => line.starts_with(begin.trim_end()) && line.ends_with(end),
                None => is_line(wanted, line),
            };
            is_it && matches(rest, others)
        }
        _ => false,
    }
}

/// Whether the words match. A figure matches any figure, and none (`-`).
fn is_line(wanted: &str, seen: &str) -> bool {
    let is_figure = |word: &str| word == "-" || word.starts_with(|char: char| char == '#' || char.is_ascii_digit());
    let is_word = |(wanted, seen): (&str, &str)| wanted == seen || (wanted == "#" && is_figure(seen));
    wanted.split(' ').count() == seen.split(' ').count() && wanted.split(' ').zip(seen.split(' ')).all(is_word)
}

/// A line with single spaces between words, and `#` for each number that is not 0, including its
/// unit of time, because a slower machine has another one.
fn figures(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        let digits: String = word.chars().filter(char::is_ascii_digit).collect();
        let is_figure = word.starts_with(|char: char| char.is_ascii_digit());
        let is_nought = digits.chars().all(|digit| digit == '0');
        let end = word.chars().rev().take_while(char::is_ascii_punctuation).count();
        match is_figure && !is_nought {
            true => format!("#{}", &word[word.len() - end..]),
            false => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_nought_is_no_figure_and_lines_may_be_left_out() {
    assert_eq!(figures("wrong 0,  in 1,234 of 2.0s; x86"), "wrong 0, in # of #; x86");
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(matches(&lines("a\n…\nd"), &lines("a\nb\nc\nd")) && matches(&lines("a…"), &lines("a b")));
    assert!(is_line("of # is 0", "of - is 0") && !is_line("of # is 0", "of # is #") && !is_line("#", "# #"));
    assert!(!matches(&lines("a\n…\nd"), &lines("a\nb")) && !matches(&lines("a"), &lines("a\nb")));
}
