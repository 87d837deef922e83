//! rustc with the pass, and tokio with Heddle's edits, as cargo calls it in a build by `heddle cargo`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::search::variable;
use crate::toolchain::version::is_supported_target;
use crate::{Error, tokio};

/// The variable by which `heddle cargo` says where the pass is.
pub const PLUGIN_VARIABLE: &str = "HEDDLE_PROBES_PLUGIN";

/// The variable by which `heddle cargo` names what distinguishes this build from others.
pub const BUILD_VARIABLE: &str = "HEDDLE_PROBES_BUILD";

/// The C library's settings.
const TUNABLES_VARIABLE: &str = "GLIBC_TUNABLES";
/// Makes it keep 16 KiB for thread-local variables of libraries that are loaded later; by default there are 512 bytes.
/// rustc loads procedural macros, and a macro with a library that the program uses, too, has probes in it, whose budget
/// is such a variable: with that, all thread-local variables of the macro are, std's included.
const STATIC_TLS: &str = "glibc.rtld.optional_static_tls=16384";

/// What cargo wants of rustc.
#[derive(Debug)]
pub enum Wrapped {
    /// To compile, or an answer that stays as it is: the caller becomes the command.
    Become(Command),
    /// Its version: the caller runs the command, and prints the line after it.
    Version(Command, String),
}

/// Returns what to do for `arguments`, which cargo gave to its wrapper: rustc, and rustc's arguments.
///
/// Crates that run in the compiler (procedural macros) or before it (build scripts) get no probes; nor does what a
/// build script compiles to try the compiler, which must see a stable rustc.
///
/// # Errors
/// If this was not called by cargo, or the crate is built in a way that is not supported.
pub fn command(arguments: Vec<OsString>) -> Result<Wrapped, Error> {
    let (plugin, copies) = (variable(PLUGIN_VARIABLE), variable(tokio::COPIES_VARIABLE));
    let is_ours = plugin.is_some() || copies.is_some();
    let Some(rustc) = arguments.first().filter(|_| is_ours) else {
        return Err(Error::Usage(
            "heddle-rustc is for cargo, when it is started by `heddle cargo`; call that".into(),
        ));
    };
    let mut command = Command::new(rustc);
    let edited = copies.and_then(|copies| edited_tokio(Path::new(&copies), variable));
    match edited {
        Some((original, copy)) => command.args(with_root(&arguments[1..], &original, &copy)?),
        None => command.args(&arguments[1..]),
    };
    if arguments.iter().any(|argument| argument == "-vV") {
        let build = variable(BUILD_VARIABLE).unwrap_or_default();
        return Ok(Wrapped::Version(
            command,
            format!("heddle-probes: {}", build.to_string_lossy()),
        ));
    }
    let Some(plugin) = plugin else { return Ok(Wrapped::Become(command)) };
    let invocation = Invocation::of(&arguments);
    // cargo sets this for what it compiles, and not for build scripts that call rustc themselves.
    if env::var_os("CARGO_CRATE_NAME").is_some() && invocation.runs_in_the_program() {
        invocation.check()?;
        let mut option = OsString::from("-Zllvm-plugins=");
        option.push(plugin);
        command.arg(option).env("RUSTC_BOOTSTRAP", "1");
    }
    command.env(TUNABLES_VARIABLE, with_static_tls(variable(TUNABLES_VARIABLE)));
    Ok(Wrapped::Become(command))
}

