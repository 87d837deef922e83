//! LLVM's headers, found through the `llvm-config` of the same major version.

use std::path::{Path, PathBuf};

use crate::Error;
use crate::search::{ask, program};

/// A header that the pass includes: only development packages have it, while `llvm-config` may come with LLVM itself.
const HEADER: &str = "llvm/Passes/PassBuilder.h";

/// LLVM as it is installed for development.
#[derive(Clone, Debug)]
pub struct Llvm {
    /// Its `llvm-config`.
    pub config: PathBuf,
    /// Such as `22.1.8`.
    pub version: String,
    /// The major version.
    pub major: u32,
    /// The options with which code that includes its headers is compiled.
    pub flags: Vec<String>,
}

impl Llvm {
    /// Finds LLVM's major version `major`, for the compiler at the path `compiler`.
    ///
    /// # Errors
    /// If it is not installed, or its headers are not.
    pub fn find(major: u32, compiler: &Path) -> Result<Llvm, Error> {
        let found = candidates(major, compiler).find_map(|config| read(config, major));
        found.ok_or_else(|| Error::NoHeaders { major, compiler: compiler.display().to_string() })
    }
}

/// Returns the installed programs that may be the `llvm-config` of `major`.
fn candidates(major: u32, compiler: &Path) -> impl Iterator<Item = PathBuf> {
    let beside = compiler.canonicalize().ok().map(|real| real.with_file_name("llvm-config"));
    let names = [
        format!("llvm-config-{major}"),
        format!("/usr/lib/llvm-{major}/bin/llvm-config"),
        "llvm-config".into(),
    ];
    names.map(PathBuf::from).into_iter().chain(beside).filter_map(program)
}

/// Returns what `config` says, if it is of `major` and the headers are there.
fn read(config: PathBuf, major: u32) -> Option<Llvm> {
    let version = ask(&config, &["--version"]).ok()?;
    if version.split('.').next()?.parse() != Ok(major) {
        return None;
    }
    let folder = ask(&config, &["--includedir"]).ok()?;
    if !Path::new(&folder).join(HEADER).is_file() {
        return None;
    }
    let flags = relevant(&ask(&config, &["--cxxflags"]).ok()?);
    Some(Llvm { config, version, major, flags })
}

/// Returns the options of `--cxxflags` that matter to users of the headers. The others are those of LLVM's own build,
/// and may be unknown to the compiler at hand.
fn relevant(flags: &str) -> Vec<String> {
    let matters =
        |flag: &&str| ["-I", "-D", "-stdlib="].iter().any(|start| flag.starts_with(start));
    flags.split_whitespace().filter(matters).map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_llvms_own_build_are_left_out() {
        let debian = "-I/usr/lib/llvm-14/include -std=c++14   -fno-exceptions -D_GNU_SOURCE -D__STDC_LIMIT_MACROS";
        let flags = ["-I/usr/lib/llvm-14/include", "-D_GNU_SOURCE", "-D__STDC_LIMIT_MACROS"];
        assert_eq!(relevant(debian), flags);
        assert_eq!(relevant("-Wcovered-switch-default -O3 -stdlib=libc++"), ["-stdlib=libc++"]);
    }

    #[test]
    fn missing_headers_are_reported_with_their_package() {
        let error = Llvm::find(3, Path::new("/usr/bin/clang-3")).unwrap_err();
        let text = error.to_string();
        assert!(
            error.is_usage() && text.contains("llvm-3-dev") && text.contains("/usr/bin/clang-3"),
            "{text}"
        );
    }
}
