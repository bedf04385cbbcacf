//! Posts and polls counted by callgrind: through our crates, and in C with the same provider.

use verbline_benches::Figures;
use verbline_benches::callgrind::{COMMAND, instructions, per_operation};

use super::rivals;
use crate::contender::{Contender, Needs};
use crate::error::RunError;

const NEEDS: &[Needs] = &[Needs { program: "valgrind", package: "valgrind" }];
const NEEDS_C: &[Needs] = &[
    Needs { program: "valgrind", package: "valgrind" },
    Needs { program: "cargo", package: "cargo" },
    Needs { program: "cc", package: "gcc" },
    Needs { program: "/usr/include/infiniband/verbs.h", package: "libibverbs-dev" },
];
/// Lists of messages in the two runs; the difference counts.
const LISTS: [u64; 2] = [1_000, 11_000];

/// Lists of `burst` messages through `verbline_verbs`: `instructions` per message.
pub(crate) fn ours(name: &'static str, burst: u32) -> Contender {
    let commands = vec![format!("{COMMAND} peers ours post-and-poll {} {burst}", LISTS[1])];
    let run = move || {
        let exe = std::env::current_exe().unwrap_or_else(|_| "peers".into()).display().to_string();
        count(&exe, &["ours", "post-and-poll"], burst)
    };
    Contender { name, commands, needs: NEEDS, hugepages: false, run: Box::new(run) }
}

/// Like [`ours`], by the C program.
pub(crate) fn in_c(name: &'static str, burst: u32) -> Contender {
    let commands = vec![format!("{COMMAND} rivals post-and-poll {} {burst}", LISTS[1])];
    let run = move || count(&rivals::program()?, &["post-and-poll"], burst);
    Contender { name, commands, needs: NEEDS_C, hugepages: false, run: Box::new(run) }
}

fn count(program: &str, subject: &[&str], burst: u32) -> Result<Figures, RunError> {
    let run = |lists: u64| {
        let (lists, burst) = (lists.to_string(), burst.to_string());
        let args: Vec<&str> = subject.iter().copied().chain([lists.as_str(), burst.as_str()]).collect();
        instructions(&[], program, &args)
    };
    let a_list = per_operation(LISTS, 1, run)?;
    Ok(Figures::of("instructions", a_list / f64::from(burst)))
}
