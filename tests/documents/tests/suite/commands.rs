//! The commands of a document: lines of its blocks, and words in backticks, if they begin with a
//! program of this repository.
//!
//! A comment before a block or a paragraph marks its commands: `<!-- exit 2 -->` gives an exit code
//! other than 0, and `<!-- takes minutes -->`, `<!-- needs a card -->`, `<!-- needs root -->` say
//! why they are not run.

/// The mark that a comment gives the commands behind it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mark {
    Exit(i32),
    /// The command is not run, for this reason.
    NotRun(&'static str),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Command {
    /// From 1.
    pub(crate) line: usize,
    pub(crate) text: String,
    pub(crate) mark: Option<Mark>,
}

const REASONS: [&str; 3] = ["takes minutes", "needs a card", "needs root"];
const APPS: [&str; 5] = ["kv", "nvme-load", "nvme-target", "pingpong", "tick-to-trade"];
/// Verbs of an app, which the documents also name without one.
const APP_VERBS: [&str; 5] = ["run", "check", "graph", "keys", "devices"];

/// The commands of a document, in order.
pub(crate) fn commands(text: &str) -> Result<Vec<Command>, String> {
    let mut found = Vec::new();
    let (mut fenced, mut mark, mut paragraph) = (false, None, Paragraph::default());
    for (line, number) in text.lines().zip(1..) {
        if let Some(said) = comment(line) {
            mark = Some(marked(said).map_err(|why| format!("line {number}: {why}"))?).flatten();
        } else if line.starts_with("```") {
            fenced = !fenced;
        } else if line.trim().is_empty() {
            // A mark applies only to the next block or paragraph.
            let ended = paragraph.take(&mark);
            mark = mark.filter(|_| ended.is_none());
            found.extend(ended.unwrap_or_default());
        } else {
            paragraph.add(line, number, fenced);
        }
    }
    found.extend(paragraph.take(&mark).unwrap_or_default());
    Ok(found)
}

/// A paragraph: lines without an empty line between them.
#[derive(Default)]
struct Paragraph {
    prose: String,
    /// The start of each line in the prose, and its number.
    begins: Vec<(usize, usize)>,
    blocks: Vec<(usize, String)>,
}

impl Paragraph {
    fn add(&mut self, line: &str, number: usize, fenced: bool) {
        match line.strip_prefix("    ").filter(|_| self.prose.is_empty()).or(fenced.then_some(line)) {
            Some(code) => self.blocks.push((number, code.to_owned())),
            None => {
                self.begins.push((self.prose.len(), number));
                self.prose.push_str(line);
                self.prose.push('\n');
            }
        }
    }

    /// The paragraph's commands; `None` if there is no paragraph.
    fn take(&mut self, mark: &Option<Mark>) -> Option<Vec<Command>> {
        let Paragraph { prose, begins, blocks } = std::mem::take(self);
        if prose.is_empty() && blocks.is_empty() {
            return None;
        }
        let of = |(line, text): (usize, String)| Command { line, text, mark: mark.clone() };
        // Two blanks begin an explanation in a block. A table of keys has words that are verbs
        // elsewhere.
        let first = |text: String| text.trim().split("  ").next().map(str::to_owned);
        let lines = blocks.into_iter().filter_map(|(line, text)| Some((line, command(&first(text)?)?)));
        let spans = spans(&prose).filter_map(|(at, span)| {
            let line = begins.iter().rev().find(|(begin, _)| *begin <= at).map_or(0, |(_, line)| *line);
            Some((line, command(&span).or_else(|| of_any_app(&span))?))
        });
        Some(lines.chain(spans).map(of).collect())
    }
}

/// The text in backticks, each on one line, with its place.
fn spans(prose: &str) -> impl Iterator<Item = (usize, String)> {
    let mut at = 0;
    let parts = prose.split('`').enumerate().map(move |(index, part)| {
        let begin = at;
        at += part.len() + 1;
        (index, begin, part)
    });
    parts
        .filter(|(index, ..)| index % 2 == 1)
        .map(|(_, begin, part)| (begin, part.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// The text as a command, if it is one of ours.
fn command(text: &str) -> Option<String> {
    let words: Vec<&str> = behind_variables(text).split_whitespace().collect();
    let verb = words.get(1);
    match *words.first()? {
        "./x" | "../x" | "cargo" => Some(text.to_owned()),
        word if APPS.contains(&word) && verb.is_some_and(|verb| APP_VERBS.contains(verb)) => Some(text.to_owned()),
        _ => None,
    }
}

/// A command of any app, without the app's name: `check PLAN`. A verb alone is only a word.
fn of_any_app(text: &str) -> Option<String> {
    let (verb, _) = text.split_once(' ')?;
    APP_VERBS.contains(&verb).then(|| format!("./x {text}"))
}

/// The command without its variables: `A=1 B="two words" command`.
fn behind_variables(text: &str) -> &str {
    let Some((_, value)) = text.split_once('=').filter(|(name, _)| is_variable(name)) else { return text };
    let rest = match value.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').map(|(_, rest)| rest),
        None => value.split_once(' ').map(|(_, rest)| rest),
    };
    rest.map_or("", |rest| behind_variables(rest.trim_start()))
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|char| char.is_ascii_uppercase() || char == '_')
}

fn comment(line: &str) -> Option<&str> {
    Some(line.trim().strip_prefix("<!--")?.strip_suffix("-->")?.trim())
}

/// The mark of a comment; nothing if it is about something else.
fn marked(said: &str) -> Result<Option<Mark>, String> {
    if let Some(code) = said.strip_prefix("exit ") {
        return code.parse().map(|code| Some(Mark::Exit(code))).map_err(|error| format!("{said}: {error}"));
    }
    let reason = REASONS.into_iter().find(|reason| *reason == said);
    let is_near = ["takes ", "needs "].into_iter().any(|begin| said.starts_with(begin));
    match reason {
        None if is_near => Err(format!("`{said}` is none of: exit CODE, {}", REASONS.join(", "))),
        reason => Ok(reason.map(Mark::NotRun)),
    }
}

#[test]
fn commands_are_in_blocks_and_in_backticks() {
    let text = "# One\n\n    ./x run      build and run\n    ./x test\n    kv: ran 10 s\n    keys of a table\n\n\
                Say `./x check\nPLAN` or `check PLAN --explain`, `run` and `A=\"1 2\" B=3 cargo test -p x`.\n\n\
                <!-- exit 2 -->\n```\n./x run missing\n```\n\n<!-- needs a card -->\n\n- `./x devices`\n\n`kv run x`\n";
    let found: Vec<(usize, String, Option<Mark>)> =
        commands(text).unwrap().into_iter().map(|command| (command.line, command.text, command.mark)).collect();
    let of = |line, text: &str, mark| (line, text.to_owned(), mark);
    assert_eq!(
        found,
        [
            of(3, "./x run", None),
            of(4, "./x test", None),
            of(8, "./x check PLAN", None),
            of(9, "./x check PLAN --explain", None),
            of(9, "A=\"1 2\" B=3 cargo test -p x", None),
            of(13, "./x run missing", Some(Mark::Exit(2))),
            of(18, "./x devices", Some(Mark::NotRun("needs a card"))),
            of(20, "kv run x", None),
        ]
    );
    assert!(commands("<!-- needs luck -->\n").unwrap_err().contains("`needs luck` is none of"));
    assert_eq!(commands("<!-- a comment -->\n\n`./x run`\n").unwrap()[0].mark, None);
}
