//! Chores of the workspace: `cargo xtask tidy` checks the style that a program can check.
//!
//! The same checks run under `cargo test -p xtask`, so CI needs no step of its own for them.

mod arrows;
mod cycles;
mod dependencies;
mod finding;
mod lexer;
mod lines;
mod links;
mod promises;
mod source;
mod summary;
mod tidy;
mod vocabulary;
mod words;

use finding::Finding;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy [--summary] [PATH...]
  Checks dependency arrows, cycles of modules, the page on dependencies, rooms of unsafe, no_std, test markers, links,
  lengths of files and lines, the word list (xtask/src/words.rs), and that the tests in SPECIFICATION.md exist. Errors
  are printed, warnings only counted.
  PATH       prints errors and warnings of these files and folders, given from the root of the workspace
  --summary  prints the number of findings for each crate";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["help" | "--help" | "-h"] | ["tidy", "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        ["tidy", ref options @ ..] => tidy(options),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn tidy(options: &[&str]) -> ExitCode {
    let (flags, paths): (Vec<&str>, Vec<&str>) = options.iter().partition(|o| o.starts_with('-'));
    if flags.iter().any(|flag| *flag != "--summary") {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    let mut findings = match tidy::all(&root()) {
        Ok(findings) => findings,
        Err(error) => {
            eprintln!("error: cannot read the workspace: {error}");
            return ExitCode::from(2);
        }
    };
    if !paths.is_empty() {
        let is_below = |path: &Path, folder: &str| {
            folder == "." || path.starts_with(folder.strip_prefix("./").unwrap_or(folder))
        };
        findings.retain(|finding| paths.iter().any(|path| is_below(&finding.path, path)));
    }
    if flags.is_empty() {
        print_findings(&findings, !paths.is_empty());
    } else {
        print!("{}", summary::table(&findings));
    }
    ExitCode::from(u8::from(findings.iter().any(Finding::is_error)))
}

fn print_findings(findings: &[Finding], with_warnings: bool) {
    let printed = findings.iter().filter(|finding| with_warnings || finding.is_error());
    printed.for_each(|finding| println!("{finding}"));
    let errors = findings.iter().filter(|f| f.is_error()).count();
    let warnings = findings.len() - errors;
    println!("tidy: {errors} errors, {warnings} warnings");
    if warnings > 0 && !with_warnings {
        println!("tidy: cargo xtask tidy PATH prints the warnings, --summary counts them by crate");
    }
}

/// The root of the workspace: the parent of this crate's folder.
fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("xtask lies in the workspace").to_path_buf()
}
