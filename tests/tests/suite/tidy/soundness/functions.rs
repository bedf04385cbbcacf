//! The public functions of a crate, read from its sources, and which of them can't reach memory
//! that a device or another thread uses.
//!
//! A type is *plain* if all its fields are: values, atomics, and types of the standard library, but
//! no raw pointer, no object of libibverbs, and no type of ours with such a field. A function is
//! plain if it has no `unsafe`, and its own type and every type in its signature are plain. A
//! function that has no `unsafe`, takes only `&self`, and returns a plain value is plain, too.
//!
//! A macro's functions belong to the type that the macro's `impl` names, or that its call names
//! first, and are plain if that type is and the macro has no `unsafe`.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, ImplItem, Item, ItemImpl, ItemMacro, Signature, TraitItem, Type, Visibility};

/// Types of other crates that reach memory.
const RAW: &[&str] = &["NonNull", "UnsafeCell", "MaybeUninit", "AtomicPtr", "c_void", "MmapRaw"];

/// Traits whose implementations only describe a value, if they have no `unsafe`.
const TELLING: &[&str] = &["Debug", "Display", "Error"];

/// A public function, or a trait that a public type implements.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone)]
pub(crate) struct Function {
    /// `mem::Packet`, or `mem` for a function without a type.
    pub(crate) of: String,
    pub(crate) name: String,
    pub(crate) is_plain: bool,
    pub(crate) path: String,
}

/// Every type and trait of ours, by its name, with the names in its fields. A trait gets a raw
/// field, because any type may stand behind it.
#[derive(Default)]
pub(crate) struct Types {
    fields: BTreeMap<String, BTreeSet<String>>,
}

impl Types {
    pub(crate) fn add_file(&mut self, path: &str, text: &str) {
        let mut reader = TypeReader { types: self };
        reader.visit_file(&parsed(path, text));
    }

    fn is_plain(&self, name: &str) -> bool {
        self.is_plain_beside(name, &mut BTreeSet::new())
    }

    fn is_plain_beside<'a>(&'a self, name: &'a str, seen: &mut BTreeSet<&'a str>) -> bool {
        let is_raw = RAW.contains(&name) || name == "*" || name.starts_with("ibv_") || name.starts_with("rdma_");
        let fields = self.fields.get(name).filter(|_| seen.insert(name));
        !is_raw && fields.is_none_or(|fields| fields.iter().all(|field| self.is_plain_beside(field, seen)))
    }
}

struct TypeReader<'a> {
    types: &'a mut Types,
}

impl TypeReader<'_> {
    fn add(&mut self, name: &Ident, names: BTreeSet<String>) {
        self.types.fields.entry(name.to_string()).or_default().extend(names);
    }
}

impl Visit<'_> for TypeReader<'_> {
    fn visit_item_mod(&mut self, item: &syn::ItemMod) {
        if !item.attrs.iter().any(is_left_out) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &syn::ItemStruct) {
        self.add(&item.ident, names_in(|names| names.visit_fields(&item.fields)));
    }

    fn visit_item_enum(&mut self, item: &syn::ItemEnum) {
        let of_variants =
            |names: &mut Names| item.variants.iter().for_each(|variant| names.visit_fields(&variant.fields));
        self.add(&item.ident, names_in(of_variants));
    }

    fn visit_item_union(&mut self, item: &syn::ItemUnion) {
        self.add(&item.ident, BTreeSet::from(["*".to_owned()]));
    }

    fn visit_item_type(&mut self, item: &syn::ItemType) {
        self.add(&item.ident, names_in(|names| names.visit_type(&item.ty)));
    }

    fn visit_item_trait(&mut self, item: &syn::ItemTrait) {
        self.add(&item.ident, BTreeSet::from(["*".to_owned()]));
    }
}

/// The names of types, with `*` for a raw pointer or an opaque part.
#[derive(Default)]
struct Names(BTreeSet<String>);

fn names_in(read: impl FnOnce(&mut Names)) -> BTreeSet<String> {
    let mut names = Names::default();
    read(&mut names);
    names.0
}

impl Visit<'_> for Names {
    fn visit_path(&mut self, path: &syn::Path) {
        self.0.extend(path.segments.last().map(|segment| segment.ident.to_string()));
        visit::visit_path(self, path);
    }

    fn visit_type(&mut self, item: &Type) {
        if matches!(item, Type::Ptr(_) | Type::Macro(_)) {
            self.0.insert("*".to_owned());
        }
        visit::visit_type(self, item);
    }

    fn visit_attribute(&mut self, _: &Attribute) {}
}

/// The public functions of one file.
pub(crate) fn of_file(package: &str, path: &str, text: &str, types: &Types) -> Vec<Function> {
    let file = parsed(path, text);
    let mut reader = Reader { package, path, types, macros: BTreeMap::new(), found: Vec::new() };
    reader.read_items(&file.items);
    reader.found
}

/// The public types of a file, to tell whose functions can be called.
pub(crate) fn public_types(path: &str, text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut items: Vec<Item> = parsed(path, text).items;
    while let Some(item) = items.pop() {
        match item {
            Item::Struct(item) if is_public(&item.vis) => drop(found.insert(item.ident.to_string())),
            Item::Enum(item) if is_public(&item.vis) => drop(found.insert(item.ident.to_string())),
            Item::Mod(item) if !item.attrs.iter().any(is_left_out) => {
                items.extend(item.content.into_iter().flat_map(|(_, items)| items));
            }
            Item::Macro(item) => found.extend(idents_behind(&["pub", "enum"], item.mac.tokens)),
            _ => {}
        }
    }
    found
}

