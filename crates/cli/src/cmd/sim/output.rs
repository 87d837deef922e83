//! Output files: claimed before the work begins, written at the end.

use std::path::{Path, PathBuf};

use crate::exit::Usage;

/// Where results go.
#[derive(clap::Args)]
pub struct Destination {
    /// Print the results as one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Write an HTML report to this file.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Replace existing files.
    #[arg(long)]
    pub force: bool,
}

/// Refuses an existing file unless it may be replaced: before minutes of work, not after.
///
/// # Errors
/// [`Usage`], with what to do.
pub fn claim(path: &Path, force: bool) -> Result<(), Usage> {
    let special = path.metadata().is_ok_and(|what| !what.is_file() && !what.is_dir());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match () {
        () if path.is_dir() => {
            Err(Usage(format!("{} is a folder; name a file in it", path.display())))
        }
        () if folder.is_some_and(|folder| !folder.is_dir()) => {
            Err(Usage(format!("cannot write {}: there is no such folder", path.display())))
        }
        () if path.exists() && !special && !force => Err(Usage(format!(
            "{} exists; choose another file, or replace it with --force",
            path.display()
        ))),
        () => Ok(()),
    }
}

/// Returns where to write the report: the requested path, else `name` unless results are printed as JSON.
pub fn report_path(asked: Option<PathBuf>, json: bool, name: &str) -> Option<PathBuf> {
    asked.or_else(|| (!json).then(|| PathBuf::from(name)))
}

/// Returns the line that says where the report is.
pub fn location(path: &Path) -> String {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    format!("Report: {}\n", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_files_are_replaced_only_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.html");
        assert!(claim(&file, false).is_ok());
        std::fs::write(&file, "my thesis").unwrap();
        assert!(claim(&file, false).unwrap_err().to_string().contains("--force"));
        assert!(claim(&file, true).is_ok() && claim(Path::new("/dev/null"), false).is_ok());
        assert!(claim(folder.path(), true).unwrap_err().to_string().contains("is a folder"));
        assert!(
            claim(&folder.path().join("no/x.html"), true)
                .unwrap_err()
                .to_string()
                .contains("no such folder")
        );
    }
}
