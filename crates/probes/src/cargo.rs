//! cargo, whose rustc loads the pass.
//!
//! cargo calls this program instead of rustc (`RUSTC_WRAPPER`), which adds the pass ([`rustc`]). C and
//! C++ in dependencies are compiled by the shims of clang, if there is a clang that is supported.
//!
//! When the pass or its options change, everything must be compiled again. cargo keeps apart what compilers of
//! different versions made, so the wrapper adds a line to the version that rustc prints; and it has another path, since
//! cargo remembers versions by path. Flags of the user (`RUSTFLAGS`, `build.rustflags`) stay as they are, and a build
//! without probes beside it keeps its own files.
//!
//! The wrapper is also how tokio gets Heddle's edits ([`tokio`]), with probes or without.

use std::ffi::OsString;
use std::process::Command;

use crate::options::{self, Options};
use crate::plugin::Plugin;
use crate::search::{program, variable};
use crate::shims::Shim;
use crate::toolchain::{self, Language};
use crate::{Error, hash, rustc, shims, tokio};

/// The subcommands that compile.
pub const SUBCOMMANDS: [&str; 5] = ["build", "test", "run", "bench", "check"];

/// What `heddle cargo` is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Compile with probes.
    pub probes: bool,
    /// Give the tasks of tokio to Heddle.
    pub tokio: bool,
}

/// cargo, ready to run.
#[derive(Debug)]
pub struct Cargo {
    /// The command for the caller to become.
    pub command: Command,
    /// Why C and C++ in dependencies are compiled without probes, if they are.
    pub no_clang: Option<Error>,
}

/// Returns cargo with `arguments`, as they follow `heddle cargo` and its own options. Builds the pass and edits tokio
/// first if necessary.
///
/// # Errors
/// If the subcommand is none of [`SUBCOMMANDS`], there is a wrapper already, the target, rustc or the program's tokio
/// is not supported, or the pass cannot be built.
pub fn command(work: Work, arguments: Vec<OsString>) -> Result<Cargo, Error> {
    let (options, arguments) = Options::take(arguments)?;
    let toolchain = check_arguments(&arguments)?;
    check_wrappers(variable)?;
    let cargo = program("cargo").ok_or_else(|| Error::NoCompiler {
        name: "cargo".into(),
        origin: " in PATH".into(),
        remedy: "install Rust (https://rustup.rs)".into(),
    })?;
    let copies =
        if work.tokio { Some(tokio::prepare(&tokio::find(&cargo, &arguments)?)?) } else { None };
    let rust = match work.probes {
        true => Some(Plugin::for_rustc(&toolchain::rustc(toolchain.as_deref())?)?),
        false => None,
    };
    let clang = match work.probes {
        true => Some(toolchain::clang(Language::C).and_then(|clang| Plugin::for_clang(&clang))),
        false => None,
    };
    let plugins = [rust.as_ref(), clang.as_ref().and_then(|clang| clang.as_ref().ok())];
    let build = hash::name((plugins.map(|plugin| plugin.map(Plugin::hash)), &options, &copies));
    let shims = shims::install(Some(&build))?;

    let mut command = Command::new(cargo);
    command.args(arguments);
    command.env("RUSTC_WRAPPER", shims.join(Shim::Rustc.name())).env(rustc::BUILD_VARIABLE, build);
    let plugin = rust.as_ref().map(Plugin::path).transpose()?;
    for (variable, path) in
        [(rustc::PLUGIN_VARIABLE, plugin), (tokio::COPIES_VARIABLE, copies.as_deref())]
    {
        match path {
            Some(path) => command.env(variable, path),
            // This may run in a build of another kind.
            None => command.env_remove(variable),
        };
    }
    if let Some(options) = options.to_variable() {
        command.env(options::VARIABLE, options);
    }
    if let Some(Ok(_)) = clang {
        let [c, cxx] =
            [Language::C, Language::Cxx].map(|language| shims.join(Shim::Clang(language).name()));
        // The variable of the target goes before HOST_CC, which stays for those who cross-compile.
        command.env("CC", &c).env("CC_x86_64_unknown_linux_gnu", &c);
        command.env("CXX", &cxx).env("CXX_x86_64_unknown_linux_gnu", &cxx);
    }
    Ok(Cargo { command, no_clang: clang.and_then(Result::err) })
}

