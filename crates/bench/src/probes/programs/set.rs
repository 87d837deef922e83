//! What `scripts/build-programs` has built, by its description in the folder.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use tempfile::TempDir;

use crate::kv::workdir::make_in;
use crate::probes::variant::Variant;

/// The description's name in the folder.
const DESCRIPTION: &str = "programs.json";
/// What stands for the folder of a run, in arguments and the name of its output.
const SCRATCH: &str = "{scratch}";
/// A folder in memory, where there is one.
const MEMORY: &str = "/dev/shm";

/// Programs that are built in several variants, in a folder.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
    description: Description,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    programs: Vec<Program>,
    /// What could not be built, and why.
    #[serde(default)]
    left_out: Vec<String>,
}

/// A program with its work. It runs in the set's folder, to which all paths are relative.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Program {
    /// Its name in results.
    pub(super) case: String,
    /// The compiler of all variants, with its version.
    compiler: String,
    /// Holds a folder for each variant.
    folder: String,
    /// The program in each of them.
    program: String,
    /// Libraries beside it that are built like it.
    #[serde(default)]
    libraries: Vec<String>,
    /// In the order of the tables.
    pub(super) variants: Vec<Variant>,
    #[serde(default)]
    arguments: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    /// The file that it writes, whose content counts for its checksum.
    #[serde(default)]
    output: Option<String>,
    /// Else the parts that count of the lines that it prints, as `begin*end`; all lines if there is none.
    #[serde(default)]
    kept: Vec<String>,
    /// Its threads.
    #[serde(default = "one")]
    threads: u32,
}

fn one() -> u32 {
    1
}

impl Programs {
    /// Reads the description in `folder`.
    ///
    /// # Errors
    /// There is none, it is not valid, or a program is missing: a sentence that says what to do.
    pub fn read(folder: &Path) -> Result<Programs, String> {
        let file = folder.join(DESCRIPTION);
        let how = format!("scripts/build-programs {} builds them", folder.display());
        let text = fs::read_to_string(&file)
            .map_err(|error| format!("cannot read {}: {error}; {how}", file.display()))?;
        let description: Description = serde_json::from_str(&text)
            .map_err(|error| format!("{} is not valid: {error}; {how}", file.display()))?;
        // Programs run in it.
        let folder =
            folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
        let programs = Programs { folder, description };
        match programs.fault() {
            Some(fault) => Err(format!("{}: {fault}; {how}", file.display())),
            None => Ok(programs),
        }
    }

    fn fault(&self) -> Option<String> {
        let mut cases = HashSet::new();
        if self.all().is_empty() {
            return Some("there is no program in it".into());
        }
        self.all().iter().find_map(|program| {
            let case = &program.case;
            if !cases.insert(case) {
                return Some(format!("two programs are called {case}"));
            }
            if !program.variants.contains(&Variant::None) || program.variants.len() < 2 {
                return Some(format!("{case} needs the variant none and another"));
            }
            let mut files = program.variants.iter().flat_map(|&of| self.files(program, of));
            let missing = files.find(|file| !file.is_file())?;
            Some(format!("{} is missing", missing.display()))
        })
    }

    /// Returns all programs, in the order of the tables.
    pub(super) fn all(&self) -> &[Program] {
        &self.description.programs
    }

    /// Returns what could not be built, and why.
    pub(in crate::probes) fn left_out(&self) -> Option<String> {
        let left_out = self.description.left_out.join("; ");
        (!left_out.is_empty()).then_some(left_out)
    }

    /// Returns who compiled each program, and how many threads those have that have more than one.
    pub(in crate::probes) fn summary(&self) -> String {
        let of = |program: &Program| {
            let Program { case, compiler, threads, .. } = program;
            let threads = if *threads > 1 { format!(", {threads} threads") } else { String::new() };
            format!("{case} by {compiler}{threads}")
        };
        self.all().iter().map(of).collect::<Vec<_>>().join("; ")
    }

    /// Returns the files that have the program's code, itself first.
    pub(super) fn files(&self, program: &Program, variant: Variant) -> Vec<PathBuf> {
        let folder = self.folder.join(&program.folder).join(variant.name());
        let names = std::iter::once(&program.program).chain(&program.libraries);
        names.map(|name| folder.join(name)).collect()
    }

    /// Returns the command that runs the program once, with an empty folder `scratch`.
    pub(super) fn command(&self, program: &Program, variant: Variant, scratch: &Path) -> Command {
        let mut command = Command::new(&self.files(program, variant)[0]);
        command.args(program.arguments.iter().map(|word| place(word, scratch)));
        command.envs(&program.environment).current_dir(&self.folder);
        command
    }
}

impl Program {
    /// Returns a checksum of what a run has computed.
    ///
    /// # Errors
    /// It has written and printed nothing that counts.
    pub(super) fn checksum(&self, printed: &str, said: &str, scratch: &Path) -> io::Result<String> {
        let content = match &self.output {
            Some(file) => fs::read(place(file, scratch)).map_err(|error| {
                io::Error::new(error.kind(), format!("has not written {file}: {error}"))
            })?,
            None if self.kept.is_empty() => printed.into(),
            None => {
                let lines = || printed.lines().chain(said.lines());
                let parts =
                    self.kept.iter().flat_map(|kept| lines().filter_map(|line| part(line, kept)));
                parts.collect::<Vec<_>>().join("\n").into()
            }
        };
        if content.is_empty() {
            return Err(io::Error::other("printed nothing that counts for its checksum"));
        }
        let mut hasher = DefaultHasher::new();
        hasher.write(&content);
        Ok(format!("{:016x}", hasher.finish()))
    }
}

