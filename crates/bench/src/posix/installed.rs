//! Programs of the distribution, which the bench runs as they are.

use std::env;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A program and the package that has it, by Debian's name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Installed {
    pub(super) program: &'static str,
    pub(super) package: &'static str,
}

/// MariaDB's server.
pub(super) const MARIADB: Installed = Installed { program: "mariadbd", package: "mariadb-server" };
/// Memcached.
pub(crate) const MEMCACHED: Installed = Installed { program: "memcached", package: "memcached" };
/// The server on tokio, an example of this package.
const TOKIO: &str = "tokio_server";

/// Returns the server on tokio: beside `program`, which is this one, where cargo puts examples.
///
/// # Errors
/// It is not built; the message says how to.
pub(super) fn tokio_server(program: &Path) -> Result<PathBuf, String> {
    let found = program.parent().map(|folder| folder.join("examples").join(TOKIO));
    let release = if cfg!(debug_assertions) { "" } else { " --release" };
    let missing = || {
        let build = format!("cargo build{release} -p heddle-bench --example {TOKIO}");
        format!("{TOKIO} is not built in `examples` beside this program ({build})")
    };
    found.filter(|file| file.is_file()).ok_or_else(missing)
}

impl Installed {
    /// Returns its file: in a folder of PATH, or where Debian keeps programs that administrators run.
    ///
    /// # Errors
    /// It is not installed; the message says what to install.
    pub(crate) fn find(self) -> Result<PathBuf, String> {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/libexec".into()]);
        self.find_in(folders)
    }

    fn find_in(self, mut folders: impl Iterator<Item = PathBuf>) -> Result<PathBuf, String> {
        let Installed { program, package } = self;
        let found = folders.find_map(|folder| {
            Some(folder.join(program)).filter(|file| file.is_absolute() && is_program(file))
        });
        found.ok_or_else(|| format!("{package} is not installed (apt-get install {package})"))
    }
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_program_is_an_executable_file_and_what_is_missing_names_its_package() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("loomd");
        let find = || {
            let installed = Installed { program: "loomd", package: "loom-server" };
            installed.find_in([folder.path().into()].into_iter())
        };
        let missing = "loom-server is not installed (apt-get install loom-server)";
        assert_eq!(find().unwrap_err(), missing);
        fs::write(&file, "#!/bin/sh\n").unwrap();
        assert_eq!(find().unwrap_err(), missing, "not executable");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find().unwrap(), file);
    }
}