/// Checks what can be known from the command line. Returns the name of rustup's toolchain (`+nightly`) if there is one.
fn check_arguments(arguments: &[OsString]) -> Result<Option<String>, Error> {
    let mut words = arguments.iter().map(|word| word.to_string_lossy()).peekable();
    let toolchain = words.next_if(|word| word.starts_with('+')).map(|word| word.into_owned());
    let subcommand = words.next().unwrap_or_default();
    if !SUBCOMMANDS.contains(&&*subcommand) {
        let what = match &*subcommand {
            "" => "no subcommand of cargo's is given".into(),
            word if word.starts_with('-') => format!("`{word}` comes before cargo's subcommand"),
            word => format!("`cargo {word}` does not compile a program that could have probes"),
        };
        return Err(Error::Usage(format!(
            "{what}; begin with one of {}, as in `heddle cargo build --release`",
            SUBCOMMANDS.join(", ")
        )));
    }
    while let Some(word) = words.next_if(|word| word != "--") {
        let target = match word.strip_prefix("--target") {
            Some("") => words.next(),
            Some(rest) => rest.strip_prefix('=').map(|target| target.to_owned().into()),
            None => None,
        };
        if let Some(target) = target {
            rustc::check_target(&target)?;
        }
    }
    Ok(toolchain)
}

/// Refuses another wrapper, whose cache would not know of the pass.
fn check_wrappers(variable: impl Fn(&str) -> Option<OsString>) -> Result<(), Error> {
    for name in ["RUSTC_WRAPPER", "CARGO_BUILD_RUSTC_WRAPPER"] {
        let wrapper = variable(name).filter(|wrapper| Shim::called(wrapper) != Some(Shim::Rustc));
        if let Some(wrapper) = wrapper {
            return Err(Error::Usage(format!(
                "{name}={}: Heddle takes the place of rustc's wrapper, and cannot be combined with another; run \
                 `env -u {name} heddle cargo ...`",
                wrapper.to_string_lossy()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str) -> Result<Option<String>, String> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        check_arguments(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn five_subcommands_are_accepted() {
        for subcommand in SUBCOMMANDS {
            assert_eq!(check(&format!("{subcommand} --release")), Ok(None));
        }
        assert_eq!(check("+nightly test -- --target=x"), Ok(Some("+nightly".into())));
        for (line, says) in [
            ("", "no subcommand of cargo's is given"),
            ("install x", "`cargo install` does not compile a program"),
            ("--offline build", "`--offline` comes before cargo's subcommand"),
        ] {
            let error = check(line).unwrap_err();
            assert!(
                error.contains(says) && error.contains("build, test, run, bench, check"),
                "{error}"
            );
        }
    }

    #[test]
    fn other_targets_are_refused() {
        for line in ["build --target wasm32-wasip1", "build --target=aarch64-unknown-linux-gnu"] {
            let error = check(line).unwrap_err();
            assert!(error.contains("x86_64 Linux"), "{error}");
        }
        assert!(check("build --target x86_64-unknown-linux-musl --target-dir x").is_ok());
    }

    #[test]
    fn another_wrapper_is_refused() {
        let set = |name: &'static str, value: &'static str| {
            check_wrappers(move |asked| (asked == name).then(|| value.into()))
                .map_err(|e| e.to_string())
        };
        let error = set("RUSTC_WRAPPER", "sccache").unwrap_err();
        assert!(
            error.starts_with("RUSTC_WRAPPER=sccache: ") && error.contains("env -u RUSTC_WRAPPER"),
            "{error}"
        );
        assert!(set("CARGO_BUILD_RUSTC_WRAPPER", "sccache").is_err());
        assert!(set("RUSTC_WRAPPER", "/cache/shims/0123/heddle-rustc").is_ok());
        assert!(set("OTHER", "x").is_ok());
    }
}
