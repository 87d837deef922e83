//! The preloaded library: finding it, and asking the loader whether it takes it.
//!
//! A loader that cannot preload a library goes on without it. A program that then runs plainly would look as if it
//! ran on Heddle, so the loader is asked first: with `LD_TRACE_LOADED_OBJECTS` it maps the program's objects, lists
//! them and ends; no code of the program or of the library runs.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, Stdio};

use super::elf::glibc_minor;
use super::program::{Program, Refusal, check_object, show};
use crate::exit::Usage;
use crate::out::printable;

/// The library's file name.
const FILE: &str = "libheddle_pthread.so";

/// Names a library to use instead of the installed one.
const VARIABLE: &str = "HEDDLE_PTHREAD_LIBRARY";

/// The oldest glibc whose threads are part of libc.so, as 2.N.
const OLDEST_GLIBC: u32 = 34;

/// Variables that change what a loader prints when it lists objects.
const VERBOSE: [&str; 4] = ["LD_VERBOSE", "LD_WARN", "LD_BIND_NOW", "LD_DEBUG"];

/// Returns the absolute path of the library.
///
/// # Errors
/// If it is not installed, or cannot be named in `LD_PRELOAD`.
pub fn find() -> Result<PathBuf, Usage> {
    let path = match env::var_os(VARIABLE) {
        Some(path) if Path::new(&path).is_file() => PathBuf::from(path),
        Some(path) => {
            let path = printable(&path.to_string_lossy());
            return Err(Usage(format!(
                "{VARIABLE}={path}: there is no such file; correct or unset it"
            )));
        }
        None => installed()?,
    };
    let path = absolute(&path).unwrap_or(path);
    match path.as_os_str().as_bytes().iter().any(|byte| b" :\t\n".contains(byte)) {
        true => Err(Usage(format!(
            "LD_PRELOAD cannot name {}: the path has a space or a colon; move the library, or set {VARIABLE}",
            show(&path)
        ))),
        false => Ok(path),
    }
}

fn installed() -> Result<PathBuf, Usage> {
    let own = env::current_exe().unwrap_or_default();
    let folders = folders(own.parent().unwrap_or(Path::new("/")));
    let mut files = folders.iter().map(|folder| folder.join(FILE));
    files.find(|file| file.is_file()).ok_or_else(|| {
        let folders: Vec<String> = folders.iter().map(|folder| show(folder)).collect();
        Usage(format!(
            "there is no {FILE} in {}; build it with `cargo build -p heddle-posix`, or set {VARIABLE} to its path",
            folders.join(", ")
        ))
    })
}

/// Where the library may be if the command is in `folder`.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let above = folder.parent().unwrap_or(folder);
    // Cargo's test programs are one folder below what it builds.
    let built = (folder.file_name() == Some("deps".as_ref())).then(|| above.to_owned());
    let installed = [folder.to_owned(), above.join("lib/heddle"), above.join("lib")];
    installed.into_iter().chain(built).collect()
}

/// Returns the value of `LD_PRELOAD` for a program: `library` first, then what is already there.
pub fn preloads(library: &Path) -> OsString {
    let existing = env::var_os("LD_PRELOAD").unwrap_or_default();
    let separator = |byte: &u8| b": ".contains(byte);
    let others = existing.as_bytes().split(separator);
    let others =
        others.filter(|other| !other.is_empty() && *other != library.as_os_str().as_bytes());
    others.fold(library.as_os_str().to_owned(), |mut all, other| {
        all.push(":");
        all.push(OsStr::from_bytes(other));
        all
    })
}

/// The objects that a program is made of.
#[derive(Debug)]
pub struct Objects {
    /// Their files without the program itself, in the loader's order.
    pub files: Vec<PathBuf>,
    /// The version of glibc, as 2.N; `None` if the program loads none.
    pub glibc: Option<u32>,
}

