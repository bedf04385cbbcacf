//! Every public function that reaches memory of a device or of another thread has a line in
//! docs/soundness.md that says why no safe caller can break it, and every line has a function.

mod functions;
mod page;

use std::collections::BTreeSet;

use functions::{Function, Types};
use page::Page;

use crate::tidy::counts::{Faults, Offence};
use crate::tidy::tree::Tree;

const PAGE: &str = "docs/soundness.md";

/// Crates whose public functions need a line, or a rule of the page.
const CRATES: &[&str] = &["mem", "sync", "ring", "store", "verbs"];

/// Crates whose types the others contain.
const BELOW: &[&str] = &["softnic"];

/// The least number of words in a reason.
const WORDS_MIN: usize = 3;

#[test]
fn every_public_function_says_why_it_is_sound() {
    held(&Tree::of_the_repository()).unwrap();
}

fn held(tree: &Tree) -> Result<(), Faults> {
    let page = Page::read(tree.text(PAGE).unwrap_or_default());
    let functions = public_functions(tree);
    let mut faults: Vec<String> = missing(&functions, &page).iter().map(Offence::to_string).collect();
    faults.extend(left_over(&functions, &page));
    if faults.is_empty() { Ok(()) } else { Err(Faults(faults)) }
}

/// The public functions of all [`CRATES`], without those that forbid `unsafe`.
fn public_functions(tree: &Tree) -> Vec<Function> {
    let folder = |name: &str| format!("crates/{name}/src/");
    let sources = |name: &str| {
        let folder = folder(name);
        tree.sources().filter(move |(path, _)| path.starts_with(&folder))
    };
    let mut types = Types::default();
    CRATES.iter().chain(BELOW).flat_map(|name| sources(name)).for_each(|(path, text)| types.add_file(path, text));
    let mut all = Vec::new();
    for name in CRATES {
        let root = tree.text(&format!("{}lib.rs", folder(name))).unwrap_or_default();
        if root.contains("#![forbid(unsafe_code)]") {
            continue;
        }
        let denies = root.contains("#![deny(unsafe_code)]");
        let public: BTreeSet<String> =
            sources(name).flat_map(|(path, text)| functions::public_types(path, text)).collect();
        let is_public = |function: &Function| function.of.split_once("::").is_none_or(|(_, of)| public.contains(of));
        // In a crate that denies `unsafe`, a file with `unsafe` must allow it explicitly.
        let files = sources(name).filter(|(_, text)| !denies || text.contains("allow(unsafe_code"));
        all.extend(files.flat_map(|(path, text)| functions::of_file(name, path, text, &types)).filter(is_public));
    }
    all
}

fn missing(functions: &[Function], page: &Page) -> Vec<Offence> {
    let has_line = |function: &Function| page.names_of(&function.of).contains(function.name.as_str());
    let without = functions.iter().filter(|function| !function.is_plain && !has_line(function));
    let what = |function: &Function| {
        let Function { of, name, .. } = function;
        format!("`{of}`'s `{name}` has no line in {PAGE}: say why a safe caller can't break memory with it")
    };
    without.map(|function| Offence::new(&function.path, 0, what(function))).collect()
}

