//! The program: finding its file as a shell does, and refusing what a preload cannot reach.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use object::elf::{EM_386, EM_AARCH64, EM_X86_64, Machine};
use rustix::fs::{Access, access, getxattr};

use super::elf::Elf;
use crate::out::printable;

/// The file name of glibc's loader.
pub const LOADER: &str = "ld-linux-x86-64.so.2";

/// Scripts whose interpreter is a script, and so on: the kernel follows no more.
const MOST_SCRIPTS: usize = 5;

/// How many bytes of a script's first line the kernel reads.
const FIRST_LINE: usize = 256;

/// Why a program is not started, in one sentence that says what to do instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// A stable name for scripts.
    pub reason: &'static str,
    /// The sentence.
    pub sentence: String,
}

impl Refusal {
    /// Returns a refusal.
    pub fn new(reason: &'static str, sentence: impl Into<String>) -> Refusal {
        Refusal { reason, sentence: sentence.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Refusal {}

/// A program's files.
#[derive(Debug)]
pub struct Program {
    /// The file that is executed, perhaps a script.
    pub path: PathBuf,
    /// The file that the kernel loads in the end.
    pub binary: PathBuf,
    /// What `binary` says of itself.
    pub elf: Elf,
}

impl Program {
    /// Finds `name` as `execvp` does, and follows scripts to the program that interprets them.
    ///
    /// # Errors
    /// If there is no such file, or it is no ELF file for this machine.
    pub fn find(name: &OsStr) -> Result<Program, Refusal> {
        let path = resolve(name)?;
        let mut binary = path.clone();
        for _ in 0..=MOST_SCRIPTS {
            let head = head(&binary)?;
            match interpreter(&head) {
                Some(next) => binary = resolve(&next).map_err(|it| in_script(it, &binary))?,
                None => {
                    check_header(&binary, &head)?;
                    let elf = Elf::read(&binary);
                    let elf = elf.map_err(|error| not_elf(&binary, &format!("{error:#}")))?;
                    return Ok(Program { path, binary, elf });
                }
            }
        }
        Err(not_elf(&path, "its interpreter is a script, and so on without end"))
    }

    /// Returns the loader.
    ///
    /// # Errors
    /// If the program is one that a preloaded library cannot serve. `force` permits those where it might.
    pub fn loader(&self, force: bool) -> Result<&Path, Refusal> {
        let name = show(&self.binary);
        if self.elf.is_go {
            let text = format!("{name} is a Go program, which has its own threads");
            return Err(Refusal::new("go", text + "; build it with `heddle go build`"));
        }
        let Some(loader) = &self.elf.interpreter else {
            let text = format!("{name} is linked statically, so nothing can be preloaded");
            let instead = "; relink it without -static, or use `heddle agent`";
            return Err(Refusal::new("static", text + instead));
        };
        if loader.file_name() != Some(LOADER.as_ref()) {
            let text = format!("{name} uses the loader {}, not glibc's", show(loader));
            let instead = "; build it against glibc 2.34 or later, or use `heddle agent`";
            return Err(Refusal::new("libc", text + instead));
        }
        check_privileges(&self.binary)?;
        if self.elf.has_runtime {
            return Err(has_heddle());
        }
        if let Some(symbol) = self.elf.markers.first() {
            return Err(sanitizer(&format!("the symbol {symbol}")));
        }
        let is_java = self.binary.file_name() == Some("java".as_ref());
        if is_java && !force && self.elf.needed.iter().any(|name| name == "libjli.so") {
            return Err(managed("java"));
        }
        self.elf.needed.iter().try_for_each(|object| check_object(object, force))?;
        Ok(loader)
    }
}

/// Refuses a shared object with which the library cannot share a program, by its file name.
///
/// # Errors
/// If it is one.
pub fn check_object(name: &str, force: bool) -> Result<(), Refusal> {
    const SANITIZERS: [&str; 6] = ["asan", "hwasan", "lsan", "msan", "rtsan", "tsan"];
    let short = name.strip_prefix("lib").unwrap_or(name);
    let short = short.strip_prefix("clang_rt.").unwrap_or(short);
    let short = short.split(['.', '-', '_']).next().unwrap_or_default();
    match name {
        _ if SANITIZERS.contains(&short) => Err(sanitizer(name)),
        "libjvm.so" | "libcoreclr.so" if !force => Err(managed(name)),
        _ if name.starts_with("libheddle.so") => Err(has_heddle()),
        _ => Ok(()),
    }
}

fn has_heddle() -> Refusal {
    Refusal::new("heddle", "the program has Heddle's runtime already; run it as it is")
}

fn sanitizer(by: &str) -> Refusal {
    let text = format!("the program is built with a sanitizer ({}), which must", printable(by));
    Refusal::new("sanitizer", text + " come before any preload; build it without -fsanitize")
}

fn managed(by: &str) -> Refusal {
    let text = format!("the virtual machine in this program ({by}) stops its threads by itself");
    Refusal::new("virtual-machine", text + "; use `heddle agent`, or try it with --force")
}

/// Returns a path for a message.
pub fn show(path: &Path) -> String {
    printable(&path.display().to_string())
}

/// The path of an executable file called `name`, searched for in PATH if it contains no slash.
fn resolve(name: &OsStr) -> Result<PathBuf, Refusal> {
    if name.as_bytes().contains(&b'/') {
        return check_executable(PathBuf::from(name));
    }
    let folders = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut refused = None;
    for folder in env::split_paths(&folders).filter(|_| !name.is_empty()) {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
        match check_executable(folder.join(name)) {
            Ok(path) => return Ok(path),
            Err(refusal) if refusal.reason == "not-found" => {}
            Err(refusal) => refused = refused.or(Some(refusal)),
        }
    }
    Err(refused.unwrap_or_else(|| {
        let name = printable(&name.to_string_lossy());
        let text = format!("there is no program `{name}` in PATH; write its path, as in ./{name}");
        Refusal::new("not-found", text)
    }))
}

fn check_executable(path: PathBuf) -> Result<PathBuf, Refusal> {
    let name = show(&path);
    let Ok(about) = fs::metadata(&path) else {
        let text = format!("there is no file {name} that you can reach; check the path");
        return Err(Refusal::new("not-found", text));
    };
    let refused = |why: &str| Err(Refusal::new("not-executable", format!("{name} is {why}")));
    match () {
        () if about.is_dir() => refused("a folder; name the program in it"),
        () if !about.is_file() => refused("no regular file; name a program"),
        () if access(&path, Access::EXEC_OK).is_err() => {
            refused("not executable for you; permit it with chmod +x, or name its interpreter")
        }
        () => Ok(path),
    }
}

/// The first bytes of a file, as many as the kernel looks at.
fn head(path: &Path) -> Result<Vec<u8>, Refusal> {
    let mut head = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(FIRST_LINE as u64).read_to_end(&mut head));
    match read {
        Ok(_) => Ok(head),
        Err(error) => {
            let text = format!("cannot read {} to examine it ({error})", show(path));
            Err(Refusal::new("not-readable", text + "; permit it with chmod +r"))
        }
    }
}

/// The interpreter that a script's first line names; behind `env`, the program that it runs.
fn interpreter(head: &[u8]) -> Option<OsString> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let first = Path::new(OsStr::from_bytes(words.next()?));
    if first.file_name() != Some("env".as_ref()) {
        return Some(first.into());
    }
    let mut rest = words.filter(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    rest.next().map(|word| OsStr::from_bytes(word).to_owned())
}

fn in_script(refusal: Refusal, script: &Path) -> Refusal {
    let sentence = format!("{} names an interpreter: {}", show(script), refusal.sentence);
    Refusal { sentence, ..refusal }
}

fn not_elf(path: &Path, why: &str) -> Refusal {
    let text = format!("{} is no ELF program: {}", show(path), printable(why));
    Refusal::new("not-elf", text + "; name the program that runs it, as in `heddle run -- sh FILE`")
}

/// Refuses what is not for 64-bit x86, by the first bytes of the file.
fn check_header(path: &Path, head: &[u8]) -> Result<(), Refusal> {
    const SIZE: usize = 64;
    if !head.starts_with(b"\x7fELF") {
        return Err(not_elf(path, "it begins neither with \\x7fELF nor with #!"));
    }
    if head.len() < SIZE {
        return Err(not_elf(path, "it is cut off"));
    }
    let machine = match head[5] {
        1 => u16::from_le_bytes([head[18], head[19]]),
        _ => u16::from_be_bytes([head[18], head[19]]),
    };
    let what = match (head[4], Machine(machine)) {
        (2, EM_X86_64) => return Ok(()),
        (1, EM_X86_64 | EM_386) => "32-bit x86".into(),
        (_, EM_AARCH64) => "AArch64".into(),
        (_, Machine(number)) => format!("machine {number} of the ELF list"),
    };
    let text = format!("{} is a program for {what}, and Heddle runs on 64-bit x86", show(path));
    Err(Refusal::new("machine", text + "; build it for x86-64"))
}

/// Refuses programs that the kernel starts with more rights than the user's: the loader ignores preloads there.
fn check_privileges(path: &Path) -> Result<(), Refusal> {
    const SET_ID: u32 = 0o6000;
    let refused = |what: &str, without: &str| {
        let text = format!("{} has {what}, for which the loader ignores preloads", show(path));
        Err(Refusal::new(
            "privileges",
            format!(
                "{text}; run a copy without {without} as the right user, or use `heddle agent`"
            ),
        ))
    };
    if fs::metadata(path).is_ok_and(|about| about.permissions().mode() & SET_ID != 0) {
        return refused("a set-user-ID or set-group-ID bit", "it");
    }
    match getxattr(path, "security.capability", &mut [0u8; 64]) {
        Ok(size) if size > 0 => refused("file capabilities", "them"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_of_a_script_is_found_behind_env_too() {
        for (line, names) in [
            ("#!/bin/sh\n", Some("/bin/sh")),
            ("#! /bin/sh -e\necho", Some("/bin/sh")),
            ("#!/usr/bin/env python3\n", Some("python3")),
            ("#!/usr/bin/env -S LANG=C -i perl -w\n", Some("perl")),
            ("#!/usr/bin/env\n", None),
            ("#!\n", None),
            ("\x7fELF", None),
        ] {
            assert_eq!(interpreter(line.as_bytes()).as_deref(), names.map(OsStr::new), "{line}");
        }
    }

    #[test]
    fn objects_are_refused_by_name() {
        let reason = |name| check_object(name, false).err().map(|refusal| refusal.reason);
        for name in ["libasan.so.8", "libtsan.so", "libclang_rt.msan-x86_64.so", "librtsan.so"] {
            assert_eq!(reason(name), Some("sanitizer"), "{name}");
        }
        for name in ["libc.so.6", "libubsan.so.1", "libasandbox.so", "libheddle_pthread.so", ""] {
            assert_eq!(reason(name), None, "{name}");
        }
        assert_eq!(reason("libheddle.so.0"), Some("heddle"));
        assert_eq!(reason("libjvm.so"), Some("virtual-machine"));
        assert!(
            check_object("libjvm.so", true).is_ok() && check_object("libasan.so", true).is_err()
        );
    }
}