/// Asks `loader` which objects `program` is made of with `library`.
///
/// # Errors
/// If it does not find all of them, does not take the library, or one is of a kind that is refused.
pub fn trace(
    program: &Program,
    loader: &Path,
    library: &Path,
    force: bool,
) -> Result<Objects, Refusal> {
    let name = show(&program.binary);
    let mut command = Command::new(loader);
    command.arg(&program.binary).stdin(Stdio::null());
    command.env("LD_TRACE_LOADED_OBJECTS", "1").env("LD_PRELOAD", preloads(library));
    for variable in VERBOSE {
        command.env_remove(variable);
    }
    let output = command.output().map_err(|error| {
        let text = format!("cannot start {}, the loader of {name}: {error}", show(loader));
        Refusal::new("loader", text + "; install glibc for x86-64")
    })?;
    let listed = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    let files: Vec<PathBuf> = listed.lines().filter_map(file).collect();
    let glibc = check_glibc(&files)?;
    if let Some(line) =
        listed.lines().chain(complaints.lines()).find(|line| line.contains("not found"))
    {
        let text =
            format!("the loader does not find all that {name} needs ({})", printable(line.trim()));
        return Err(Refusal::new("loader", text + "; install it, or set LD_LIBRARY_PATH"));
    }
    if !files.iter().any(|file| is_same(file, library)) {
        let why = complaints.lines().find(|line| line.contains(&*library.to_string_lossy()));
        let why = why.or(complaints.lines().last()).unwrap_or("it gives no reason");
        let text =
            format!("the loader of {name} does not preload {}: {}", show(library), printable(why));
        return Err(Refusal::new(
            "loader",
            text + "; rebuild it with `cargo build -p heddle-posix`",
        ));
    }
    let others =
        files.iter().filter(|file| !is_same(file, library)).filter_map(|file| file.file_name());
    others.map(OsStr::to_string_lossy).try_for_each(|object| check_object(&object, force))?;
    Ok(Objects { files, glibc })
}

/// The file in a line of the loader: `\tlibc.so.6 => /lib/libc.so.6 (0x7f)`, or without the arrow.
fn file(line: &str) -> Option<PathBuf> {
    let (file, _) = line.trim().rsplit_once(" (0x")?;
    let file = file.split_once(" => ").map_or(file, |(_, file)| file);
    file.contains('/').then(|| file.into())
}

/// Whether two paths lead to the same file.
pub fn is_same(a: &Path, b: &Path) -> bool {
    a == b || a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b))
}

fn check_glibc(files: &[PathBuf]) -> Result<Option<u32>, Refusal> {
    let Some(libc) = files.iter().find(|file| file.ends_with("libc.so.6")) else { return Ok(None) };
    let version = glibc_minor(libc).unwrap_or_default();
    match version {
        Some(minor) if minor >= OLDEST_GLIBC => Ok(version),
        Some(minor) => {
            let text = format!("glibc 2.{minor} ({}) is too old", show(libc));
            Err(Refusal::new(
                "glibc",
                format!("{text}; use a system with glibc 2.{OLDEST_GLIBC} or later"),
            ))
        }
        None => {
            let text = format!("{} does not say its version", show(libc));
            Err(Refusal::new("glibc", text + "; use the system's glibc"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_from_the_loaders_lines() {
        for (line, path) in [
            ("\tlinux-vdso.so.1 (0x00007f)", None),
            (
                "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)",
                Some("/lib/x86_64-linux-gnu/libc.so.6"),
            ),
            ("\t/a folder/libx.so (0x00007f)", Some("/a folder/libx.so")),
            ("\tlibx.so => not found", None),
            ("", None),
        ] {
            assert_eq!(file(line), path.map(PathBuf::from), "{line}");
        }
    }

    #[test]
    fn the_library_is_searched_beside_the_command_and_where_packages_put_it() {
        let strings =
            |folder| folders(Path::new(folder)).iter().map(|f| show(f)).collect::<Vec<_>>();
        assert_eq!(strings("/usr/bin"), ["/usr/bin", "/usr/lib/heddle", "/usr/lib"]);
        assert_eq!(strings("/t/debug/deps").last().unwrap(), "/t/debug");
    }
}
