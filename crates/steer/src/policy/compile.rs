//! Compiling a policy's source with clang, as the requesting user.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

include!("flags.rs");

/// The headers available to a policy.
const HEADERS: &[(&str, &str)] = &[
    ("heddle.h", include_str!("../../../../include/heddle.h")),
    ("heddle/policy.h", include_str!("../../../../include/heddle/policy.h")),
    ("heddle/policy_kernel.h", include_str!("../../../../include/heddle/policy_kernel.h")),
    ("heddle/policy_native.h", include_str!("../../../../include/heddle/policy_native.h")),
    ("heddle/pick_next.h", include_str!("../../../../include/heddle/pick_next.h")),
    ("heddle/offers.h", include_str!("../../../../include/heddle/offers.h")),
];

/// Warnings of clang that are mistakes in any policy, and that no later step would explain as well.
const MISTAKES: &[&str] = &[
    "-Werror=implicit-function-declaration",
    "-Werror=implicit-int",
    "-Werror=return-type",
    "-Werror=incompatible-pointer-types",
    "-Werror=int-conversion",
    "-Werror=division-by-zero",
    "-Werror=undefined-internal",
    "-Werror=uninitialized",
];

/// Why a source did not compile.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// There is no file.
    #[error("cannot read {}: {error}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is no compiler.
    #[error(
        "no clang: compiling a policy takes it (apt-get install clang, or HEDDLE_CLANG=/path/to/clang); \
         the shipped policies do not"
    )]
    NoCompiler,
    /// Clang's output, without the lines about Heddle's own part of the unit.
    #[error("{0}")]
    Rejected(String),
    /// A file name that C cannot include.
    #[error("{}: a policy's path has no quotation marks, line breaks or bytes that are no text", .0.display())]
    Name(PathBuf),
    /// A temporary folder for the headers, or running clang.
    #[error("cannot compile: {0}")]
    Io(#[from] io::Error),
}

/// Compiles the policy in `file` to an ELF file.
///
/// # Errors
/// See [`CompileError`]; clang's output names the lines of `file`.
pub fn compile(file: &Path) -> Result<Vec<u8>, CompileError> {
    compile_with(file, UNIT, &[FLAGS, &["-c"]].concat())
}

/// Compiles the `pick_next` in `file` to an ELF file.
///
/// # Errors
/// See [`CompileError`].
pub(super) fn compile_pick_next(file: &Path) -> Result<Vec<u8>, CompileError> {
    compile_with(file, PICK_NEXT_UNIT, &[FLAGS, &["-c"]].concat())
}

/// Compiles the policy in `file` to a shared object for this machine's user space.
///
/// # Errors
/// See [`CompileError`].
pub(crate) fn compile_native(file: &Path) -> Result<Vec<u8>, CompileError> {
    compile_with(file, UNIT, NATIVE_FLAGS)
}

fn compile_with(file: &Path, unit: &str, flags: &[&str]) -> Result<Vec<u8>, CompileError> {
    let path =
        file.canonicalize().map_err(|error| CompileError::File { file: file.into(), error })?;
    let fit = path.to_str().filter(|path| !path.contains(['"', '\n', '\r']));
    let unit = unit.replace('@', fit.ok_or_else(|| CompileError::Name(path.clone()))?);
    let work = Scratch::new()?;
    for (name, text) in HEADERS {
        let at = work.0.join(name);
        fs::create_dir_all(at.parent().unwrap_or(&work.0))?;
        fs::write(at, text)?;
    }
    let object = work.0.join("policy.o");
    let mut command = Command::new(env::var_os("HEDDLE_CLANG").unwrap_or_else(|| "clang".into()));
    command
        .args(flags)
        .args(MISTAKES)
        .arg("-I")
        .arg(&work.0)
        .args(["-x", "c", "-", "-o"])
        .arg(&object);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CompileError::NoCompiler,
        _ => CompileError::Io(error),
    })?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(unit.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(CompileError::Rejected(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(fs::read(object)?)
}

/// A folder that is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        for _ in 0..16 {
            let unique = heddle_sys::clock::now().0 ^ u64::from(std::process::id()) << 40;
            let path = env::temp_dir().join(format!("heddle-{unique:x}"));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => return result.map(|()| Self(path)),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
