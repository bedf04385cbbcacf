//! Notes of a program about its machine, and about what the machine did to it, apart from its
//! output about its plan and its run.
//!
//! Guarantees: without the notes, the output is the same on every machine. A note is never removed
//! unchecked: its kind must be known and occur once, it must carry the command that mends the lack,
//! and it must be true, either of this machine or of what the test has taken away
//! ([`Program::lacking`](crate::Program::lacking)).

use rustix::thread::{MembarrierQuery, membarrier_query};
use verbline::plan::{Hugepages, Lack, Machine};

/// More hugepages and more bytes than the pools of any tested plan take.
const PLENTY_PAGES: u64 = 64;
const PLENTY_BYTES: u64 = 128 << 20;

/// A note that a program printed.
#[derive(Clone, Debug)]
pub struct SaidNote {
    /// The lack.
    pub lack: Lack,
    /// The whole note, on one line.
    pub text: String,
}

/// Separates the notes from the output.
///
/// # Panics
/// If a note is malformed, is said twice, or is true neither of this machine nor of `taken_away`.
#[track_caller]
pub(crate) fn taken_out(said: &str, taken_away: &[Lack]) -> (Vec<SaidNote>, String) {
    let (mut notes, mut rest) = (Vec::<SaidNote>::new(), String::new());
    let mut lines = said.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let is_stolen = line.starts_with("warning[stolen-time]: ");
        let code = line.strip_prefix("note[").and_then(|after| Some(after.split_once("]: ")?.0));
        if !is_stolen && code.is_none() {
            rest.push_str(line);
            continue;
        }
        let mut text = line.to_owned();
        while let Some(more) = lines.next_if(|line| line.starts_with("  ")) {
            text.push_str(more);
        }
        crate::assert_fits(&text);
        // Other programs on the machine are not the test's concern: such a warning may come or not.
        let Some(code) = code else {
            assert!(text.contains(" was stolen ") && text.contains("\n  = help: "), "{text}\n--- in\n{said}");
            continue;
        };
        let lack = Lack::ALL.into_iter().find(|lack| lack.code() == code);
        let lack = lack.unwrap_or_else(|| panic!("no note has this code: {text}\n--- in\n{said}"));
        assert!(notes.iter().all(|known| known.lack != lack), "said twice: {text}\n--- in\n{said}");
        assert!(text.contains("\n  = help: "), "it says what to do: {text}\n--- in\n{said}");
        let is_true = taken_away.contains(&lack) || of_this_machine().contains(&lack);
        assert!(is_true, "this machine does not lack that: {text}\n--- in\n{said}");
        notes.push(SaidNote { lack, text: crate::unwrapped(&text) });
    }
    (notes, rest)
}

/// The possible lacks of this machine for a tested plan, with nothing taken away.
fn of_this_machine() -> Vec<Lack> {
    let machine = Machine::detect();
    let fences = MembarrierQuery::PRIVATE_EXPEDITED;
    let lacks = [
        (Lack::Hugepages, !matches!(machine.huge_2m, Hugepages::Counted { free: PLENTY_PAGES.., .. })),
        (Lack::HugepageCounts, machine.huge_2m == Hugepages::Unknown),
        (Lack::LockedMemory, machine.memlock_bytes.is_some_and(|bytes| bytes < PLENTY_BYTES)),
        (Lack::CpuTime, machine.cpu_quota.is_some()),
        (Lack::Membarrier, !membarrier_query().contains(fences)),
        (Lack::FarApart, machine.numa.nodes.len() > 1),
        (Lack::FarMemory, machine.numa.nodes.len() > 1),
        (Lack::NodesUnknown, machine.numa.nodes.is_empty()),
    ];
    lacks.into_iter().filter(|(_, is_lacking)| *is_lacking).map(|(lack, _)| lack).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: &str =
        "note[not-locked]: pool.packets may be swapped out\n  = help: `ulimit -l\n          unlimited`\n";

    #[test]
    fn the_rest_is_what_was_said_of_the_plan() {
        let said = format!("first\n{NOTE}error: last\n  with a second line\n");
        let (notes, rest) = taken_out(&said, &[Lack::LockedMemory]);
        assert_eq!(rest, "first\nerror: last\n  with a second line\n");
        let [note] = &notes[..] else { panic!("{} notes", notes.len()) };
        assert!(note.lack == Lack::LockedMemory && note.text.ends_with("`ulimit -l unlimited`"));
    }

    #[test]
    fn what_others_took_is_not_said_of_the_run() {
        let stolen =
            "warning[stolen-time]: 2.0 % of the time of lcore a was stolen while\n     it\n  = help: keep them off\n";
        let (notes, rest) = taken_out(&format!("first\n{stolen}last\n"), &[]);
        assert_eq!((notes.len(), rest.as_str()), (0, "first\nlast\n"));
    }

    #[test]
    #[should_panic(expected = "said twice")]
    fn a_note_is_said_once() {
        taken_out(&format!("{NOTE}{NOTE}"), &[Lack::LockedMemory]);
    }

    #[test]
    #[should_panic(expected = "no note has this code")]
    fn a_note_is_of_a_known_kind() {
        taken_out("note[bad-weather]: it rains\n  = help: `go home`\n", &[]);
    }

    #[test]
    #[should_panic(expected = "it says what to do")]
    fn a_note_has_its_command() {
        taken_out("note[not-locked]: it is not\n", &[Lack::LockedMemory]);
    }
}
