//! Cycles between the modules of a crate: modules that import each other cannot be read, or tested, one at a time.
//!
//! The modules that are compared are those that lie beside each other: what `lib.rs` or `main.rs` declares, and what
//! the file of a folder (`mod.rs`) declares. An import is any path that begins with `crate::` or `super::`, outside of
//! comments and of unit tests.

use crate::finding::Finding;
use crate::lexer::code_only;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The most modules of a folder that may depend on each other. At the top level of a crate, none may.
const MOST: usize = 3;

/// The exceptions: modules that do depend on each other, by folder.
const EXCEPTIONS: &[(&str, &[&str])] = &[
    ("crates/agent/src", &["agent", "fair"]),
    ("crates/agent/src", &["backend", "classes", "model", "policy"]),
    ("crates/core/src", &["driver", "event", "policy"]),
    // Every wait may run handlers or end the thread: waiting, threads, signals and cancellation call each other.
    (
        "crates/posix/src",
        &[
            "cancel", "io", "mutex", "process", "report", "sched", "signals", "start", "thread",
            "wait",
        ],
    ),
    // The trampoline runs frames and forwards to the receiver; these, and masks, read the table of actions, and
    // `sigset` changes the mask.
    ("crates/posix/src/signals", &["actions", "frames", "masks", "receiver"]),
    (
        "crates/sim/src/workload",
        &["empirical", "error", "mix", "part", "presets", "service", "tails"],
    ),
    ("crates/steer/src", &["hook", "policy"]),
    ("crates/steer/src/engine", &["quota", "records", "remaining_maps", "state"]),
];

/// The names of a path, from the crate's root: of a module, or of what it imports.
type Names<'a> = Vec<&'a str>;

/// Which modules each module of a folder imports.
type Imports<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Reports cycles in the crate at `path`, whose sources are `files`, by path below it.
pub fn check_crate(path: &Path, files: &[(PathBuf, String)]) -> Vec<Finding> {
    let files = files.iter().map(|(file, text)| (file, code_only(text)));
    let files: Vec<_> = files.collect();
    let modules: Vec<Module<'_>> =
        files.iter().filter_map(|(file, code)| Module::new(file, code)).collect();
    let folders: BTreeSet<&[&str]> =
        modules.iter().filter_map(|m| Some(m.path.split_last()?.1)).collect();
    let check = |folder: &[&str]| {
        let most = if folder.is_empty() { 1 } else { MOST };
        let place = folder.iter().fold(path.to_path_buf(), |path, name| path.join(name));
        check(&place, most, &imports_within(folder, &modules))
    };
    folders.into_iter().flat_map(check).collect()
}

/// A source file.
struct Module<'a> {
    path: Names<'a>,
    imports: Vec<Names<'a>>,
    /// The names that modules below can import from it and that it has from them, each with its module.
    exports: BTreeMap<&'a str, &'a str>,
}

impl<'a> Module<'a> {
    /// `None` if the file contains tests only.
    fn new(file: &'a Path, code: &'a str) -> Option<Module<'a>> {
        let mut path: Names<'_> = file.iter().filter_map(|name| name.to_str()).collect();
        let name = path.pop()?.strip_suffix(".rs")?;
        let is_root = path.is_empty() && ["lib", "main"].contains(&name);
        if name != "mod" && !is_root {
            path.push(name);
        }
        let is_test = |name: &&str| *name == "tests" || name.ends_with("_tests");
        if path.iter().any(is_test) {
            return None;
        }
        let code = code.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(code);
        Some(Module { imports: imports(&path, code), exports: exports(code), path })
    }
}

/// The names that `use module::{...};` brings into the file with this code, each with its module.
fn exports(code: &str) -> BTreeMap<&str, &str> {
    let uses = code.split("use ").skip(1).filter_map(|rest| rest.split(';').next());
    let pairs = uses.filter_map(|path| path.split_once("::"));
    pairs.flat_map(|(module, names)| words(names).map(move |name| (name, module))).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_in_word(c)).filter(|name| !name.is_empty())
}

fn is_in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// What the code of the module at `path` names by paths that begin with `crate::` or `super::`.
fn imports<'a>(path: &[&'a str], code: &'a str) -> Vec<Names<'a>> {
    let mut found = Vec::new();
    for rest in code.split("crate::").skip(1) {
        names(Vec::new(), rest, &mut found);
    }
    let mut above = path;
    for rest in code.split("super::").skip(1) {
        above = above.split_last().map_or(&[][..], |(_, above)| above);
        // Nothing lies between the two in `super::super::`.
        if !rest.is_empty() {
            names(above.to_vec(), rest, &mut found);
            above = path;
        }
    }
    found
}

/// Adds the paths at the start of `text`, which follow `before`: several in `{a, b::c}`. Returns what is after them.
fn names<'a>(mut before: Names<'a>, text: &'a str, found: &mut Vec<Names<'a>>) -> &'a str {
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = names(before.clone(), rest.trim_start(), found);
            // Skips `as name`.
            let end = rest.find([',', '}']).unwrap_or(rest.len());
            match rest[end..].strip_prefix(',') {
                Some(next) => rest = next,
                None => return rest.get(end + 1..).unwrap_or_default(),
            }
        }
    }
    let (name, rest) = text.split_at(text.find(|c| !is_in_word(c)).unwrap_or(text.len()));
    before.extend((!name.is_empty() && name != "self").then_some(name));
    match rest.strip_prefix("::") {
        Some(rest) => names(before, rest, found),
        None => {
            found.push(before);
            rest
        }
    }
}

