//! The folder of built passes and shims.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::search::variable;

/// Returns the folder: `probes` in `HEDDLE_CACHE_DIR`, else in `heddle` in the user's cache, as in the XDG Base
/// Directory Specification. A relative path counts as unset.
///
/// # Errors
/// If none of the variables that say where it is is set.
pub fn folder() -> Result<PathBuf, Error> {
    locate(|name| variable(name).map(PathBuf::from)).ok_or(Error::NoCache)
}

/// Returns the folder `name` beside it, for what else is kept.
pub(crate) fn sibling(name: &str) -> Result<PathBuf, Error> {
    Ok(folder()?.with_file_name(name))
}

fn locate(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let heddle = absolute("HEDDLE_CACHE_DIR")
        .or_else(|| Some(absolute("XDG_CACHE_HOME")?.join("heddle")))
        .or_else(|| Some(absolute("HOME")?.join(".cache/heddle")));
    heddle.map(|folder| folder.join("probes"))
}

/// Makes `folder` and those above it.
pub(crate) fn create(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(Error::cache(folder))
}

impl Error {
    /// Returns a conversion for errors of the cache's file `path`.
    pub(crate) fn cache(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::Cache { path: path.to_owned(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_absolute_variable_decides() {
        let all = [("HEDDLE_CACHE_DIR", "/h"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/root")];
        let located = |set: &[(&str, &str)]| {
            let value =
                |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, v)| v.into());
            locate(value)
        };
        assert_eq!(located(&all), Some("/h/probes".into()));
        assert_eq!(located(&all[1..]), Some("/x/heddle/probes".into()));
        assert_eq!(located(&all[2..]), Some("/root/.cache/heddle/probes".into()));
        assert_eq!(located(&[("XDG_CACHE_HOME", "x"), all[2]]), located(&all[2..]));
        assert_eq!(located(&[]), None);
    }
}
