//! The last advice, for `heddle advise check`.

use std::fs::{self, File};
use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use heddle_advise::Advice;
use heddle_observe::Target;
use serde::{Deserialize, Serialize};

use crate::exit::Usage;

/// An advice, and for which service.
#[derive(Serialize, Deserialize)]
pub struct Saved {
    pub target: Target,
    pub advice: Advice,
}

/// `$XDG_STATE_HOME/heddle/advice.json`, by default in `~/.local/state`.
pub fn default_file() -> anyhow::Result<PathBuf> {
    let folder = std::env::var_os("XDG_STATE_HOME").filter(|folder| !folder.is_empty());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let folder = folder.map(PathBuf::from).or_else(home);
    let folder = folder.context("neither XDG_STATE_HOME nor HOME says where to keep the advice")?;
    Ok(folder.join("heddle/advice.json"))
}

impl Saved {
    /// Replaces the last advice; the old one stays if that fails.
    pub fn write(&self) -> anyhow::Result<()> {
        let file = default_file()?;
        let what = || format!("cannot keep the advice in {}", file.display());
        let folder = file.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).with_context(what)?;
        let mut new = tempfile::NamedTempFile::new_in(folder).with_context(what)?;
        serde_json::to_writer_pretty(&mut new, self).with_context(what)?;
        new.flush().with_context(what)?;
        new.persist(&file).with_context(what)?;
        Ok(())
    }

    /// Reads `file`, or the last advice.
    pub fn read(file: Option<&Path>) -> anyhow::Result<Saved> {
        let file = match file {
            Some(file) => file.to_path_buf(),
            None => default_file()?,
        };
        let shown = file.display();
        let open = File::open(&file).map_err(|error| {
            Usage(format!(
                "{shown}: {error}. There is no advice to check: run `heddle advise` first"
            ))
        })?;
        let saved = serde_json::from_reader(BufReader::new(open));
        Ok(saved.map_err(|error| {
            Usage(format!("{shown}: not an advice of `heddle advise`: {error}"))
        })?)
    }
}