fn place(text: &str, scratch: &Path) -> String {
    text.replace(SCRATCH, &scratch.display().to_string())
}

/// Returns the part of a line from the last `begin` to the first `end` after it, for `begin*end`.
fn part<'a>(line: &'a str, kept: &str) -> Option<&'a str> {
    let (begin, end) = kept.split_once('*').unwrap_or((kept, ""));
    let from = &line[line.rfind(begin)?..];
    match end {
        "" => Some(from),
        _ => Some(&from[..from.find(end)? + end.len()]),
    }
}

/// Returns a new folder for a run, which is removed with what is in it.
pub(super) fn scratch() -> io::Result<TempDir> {
    let memory = Path::new(MEMORY);
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    make_in(&parent, "heddle-programs-")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"{"case": "a", "compiler": "clang 9.0.1", "folder": "a", "program": "bin/a",
        "libraries": ["l.so"], "variants": ["none", "bounded+clock"], "arguments": ["-o", "{scratch}/x"],
        "environment": {"THREADS": "1"}, "threads": 3}"#;

    /// A folder with this description, and the files of [`ONE`].
    fn folder(description: &str) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for variant in ["none", "bounded+clock"] {
            let at = folder.path().join("a").join(variant);
            fs::create_dir_all(at.join("bin")).unwrap();
            fs::write(at.join("bin/a"), "").unwrap();
            fs::write(at.join("l.so"), "").unwrap();
        }
        fs::write(folder.path().join(DESCRIPTION), description).unwrap();
        folder
    }

    fn programs(program: &str) -> (TempDir, Programs) {
        let folder =
            folder(&format!("{{\"programs\": [{program}], \"left_out\": [\"b: no source\"]}}"));
        let programs = Programs::read(folder.path()).unwrap();
        (folder, programs)
    }

    #[test]
    fn a_description_says_what_runs_and_how() {
        let (folder, programs) = programs(ONE);
        let root = folder.path().canonicalize().unwrap();
        let command = programs.command(&programs.all()[0], Variant::BoundedClock, "/s".as_ref());
        assert_eq!(command.get_program(), root.join("a/bounded+clock/bin/a").as_os_str());
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["-o", "/s/x"]);
        assert_eq!(command.get_current_dir(), Some(&*root));
        assert!(
            command
                .get_envs()
                .any(|(name, value)| name == "THREADS" && value == Some("1".as_ref()))
        );
        assert_eq!(programs.summary(), "a by clang 9.0.1, 3 threads");
        assert_eq!(programs.left_out().unwrap(), "b: no source");
    }

    #[test]
    fn what_is_wrong_with_a_description_is_one_sentence_that_says_what_to_do() {
        let with = |program: &str| format!("{{\"programs\": [{program}]}}");
        for (description, says) in [
            ("{".to_owned(), "is not valid: EOF"),
            (with(""), "there is no program in it"),
            (with(&ONE.replace("case", "name")), "unknown field `name`"),
            (with(&format!("{ONE}, {ONE}")), "two programs are called a"),
            (
                with(&ONE.replace("clock", "time")),
                "no variant `bounded+time`; there are none, bounded+clock",
            ),
            (with(&ONE.replace("\"none\", ", "")), "a needs the variant none and another"),
            (with(&ONE.replace("l.so", "m.so")), "a/none/m.so is missing"),
        ] {
            let folder = folder(&description);
            let error = Programs::read(folder.path()).unwrap_err();
            assert!(error.contains(says) && !error.contains('\n'), "{error}");
            assert!(error.contains("scripts/build-programs"), "{error}");
        }
        let error = Programs::read("/no/such/folder".as_ref()).unwrap_err();
        assert!(error.starts_with("cannot read /no/such/folder/programs.json"), "{error}");
    }

    #[test]
    fn only_what_counts_is_in_the_checksum() {
        let (_folder, programs) = programs(ONE);
        let program = programs.all()[0].clone();
        let scratch = scratch().unwrap();
        let of = |program: &Program, printed: &str, said: &str| {
            program.checksum(printed, said, scratch.path()).map_err(|error| error.to_string())
        };
        assert_ne!(of(&program, "1", ""), of(&program, "2", ""));
        assert_eq!(of(&program, "1", "x"), of(&program, "1", "y"));
        assert!(of(&program, "", "x").unwrap_err().contains("printed nothing"));

        let kept = Program { kept: vec!["(* found)".into(), "Hash: *".into()], ..program.clone() };
        let first = of(&kept, "read: 1.5 us (7 of 9 found)\nrest", "Hash: 5");
        assert_eq!(first, of(&kept, "read: 2.5 us (7 of 9 found) late", "Hash: 5"));
        assert_ne!(first, of(&kept, "read: 1.5 us (8 of 9 found)", "Hash: 5"));
        assert_ne!(first, of(&kept, "read: 1.5 us (7 of 9 found)", "Hash: 6"));
        assert!(of(&kept, "read: 1.5 us", "").unwrap_err().contains("printed nothing"));

        let output = Program { output: Some("{scratch}/o".into()), ..program };
        assert!(of(&output, "1", "").unwrap_err().starts_with("has not written {scratch}/o"));
        fs::write(scratch.path().join("o"), "1").unwrap();
        assert_eq!(of(&output, "2", ""), of(&output, "3", ""));
    }
}
