//! The versions of the tools that affect a count.

use std::process::Command;

/// The tools: the program to ask, and the name for its version.
const TOOLS: [(&str, &str); 3] = [("rustc", "rustc"), ("ldd", "glibc"), ("valgrind", "valgrind")];

/// The versions, for people to read and compare.
pub(crate) fn versions() -> String {
    TOOLS.map(|(program, name)| format!("{name} {}", version(program))).join(", ")
}

fn version(program: &str) -> String {
    let output = Command::new(program).arg("--version").output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    number(&said).unwrap_or("unknown").to_owned()
}

/// `rustc 1.95.0 (…)`, `ldd (Debian GLIBC 2.36-9) 2.36`, `valgrind-3.19.0`: the last word of the
/// first line that is a number with dots.
fn number(said: &str) -> Option<&str> {
    let mut words = said.lines().next()?.split([' ', '-']);
    let is_number = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    words.rfind(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(number("rustc 1.95.0 (59807616e 2026-04-14)\nmore 9.9"), Some("1.95.0"));
        assert_eq!(number("ldd (Debian GLIBC 2.36-9+deb12u14) 2.36\nCopyright"), Some("2.36"));
        assert_eq!(number("valgrind-3.19.0\n"), Some("3.19.0"));
        assert_eq!(number(""), None);
    }
}
