//! Finding heddle-go: it is built from the sources in this command, once per version of them.
//!
//! It is built in a temporary folder and moved into place when complete. Two concurrent builds therefore only
//! do the work twice, and an interrupted build is never taken for the tool.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::{env, fs, io};

use anyhow::Context as _;

use crate::interrupt;

// HASH of the sources and SOURCES: their paths and texts.
include!(concat!(env!("OUT_DIR"), "/go_sources.rs"));

const TOOL: &str = "heddle-go";

/// Variables that would build the tool for another machine or from other sources: cross builds, experiments, the user's
/// workspace. `go env -w` may set them too, hence `GOENV` below.
const NOT_FOR_THE_TOOL: [&str; 6] =
    ["GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOFLAGS"];

/// Returns the tool's path, and builds the tool first if necessary. Returns `None` if that was interrupted.
///
/// # Errors
/// If there is no folder for it, no Go, or Go cannot build it.
pub fn find() -> anyhow::Result<Option<PathBuf>> {
    if let Some(tool) = set("HEDDLE_GO_TOOL") {
        return Ok(Some(tool));
    }
    let folder = cache()?.join("heddle/go-tool");
    let tool = folder.join(HASH).join(TOOL);
    let is_there = tool.is_file() || build(&folder, &tool)?;
    Ok(is_there.then_some(tool))
}

fn set(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns the user's cache, as in the XDG Base Directory Specification: a relative path counts as unset.
/// Without a home, as in many containers, it is Go's own cache, where Go ignores our folder.
fn cache() -> anyhow::Result<PathBuf> {
    let absolute = |variable| set(variable).filter(|path| path.is_absolute());
    let found = absolute("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .or_else(|| absolute("GOCACHE"));
    found.context(
        "no folder for heddle-go: none of HOME, XDG_CACHE_HOME and GOCACHE is set; set HOME, or GOCACHE, which Go \
         itself needs without it, or set HEDDLE_GO_TOOL to a built heddle-go",
    )
}

/// Builds the tool. Returns false if that was interrupted.
fn build(folder: &Path, tool: &Path) -> anyhow::Result<bool> {
    let interrupted = interrupt::flag()?;
    // A failed write does not matter: no one reads it.
    let _ = writeln!(io::stderr(), "heddle: building {TOOL} (once)");
    let temporary = write(folder).with_context(|| {
        format!(
            "cannot write {TOOL} to {}; set XDG_CACHE_HOME to a writable folder with room for 50 MB",
            folder.display()
        )
    })?;
    let built = temporary.path().join("built");
    let status = go(temporary.path(), &built).status().map_err(into_error)?;
    if interrupted.load(Ordering::Relaxed) {
        return Ok(false);
    }
    anyhow::ensure!(status.success(), "Go cannot build {TOOL} ({status}); see its messages above");
    install(&built, tool).with_context(|| format!("cannot move {TOOL} to {}", tool.display()))?;
    Ok(true)
}

/// Writes the sources to a folder that is removed with the result.
fn write(folder: &Path) -> io::Result<tempfile::TempDir> {
    fs::create_dir_all(folder)?;
    let temporary = tempfile::Builder::new().prefix("building-").tempdir_in(folder)?;
    for (name, text) in SOURCES {
        let file = temporary.path().join(name);
        file.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(file, text)?;
    }
    Ok(temporary)
}

fn go(sources: &Path, built: &Path) -> Command {
    let mut go = Command::new("go");
    for variable in NOT_FOR_THE_TOOL {
        go.env_remove(variable);
    }
    go.envs([("GOENV", "off"), ("GOWORK", "off"), ("GO111MODULE", "on"), ("CGO_ENABLED", "0")]);
    go.args(["build", "-trimpath", "-buildvcs=false", "-o"]).arg(built).arg("./heddle-go");
    // Standard output belongs to the tool, whose result a script may read.
    go.current_dir(sources).stdin(Stdio::null()).stdout(Stdio::null());
    go
}

fn into_error(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::NotFound => anyhow::anyhow!(
            "there is no go in PATH; install Go 1.25 or newer (https://go.dev/dl), or set HEDDLE_GO_TOOL to a built \
             {TOOL}"
        ),
        _ => anyhow::Error::new(error).context("cannot run go"),
    }
}

fn install(built: &Path, tool: &Path) -> io::Result<()> {
    tool.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::rename(built, tool)
}
