//! `heddle bench probes`: what preemption probes cost, how often they look at the clock, and how precisely they end
//! turns.

use std::collections::HashSet;
use std::env;
use std::path::{Path, PathBuf};

use anyhow::Context;
use heddle_bench::probes::{Compiler, Part, ProbesOptions, Programs};
use heddle_probes::check;
use heddle_sys::thread::affinity;

use super::suite::{self, Extent, choose};
use crate::exit::{Outcome, Usage};

/// Options of `heddle bench probes`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle bench probes --report probes.html
  heddle bench probes --only kernels --clang clang-22 --rounds 15 --json > kernels.json
  heddle bench probes --only preempt --seconds 1
  heddle bench probes --only programs --programs FOLDER

Parts, in the order of their tables: kernels (ten kernels without preemption: no probes, bounded
placement as heddle cc does, naive placement as Concord does, each with the clock's budget and
with a flag), programs (the same of real programs, which scripts/build-programs FOLDER has built;
with --programs FOLDER), gaps (the time between two looks at the clock in the kernels), preempt
(two threads that compute on one CPU under heddle run: throughput lost and lateness, by signals
and by probes, with quanta from 2 us; a program without probes is the control).
The kernels are part of this program, and are compiled by each clang with which heddle cc works
(heddle cc --check lists them); preempt uses the first. Packages, by Debian's names: clang
llvm-dev g++. heddle run needs libheddle_pthread.so beside this program, or
HEDDLE_PTHREAD_LIBRARY.
Exit code 3 if a part failed or a run is invalid; 130 after Ctrl-C, which prints what was measured
so far.")]
pub struct Args {
    /// Run only these parts (comma-separated).
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// Use only these compilers, as they are named in results: clang-22 (comma-separated).
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    clang: Vec<String>,
    /// Programs for the part programs, which scripts/build-programs FOLDER builds.
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,
    #[command(flatten)]
    extent: Extent,
}

/// Measures and reports.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    suite::run(&options(&args)?, &args.extent)
}

fn options(args: &Args) -> anyhow::Result<ProbesOptions> {
    // Not /proc/self/exe: it starts compilers under its own name.
    let program = env::current_exe().context("cannot find the file of this program")?;
    let cpu = affinity()?.last().copied().context("this process may use no CPU")?;
    let (compilers, refused) = compilers(check::compilers());
    let mut options =
        ProbesOptions::new(chosen(compilers, &args.clang)?, cpu, program, args.extent.quick);
    // What was not asked for is not missed.
    let is_choice = !args.clang.is_empty() && !options.compilers.is_empty();
    options.refused = if is_choice { Vec::new() } else { refused };
    choose(&mut options.parts, &args.only);
    let programs = args.programs.as_deref().map(Programs::read);
    options.programs = programs.transpose().map_err(|why| Usage(format!("--programs: {why}")))?;
    options.rounds = args.extent.rounds.unwrap_or(options.rounds);
    options.duration = args.extent.duration().unwrap_or(options.duration);
    Ok(options)
}

/// Returns the compilers of C that work with probes, each once, and those that do not, with the reasons.
fn compilers(found: Vec<check::Compiler>) -> (Vec<Compiler>, Vec<(String, String)>) {
    let (mut compilers, mut refused) = (Vec::new(), Vec::new());
    let mut files = HashSet::new();
    for compiler in found.into_iter().filter(is_clang) {
        let file = compiler.path.as_ref().and_then(|path| path.canonicalize().ok());
        if file.is_some_and(|file| !files.insert(file)) {
            continue;
        }
        match (compiler.path, compiler.llvm, compiler.version) {
            (Some(path), Some(llvm), Some(version)) if compiler.supported => {
                compilers.push(Compiler { name: format!("clang-{llvm}"), path, version });
            }
            _ => refused.push((compiler.name, compiler.reason.unwrap_or_default())),
        }
    }
    (compilers, refused)
}

fn is_clang(compiler: &check::Compiler) -> bool {
    let name = Path::new(&compiler.name).file_name().unwrap_or_default();
    name.to_string_lossy().contains("clang")
}

fn chosen(mut compilers: Vec<Compiler>, names: &[String]) -> Result<Vec<Compiler>, Usage> {
    let is_missing = |name: &&String| compilers.iter().all(|of| of.name != **name);
    // Without any the bench says why.
    if let Some(wrong) = names.iter().find(is_missing).filter(|_| !compilers.is_empty()) {
        let all: Vec<&str> = compilers.iter().map(|compiler| compiler.name.as_str()).collect();
        return Err(Usage(format!(
            "--clang: no `{wrong}` works with probes here; there are: {} (heddle cc --check says more)",
            all.join(", ")
        )));
    }
    compilers.retain(|compiler| names.is_empty() || names.contains(&compiler.name));
    Ok(compilers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, path: Option<&str>, llvm: u32, supported: bool) -> check::Compiler {
        check::Compiler {
            name: name.into(),
            default: false,
            path: path.map(Into::into),
            version: Some(format!("{llvm}.0.1")),
            llvm: Some(llvm),
            llvm_config: None,
            supported,
            reason: (!supported).then(|| "no headers".into()),
        }
    }

    #[test]
    fn each_clang_counts_once_and_rustc_not_at_all() {
        // The same file under two names.
        let (compilers, refused) = compilers(vec![
            found("/usr/bin/clang", Some("/dev/null"), 14, true),
            found("rustc", Some("/dev/zero"), 22, true),
            found("clang-14", Some("/dev/../dev/null"), 14, true),
            found("clang-22", Some("/dev/zero"), 22, false),
        ]);
        let names: Vec<&str> = compilers.iter().map(|compiler| compiler.name.as_str()).collect();
        assert_eq!(names, ["clang-14"]);
        assert_eq!(refused, [("clang-22".to_owned(), "no headers".to_owned())]);
    }

    #[test]
    fn a_clang_can_be_chosen_by_its_name() {
        let all = || {
            let (all, _) = compilers(vec![
                found("clang-14", Some("/dev/null"), 14, true),
                found("clang-22", Some("/dev/zero"), 22, true),
            ]);
            all
        };
        assert_eq!(chosen(all(), &[]).unwrap().len(), 2);
        assert_eq!(chosen(all(), &["clang-22".into()]).unwrap()[0].name, "clang-22");
        assert!(chosen(Vec::new(), &["clang-22".into()]).unwrap().is_empty());
        let error = chosen(all(), &["gcc".into()]).unwrap_err().to_string();
        assert!(error.contains("`gcc`") && error.contains("clang-14, clang-22"), "{error}");
    }
}
