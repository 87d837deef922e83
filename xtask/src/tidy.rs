//! All checks over the whole workspace.

use crate::finding::Finding;
use crate::{arrows, links, source};
use cargo_metadata::MetadataCommand;
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// What is not as it should be in the workspace at `root`, errors first.
///
/// # Errors
/// Where cargo or the file system does not answer.
pub fn all(root: &Path) -> Result<Vec<Finding>, Box<dyn Error>> {
    let manifest = root.join("Cargo.toml");
    let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().exec()?;
    let mut findings = arrows::check(&metadata);
    for path in files(root, Path::new(""))? {
        findings.extend(check_file(root, &path)?);
    }
    findings.sort_by_key(|finding| !finding.is_error());
    Ok(findings)
}

fn check_file(root: &Path, path: &Path) -> Result<Vec<Finding>, Box<dyn Error>> {
    let read =
        || fs::read_to_string(root.join(path)).map_err(|e| format!("{}: {e}", path.display()));
    let length = |text: &str| source::check_length(path, text);
    Ok(match path.extension().and_then(OsStr::to_str) {
        Some("md") => links::check(root, path, &read()?),
        Some("c" | "h" | "go" | "py" | "S") => length(&read()?).into_iter().collect(),
        Some("rs") => {
            let text = read()?;
            let mut findings = source::check_rust(path, &text);
            findings.extend(length(&text));
            findings
        }
        _ => Vec::new(),
    })
}

/// All files below `folder`, as paths from `root`; without hidden folders and what builds leave behind.
fn files(root: &Path, folder: &Path) -> Result<Vec<PathBuf>, std::io::Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        match entry.file_type()? {
            kind if kind.is_dir() && !is_skipped(&entry.file_name()) => {
                found.extend(files(root, &path)?)
            }
            kind if kind.is_file() => found.push(path),
            _ => {}
        }
    }
    found.sort();
    Ok(found)
}

fn is_skipped(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with('.') || name == "target" || name.starts_with("heddle-demo")
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
    fn this_file_is_looked_at_and_build_outputs_are_not() {
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
