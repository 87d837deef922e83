//! Files that are written at the end, and claimed before the work begins.

use std::path::{Path, PathBuf};

use crate::exit::Usage;

/// Where results go.
#[derive(clap::Args)]
pub struct Destination {
    /// Print the results as one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Where to write an HTML report.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Replace files that exist.
    #[arg(long)]
    pub force: bool,
}

/// Refuses a file that exists, unless it may be replaced; before minutes of work, not after.
///
/// # Errors
/// [`Usage`], which says how to go on.
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

/// Where a report is written: where it was asked for, or, unless results go out as JSON, to `name`.
pub fn report_path(asked: Option<PathBuf>, json: bool, name: &str) -> Option<PathBuf> {
    asked.or_else(|| (!json).then(|| PathBuf::from(name)))
}

/// The line that says where the report is.
pub fn told(path: &Path) -> String {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    format!("Report: {}\n", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_replaced_unasked() {
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