/// Returns the folder of tokio and that of its edited copy, if cargo wants tokio to be compiled.
fn edited_tokio(
    copies: &Path,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<(PathBuf, PathBuf)> {
    let is_tokio = |name| variable(name).is_some_and(|value| value == "tokio");
    if !is_tokio("CARGO_PKG_NAME") || !is_tokio("CARGO_CRATE_NAME") {
        return None;
    }
    let version = variable("CARGO_PKG_VERSION")?.into_string().ok()?;
    Some((variable("CARGO_MANIFEST_DIR")?.into(), copies.join(tokio::copy_name(&version))))
}

/// Replaces the source that rustc compiles first, in the folder `original`, by that in `copy`.
fn with_root(arguments: &[OsString], original: &Path, copy: &Path) -> Result<Vec<OsString>, Error> {
    let root = copy.join("src/lib.rs");
    let is_root = |argument: &OsStr| {
        let path = Path::new(argument);
        path.ends_with("src/lib.rs") && (path.is_relative() || path.starts_with(original))
    };
    let mut arguments = arguments.to_vec();
    let mut roots = arguments.iter_mut().filter(|argument| is_root(argument));
    match (roots.next(), root.is_file()) {
        (Some(argument), true) => *argument = root.into(),
        _ => {
            return Err(Error::Usage(format!(
                "{} is not the tokio that was edited before the build began; build again with `heddle cargo --tokio`",
                original.display()
            )));
        }
    }
    Ok(arguments)
}

/// Adds [`STATIC_TLS`] to the settings, unless they have another value.
fn with_static_tls(settings: Option<OsString>) -> OsString {
    let Some(mut settings) = settings else { return STATIC_TLS.into() };
    if !settings.to_string_lossy().contains("glibc.rtld.optional_static_tls=") {
        settings.push(":");
        settings.push(STATIC_TLS);
    }
    settings
}

/// Refuses a target that the pass does not support.
pub(crate) fn check_target(target: &str) -> Result<(), Error> {
    if is_supported_target(target) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "the target {target} is not supported: probes are for x86_64 Linux; build it with cargo itself"
    )))
}

/// What a command line of rustc's says, as far as it matters here.
#[derive(Debug, Default, PartialEq, Eq)]
struct Invocation {
    crate_name: String,
    is_macro: bool,
    target: Option<String>,
    /// It becomes a library of Rust's, for rustc to link.
    is_library: bool,
    is_optimised_by_linker: bool,
}

impl Invocation {
    fn of(arguments: &[OsString]) -> Invocation {
        let mut words = arguments.iter().map(|word| word.to_string_lossy().into_owned());
        let mut invocation = Invocation::default();
        while let Some(word) = words.next() {
            let (option, value) = match word.split_once('=') {
                Some((option, value)) if option.starts_with("--") => {
                    (option.to_owned(), value.into())
                }
                _ if ["--crate-name", "--crate-type", "--target", "-C", "--codegen"]
                    .contains(&&*word) =>
                {
                    (word, words.next().unwrap_or_default())
                }
                _ => match word.strip_prefix("-C") {
                    Some(value) => ("-C".into(), value.to_owned()),
                    None => continue,
                },
            };
            match &*option {
                "--crate-name" => invocation.crate_name = value,
                "--crate-type" => {
                    invocation.is_macro |= value == "proc-macro";
                    invocation.is_library |= value == "lib" || value == "rlib";
                }
                "--target" => invocation.target = Some(value),
                "-C" | "--codegen" => invocation.note(&value),
                _ => {}
            }
        }
        invocation
    }

    fn note(&mut self, setting: &str) {
        let (key, value) = setting.split_once('=').unwrap_or((setting, "yes"));
        let is_off = ["off", "no", "n", "false"].contains(&value);
        if key == "linker-plugin-lto" {
            self.is_optimised_by_linker = !is_off;
        }
    }

    /// Whether the crate becomes a part of the program, as opposed to its build.
    fn runs_in_the_program(&self) -> bool {
        !self.is_macro && !self.crate_name.starts_with("build_script_")
    }

