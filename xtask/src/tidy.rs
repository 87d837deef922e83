//! All checks over the whole workspace.

use crate::finding::Finding;
use crate::promises::Functions;
use crate::{arrows, cycles, dependencies, lines, links, promises, source, vocabulary};
use cargo_metadata::MetadataCommand;
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns what breaks the rules in the workspace at `root`, errors first.
///
/// # Errors
/// If cargo or the file system fails.
pub fn all(root: &Path) -> Result<Vec<Finding>, Box<dyn Error>> {
    let manifest = root.join("Cargo.toml");
    let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().exec()?;
    let mut findings = arrows::check(&metadata);
    findings.extend(dependencies::check(&metadata, root)?);
    let mut functions = Functions::default();
    let paths = files(root, Path::new(""))?;
    for path in &paths {
        findings.extend(check_file(root, path)?);
        if matches!(Kind::of(path), Some(Kind::Rust | Kind::Code)) {
            functions.add(&fs::read_to_string(root.join(path))?);
        }
    }
    findings.extend(check_cycles(root, &paths)?);
    let promises = fs::read_to_string(root.join(promises::DOCUMENT))?;
    findings.extend(functions.check(root, &promises));
    findings.sort_by_key(|finding| !finding.is_error());
    Ok(findings)
}

fn check_file(root: &Path, path: &Path) -> Result<Vec<Finding>, Box<dyn Error>> {
    let Some(kind) = Kind::of(path) else { return Ok(Vec::new()) };
    let text =
        fs::read_to_string(root.join(path)).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut findings = Vec::new();
    match kind {
        Kind::Markdown => findings.extend(links::check(root, path, &text)),
        Kind::Rust => findings.extend(source::check_rust(path, &text)),
        Kind::Code | Kind::Script => {}
    }
    if matches!(kind, Kind::Rust | Kind::Code) {
        findings.extend(source::check_length(path, &text));
    }
    findings.extend(lines::check(path, &text));
    findings.extend(vocabulary::check(path, &text));
    Ok(findings)
}

/// Checks the modules of each crate below `crates`.
fn check_cycles(root: &Path, paths: &[PathBuf]) -> Result<Vec<Finding>, Box<dyn Error>> {
    let mut crates: BTreeMap<&Path, Vec<(PathBuf, String)>> = BTreeMap::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
        let src = path.ancestors().find(|folder| folder.ends_with("src"));
        let Some(src) = src.filter(|src| src.starts_with("crates")) else { continue };
        let text = fs::read_to_string(root.join(path))?;
        crates.entry(src).or_default().push((path.strip_prefix(src)?.to_path_buf(), text));
    }
    Ok(crates.iter().flat_map(|(src, files)| cycles::check_crate(src, files)).collect())
}

/// The kinds of files that are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Markdown,
    Rust,
    /// C, Go, Python, assembly.
    Code,
    /// Shell scripts and the Makefile.
    Script,
}

impl Kind {
    fn of(path: &Path) -> Option<Kind> {
        match path.extension().and_then(OsStr::to_str) {
            Some("md") => Some(Kind::Markdown),
            Some("rs") => Some(Kind::Rust),
            Some("c" | "h" | "go" | "py" | "S") => Some(Kind::Code),
            Some(_) => None,
            None if path == Path::new("Makefile") => Some(Kind::Script),
            None => [".ci", "scripts"].iter().any(|f| path.starts_with(f)).then_some(Kind::Script),
        }
    }
}

/// Returns all files below `folder`, as paths from `root`, without what is hidden and build outputs.
fn files(root: &Path, folder: &Path) -> Result<Vec<PathBuf>, std::io::Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        match entry.file_type()? {
            _ if is_skipped(&entry.file_name()) => {}
            kind if kind.is_dir() => found.extend(files(root, &path)?),
            kind if kind.is_file() => found.push(path),
            _ => {}
        }
    }
    found.sort();
    Ok(found)
}

fn is_skipped(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    (name.starts_with('.') && name != ".ci") || name == "target" || name.starts_with("heddle-demo")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_tidy() {
        let findings = all(&crate::root()).unwrap();
        let errors: Vec<String> =
            findings.iter().filter(|f| f.is_error()).map(Finding::to_string).collect();
        assert!(errors.is_empty(), "\n{}", errors.join("\n"));
    }

    #[test]
    fn this_file_is_checked_and_build_outputs_are_not() {
        let files = files(&crate::root(), Path::new("")).unwrap();
        assert!(files.contains(&PathBuf::from("xtask/src/tidy.rs")));
        assert!(!files.iter().any(|f| f.starts_with("target") || f.starts_with(".git")));
    }

    #[test]
    fn an_untidy_folder_is_reported() {
        let root = std::env::temp_dir().join(format!("heddle-tidy-{}", std::process::id()));
        fs::create_dir_all(root.join("docs")).unwrap();
        fs::write(root.join("docs/page.md"), "[dead](none.md)").unwrap();
        fs::write(root.join("main.rs"), "unsafe fn f() {}").unwrap();
        fs::write(root.join("long.c"), "\n".repeat(1000)).unwrap();
        let found: Vec<_> = files(&root, Path::new("")).unwrap();
        let count = |path: &PathBuf| check_file(&root, path).unwrap().len();
        let counts: Vec<_> = found.iter().map(count).collect();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(counts, [1, 1, 1], "{found:?}");
    }
}
