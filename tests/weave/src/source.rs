//! Finds the places of a source file in which a fault can be put behind a switch, from the
//! positions that cargo-mutants gives.

use proc_macro2::{LineColumn, Span};
use std::collections::HashMap;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Line and column, both from 1, as cargo-mutants counts.
pub type Place = (usize, usize);

/// The syntax at a place, with its bytes.
#[derive(Clone, Debug)]
pub enum Found {
    /// A binary or unary operator of this expression.
    Operator { whole: Range<usize> },
    /// An arm of a match on this expression: the end of its pattern, and its guard.
    Arm { on: Range<usize>, pattern_ends: usize, guard: Option<Range<usize>> },
    /// The guard of an arm.
    Guard { whole: Range<usize> },
    /// A field in this struct expression.
    Field { whole: Range<usize> },
    /// The first statement of a function.
    Body,
    /// An operator in a chain of `&&` with a `let`: no other operator compiles there.
    Chain,
}

pub struct Source<'a> {
    text: &'a str,
    lines: Vec<usize>,
    pub found: HashMap<Place, Vec<Found>>,
    depth_const: usize,
}

impl<'a> Source<'a> {
    pub fn read(text: &'a str) -> Result<Self, syn::Error> {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut source = Self { text, lines, found: HashMap::new(), depth_const: 0 };
        source.visit_file(&syn::parse_file(text)?);
        Ok(source)
    }

    /// The byte offset of a place.
    pub fn byte(&self, (line, column): Place) -> usize {
        let start = self.lines[line - 1];
        self.text[start..].char_indices().nth(column - 1).map_or(self.text.len(), |(at, _)| start + at)
    }

    fn range(&self, span: Span) -> Range<usize> {
        self.byte(place(span.start()))..self.byte(place(span.end()))
    }

    fn add(&mut self, at: Span, found: Found) {
        if self.depth_const == 0 {
            self.found.entry(place(at.start())).or_default().push(found);
        }
    }

    /// Visits the rest; in constant contexts nothing is found.
    fn constant(&mut self, constant: bool, look: impl FnOnce(&mut Self)) {
        self.depth_const += usize::from(constant);
        look(self);
        self.depth_const -= usize::from(constant);
    }

    fn arm(&mut self, on: Range<usize>, arm: &syn::Arm) {
        let guard = arm.guard.as_ref().map(|(_, guard)| guard);
        if guard.is_some_and(|guard| has_let(guard)) {
            return;
        }
        let range = guard.map(|guard| self.range(guard.span()));
        let pattern_ends = self.range(arm.pat.span()).end;
        self.add(arm.span(), Found::Arm { on, pattern_ends, guard: range.clone() });
        if let (Some(guard), Some(whole)) = (guard, range) {
            self.add(guard.span(), Found::Guard { whole });
        }
    }

    /// Visits a function's body. A function that returns `impl Trait` has one concrete type, which
    /// another value would seldom have.
    fn body(&mut self, sig: &syn::Signature, block: &syn::Block) {
        let opaque = matches!(&sig.output, syn::ReturnType::Type(_, of) if matches!(**of, syn::Type::ImplTrait(_)));
        if let Some(first) = block.stmts.first().filter(|_| !opaque) {
            self.add(first.span(), Found::Body);
        }
    }
}

fn place(at: LineColumn) -> Place {
    (at.line, at.column + 1)
}

/// Whether a chain of `&&` has a `let`, which can't stand in parentheses.
fn has_let(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Source<'_> {
    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        let chain = has_let(&expr.left) || has_let(&expr.right);
        let found = if chain { Found::Chain } else { Found::Operator { whole: self.range(expr.span()) } };
        self.add(expr.op.span(), found);
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        self.add(expr.op.span(), Found::Operator { whole: self.range(expr.span()) });
        visit::visit_expr_unary(self, expr);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        for arm in &expr.arms {
            self.arm(self.range(expr.expr.span()), arm);
        }
        visit::visit_expr_match(self, expr);
    }

    fn visit_expr_struct(&mut self, expr: &'ast syn::ExprStruct) {
        for field in &expr.fields {
            self.add(field.span(), Found::Field { whole: self.range(expr.span()) });
        }
        visit::visit_expr_struct(self, expr);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.constant(item.sig.constness.is_some(), |source| {
            source.body(&item.sig, &item.block);
            visit::visit_item_fn(source, item);
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.constant(item.sig.constness.is_some(), |source| {
            source.body(&item.sig, &item.block);
            visit::visit_impl_item_fn(source, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.constant(true, |source| visit::visit_item_const(source, item));
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.constant(true, |source| visit::visit_item_static(source, item));
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.constant(true, |source| visit::visit_impl_item_const(source, item));
    }

    fn visit_expr_const(&mut self, expr: &'ast syn::ExprConst) {
        self.constant(true, |source| visit::visit_expr_const(source, expr));
    }

    fn visit_expr_repeat(&mut self, expr: &'ast syn::ExprRepeat) {
        self.visit_expr(&expr.expr);
        self.constant(true, |source| source.visit_expr(&expr.len));
    }

    fn visit_type_array(&mut self, array: &'ast syn::TypeArray) {
        self.constant(true, |source| visit::visit_type_array(source, array));
    }
}
