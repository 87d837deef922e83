//! clang with the pass.

use std::ffi::OsString;
use std::process::Command;

use crate::clang_arguments::Request;
use crate::options::{self, Options};
use crate::toolchain::{self, Language};
use crate::{Error, plugin};

/// The variable by which the pass learns that it does not run again at link time.
const BEFORE_LINK_VARIABLE: &str = "HEDDLE_PROBES_BEFORE_LINK";

/// Returns clang for the caller to become, with `arguments` and, if it compiles something, the pass.
///
/// Commands that compile nothing (a link, `-E`, `--version`) are clang's alone, so that build systems that examine the
/// compiler see clang.
///
/// # Errors
/// If the command line asks for what is not supported with probes, there is no supported clang, or the pass cannot be
/// built.
pub fn command(language: Language, arguments: Vec<OsString>) -> Result<Command, Error> {
    let (options, arguments) = Options::take(arguments)?;
    let clang = toolchain::clang(language)?;
    let mut command = Command::new(&clang);
    let is_internal = arguments.first().is_some_and(|first| first == "-cc1" || first == "-cc1as");
    let request = if is_internal { Request::default() } else { Request::of(&arguments) };
    request.check()?;
    if request.compiles {
        let mut option = OsString::from("-fpass-plugin=");
        option.push(plugin::for_clang(&clang)?);
        command.arg(option);
        if request.is_optimised_by_linker {
            command.env(BEFORE_LINK_VARIABLE, "1");
        }
    }
    if let Some(options) = options.to_variable() {
        command.env(options::VARIABLE, options);
    }
    command.args(arguments);
    Ok(command)
}
