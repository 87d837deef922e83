//! From a policy's source to a verdict in plain words: `heddle steer check`.
//!
//! The steps are those of deployment, except the last: compile, read, check, link into the frame of each
//! hook, and have the kernel verify it. Nothing is attached. The first problem is reported with its source
//! line, what it means, what to do, and finally the compiler's or the kernel's own message.

mod compiler;
mod kernel;
mod pick_next;
mod report;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use heddle_bpf::Program;
pub use pick_next::{PickNextError, pick_next};
pub use report::{HookReport, MapReport, Outcome, ParamReport, Problem, Report, SourceLine};

use super::check::{self, check};
use super::compile::{CompileError, compile};
use super::framed::verify_strictly;
use super::load::{LoadError, Maps};
use super::object::{DeclKind, Line, MapDecl, Object};
use super::params::{Param, ParamError, pairs, params, set_params, split_params};
use super::read::{MAX_FILE, read};
use super::shipped::{shipped, shipped_source};
use crate::hook::xdp::{self, Executors, Mode, PolicyError};
use crate::hook::{Hook, reuseport};

/// The source of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A policy that Heddle ships.
    Shipped(String),
    /// A file: C, or compiled by clang.
    File(PathBuf),
}

/// Why a policy cannot be examined.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// It cannot be read, or there is no compiler.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// Its parameters.
    #[error(transparent)]
    Param(#[from] ParamError),
}

impl Source {
    /// Resolves a name to a shipped policy, or else to a file; and splits off the parameters after a colon.
    #[must_use]
    pub fn parse(given: &str) -> (Self, &str) {
        let (name, parameters) = split_params(given);
        let source = match shipped(name) {
            Some(_) => Self::Shipped(name.to_owned()),
            None => Self::File(name.into()),
        };
        (source, parameters)
    }

    fn name(&self) -> String {
        match self {
            Self::Shipped(name) => name.clone(),
            Self::File(path) => path.display().to_string(),
        }
    }
}

/// Takes `source` through all steps of deployment at `hooks`, with `parameters` set, without deploying it.
///
/// # Errors
/// If it cannot be read or compiled at all, or has no such parameters. Problems of the policy itself are in
/// the report.
pub fn verify(source: &Source, parameters: &str, hooks: &[Hook]) -> Result<Report, VerifyError> {
    let mut report = Report::new(source.name());
    let bytes = match elf(source, &mut report) {
        Ok(bytes) => bytes,
        Err(CompileError::Rejected(said)) => {
            return Ok(report.failed(compiler::explain(&said, &source.name())));
        }
        Err(error) => return Err(error.into()),
    };
    let mut object = match read(&bytes) {
        Ok(object) => object,
        Err(error) => return Ok(report.failed(Problem::of(error.to_string()))),
    };
    set_params(&mut object, &pairs(parameters)?)?;
    if let Err(error) = describe(&mut report, &object) {
        return Ok(report.failed(Problem::of(format!("cannot count the CPUs: {error}"))));
    }
    if let Err(refused) = check(&object) {
        let problem = Problem { place: refused.place.map(Into::into), ..Problem::of(refused.why) };
        return Ok(report.failed(problem));
    }
    match verify_strictly(&object, &mut Maps::new()) {
        Err(LoadError::Refused(refused)) if !is_denied(&refused) => {
            return Ok(report.failed(kernel::explain(&refused, &object)));
        }
        _ => {}
    }
    report.hooks = hooks.iter().filter_map(|hook| at_hook(*hook, &object)).collect();
    Ok(report)
}

/// Returns the compiled policy, and counts the lines of its source.
fn elf(source: &Source, report: &mut Report) -> Result<Vec<u8>, CompileError> {
    let path = match source {
        Source::Shipped(name) => {
            report.lines = shipped_source(name).map(lines_of_code);
            return Ok(shipped(name).unwrap_or_default().to_vec());
        }
        Source::File(path) => path,
    };
    let bytes = start_of(path)?;
    if bytes.starts_with(b"\x7fELF") {
        return Ok(bytes);
    }
    report.lines = Some(lines_of_code(&String::from_utf8_lossy(&bytes)));
    compile(path)
}

/// Reads the file, but no more than a policy can have.
fn start_of(path: &Path) -> Result<Vec<u8>, CompileError> {
    let mut bytes = Vec::new();
    let limit = MAX_FILE as u64 + 1;
    fs::File::open(path)
        .and_then(|file| file.take(limit).read_to_end(&mut bytes))
        .map_err(|error| CompileError::File { file: path.into(), error })?;
    Ok(bytes)
}

/// Counts lines that contain more than comments.
fn lines_of_code(text: &str) -> usize {
    let mut inside = false;
    let mut code = |line: &str| {
        let mut rest = line;
        let mut any = false;
        while !rest.is_empty() {
            let mark = if inside { "*/" } else { "/*" };
            let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
            let found = before.len() < rest.len();
            let before = if inside { "" } else { before.split("//").next().unwrap_or_default() };
            any |= !before.trim().is_empty();
            inside ^= found;
            rest = after;
        }
        any
    };
    text.lines().filter(|line| code(line)).count()
}

