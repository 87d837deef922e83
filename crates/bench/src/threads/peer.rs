//! Peers in other languages: small programs, compiled on the bench's machine if it has the tools.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::System;

/// How to compile the peer of a system from source.
struct Recipe {
    source: &'static str,
    file: &'static str,
    program: &'static str,
    before: &'static [&'static str],
    after: &'static [&'static str],
    /// Packages to install, by Debian's names.
    install: &'static str,
    /// A command that succeeds if everything is installed, and its input.
    probe: (&'static [&'static str], &'static str),
}

const PTHREAD: Recipe = Recipe {
    source: include_str!("../../peers/pthread/peer.c"),
    file: "pthread.c",
    program: "gcc",
    before: &["-O2", "-pthread", "-o"],
    after: &[],
    install: "gcc libc6-dev",
    probe: (&["gcc", "-E", "-x", "c", "-"], "#include <pthread.h>\n"),
};

const BOOST: Recipe = Recipe {
    source: include_str!("../../peers/boost/peer.cpp"),
    file: "boost.cpp",
    program: "g++",
    before: &["-O2", "-pthread", "-o"],
    after: &["-lboost_fiber", "-lboost_context"],
    install: "g++ libboost-fiber-dev",
    probe: (&["g++", "-E", "-x", "c++", "-"], "#include <boost/fiber/all.hpp>\n"),
};

const GO: Recipe = Recipe {
    source: include_str!("../../peers/go/main.go"),
    file: "peer.go",
    program: "go",
    before: &["build", "-o"],
    after: &[],
    install: "golang-go",
    probe: (&["go", "version"], ""),
};

/// Whether `system` is a peer in another language.
pub fn is_compiled(system: System) -> bool {
    recipe(system).is_some()
}

fn recipe(system: System) -> Option<&'static Recipe> {
    match system {
        System::Pthread => Some(&PTHREAD),
        System::BoostFiber => Some(&BOOST),
        System::Go => Some(&GO),
        _ => None,
    }
}

/// Packages to install, by Debian's names, if `system` is a peer that cannot be compiled here.
pub fn packages_if_missing(system: System) -> Option<&'static str> {
    let recipe = recipe(system)?;
    let (command, reads) = recipe.probe;
    (!succeeds(command, reads)).then_some(recipe.install)
}

/// Whether `command` succeeds; its output is ignored.
fn succeeds(command: &[&str], reads: &str) -> bool {
    let child = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    child.is_ok_and(|mut child| {
        // A command that does not read its input ends without it.
        let _ = child.stdin.take().map(|mut pipe| pipe.write_all(reads.as_bytes()));
        child.wait().is_ok_and(|status| status.success())
    })
}

/// Compiles the peer of `system` in `folder` and returns its program.
///
/// # Errors
/// A sentence that starts with "not available", with the reason and what would help.
pub fn compile(system: System, folder: &Path) -> Result<PathBuf, String> {
    let recipe =
        recipe(system).ok_or_else(|| format!("not available: {system} is not a compiled peer"))?;
    let (source, program) = (folder.join(recipe.file), folder.join(system.name()));
    fs::write(&source, recipe.source)
        .map_err(|error| format!("not available: cannot write {}: {error}", source.display()))?;
    let output = Command::new(recipe.program)
        .args(recipe.before)
        .args([&program, &source])
        .args(recipe.after)
        .current_dir(folder)
        // One file without a module: Go must not search for the caller's workspace or module.
        .env("GO111MODULE", "off")
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(program),
        Ok(output) => Err(explain(recipe, &String::from_utf8_lossy(&output.stderr))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("not available: no {}; install {}", recipe.program, recipe.install))
        }
        Err(error) => Err(format!("not available: cannot start {}: {error}", recipe.program)),
    }
}

/// A compiler's complaint in one line: the first that names an error.
fn explain(recipe: &Recipe, complaint: &str) -> String {
    let line = complaint
        .lines()
        .find(|line| line.contains("error"))
        .or(complaint.lines().next())
        .unwrap_or("no message");
    format!("not available: install {} ({} said: {})", recipe.install, recipe.program, line.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_says_what_to_install() {
        let said = "boost.cpp:4:10: fatal error: boost/fiber/all.hpp: No such file or directory\ncompilation \
            terminated.\n";
        let note = explain(&BOOST, said);
        assert!(note.starts_with("not available: install g++ libboost-fiber-dev"), "{note}");
        assert!(note.contains("boost/fiber/all.hpp"), "{note}");
    }

    #[test]
    fn a_command_that_is_absent_or_fails_shows_that_something_is_missing() {
        assert!(succeeds(&["cat"], "text"));
        assert!(!succeeds(&["false"], ""));
        assert!(!succeeds(&["/nonexistent/compiler"], ""));
        assert_eq!(packages_if_missing(System::Tokio), None);
    }

    #[test]
    fn built_in_systems_are_not_compiled() {
        let compiled = System::ALL.into_iter().filter(|&system| is_compiled(system)).count();
        assert_eq!(compiled, 3);
        assert!(compile(System::Tokio, Path::new("/nonexistent")).is_err());
    }
}
