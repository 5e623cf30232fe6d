//! Rules about single source files.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, Item, Meta, Token, punctuated::Punctuated, spanned::Spanned as _};

use super::Finding;

/// The lines that a file may have beside its tests.
const LONGEST: usize = 500;

/// A file of Rust.
///
/// Tests are whole files, those called `tests.rs` and those below a folder
/// called `tests` or `benches`, and within other files the items that only a
/// test build has (`#[cfg(test)]`, `#[cfg(all(test, loom))]`).
pub(super) struct Source {
    file: PathBuf,
    text: String,
    items: Vec<Item>,
    /// The lines that are tests, from 1.
    tests: BTreeSet<usize>,
    /// The first line with the word `unsafe`.
    first_unsafe: Option<usize>,
}

// ===== impl Source =====

impl Source {
    pub(super) fn parse(file: &Path, text: String) -> syn::Result<Self> {
        let items = syn::parse_file(&text)?.items;
        let mut tests = BTreeSet::new();
        if is_test_file(file) {
            tests.extend(1..=text.lines().count());
        } else {
            mark_tests(&items, &mut tests);
        }
        let first_unsafe = find_unsafe(text.parse()?);
        Ok(Self { file: file.to_owned(), text, items, tests, first_unsafe })
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    pub(super) fn items(&self) -> &[Item] {
        &self.items
    }

    pub(super) fn check(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let file = self.file.display();
        let lines = self.lines().count();
        if lines > LONGEST {
            findings.push(format!("{file}: {lines} lines beside its tests, above {LONGEST}"));
        }
        if let Some(line) = self.first_unsafe
            && self.file.file_name() != Some(OsStr::new("ffi.rs"))
        {
            findings.push(format!("{file}:{line}: `unsafe` outside a file called ffi.rs"));
        }
        findings
    }

    /// The number of lines that are code: not empty, no comment, no test.
    pub(super) fn code(&self) -> usize {
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        self.lines().filter(is_code).count()
    }

    /// The lines that are no tests.
    fn lines(&self) -> impl Iterator<Item = &str> {
        let lines = self.text.lines().zip(1..);
        lines.filter(|(_, number)| !self.tests.contains(number)).map(|(line, _)| line)
    }
}

fn is_test_file(file: &Path) -> bool {
    let is_test_folder = |folder: &OsStr| folder == "tests" || folder == "benches";
    file.file_name() == Some(OsStr::new("tests.rs"))
        || file.parent().is_some_and(|parent| parent.iter().any(is_test_folder))
}

fn mark_tests(items: &[Item], tests: &mut BTreeSet<usize>) {
    for item in items {
        if attributes(item).iter().any(is_for_tests) {
            tests.extend(item.span().start().line..=item.span().end().line);
        } else if let Item::Mod(module) = item
            && let Some((_, items)) = &module.content
        {
            mark_tests(items, tests);
        }
    }
}

/// The attributes of the kinds of items that tests are made of.
fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an attribute leaves its item out of everything but tests.
fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<Meta>().is_ok_and(|condition| needs_test(&condition))
}

fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => {
            let parser = Punctuated::<Meta, Token![,]>::parse_terminated;
            let Ok(conditions) = list.parse_args_with(parser) else { return false };
            if list.path.is_ident("all") {
                return conditions.iter().any(needs_test);
            }
            list.path.is_ident("any") && conditions.iter().all(needs_test)
        }
        Meta::NameValue(_) => false,
    }
}

/// Looks for the word among the tokens, so that comments and strings do not
/// count, and what a macro is given does.
fn find_unsafe(tokens: TokenStream) -> Option<usize> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Ident(word) => (word == "unsafe").then(|| word.span().start().line),
        TokenTree::Group(group) => find_unsafe(group.stream()),
        TokenTree::Punct(_) | TokenTree::Literal(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{LONGEST, Source};

    fn source(file: &str, text: &str) -> Source {
        Source::parse(Path::new(file), text.to_owned()).unwrap()
    }

    #[track_caller]
    fn finds(file: &str, text: &str, finding: &str) {
        let findings = source(file, text).check();
        assert!(findings.iter().any(|found| found.contains(finding)), "{findings:?}");
    }

    #[track_caller]
    fn passes(file: &str, text: &str) {
        assert_eq!(source(file, text).check(), [""; 0], "{text}");
    }

    #[test]
    fn a_long_file_is_found_and_tests_are_not_counted() {
        let code = "fn f() {}\n".repeat(LONGEST);
        passes("src/a.rs", &code);
        finds("src/a.rs", &format!("{code}fn g() {{}}\n"), "501 lines");
        passes("src/a.rs", &format!("{code}#[cfg(test)]\nmod tests {{\n    fn g() {{}}\n}}\n"));
        passes("src/a.rs", &format!("{code}#[cfg(all(test, loom))]\nmod models {{}}\n"));
        finds("src/a.rs", &format!("{code}#[cfg(any(test, x))]\nmod m {{}}\n"), "502 lines");
        finds("src/a.rs", &format!("{code}#[cfg(not(test))]\nmod m {{}}\n"), "502 lines");
        for file in ["tests/a.rs", "src/a/tests.rs", "src/tests/a.rs", "benches/a.rs"] {
            passes(file, &code.repeat(2));
        }
    }

    #[test]
    fn unsafe_is_found_in_code_alone() {
        finds("src/a.rs", "\nfn f() { unsafe { g() } }", "a.rs:2: `unsafe`");
        finds("tests/a.rs", "m!(unsafe { g() });", "`unsafe`");
        passes("src/ffi.rs", "fn f() { unsafe { g() } }");
        passes("src/a.rs", "// unsafe\nconst A: &str = \"unsafe\"; fn unsafe_code() {}");
    }

    #[test]
    fn code_is_what_is_neither_empty_nor_a_comment_nor_a_test() {
        let text = "//! Docs.\n\n/// Docs.\nfn f() {\n    // Why.\n    g()\n}\n\n\
                    #[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
        assert_eq!(source("src/a.rs", text).code(), 3);
    }
}
