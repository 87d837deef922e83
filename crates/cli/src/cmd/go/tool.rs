//! Where heddle-go is: built from the sources in this command, once for each version of them.
//!
//! It is built in a folder of its own and moved to its place when it is complete. Two that build at once therefore do
//! the work twice and harm nobody, and what was interrupted is not taken for the tool.

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

/// What would make the tool another than one for this machine and of these sources: cross builds, experiments, the
/// user's workspace. `go env -w` may set them too, hence `GOENV` below.
const NOT_FOR_THE_TOOL: [&str; 6] =
    ["GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOFLAGS"];

/// The tool's path; it is built first if it is not there. None if that was interrupted.
///
/// # Errors
/// No folder for it, no Go, or why Go could not build it.
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

/// The user's cache, after the XDG Base Directory Specification: what is not absolute counts as not set. Without a home, as in
/// many containers, Go's own cache, which leaves the folder alone.
fn cache() -> anyhow::Result<PathBuf> {
    let absolute = |variable| set(variable).filter(|path| path.is_absolute());
    let found = absolute("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .or_else(|| absolute("GOCACHE"));
    found.context(
        "no folder for heddle-go: none of HOME, XDG_CACHE_HOME and GOCACHE is set; set HOME, or GOCACHE, which Go itself needs \
         without it; or HEDDLE_GO_TOOL can name a heddle-go that is built",
    )
}

/// Whether it was built to the end.
fn build(folder: &Path, tool: &Path) -> anyhow::Result<bool> {
    let interrupted = interrupt::flag()?;
    // It is no matter where nobody reads that.
    let _ = writeln!(io::stderr(), "heddle: building {TOOL} (once)");
    let temporary = write(folder).with_context(|| {
        format!(
            "cannot put {TOOL} into {}; set XDG_CACHE_HOME to a folder that can be written, with room for 50 MB",
            folder.display()
        )
    })?;
    let built = temporary.path().join("built");
    let status = go(temporary.path(), &built).status().map_err(explained)?;
    if interrupted.load(Ordering::Relaxed) {
        return Ok(false);
    }
    anyhow::ensure!(
        status.success(),
        "Go cannot build {TOOL} ({status}); what it said stands above"
    );
    install(&built, tool).with_context(|| format!("cannot move {TOOL} to {}", tool.display()))?;
    Ok(true)
}

/// The sources, in a folder that vanishes with the result.
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
    // Standard output is the tool's, whose result a script may read.
    go.current_dir(sources).stdin(Stdio::null()).stdout(Stdio::null());
    go
}

fn explained(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::NotFound => anyhow::anyhow!(
            "there is no command go in PATH; install Go 1.25 or newer (https://go.dev/dl), or set HEDDLE_GO_TOOL to a \
             {TOOL} that is built"
        ),
        _ => anyhow::Error::new(error).context("cannot run go"),
    }
}

fn install(built: &Path, tool: &Path) -> io::Result<()> {
    tool.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::rename(built, tool)
}
