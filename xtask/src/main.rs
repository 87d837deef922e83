//! Chores of the workspace: `cargo xtask tidy` checks the style that a program can check.
//!
//! The same checks run under `cargo test -p xtask`, so that CI needs no step of its own for them.

mod arrows;
mod finding;
mod links;
mod source;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy
  tidy   dependency arrows, rooms of unsafe, no_std, test markers, links, file lengths";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy_and_report(),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn tidy_and_report() -> ExitCode {
    let findings = match tidy::all(&root()) {
        Ok(findings) => findings,
        Err(error) => {
            eprintln!("error: cannot look at the workspace: {error}");
            return ExitCode::from(2);
        }
    };
    findings.iter().for_each(|finding| println!("{finding}"));
    let errors = findings.iter().filter(|f| f.is_error()).count();
    println!("tidy: {errors} errors, {} warnings", findings.len() - errors);
    ExitCode::from(u8::from(errors > 0))
}

/// The root of the workspace: where the folder of this crate lies.
fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("xtask lies in the workspace").to_path_buf()
}