/// What the modules of `folder` import from each other. A name that the folder's own file re-exports counts as an
/// import of the module that has it.
fn imports_within<'a>(folder: &[&str], modules: &[Module<'a>]) -> Imports<'a> {
    let below = |names: &Names<'a>| {
        names.starts_with(folder).then(|| names.get(folder.len()).copied()).flatten()
    };
    let children: BTreeSet<&str> = modules.iter().filter_map(|m| below(&m.path)).collect();
    let own = modules.iter().filter(|module| module.path == folder);
    let exports: BTreeMap<&str, &str> = own.flat_map(|module| module.exports.clone()).collect();
    let mut all = Imports::new();
    for module in modules {
        let Some(child) = below(&module.path) else { continue };
        let imported = module.imports.iter().filter_map(below);
        let resolve =
            |name| if children.contains(name) { name } else { exports.get(name).unwrap_or(&name) };
        let others = imported.map(resolve).filter(|&name| name != child);
        all.entry(child).or_default().extend(others);
    }
    all
}

/// Reports the modules of `folder` that depend on each other, if they are more than `most`.
fn check(folder: &Path, most: usize, imports: &Imports<'_>) -> Vec<Finding> {
    let reached: BTreeMap<_, _> =
        imports.keys().map(|&from| (from, reach(from, imports))).collect();
    let mutual = |a: &str, b: &str| reached[a].contains(b) && reached[b].contains(a);
    let cycles: BTreeSet<Vec<&str>> = imports
        .keys()
        .map(|a| imports.keys().copied().filter(|b| mutual(a, b)).collect())
        .collect();
    let large =
        cycles.into_iter().filter(|cycle| cycle.len() > most && !is_exception(folder, cycle));
    let text = |cycle: Vec<&str>| {
        let limit = if most > 1 { format!(", at most {most} may") } else { String::new() };
        format!("{} modules depend on each other{limit}: {}", cycle.len(), cycle.join(", "))
    };
    large.map(|cycle| Finding::error(folder, None, text(cycle))).collect()
}

fn is_exception(folder: &Path, cycle: &[&str]) -> bool {
    let covers = |modules: &[&str]| cycle.iter().all(|module| modules.contains(module));
    EXCEPTIONS.iter().any(|(place, modules)| folder == Path::new(place) && covers(modules))
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

    /// What `check_crate` finds in files of these names and contents.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(name, text)| (PathBuf::from(name), (*text).to_owned()));
        let files: Vec<_> = files.collect();
        check_crate(Path::new("crates/x/src"), &files).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn imports_are_paths_from_the_root_of_the_crate() {
        let of = |code: &str| -> Vec<String> {
            imports(&["m", "n"], code).iter().map(|names| names.join(" ")).collect()
        };
        let groups =
            "use crate::a::B;\nuse crate::{c as x,\n d::{self, e, f::<G>}, g};\ncrate::i(j, k);";
        assert_eq!(of(groups), ["a B", "c", "d", "d e", "d f", "g", "i"]);
        assert_eq!(
            of("use super::{a, b::C};\nuse super::super::d::E;\nsuper::f()"),
            ["m a", "m b C", "d E", "m f"]
        );
    }

    #[test]
    fn modules_that_import_each_other_are_reported() {
        let b = |text| {
            found(&[("lib.rs", "mod a;\nmod b;"), ("a.rs", "use crate::b::B;"), ("b/mod.rs", text)])
        };
        let error = "error: crates/x/src: 2 modules depend on each other: a, b";
        assert_eq!(b("use crate::a;"), [error]);
        assert_eq!(b("use super::a::A;"), [error]);
        assert!(b("// crate::a").is_empty());
        assert!(b("fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::a;").is_empty());
    }

    #[test]
    fn files_of_tests_are_not_part_of_a_module() {
        for name in ["b/tests.rs", "b/tests/one.rs", "b_tests.rs"] {
            assert!(found(&[("a.rs", "use crate::b;"), (name, "use crate::a;")]).is_empty());
        }
    }

    #[test]
    fn names_that_a_folder_re_exports_count_as_their_modules() {
        let files = |last: &'static str| {
            [
                ("lib.rs", "pub use a::{A, f as g};\npub use d::D;"),
                ("a.rs", "use crate::D;"),
                ("b.rs", "use crate::a::X;"),
                ("c/mod.rs", "use crate::b;"),
                ("d.rs", "use crate::e;"),
                ("e.rs", "use crate::g;"),
                ("f.rs", last),
            ]
        };
        let cycle = ["error: crates/x/src: 3 modules depend on each other: a, d, e"];
        assert_eq!(found(&files("use crate::c;")), cycle);
    }

    #[test]
    fn small_cycles_are_an_error_at_the_top_level_only() {
        let ring = |folder: &str, names: &[&str]| {
            let next = names.iter().cycle().skip(1);
            let files = names.iter().zip(next).map(|(name, next)| {
                (PathBuf::from(format!("{folder}{name}.rs")), format!("use super::{next}::X;"))
            });
            check_crate(Path::new("crates/x/src"), &files.collect::<Vec<_>>())
        };
        assert_eq!(ring("", &["a", "b"]).len(), 1);
        assert!(ring("m/", &["a", "b", "c"]).is_empty());
        let found = ring("m/n/", &["a", "b", "c", "d"]);
        assert_eq!(found.len(), 1);
        let text = "crates/x/src/m/n: 4 modules depend on each other, at most 3 may: a, b, c, d";
        assert!(found[0].to_string().ends_with(text), "{}", found[0]);
    }

    #[test]
    fn an_exception_is_not_reported_and_does_not_grow() {
        let folder = Path::new("crates/agent/src");
        assert!(is_exception(folder, &["agent", "fair"]));
        assert!(!is_exception(folder, &["agent", "fair", "policy"]));
        assert!(!is_exception(Path::new("crates/core/src"), &["agent", "fair"]));
    }
}