    fn check(&self) -> Result<(), Error> {
        // cargo says so of libraries that rustc is going to optimise with the program.
        if self.is_optimised_by_linker && !self.is_library {
            return Err(Error::Usage(
                "linker-plugin-lto is not supported: the linker's LLVM would run without the pass; use rustc's own \
                 (lto in the profile)"
                    .into(),
            ));
        }
        self.target.as_deref().map_or(Ok(()), check_target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invocation(line: &str) -> Invocation {
        Invocation::of(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn macros_and_build_scripts_are_not_part_of_the_program() {
        for line in [
            "rustc --crate-name serde_derive --edition=2021 src/lib.rs --crate-type proc-macro --emit=link",
            "rustc --crate-name m --crate-type=proc-macro src/lib.rs",
            "rustc --crate-name build_script_build build.rs --crate-type bin",
            "rustc --crate-name build_script_main build.rs --crate-type bin",
        ] {
            assert!(!invocation(line).runs_in_the_program(), "{line}");
        }
        for line in [
            "rustc --crate-name app src/main.rs --crate-type bin -C opt-level=3",
            "rustc --crate-name=l src/lib.rs --crate-type cdylib --crate-type rlib",
            "/clippy-driver rustc --crate-name app --test src/main.rs",
        ] {
            assert!(invocation(line).runs_in_the_program(), "{line}");
        }
    }

    #[test]
    fn the_edited_tokio_is_compiled_in_place_of_tokio() {
        let copies = tempfile::tempdir().unwrap();
        let copy = copies.path().join("tokio-1.54.1");
        let variables = |name: &str| {
            Some(match name {
                "CARGO_PKG_NAME" | "CARGO_CRATE_NAME" => "tokio".into(),
                "CARGO_PKG_VERSION" => "1.54.1".into(),
                _ => OsString::from("/r/tokio-1.54.1"),
            })
        };
        let (original, found) = edited_tokio(copies.path(), variables).unwrap();
        assert_eq!((original.as_path(), &found), (Path::new("/r/tokio-1.54.1"), &copy));
        let other = |name: &str| variables(name).filter(|_| name != "CARGO_CRATE_NAME");
        assert_eq!(edited_tokio(copies.path(), other), None);

        let line = ["--crate-name", "tokio", "/r/tokio-1.54.1/src/lib.rs", "--cap-lints", "allow"];
        let arguments = line.map(OsString::from);
        let error = with_root(&arguments, &original, &copy).unwrap_err().to_string();
        assert!(error.contains("/r/tokio-1.54.1 is not the tokio that was edited"), "{error}");
        std::fs::create_dir_all(copy.join("src")).unwrap();
        std::fs::write(copy.join("src/lib.rs"), "").unwrap();
        let changed = with_root(&arguments, &original, &copy).unwrap();
        assert_eq!(changed[2], copy.join("src/lib.rs"));
        assert_eq!((&changed[..2], &changed[3..]), (&arguments[..2], &arguments[3..]));
        assert!(with_root(&["/r/other/src/lib.rs".into()], &original, &copy).is_err());
    }

    #[test]
    fn the_room_for_thread_local_variables_is_added_to_other_settings() {
        let with = |settings: &str| with_static_tls(Some(settings.into()));
        assert_eq!(with_static_tls(None), STATIC_TLS);
        assert_eq!(with("a.b=1").into_string().unwrap(), format!("a.b=1:{STATIC_TLS}"));
        let own = "glibc.rtld.optional_static_tls=99";
        assert_eq!(with(own), own);
    }

    #[test]
    fn optimisation_by_the_linker_and_other_targets_are_refused() {
        for line in ["rustc -C linker-plugin-lto", "rustc --codegen=linker-plugin-lto"] {
            let error = invocation(line).check().unwrap_err().to_string();
            assert!(error.contains("linker-plugin-lto"), "{line}: {error}");
        }
        for line in [
            "rustc -C lto",
            "rustc -Clto=thin",
            "rustc -C linker-plugin-lto=no",
            "rustc --crate-type lib -C linker-plugin-lto",
            "rustc -C opt-level=3",
        ] {
            assert!(invocation(line).check().is_ok(), "{line}");
        }
        assert!(invocation("rustc --target wasm32-wasip1").check().is_err());
        assert!(invocation("rustc --target=x86_64-unknown-linux-gnu").check().is_ok());
    }
}
