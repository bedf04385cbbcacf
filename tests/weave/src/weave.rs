//! Writes a file's faults into it, each behind a switch: the active fault selects one of the texts
//! at run time.

use crate::source::{Found, Place, Source};
use std::ops::Range;

/// A fault as cargo-mutants lists it.
#[derive(Clone, Debug)]
pub struct Fault {
    /// From 1.
    pub id: u32,
    pub name: String,
    pub file: String,
    pub genre: String,
    pub replacement: String,
    pub start: Place,
    pub end: Place,
}

/// Text to insert at a byte, with its faults.
struct Insertion {
    at: usize,
    /// The order of insertions at the same byte: closing text from the inside out, then opening
    /// text from the outside in.
    order: (u8, isize, u8),
    text: String,
    faults: Vec<u32>,
}

pub struct Woven {
    pub text: String,
    /// The faults whose text is on each line, from 1.
    pub lines: Vec<(Range<usize>, Vec<u32>)>,
    /// The place of each fault: the number of the first fault that shares it.
    pub places: Vec<(u32, u32)>,
    /// Faults that are known not to compile.
    pub unviable: Vec<u32>,
}

/// Weaves the faults of one file. Faults that can't be behind a switch (in constants) have no
/// place.
pub fn weave(text: &str, faults: &[&Fault]) -> Result<Woven, syn::Error> {
    let source = Source::read(text)?;
    let mut weaver = Weaver { text, source: &source, insertions: Vec::new(), places: Vec::new(), unviable: Vec::new() };
    let mut left: Vec<&Fault> = faults.to_vec();
    while let Some(first) = left.first().copied() {
        // Faults at the same place share one switch.
        let (same, rest) = left.into_iter().partition(|fault| fault.start == first.start && fault.genre == first.genre);
        left = rest;
        weaver.put(&same);
    }
    Ok(weaver.written())
}

struct Weaver<'a> {
    text: &'a str,
    source: &'a Source<'a>,
    insertions: Vec<Insertion>,
    places: Vec<(u32, u32)>,
    unviable: Vec<u32>,
}

impl Weaver<'_> {
    /// Inserts the faults of one place.
    fn put(&mut self, faults: &[&Fault]) {
        let first = faults[0];
        let found = self.source.found.get(&first.start).map_or(&[][..], Vec::as_slice);
        let fits = |found: &&Found| {
            matches!(
                (first.genre.as_str(), found),
                ("BinaryOperator" | "UnaryOperator", Found::Operator { .. } | Found::Chain)
                    | ("MatchArm", Found::Arm { .. })
                    | ("MatchArmGuard", Found::Guard { .. })
                    | ("StructField", Found::Field { .. })
                    | ("FnValue", Found::Body)
            )
        };
        let Some(found) = found.iter().find(fits) else { return };
        match found {
            Found::Chain => {
                self.unviable.extend(faults.iter().map(|fault| fault.id));
                return;
            }
            Found::Body => self.choose_at(faults),
            Found::Arm { on, pattern_ends, guard } => self.guard(first, on, *pattern_ends, guard.clone()),
            Found::Operator { whole } | Found::Guard { whole } | Found::Field { whole } => {
                self.choose(faults, whole.clone(), u8::from(!matches!(found, Found::Guard { .. })));
            }
        }
        self.places.extend(faults.iter().map(|fault| (fault.id, first.id)));
    }

    fn insert(&mut self, at: usize, order: (u8, isize, u8), text: String, faults: Vec<u32>) {
        self.insertions.push(Insertion { at, order, text, faults });
    }

    /// Inserts an early return of another value.
    fn choose_at(&mut self, faults: &[&Fault]) {
        let (at, place) = (self.source.byte(faults[0].start), faults[0].id);
        let order = (1, isize::MIN, 0);
        let every = faults.iter().map(|fault| fault.id).collect();
        self.insert(at, order, format!("\nmatch crate::planted::on({place}) {{\n"), every);
        for fault in faults {
            let text = format!("{} => return {},\n", fault.id, fault.replacement);
            self.insert(at, order, text, vec![fault.id]);
        }
        self.insert(at, order, "_ => {}\n}\n".to_owned(), vec![]);
    }

    /// Replaces an expression by a choice between it and the faults' texts.
    fn choose(&mut self, faults: &[&Fault], whole: Range<usize>, rank: u8) {
        let place = faults[0].id;
        let length = whole.len() as isize;
        let open = (1, -length, rank);
        let every = faults.iter().map(|fault| fault.id).collect();
        self.insert(whole.start, open, format!("(match crate::planted::on({place}) {{\n"), every);
        for fault in faults {
            let (start, end) = (self.source.byte(fault.start), self.source.byte(fault.end));
            let (before, after) = (&self.text[whole.start..start], &self.text[end..whole.end]);
            let text = format!("{} => {{ {before}{}{after}\n}},\n", fault.id, fault.replacement);
            self.insert(whole.start, open, text, vec![fault.id]);
        }
        self.insert(whole.start, open, "_ => ".to_owned(), vec![]);
        self.insert(whole.end, (0, length, u8::MAX - rank), "\n})".to_owned(), vec![]);
    }

    /// Disables a match arm by a guard. If the other arms then don't cover all values, the
    /// compiler's error names the matched expression.
    fn guard(&mut self, fault: &Fault, matched: &Range<usize>, pattern_ends: usize, guard: Option<Range<usize>>) {
        let id = fault.id;
        self.insert(matched.start, (1, isize::MIN, 0), "\n".to_owned(), vec![]);
        self.insert(matched.end, (0, isize::MAX, u8::MAX), "\n".to_owned(), vec![id]);
        let on = format!("crate::planted::on({id}) != {id}");
        match guard {
            None => self.insert(pattern_ends, (1, isize::MIN, 0), format!("\nif {on}\n"), vec![id]),
            Some(guard) => {
                self.insert(guard.start, (1, isize::MIN, 0), format!("\n{on} && (\n"), vec![id]);
                self.insert(guard.end, (0, isize::MAX, u8::MAX), ")".to_owned(), vec![]);
            }
        }
    }

    fn written(mut self) -> Woven {
        // The sort is stable: insertions of the same order stay in place.
        self.insertions.sort_by_key(|insertion| (insertion.at, insertion.order));
        let (mut text, mut lines, mut at, mut line) = (String::new(), Vec::new(), 0, 1);
        for insertion in &self.insertions {
            let between = &self.text[at..insertion.at];
            text.push_str(between);
            line += newlines(between);
            at = insertion.at;
            let ends = line + newlines(&insertion.text);
            if !insertion.faults.is_empty() {
                lines.push((line..ends, insertion.faults.clone()));
            }
            text.push_str(&insertion.text);
            line = ends;
        }
        text.push_str(&self.text[at..]);
        Woven { text, lines, places: self.places, unviable: self.unviable }
    }
}

fn newlines(text: &str) -> usize {
    text.matches('\n').count()
}