struct Reader<'a> {
    package: &'a str,
    path: &'a str,
    types: &'a Types,
    macros: BTreeMap<String, TokenStream>,
    found: Vec<Function>,
}

impl Reader<'_> {
    fn read_items(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::Fn(item) if is_public(&item.vis) && !item.attrs.iter().any(is_left_out) => {
                    self.add_function("", &item.sig, Some(&*item.block));
                }
                Item::Mod(item) if !item.attrs.iter().any(is_left_out) => {
                    self.read_items(item.content.as_ref().map_or(&[], |(_, items)| items));
                }
                Item::Impl(item) if !item.attrs.iter().any(is_left_out) => self.read_impl(item),
                Item::Trait(item) if is_public(&item.vis) => {
                    for function in &item.items {
                        let TraitItem::Fn(function) = function else { continue };
                        self.add_function(&item.ident.to_string(), &function.sig, function.default.as_ref());
                    }
                }
                Item::Macro(item) => self.read_macro(item),
                _ => {}
            }
        }
    }

    fn read_impl(&mut self, item: &ItemImpl) {
        let Type::Path(own) = &*item.self_ty else { return };
        let of = own.path.segments.last().expect("a path has a segment").ident.to_string();
        if let Some((_, of_trait, _)) = &item.trait_ {
            let name = of_trait.segments.last().expect("a path has a segment").ident.to_string();
            let unsafe_ = item.unsafety.is_some() || has_unsafe(item.items.iter().map(ToTokens::to_token_stream));
            let is_telling = TELLING.contains(&name.as_str());
            self.add(&of, name, !unsafe_ && (is_telling || self.types.is_plain(&of)));
            return;
        }
        for function in &item.items {
            let ImplItem::Fn(function) = function else { continue };
            if is_public(&function.vis) && !function.attrs.iter().any(is_left_out) {
                self.add_function(&of, &function.sig, Some(&function.block));
            }
        }
    }

    fn read_macro(&mut self, item: &ItemMacro) {
        if let Some(name) = &item.ident {
            self.macros.insert(name.to_string(), item.mac.tokens.clone());
            return;
        }
        let called = item.mac.path.segments.last().expect("a path has a segment").ident.to_string();
        let Some(tokens) = self.macros.get(&called).cloned() else { return };
        let behind_impl = flat(tokens.clone()).into_iter().skip_while(|token| token != "impl").nth(1);
        let first = flat(item.mac.tokens.clone()).into_iter().next();
        let of = behind_impl.filter(|name| name != "$").or(first).unwrap_or_default();
        let is_plain = self.types.is_plain(&of) && !has_unsafe([tokens.clone()].into_iter());
        let names = [&["pub", "fn"][..], &["pub", "const", "fn"]].map(|words| idents_behind(words, tokens.clone()));
        names.into_iter().flatten().for_each(|name| self.add(&of, name, is_plain));
    }

    fn add_function(&mut self, of: &str, signature: &Signature, body: Option<&syn::Block>) {
        let mut names = names_in(|names| names.visit_signature(signature));
        names.insert(of.to_owned());
        let unsafe_ = signature.unsafety.is_some() || has_unsafe(body.map(ToTokens::to_token_stream).into_iter());
        let is_plain = names.iter().all(|name| self.types.is_plain(name)) || self.only_tells(signature);
        let is_plain = is_plain && !unsafe_;
        self.add(of, signature.ident.to_string(), is_plain);
    }

    /// Whether the function takes only `&self`, and returns a plain value.
    fn only_tells(&self, signature: &Signature) -> bool {
        let is_shared = signature.receiver().is_some_and(|own| own.reference.is_some() && own.mutability.is_none());
        let given = names_in(|names| names.visit_return_type(&signature.output));
        is_shared
            && signature.inputs.len() == 1
            && !given.is_empty()
            && given.iter().all(|name| self.types.is_plain(name))
    }

    fn add(&mut self, of: &str, name: String, is_plain: bool) {
        let of = [self.package, of].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("::");
        self.found.push(Function { of, name, is_plain, path: self.path.to_owned() });
    }
}

fn parsed(path: &str, text: &str) -> syn::File {
    syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Whether an item is compiled only for tests or for loom.
fn is_left_out(attribute: &Attribute) -> bool {
    let is_one = |text: String| {
        let words: Vec<_> = text.split(|char: char| !char.is_alphanumeric()).collect();
        words.contains(&"test") || (words.contains(&"loom") && !words.contains(&"not"))
    };
    attribute.path().is_ident("cfg") && attribute.meta.require_list().is_ok_and(|list| is_one(list.tokens.to_string()))
}

fn has_unsafe(tokens: impl Iterator<Item = TokenStream>) -> bool {
    tokens.flat_map(flat).any(|token| token == "unsafe")
}

/// All tokens, including those inside brackets.
fn flat(tokens: TokenStream) -> Vec<String> {
    let mut all = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => all.extend(flat(group.stream())),
            other => all.push(other.to_string()),
        }
    }
    all
}

/// The names that stand right behind these words.
fn idents_behind(words: &[&str], tokens: TokenStream) -> Vec<String> {
    let tokens = flat(tokens);
    let behind = tokens.windows(words.len() + 1).filter(|window| window[..words.len()] == *words);
    let names = behind.map(|window| window[words.len()].clone());
    names.filter(|name| name.chars().all(|char| char.is_alphanumeric() || char == '_')).collect()
}
