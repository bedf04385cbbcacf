//! The files of a crate import one another in no circle, and no two of its folders import each
//! other.
//!
//! A file imports each name that it mentions by `use` or by a path (`crate::…`, `super::…`,
//! `child::…`) from the file that defines it, even if a third file hands the name on: `pub use` is
//! a signpost, not an import. Unit tests and paths inside a macro's call are left out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, UseTree, Visibility};

use crate::tidy::counts::Offence;

/// `["qp", "post"]` is `crate::qp::post`.
type Names = Vec<String>;

/// The names in a file: the module inside the file, and the path.
#[derive(Default)]
struct File<'a> {
    path: &'a str,
    module: Names,
    /// The names that `use` brings in or hands on, by their local names.
    uses: BTreeMap<String, Names>,
    imports: Vec<Names>,
    /// Test modules of the file, in files of their own.
    tests: Vec<Names>,
}

/// The files that import themselves by way of others, by their paths.
pub(crate) fn circles(sources: &BTreeMap<&str, &str>) -> Vec<Offence> {
    let files = read_all(sources);
    let edges: BTreeMap<&str, BTreeSet<&str>> = files.values().map(|file| (file.path, file.imports(&files))).collect();
    let around = |path: &&str| Some(Offence::new(path, 0, way_back(path, &edges)?));
    edges.keys().filter_map(around).collect()
}

/// The folders that import each other. The members of a folder are its files and its folders: of
/// two members only one may import from the other, whichever of their files does so.
pub(crate) fn two_ways(sources: &BTreeMap<&str, &str>) -> Vec<Offence> {
    let files = read_all(sources);
    let modules: BTreeMap<&str, &Names> = files.values().map(|file| (file.path, &file.module)).collect();
    let mut arrows: BTreeMap<(Names, Names), (&str, &str)> = BTreeMap::new();
    for file in files.values() {
        for path in file.imports(&files) {
            let (from, to) = (&file.module, modules[path]);
            let shared = from.iter().zip(to).take_while(|(from, to)| from == to).count();
            // A folder consists of its own file and everything below it.
            if shared < from.len().min(to.len()) {
                let rooms = (from[..=shared].to_vec(), to[..=shared].to_vec());
                arrows.entry(rooms).or_insert((file.path, path));
            }
        }
    }
    let offence = |(rooms, (from, to)): (&(Names, Names), &(&str, &str))| {
        let (one, other) = rooms;
        let (back_from, back_to) = arrows.get(&(other.clone(), one.clone())).filter(|_| one < other)?;
        let names = format!("{} and {} import each other", one.join("::"), other.join("::"));
        Some(Offence::new(from, 0, format!("{names}: {from} → {to}, {back_from} → {back_to}")))
    };
    arrows.iter().filter_map(offence).collect()
}

/// The files of a crate by their modules, without those of tests.
fn read_all<'a>(sources: &BTreeMap<&'a str, &str>) -> BTreeMap<Names, File<'a>> {
    let is_root = |path: &&&str| ["/lib.rs", "/main.rs"].iter().any(|end| path.ends_with(end));
    let Some(root) = sources.keys().filter(is_root).min_by_key(|path| path.len()) else { return BTreeMap::new() };
    let files = sources.iter().map(|(path, text)| File::read(path, root, text));
    let mut files: BTreeMap<Names, File<'_>> = files.map(|file| (file.module.clone(), file)).collect();
    let tests: Vec<Names> = files.values().flat_map(|file| file.tests.clone()).collect();
    files.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
    files
}

/// The shortest way from a file to itself.
fn way_back(start: &str, edges: &BTreeMap<&str, BTreeSet<&str>>) -> Option<String> {
    let mut seen = BTreeSet::new();
    let mut ways = VecDeque::from([vec![start]]);
    while let Some(way) = ways.pop_front() {
        for next in &edges[way[way.len() - 1]] {
            if *next == start {
                return Some(format!("imports itself: {} → {start}", way.join(" → ")));
            }
            if seen.insert(*next) {
                ways.push_back([&way[..], &[*next]].concat());
            }
        }
    }
    None
}

impl<'a> File<'a> {
    fn read(path: &'a str, root: &str, text: &str) -> Self {
        let within = &path[root.rfind('/').map_or(0, |at| at + 1)..];
        let mut module: Names = within.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        module.pop_if(|last| last == "mod" || path == root);
        let mut file = File { path, module, ..File::default() };
        file.visit_file(&syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}")));
        file
    }

    fn imports(&self, files: &BTreeMap<Names, File<'a>>) -> BTreeSet<&'a str> {
        let found = self.imports.iter().filter_map(|names| self.file_of(names, files, 0));
        found.filter(|path| *path != self.path).collect()
    }

    /// The file that defines a name used here; none if it is another crate's.
    fn file_of(&self, names: &[String], files: &BTreeMap<Names, File<'a>>, steps: usize) -> Option<&'a str> {
        let supers = names.iter().take_while(|name| *name == "super").count();
        let full = match names[0].as_str() {
            "crate" => names[1..].to_vec(),
            "self" => [&self.module, &names[1..]].concat(),
            "super" => [&self.module[..self.module.len().checked_sub(supers)?], &names[supers..]].concat(),
            child => {
                files.get(&[&self.module[..], &[child.to_owned()]].concat())?;
                [&self.module, names].concat()
            }
        };
        let known = (0..=full.len()).rev().find(|len| files.contains_key(&full[..*len]))?;
        let (file, rest) = (&files[&full[..known]], &full[known..]);
        let handed_on = rest.first().and_then(|name| file.uses.get(name)).filter(|_| steps < 8);
        handed_on.and_then(|names| file.file_of(names, files, steps + 1)).or(Some(file.path))
    }

    fn add_use(&mut self, tree: &UseTree, before: &[String], is_private: bool) {
        let (here, last) = match tree {
            UseTree::Path(path) => {
                return self.add_use(&path.tree, &[before, &[path.ident.to_string()]].concat(), is_private);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.add_use(tree, before, is_private));
            }
            UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
            UseTree::Rename(renamed) => (renamed.rename.to_string(), renamed.ident.to_string()),
            UseTree::Glob(_) => ("*".to_owned(), "*".to_owned()),
        };
        let names = [before, &[last]].concat();
        if is_private {
            self.imports.push(names.clone());
        }
        self.uses.insert(here, names);
    }
}

impl Visit<'_> for File<'_> {
    fn visit_item_use(&mut self, item: &ItemUse) {
        self.add_use(&item.tree, &[], matches!(item.vis, Visibility::Inherited));
    }

