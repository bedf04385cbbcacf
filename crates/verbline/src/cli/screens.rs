//! Tests make the screens of docs/operate.md: `WRITE=1` writes them again.

use std::fs;
use std::path::Path;

/// Checks that the document shows these screens, each by its name.
pub(super) fn assert_shown(screens: &[(&str, String)]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate.md");
    let text = fs::read_to_string(&path).unwrap();
    let mut wanted = text.clone();
    for (name, screen) in screens {
        let (begin, end) = (format!("<!-- screen: {name} -->\n"), "<!-- end of screen -->\n");
        let from = wanted.find(&begin).unwrap_or_else(|| panic!("no {begin}")) + begin.len();
        let to = from + wanted[from..].find(end).unwrap();
        wanted.replace_range(from..to, &format!("```text\n{screen}```\n"));
    }
    if std::env::var_os("WRITE").is_some() {
        fs::write(&path, &wanted).unwrap();
    }
    assert!(text == wanted, "docs/operate.md shows other screens: write them with WRITE=1");
}
