//! The size of a layer: one crate, one reason to change, one screen of names.

use std::path::Path;

use syn::{Item, UseTree, Visibility};

use super::{Finding, graph::LAYERS, source::Source};

/// The lines of code that a layer may have.
const MOST_CODE: usize = 500;

/// The names that a layer may export.
const MOST_ITEMS: usize = 15;

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for layer in LAYERS {
        let folder = Path::new("crates").join(layer).join("src");
        let of_layer = || sources.iter().filter(|source| source.file().starts_with(&folder));
        let code: usize = of_layer().map(Source::code).sum();
        if code > MOST_CODE {
            findings.push(format!("{layer}: {code} lines of code, above {MOST_CODE}"));
        }
        let root = folder.join("lib.rs");
        let items = of_layer().filter(|source| source.file() == root).flat_map(Source::items);
        let mut public = 0;
        for item in items {
            match exports(item) {
                Some(count) => public += count,
                None => findings.push(format!("{layer}: lib.rs names each item that it exports")),
            }
        }
        if public > MOST_ITEMS {
            findings.push(format!("{layer}: {public} public items, above {MOST_ITEMS}"));
        }
    }
    findings
}

/// How many names an item of `lib.rs` exports; `None` if it does not say. A
/// public module counts as one.
fn exports(item: &Item) -> Option<usize> {
    let visibility = match item {
        Item::Use(item) if is_public(&item.vis) => return names(&item.tree),
        Item::Macro(item) => {
            let is_exported =
                |attribute: &syn::Attribute| attribute.path().is_ident("macro_export");
            return Some(item.attrs.iter().filter(|attribute| is_exported(attribute)).count());
        }
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Mod(item) => &item.vis,
        Item::Static(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Type(item) => &item.vis,
        _ => return Some(0),
    };
    Some(usize::from(is_public(visibility)))
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn names(tree: &UseTree) -> Option<usize> {
    match tree {
        UseTree::Path(path) => names(&path.tree),
        UseTree::Name(_) | UseTree::Rename(_) => Some(1),
        UseTree::Group(group) => group.items.iter().map(names).sum(),
        UseTree::Glob(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Source, check, exports};

    fn source(file: &str, text: &str) -> Source {
        Source::parse(Path::new(file), text.to_owned()).unwrap()
    }

    #[test]
    fn exports_are_counted_by_name() {
        let check =
            |text, count| assert_eq!(exports(&syn::parse_str(text).unwrap()), count, "{text}");
        check("pub use self::{error::{A, B}, layer::C as D};", Some(3));
        check("pub use self::error::*;", None);
        check("use self::error::*;", Some(0));
        check("pub(crate) use self::A;", Some(0));
        check("pub mod future;", Some(1));
        check("mod error;", Some(0));
        check("#[macro_export]\nmacro_rules! m { () => {} }", Some(1));
    }

    #[test]
    fn a_layer_that_is_too_large_is_found() {
        let inside = source("crates/tidegate-fence/src/service.rs", &"fn f() {}\n".repeat(500));
        let root = "pub use self::{a, b, c, d, e, f, g, h, i, j, k, l, m, n, o};\n";
        let fitting = source("crates/tidegate-fence/src/lib.rs", &format!("//! Docs.\n{root}"));
        assert_eq!(check(&[fitting]), [""; 0]);
        let large = source("crates/tidegate-fence/src/lib.rs", &format!("{root}pub mod p;\n"));
        let findings = check(&[inside, large]);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].contains("502 lines of code"), "{findings:?}");
        assert!(findings[1].contains("16 public items"), "{findings:?}");
    }

    #[test]
    fn other_crates_may_be_larger() {
        let large = source("crates/tidegate-kafka/src/lib.rs", &"pub fn f() {}\n".repeat(501));
        assert_eq!(check(&[large]), [""; 0]);
    }
}