    fn visit_item_mod(&mut self, item: &ItemMod) {
        if item.attrs.iter().any(is_of_tests) {
            self.tests.push([&self.module[..], &[item.ident.to_string()]].concat());
        } else if item.content.is_some() {
            // A module inside the file counts as the file: its `super` is here.
            let mut inside = File { module: self.module.clone(), ..File::default() };
            visit::visit_item_mod(&mut inside, item);
            let here = |names: &Names| names[0] != "super";
            self.imports.extend(inside.imports.into_iter().filter(here));
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            self.imports.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
}

fn is_of_tests(attribute: &Attribute) -> bool {
    let is_test = |text: String| text.split(|char: char| !char.is_alphanumeric()).any(|word| word == "test");
    attribute.path().is_ident("cfg") && attribute.meta.require_list().is_ok_and(|list| is_test(list.tokens.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_circles(texts: &[(&str, &str)]) -> Vec<String> {
        circles(&texts.iter().copied().collect()).into_iter().map(|offence| offence.path).collect()
    }

    #[test]
    fn a_circle_fails_by_use_by_path_and_by_a_name_that_is_handed_on() {
        let root = ("src/lib.rs", "mod a; mod b; mod c; pub use b::B;");
        let b = ("src/b.rs", "use crate::c::C; pub struct B(C);");
        for a in ["use crate::b::B;", "fn f() { super::b::f() }", "use super::B;", "type T = Vec<crate::B>;"] {
            let c = ("src/c.rs", "use super::{a::A as It, d}; pub struct C(It);");
            assert_eq!(in_circles(&[root, ("src/a.rs", a), b, c]), ["src/a.rs", "src/b.rs", "src/c.rs"], "{a}");
        }
    }

    #[test]
    fn a_parent_and_its_child_are_a_circle() {
        let (root, child) = (("src/lib.rs", "mod q;"), ("src/q/post.rs", "use super::Queue;"));
        assert_eq!(in_circles(&[root, ("src/q/mod.rs", "mod post; pub struct Queue;"), child]), [""; 0]);
        let parent = ("src/q/mod.rs", "mod post; pub struct Queue; fn f() { post::post() }");
        assert_eq!(in_circles(&[root, parent, child]), ["src/q/mod.rs", "src/q/post.rs"]);
    }

    #[test]
    fn a_sign_a_unit_test_and_another_crate_are_no_imports() {
        let root = ("src/lib.rs", "mod a; mod b; pub use a::A;");
        let a = "use std::b::B; pub struct A; #[cfg(all(test, not(loom)))] mod tests { use crate::b::B; }";
        let b = ("src/b.rs", "use crate::A; pub struct B(A); #[cfg(test)] mod tests;");
        let apart = ("src/b/tests.rs", "use super::B; use crate::a::A;");
        assert_eq!(in_circles(&[root, ("src/a.rs", a), b, apart]), [""; 0]);
    }

    #[test]
    fn two_folders_that_import_each_other_fail_whichever_files_do() {
        let root = ("src/lib.rs", "mod a; mod b;");
        let signs = [("src/a/mod.rs", "mod one; mod two;"), ("src/b/mod.rs", "mod one; mod two;")];
        let (one, two) = (("src/a/one.rs", "use crate::b::one::B;"), ("src/a/two.rs", "pub struct A;"));
        let back = ("src/b/two.rs", "use crate::a::two::A;");
        let all = [root, signs[0], signs[1], one, two, ("src/b/one.rs", "pub struct B;"), back];
        let whats = |texts: &[(&str, &str)]| -> Vec<String> {
            two_ways(&texts.iter().copied().collect()).into_iter().map(|offence| offence.what).collect()
        };
        let said = "a and b import each other: src/a/one.rs → src/b/one.rs, src/b/two.rs → src/a/two.rs";
        assert_eq!(whats(&all), [said]);
        assert_eq!(in_circles(&all), [""; 0]);
        assert_eq!(whats(&all[..all.len() - 1]), [""; 0]);
    }

    #[test]
    fn a_folder_and_what_is_in_it_are_one_and_its_folders_are_looked_at_too() {
        let (root, sign) = (("src/lib.rs", "mod q;"), ("src/q.rs", "mod r; mod s; fn f() { r::x::f() } pub struct Q;"));
        let r = [("src/q/r.rs", "mod x; mod y;"), ("src/q/r/x.rs", "use crate::q::s::S;"), ("src/q/r/y.rs", "")];
        let all = [root, sign, r[0], r[1], r[2], ("src/q/s.rs", "use crate::q::r::y::Y; pub struct S;")];
        let found = two_ways(&all.into_iter().collect());
        assert_eq!(found.iter().map(|offence| offence.path.as_str()).collect::<Vec<_>>(), ["src/q/r/x.rs"]);
    }
}
