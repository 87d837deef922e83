//! Cycles between the modules of a crate: modules that import each other cannot be read, or tested, one at a time.
//!
//! A module here is what `lib.rs` or `main.rs` declares, a file or a folder; what happens inside a folder is its own
//! business. An import is any path that begins with `crate::`, outside of comments and of unit tests at the end of a
//! file.

use crate::finding::Finding;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The most modules that may depend on each other: a table of policies and its errors make five.
const MOST: usize = 5;

/// Which modules each module of a crate imports.
type Imports<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Reports cycles in the crate whose sources, by path below `src`, are `files`. The crate's root re-exports names of
/// modules, so a `crate::Name` counts as an import of the module that has it.
pub fn check_crate(path: &Path, files: &[(PathBuf, String)]) -> Vec<Finding> {
    let roots = ["lib.rs", "main.rs"].map(Path::new);
    let is_root = |file: &&(PathBuf, String)| roots.contains(&file.0.as_path());
    let exports: BTreeMap<&str, &str> =
        files.iter().filter(is_root).flat_map(|(_, text)| exports(text)).collect();
    let modules: BTreeSet<&str> = files.iter().filter_map(|(file, _)| module_of(file)).collect();
    let mut all = Imports::new();
    for (file, text) in files.iter().filter(|file| !is_root(file)) {
        let Some(module) = module_of(file) else { continue };
        let resolve =
            |name| if modules.contains(name) { name } else { *exports.get(name).unwrap_or(&name) };
        let found = imports(text).into_iter().map(resolve);
        all.entry(module).or_default().extend(found.filter(|&name| name != module));
    }
    check(path, &all)
}

/// The names that `pub use module::{...};` in a crate's root re-exports, each with its module.
fn exports(text: &str) -> Vec<(&str, &str)> {
    let uses = text.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let pairs = uses.filter_map(|path| path.split_once("::"));
    pairs.flat_map(|(module, names)| names_in(names).map(move |n| (n, module))).collect()
}

fn names_in(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty())
}

/// The module that the file at `path`, below `src`, belongs to.
fn module_of(path: &Path) -> Option<&str> {
    let first = path.iter().next()?.to_str()?;
    Some(first.strip_suffix(".rs").unwrap_or(first))
}

/// The first names of the `crate::` paths in `text`.
fn imports(text: &str) -> Vec<&str> {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| line.split("crate::").skip(1)).flat_map(first_names).collect()
}

/// The names that a path begins with: several in `{a, b::c}`.
fn first_names(path: &str) -> Vec<&str> {
    let Some(group) = path.strip_prefix('{') else { return vec![first_name(path)] };
    let mut depth = 0;
    let parts = group.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    parts.map(|part| first_name(part.trim())).collect()
}

fn first_name(path: &str) -> &str {
    path.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// Reports the modules of the crate at `path` that depend on each other, if there are more than [`MOST`].
fn check(path: &Path, imports: &Imports<'_>) -> Vec<Finding> {
    let reached: BTreeMap<_, _> =
        imports.keys().map(|&from| (from, reach(from, imports))).collect();
    let mutual = |a: &str, b: &str| reached[a].contains(b) && reached[b].contains(a);
    let cycles: BTreeSet<Vec<&str>> = imports
        .keys()
        .map(|a| imports.keys().copied().filter(|b| mutual(a, b)).collect())
        .collect();
    let large = cycles.into_iter().filter(|cycle| cycle.len() > MOST);
    let text = |cycle: Vec<&str>| {
        format!(
            "{} modules depend on each other, at most {MOST} may: {}",
            cycle.len(),
            cycle.join(", ")
        )
    };
    large.map(|cycle| Finding::error(path, None, text(cycle))).collect()
}

/// The modules that `from` imports, directly or through others.
fn reach<'a>(from: &'a str, imports: &Imports<'a>) -> BTreeSet<&'a str> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        let next = imports.get(module).into_iter().flatten();
        open.extend(next.filter(|&&name| imports.contains_key(name) && reached.insert(name)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_the_first_names_of_paths() {
        let text =
            "use crate::a::B;\nuse crate::{c, d::{e, f}, g};\n// crate::h\nlet x = crate::i();";
        assert_eq!(imports(text), ["a", "c", "d", "g", "i"]);
        assert_eq!(imports("use crate::a;\n#[cfg(test)]\nmod tests {\n    use crate::b;"), ["a"]);
    }

    #[test]
    fn a_module_is_a_file_or_a_folder() {
        assert_eq!(module_of(Path::new("a.rs")), Some("a"));
        assert_eq!(module_of(Path::new("b/c.rs")), Some("b"));
    }

    #[test]
    fn names_that_the_root_re_exports_count_as_their_modules() {
        let files = |last: &str| -> Vec<(PathBuf, String)> {
            let files = [
                ("lib.rs", "pub use a::{A, f as g};\npub use d::D;"),
                ("a.rs", "use crate::D;"),
                ("b.rs", "use crate::a::X;"),
                ("c/mod.rs", "use crate::b;"),
                ("d.rs", "use crate::e;"),
                ("e.rs", "use crate::f;"),
                ("f.rs", last),
            ];
            files.map(|(name, text)| (PathBuf::from(name), text.to_owned())).into()
        };
        let path = Path::new("crates/x/src");
        assert_eq!(check_crate(path, &files("use crate::c;")).len(), 1);
        assert!(check_crate(path, &files("// crate::c")).is_empty());
    }

    #[test]
    fn large_cycles_are_reported_and_small_ones_are_not() {
        let ring = |names: &[&'static str]| -> Imports<'static> {
            let next = names.iter().cycle().skip(1);
            names.iter().zip(next).map(|(&a, &b)| (a, BTreeSet::from([b]))).collect()
        };
        let path = Path::new("crates/x/src");
        assert!(check(path, &ring(&["a", "b", "c", "d", "e"])).is_empty());
        let found = check(path, &ring(&["a", "b", "c", "d", "e", "f"]));
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().contains("a, b, c, d, e, f"));
    }
}
