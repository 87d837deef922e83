//! This program under the names of compilers, for build systems that want the path of one.

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use crate::toolchain::Language;
use crate::{Error, cache};

/// A name of this program by which it is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shim {
    /// `heddle-cc` and `heddle-c++`: as `heddle cc` and `heddle c++`.
    Clang(Language),
    /// `heddle-rustc`: what `heddle cargo` makes cargo call instead of rustc.
    Rustc,
}

impl Shim {
    const ALL: [Shim; 3] = [Self::Clang(Language::C), Self::Clang(Language::Cxx), Self::Rustc];

    /// Returns the shim that was called, by the program's name or path.
    pub fn called(program: &OsStr) -> Option<Shim> {
        let name = Path::new(program).file_name()?;
        Self::ALL.into_iter().find(|shim| shim.name() == name)
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clang(Language::C) => "heddle-cc",
            Self::Clang(Language::Cxx) => "heddle-c++",
            Self::Rustc => "heddle-rustc",
        }
    }
}

/// Returns the folder of the shims, and links them to this program if they are not. A `variant` is a folder of its own:
/// build systems that remember the compiler's path then see another compiler.
///
/// # Errors
/// If the cache cannot be written.
pub fn install(variant: Option<&str>) -> Result<PathBuf, Error> {
    let mut folder = cache::folder()?.join("shims");
    folder.extend(variant);
    cache::create(&folder)?;
    let own = env::current_exe().map_err(Error::cache(&folder))?;
    for shim in Shim::ALL {
        let link = folder.join(shim.name());
        replace(&own, &link).map_err(Error::cache(&link))?;
    }
    Ok(folder)
}

/// Makes `link` point to `target`. Processes that call it meanwhile find the old or the new one.
fn replace(target: &Path, link: &Path) -> io::Result<()> {
    if fs::read_link(link).is_ok_and(|current| current == target) {
        return Ok(());
    }
    let folder = tempfile::tempdir_in(link.parent().unwrap_or(Path::new("/")))?;
    let temporary = folder.path().join("link");
    symlink(target, &temporary)?;
    fs::rename(&temporary, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shims_are_known_by_name_and_path() {
        assert_eq!(Shim::called(OsStr::new("heddle-cc")), Some(Shim::Clang(Language::C)));
        assert_eq!(Shim::called(OsStr::new("/x/heddle-c++")), Some(Shim::Clang(Language::Cxx)));
        assert_eq!(Shim::called(OsStr::new("/x/heddle-rustc")), Some(Shim::Rustc));
        for other in ["heddle", "/x/heddle-cc/heddle", "cc", ""] {
            assert_eq!(Shim::called(OsStr::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_link_is_replaced_if_it_points_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("heddle-cc");
        for target in ["/a", "/a", "/b"] {
            replace(Path::new(target), &link).unwrap();
            assert_eq!(fs::read_link(&link).unwrap(), Path::new(target));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else remains");
    }
}
