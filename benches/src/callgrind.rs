//! Counts a program's instructions with valgrind's callgrind: a busy machine gives the same count
//! as a quiet one.

use std::ffi::OsStr;
use std::io;
use std::process::Command;

/// Why there is no count.
#[derive(Debug, thiserror::Error)]
pub enum CallgrindError {
    /// valgrind is not installed.
    #[error("valgrind does not start ({0}); install the package valgrind")]
    Spawn(io::Error),
    /// The program failed, or valgrind could not run it.
    #[error("`{command}` failed under valgrind:\n{said}")]
    Failed {
        /// The program and its arguments.
        command: String,
        /// Standard error of both.
        said: String,
    },
    /// The program ran, and valgrind never entered the function to be counted.
    #[error("no instruction of `{function}` was counted: no function has this name any more; mend it where the row is")]
    NotEntered {
        /// The pattern of the function's name.
        function: String,
    },
}

/// The command, for people.
pub const COMMAND: &str = "valgrind --tool=callgrind --callgrind-out-file=/dev/null";

/// The child's `GLIBC_TUNABLES`: glibc picks its `memcpy` and kin by the CPU, and the variants take
/// different numbers of instructions. Without the features below it takes those that every x86-64
/// CPU runs. (Callgrind emulates the same CPU wherever the host has AVX2, so only older hosts would
/// differ.) Names that a glibc does not know are ignored.
pub const TUNABLES: &str = "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-AVX_Fast_Unaligned_Load,\
-AVX512F,-AVX512VL,-ERMS,-FSRM,-SSSE3,-SSE4_1,-SSE4_2,-MOVBE,-BMI2";

/// Runs the program to its end and returns the number of instructions that all of its threads
/// executed: everywhere, or within the first function of `within`, without those in the others
/// (name patterns; callgrind toggles counting at each entry and exit of one).
///
/// # Errors
/// valgrind is not installed, or the program fails.
pub fn instructions(within: &[&str], program: impl AsRef<OsStr>, args: &[&str]) -> Result<f64, CallgrindError> {
    let mut words = COMMAND.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    command
        .args(words)
        .args(within.iter().map(|function| format!("--toggle-collect={function}")))
        .arg(program)
        .args(args)
        .env("GLIBC_TUNABLES", TUNABLES);
    let output = command.output().map_err(CallgrindError::Spawn)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match collected(&said) {
        Some(count) if output.status.success() => entered(within, count),
        _ => Err(CallgrindError::Failed { command: format!("{command:?}"), said }),
    }
}

/// A count of 0 is an error: it would pass every bound.
fn entered(within: &[&str], count: f64) -> Result<f64, CallgrindError> {
    match within.first() {
        Some(&function) if count == 0.0 => Err(CallgrindError::NotEntered { function: function.to_owned() }),
        _ => Ok(count),
    }
}

/// Instructions of one operation: the difference of runs with two counts of them, over the
/// difference of the counts, so that one-time work is excluded. Of `runs` the least counts: waiting
/// threads add to it. Once another run gives the least again, no more are made.
///
/// # Errors
/// Like [`instructions`].
pub fn per_operation(
    [fewer, more]: [u64; 2],
    runs: usize,
    mut run: impl FnMut(u64) -> Result<f64, CallgrindError>,
) -> Result<f64, CallgrindError> {
    let mut least = |count| -> Result<f64, CallgrindError> {
        let mut least = run(count)?;
        for _ in 1..runs {
            let counted = run(count)?;
            let is_again = (counted - least).abs() <= least * AGAIN;
            least = least.min(counted);
            if is_again {
                break;
            }
        }
        Ok(least)
    };
    let (few, many) = (least(fewer)?, least(more)?);
    Ok((many - few) / (more - fewer) as f64)
}

/// Two counts that differ by at most this share are equal: a hundredth of a row's allowed rise.
const AGAIN: f64 = 3e-4;

/// Reads the line `==PID== Collected : N`.
fn collected(said: &str) -> Option<f64> {
    let (_, count) = said.lines().find_map(|line| line.split_once("Collected :"))?;
    count.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read() {
        let said =
            "==8733== Events    : Ir\n==8733== Collected : 1034963\n==8733== \n==8733== I   refs:      1,034,963\n";
        assert_eq!(collected(said), Some(1_034_963.0));
        assert_eq!(collected("==1== error"), None);
    }

    #[test]
    fn a_function_that_is_never_entered_is_an_error_and_no_fall() {
        let error = entered(&["*Lcore*::walk*"], 0.0).unwrap_err();
        assert!(error.to_string().contains("`*Lcore*::walk*`"), "{error}");
        assert_eq!(entered(&["*Lcore*::walk*"], 7.0).unwrap(), 7.0);
        assert_eq!(entered(&[], 0.0).unwrap(), 0.0);
    }

    #[test]
    fn what_is_done_once_is_not_counted() {
        let mut runs = 0;
        let mut noisy = |count: u64| {
            runs += 1;
            Ok(1e6 + 7.0 * count as f64 + f64::from(runs % 2) * 1e3)
        };
        assert_eq!(per_operation([10, 110], 2, &mut noisy).unwrap(), 7.0);
    }

    #[test]
    fn a_count_that_comes_again_is_counted_twice_and_no_more() {
        let mut runs = 0;
        let mut same = |count: u64| {
            runs += 1;
            Ok(1e6 + 7.0 * count as f64)
        };
        assert_eq!(per_operation([10, 110], 5, &mut same).unwrap(), 7.0);
        assert_eq!(runs, 4);
    }
}
