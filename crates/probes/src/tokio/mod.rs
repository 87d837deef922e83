//! tokio, whose tasks Heddle schedules.
//!
//! A copy of the release that a program uses is made in the cache, a few files are added to it, and some lines edited
//! ([`edits`]). In a build by `heddle cargo --tokio` rustc compiles that copy where cargo names the original
//! ([`crate::rustc`]). cargo itself sees nothing of it: the program's lock file stays as it is, and so does everything
//! that cargo knows of the original.
//!
//! What the added files do is in `docs/design/tokio.md`.

pub mod edits;
mod packages;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use packages::{Package, find};

use crate::{Error, cache, hash};
use edits::{EDITS, Edit, FILES, MINORS};

/// The variable by which `heddle cargo` says where the edited copies are: a folder with one folder for each release,
/// named as by [`copy_name`].
pub const COPIES_VARIABLE: &str = "HEDDLE_TOKIO_COPIES";

/// Returns the name of the copy of a release, in the folder of copies.
pub fn copy_name(version: &str) -> String {
    format!("tokio-{version}")
}

/// Returns a name for all that is edited and added, which changes with it.
pub fn hash() -> String {
    hash::name((FILES, EDITS.map(|edit| (edit.file, edit.anchor, edit.with, edit.minors.clone()))))
}

/// Returns the folder of copies in the cache, with an edited copy of each of `packages`.
///
/// # Errors
/// If a release is not supported, its source cannot be read, or the cache cannot be written.
pub fn prepare(packages: &[Package]) -> Result<PathBuf, Error> {
    let folder = cache::sibling("tokio")?.join(hash());
    for package in packages {
        check_version(&package.version)?;
        let target = folder.join(copy_name(&package.version));
        if !target.is_dir() {
            copy_edited(&package.folder, &package.version, &target)?;
        }
    }
    Ok(folder)
}

/// Makes `target` an edited copy of the release in `source`. It appears complete or not at all; if another process
/// makes the same one meanwhile, one of the two stays.
///
/// # Errors
/// If the release is not supported, its source cannot be read, or the target cannot be written.
pub fn copy_edited(source: &Path, version: &str, target: &Path) -> Result<(), Error> {
    let texts = edited(source, version)?;
    let parent = target.parent().unwrap_or(Path::new("/"));
    cache::create(parent)?;
    let temporary = tempfile::tempdir_in(parent).map_err(Error::cache(parent))?;
    let copy = temporary.path().join("copy");
    copy_folder(source, &copy)?;
    for (file, text) in texts {
        let path = copy.join(file);
        cache::create(path.parent().unwrap_or(&copy))?;
        fs::write(&path, text).map_err(Error::cache(&path))?;
    }
    match fs::rename(&copy, target) {
        Err(_) if target.is_dir() => Ok(()),
        renamed => renamed.map_err(Error::cache(target)),
    }
}

/// Refuses a release for which the edits are not.
fn check_version(version: &str) -> Result<u32, Error> {
    let mut numbers = version.split('.');
    let minor = match (numbers.next(), numbers.next().and_then(|minor| minor.parse().ok())) {
        (Some("1"), Some(minor)) if MINORS.contains(&minor) => Some(minor),
        _ => None,
    };
    minor.ok_or_else(|| {
        let [first, last] = [MINORS.start(), MINORS.end()];
        Error::Usage(format!(
            "tokio {version} is not supported: this Heddle knows 1.{first} to 1.{last}; choose one of these, as by \
             `cargo update -p tokio --precise 1.{last}.1`, or see if there is a newer Heddle"
        ))
    })
}

/// Returns the edited and the added files of the release in `source`, by their paths below it. Writes nothing.
fn edited(source: &Path, version: &str) -> Result<BTreeMap<&'static str, String>, Error> {
    let minor = check_version(version)?;
    let mut texts = BTreeMap::new();
    for (file, text) in FILES {
        if source.join(file).exists() {
            return Err(Error::Usage(format!(
                "tokio {version}: {} exists already: this source has been edited, or is no release of tokio; remove \
                 it, so that cargo fetches it again",
                source.join(file).display()
            )));
        }
        texts.insert(file, text.to_owned());
    }
    for edit in EDITS.iter().filter(|edit| edit.minors.contains(&minor)) {
        if !texts.contains_key(edit.file) {
            let path = source.join(edit.file);
            let text = fs::read_to_string(&path).map_err(|source| Error::Tokio {
                version: version.to_owned(),
                path,
                source,
            })?;
            texts.insert(edit.file, text);
        }
        if let Some(text) = texts.get_mut(edit.file) {
            *text = apply(text, version, edit)?;
        }
    }
    Ok(texts)
}

/// Makes one edit in the text of its file.
fn apply(text: &str, version: &str, edit: &Edit) -> Result<String, Error> {
    let occurrences = text.matches(edit.anchor).count();
    if occurrences != 1 {
        return Err(Error::Anchor {
            version: version.to_owned(),
            file: edit.file,
            anchor: edit.anchor.trim(),
            occurrences,
        });
    }
    Ok(text.replacen(edit.anchor, edit.with, 1))
}

/// Copies a folder; what is neither a folder nor a file is left out.
fn copy_folder(from: &Path, to: &Path) -> Result<(), Error> {
    cache::create(to)?;
    for entry in fs::read_dir(from).map_err(Error::cache(from))? {
        let entry = entry.map_err(Error::cache(from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(Error::cache(&path))?;
        if kind.is_dir() {
            copy_folder(&path, &target)?;
        } else if kind.is_file() {
            copy_file(&path, &target).map_err(Error::cache(&target))?;
        }
    }
    Ok(())
}

/// Copies a file's content: the original may be write-protected.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    fs::write(to, fs::read(from)?)
}

#[cfg(test)]
mod tests;