/// Lines without a function, and without a reason.
fn left_over(functions: &[Function], page: &Page) -> Vec<String> {
    let mut faults = Vec::new();
    for section in &page.sections {
        let of_section = |function: &&Function| section.types.contains(&function.of);
        let known: BTreeSet<&str> = functions.iter().filter(of_section).map(|function| &*function.name).collect();
        for (name, words) in &section.names {
            if !known.contains(name.as_str()) {
                faults.push(format!("{PAGE}: {} has no public function `{name}`", section.types.join(", ")));
            }
            if *words < WORDS_MIN {
                faults.push(format!("{PAGE}: {}: `{name}` has no reason", section.types.join(", ")));
            }
        }
        for of in section.types.iter().filter(|of| !functions.iter().any(|function| function.of == **of)) {
            faults.push(format!("{PAGE}: there is no public type `{of}`, or rules cover all that it has"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_TEXT: &str = "# P\n## mem\n### `mem::Packet`\n- `data`: borrows the buffer\n  and nothing else.\n";

    fn faults(source: &str, page: &str) -> Vec<String> {
        let root = ("crates/mem/src/lib.rs", "pub mod packet;");
        let tree = Tree::of([root, ("crates/mem/src/packet.rs", source), (PAGE, page)]);
        held(&tree).err().map_or_else(Vec::new, |faults| faults.0)
    }

    const PACKET: &str = "pub struct Packet(NonNull<u8>);";

    #[test]
    fn a_function_without_a_line_and_a_line_without_a_function_fail() {
        let data = "impl Packet { pub fn data(&self) -> &[u8] { unsafe { self.0.as_ref() } } }";
        assert_eq!(faults(&format!("{PACKET} {data}"), PAGE_TEXT), [""; 0]);
        let fill = "impl Packet { pub fn fill(&mut self, len: usize) {} }";
        let [missing] = &faults(&format!("{PACKET} {data} {fill}"), PAGE_TEXT)[..] else { panic!() };
        assert!(missing.contains("`mem::Packet`'s `fill` has no line"), "{missing}");
        let [gone] = &faults(&format!("{PACKET} {data}"), &format!("{PAGE_TEXT}- `fill`: it is written to.\n"))[..]
        else {
            panic!()
        };
        assert!(gone.contains("no public function `fill`"), "{gone}");
    }

    #[test]
    fn a_line_gives_a_reason() {
        let data = "impl Packet { pub fn data(&self) -> &[u8] { unsafe { self.0.as_ref() } } }";
        let silent = PAGE_TEXT.replace("borrows the buffer\n  and nothing else", "sound");
        assert_eq!(faults(&format!("{PACKET} {data}"), &silent).len(), 1);
    }

    #[test]
    fn an_unsafe_function_a_trait_a_free_one_and_a_macros_need_lines() {
        let sources = [
            "pub unsafe fn raw(at: usize) {}",
            "pub fn taken(packet: Packet) {}",
            "impl Drop for Packet { fn drop(&mut self) {} }",
            "unsafe impl Send for Packet {}",
            "macro_rules! m { ($t:ident) => { impl $t { pub fn made(self) {} } } } m!(Packet);",
        ];
        for source in sources {
            let page = PAGE_TEXT.replace("data", "len");
            let len = "impl Packet { pub fn len(&self) -> usize { 0 } }";
            assert_eq!(faults(&format!("{PACKET} {len} {source}"), &page).len(), 1, "{source}");
        }
    }

    #[test]
    fn what_holds_no_address_and_what_only_tells_need_no_line() {
        let sources = [
            "pub struct Spec { bytes: u32, inner: Inner } struct Inner(Arc<AtomicU64>); \
             impl Spec { pub fn new(bytes: u32) -> Spec { todo!() } }",
            "impl fmt::Debug for Packet { fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result { todo!() } }",
            "impl Packet { pub fn room(&self) -> usize { 0 } pub(crate) fn view(&mut self) {} }",
            "#[cfg(test)] mod tests { impl super::Packet { pub fn forged() -> Packet { todo!() } } }",
        ];
        for source in sources {
            let page = PAGE_TEXT.replace("data", "len");
            let len = "impl Packet { pub fn len(&self) -> usize { 0 } }";
            assert_eq!(faults(&format!("{PACKET} {len} {source}"), &page), [""; 0], "{source}");
        }
        let address = "pub struct Spec { inner: Inner } struct Inner(*mut u8); impl Spec { pub fn new() -> Spec {} }";
        let page = PAGE_TEXT.replace("data", "len");
        let len = "impl Packet { pub fn len(&self) -> usize { 0 } }";
        assert_eq!(faults(&format!("{PACKET} {len} {address}"), &page).len(), 1);
    }

    #[test]
    fn a_crate_that_forbids_unsafe_needs_no_lines_and_one_that_denies_it_where_it_allows_it() {
        let source = "pub struct P(NonNull<u8>); impl P { pub fn taken(self) {} }";
        let judged = |root: &str, source: &str| {
            let tree = Tree::of([("crates/ring/src/lib.rs", root), ("crates/ring/src/p.rs", source), (PAGE, "")]);
            held(&tree).err().map_or(0, |faults| faults.0.len())
        };
        assert_eq!(judged("mod p;", source), 1);
        assert_eq!(judged("#![forbid(unsafe_code)] mod p;", source), 0);
        assert_eq!(judged("#![deny(unsafe_code)] mod p;", source), 0);
        assert_eq!(judged("#![deny(unsafe_code)] mod p;", &format!("#![allow(unsafe_code)] {source}")), 1);
    }
}
