//! The user's compilers: which clang and rustc are meant, their versions, and the headers of their LLVM.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::search::{ask, program, variable};
use crate::{Error, hash};

pub mod llvm;
pub mod version;

pub use llvm::Llvm;
pub use version::{ClangVersion, MAJORS, RustVersion};

/// The variable that names the clang to use.
pub const CLANG_VARIABLE: &str = "HEDDLE_CLANG";

/// A language of clang's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C.
    C,
    /// C++: compiled as such, and linked with its library.
    Cxx,
}

impl Language {
    /// Returns the name of its driver.
    pub fn driver(self) -> &'static str {
        match self {
            Self::C => "clang",
            Self::Cxx => "clang++",
        }
    }
}

/// Returns the clang to run: that of `HEDDLE_CLANG` or the one beside it, else the one in `PATH`. Its version is not
/// asked for.
///
/// # Errors
/// If there is none.
pub fn clang(language: Language) -> Result<PathBuf, Error> {
    match variable(CLANG_VARIABLE) {
        Some(named) => chosen(&named, language),
        None => program(language.driver()).ok_or_else(|| Error::NoCompiler {
            name: language.driver().into(),
            origin: " in PATH".into(),
            remedy: format!("{}, or set {CLANG_VARIABLE}", install()),
        }),
    }
}

/// Says which installed clang to name, or what to install.
fn install() -> String {
    let mut names = MAJORS.rev().map(|major| format!("clang-{major}"));
    match names.find_map(program) {
        Some(path) => format!("set {CLANG_VARIABLE}={}", path.display()),
        None => format!("install clang {} to {}", MAJORS.start(), MAJORS.end()),
    }
}

/// Returns the driver for `language` of the clang that the user named.
fn chosen(named: &OsString, language: Language) -> Result<PathBuf, Error> {
    let path = Path::new(named);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let driver = driver(&name, language).ok_or_else(|| {
        let shown = path.display();
        Error::Usage(format!(
            "{CLANG_VARIABLE}={shown}: it is not the name of a clang; name one such as /usr/bin/clang-22"
        ))
    })?;
    program(path.with_file_name(&driver)).ok_or_else(|| Error::NoCompiler {
        name: driver,
        origin: match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            Some(folder) => format!(" in {}", folder.display()),
            None => " in PATH".into(),
        },
        remedy: format!("correct {CLANG_VARIABLE}={}, or install it", path.display()),
    })
}

/// Returns the driver's name for `language`, from that for any language: `clang++-22` for `clang-22`.
fn driver(name: &str, language: Language) -> Option<String> {
    let (prefix, rest) = name.rsplit_once("clang")?;
    let suffix = rest.strip_prefix("++").unwrap_or(rest);
    let is_version = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let is_driver = suffix.is_empty() || suffix.strip_prefix('-').is_some_and(is_version);
    is_driver.then(|| format!("{prefix}{}{suffix}", language.driver()))
}

/// Returns the version of the clang at `path`, or why it cannot compile with probes.
///
/// # Errors
/// If it does not say its version, or has one that is not supported.
pub fn clang_version(path: &Path) -> Result<ClangVersion, Error> {
    let text = ask(path, &["--version"])?;
    version::parse_clang(&text)
        .map_err(|reason| Error::Unsupported { path: path.to_owned(), reason })
}

/// A rustc that can load the pass.
#[derive(Clone, Debug)]
pub struct Rustc {
    /// The program: rustup's proxy, perhaps.
    pub path: PathBuf,
    /// Its version.
    pub version: RustVersion,
}

/// Returns the rustc that cargo would use: that of `RUSTC`, or the one in `PATH`; with rustup, that of `toolchain`
/// (`+nightly`) if there is one.
///
/// # Errors
/// If there is none, or its version is not supported.
pub fn rustc(toolchain: Option<&str>) -> Result<Rustc, Error> {
    let name = variable("RUSTC").unwrap_or_else(|| "rustc".into());
    let path = program(&name).ok_or_else(|| Error::NoCompiler {
        name: Path::new(&name).display().to_string(),
        origin: " in PATH".into(),
        remedy: "install Rust (https://rustup.rs), or correct RUSTC".into(),
    })?;
    let question: Vec<&str> = toolchain.into_iter().chain(["-vV"]).collect();
    let version = version::parse_rustc(&ask(&path, &question)?)
        .map_err(|reason| Error::Unsupported { path: path.clone(), reason })?;
    Ok(Rustc { path, version })
}

/// Returns the C++ compiler that builds the pass. Any that understands LLVM's headers will do.
///
/// # Errors
/// If there is none.
pub fn plugin_compiler() -> Result<PathBuf, Error> {
    let versions = MAJORS.rev().map(|major| format!("clang++-{major}"));
    let mut names = ["c++", "g++", "clang++"].map(String::from).into_iter().chain(versions);
    names.find_map(program).ok_or(Error::NoPluginCompiler)
}

/// Returns a name for the file at `path` that changes when another version is installed there.
pub(crate) fn identity(path: &Path) -> Option<String> {
    let real = path.canonicalize().ok()?;
    let metadata = real.metadata().ok()?;
    Some(hash::name((&real, metadata.len(), metadata.modified().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_driver_is_found_from_either() {
        for (c, cxx) in [
            ("clang", "clang++"),
            ("clang-22", "clang++-22"),
            ("clang-16.0", "clang++-16.0"),
            ("x86_64-linux-gnu-clang", "x86_64-linux-gnu-clang++"),
        ] {
            for name in [c, cxx] {
                assert_eq!(driver(name, Language::C).as_deref(), Some(c));
                assert_eq!(driver(name, Language::Cxx).as_deref(), Some(cxx));
            }
        }
        for other in ["gcc", "clang-format", "clang-cpp", "clangd", ""] {
            assert_eq!(driver(other, Language::C), None, "{other}");
        }
    }

    #[test]
    fn a_named_clang_must_be_there() {
        let error = chosen(&"/no/such/clang-22".into(), Language::Cxx).unwrap_err().to_string();
        assert!(
            error.contains("there is no clang++-22 in /no/such; correct HEDDLE_CLANG"),
            "{error}"
        );
        let error = chosen(&"/usr/bin/gcc".into(), Language::C).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("not the name of a clang"));
    }
}