/// Describes the policy's content.
fn describe(report: &mut Report, object: &Object) -> io::Result<()> {
    report.instructions = object.functions.iter().map(|function| function.code.len()).sum();
    report.maps = object.maps.iter().map(map).collect::<io::Result<_>>()?;
    report.parameters = params(object).into_iter().map(parameter).collect();
    report.helpers = check::helpers(object);
    Ok(())
}

fn map(map: &MapDecl) -> io::Result<MapReport> {
    let kind = match map.kind {
        DeclKind::Array => "array",
        DeclKind::Hash => "hash",
        DeclKind::Data { constant: true, .. } => "constants",
        DeclKind::Data { .. } => "variables",
        _ => "not a policy's",
    };
    Ok(MapReport {
        name: map.name.clone(),
        kind,
        entries: map.entries,
        value_bytes: map.value_size,
        bytes: map.memory()?,
    })
}

fn parameter(param: Param) -> ParamReport {
    let Param { name, meaning, value, least, most } = param;
    ParamReport { name, meaning, value, least, most }
}

/// Returns the kernel's verdict on the policy at `hook`; `None` if Heddle has no frame for it.
fn at_hook(hook: Hook, object: &Object) -> Option<HookReport> {
    let maps = &mut Maps::new();
    let loaded = match hook {
        Hook::SocketSelect => reuseport::load_policy("hd_check", object, maps),
        Hook::CpuRedirect => at_xdp(Executors::Cpus, object, maps)?,
        Hook::XdpDrv | Hook::XdpSkb => at_xdp(Executors::Sockets, object, maps)?,
        Hook::XdpOffload | Hook::Stream => return None,
    };
    let outcome = match loaded {
        Ok(program) => {
            let info = program.info().unwrap_or_default();
            Outcome::Fits { verified: info.verified, machine_bytes: info.machine_bytes }
        }
        Err(LoadError::Link(error)) => Outcome::DoesNotFit { why: error.to_string() },
        Err(LoadError::Refused(refused)) if !is_denied(&refused) => {
            Outcome::Refused { problem: kernel::explain(&refused, object) }
        }
        Err(LoadError::Map { error, .. }) if error.raw_os_error() != Some(EPERM) => {
            Outcome::NotChecked { why: error.to_string() }
        }
        Err(_) => Outcome::NotChecked {
            why: "the kernel verifies programs for root only (sudo heddle steer check ...)".into(),
        },
    };
    Some(HookReport { hook, outcome })
}

fn at_xdp(
    executors: Executors,
    object: &Object,
    maps: &mut Maps,
) -> Option<Result<Program, LoadError>> {
    match xdp::load_policy("hd_check", (executors, Mode::Native), object, maps) {
        Ok(program) => Some(Ok(program)),
        Err(PolicyError::Load(error)) => Some(Err(error)),
        Err(PolicyError::GenericCpus) => None,
    }
}

const EPERM: i32 = 1;

/// Returns whether the cause is this process's lack of privilege, and not the policy.
fn is_denied(refused: &heddle_bpf::LoadError) -> bool {
    refused.error.raw_os_error() == Some(EPERM) && refused.log.is_empty()
}

impl From<Line> for SourceLine {
    fn from(line: Line) -> Self {
        Self { file: line.file, line: line.number, text: line.text.trim().to_owned() }
    }
}

/// Returns whether `file` is one of Heddle's headers.
fn is_heddles(file: &str) -> bool {
    const HEADERS: [&str; 3] = ["heddle/policy", "heddle/pick_next.h", "heddle/offers.h"];
    HEADERS.iter().any(|header| file.contains(header))
}

/// Returns the files of a policy's own lines: not Heddle's headers, whose declarations are inlined.
fn own_files(object: &Object) -> BTreeSet<&str> {
    let lines = object.functions.iter().flat_map(|function| &function.lines);
    let files = lines.map(|line| line.file.as_str());
    files.filter(|file| !is_heddles(file) && *file != "<stdin>").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_blank_lines_do_not_count_as_code() {
        let text = "/* one\n two */\n\nint x; /* three */ // four\n// five\nint y;\n/* */ int z;\n";
        assert_eq!(lines_of_code(text), 3);
        assert_eq!(lines_of_code(""), 0);
        assert_eq!(lines_of_code("/*"), 0);
    }

    #[test]
    fn a_name_is_a_shipped_policy_before_it_is_a_file() {
        assert_eq!(Source::parse("sita:scan=1"), (Source::Shipped("sita".into()), "scan=1"));
        assert_eq!(Source::parse("./sita"), (Source::File("./sita".into()), ""));
    }
}
