//! `heddle run --check`: whether a program will run, and what of it Heddle schedules.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use heddle_metrics::{Cell, Table, TextStyle};
use serde::Serialize;

use super::elf::{Elf, inline_syscalls};
use super::library::{self, Objects};
use super::names::{self, Kind};
use super::program::{LOADER, Program, Refusal, show};
use crate::out::printable;

/// Objects that use a name: more are counted, not shown.
const SHOWN_OBJECTS: usize = 3;

/// What was found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    schema: u32,
    /// The program as it was typed.
    program: String,
    /// The file that the kernel loads: the program, or the one that interprets it.
    binary: Option<PathBuf>,
    interpreter: Option<PathBuf>,
    glibc: Option<String>,
    library: Option<PathBuf>,
    works: bool,
    /// A stable name for why it does not work.
    reason: Option<&'static str>,
    message: Option<String>,
    covered: Vec<Name>,
    uncovered: Vec<Name>,
    /// Names of the library that the program defines itself, and so keeps from it.
    overridden: Vec<String>,
    objects: Vec<Object>,
}

/// A name that objects take from others.
#[derive(Debug, Serialize)]
struct Name {
    name: String,
    kind: Option<Kind>,
    /// The objects that use it.
    objects: Vec<String>,
}

/// An object other than the C library and its loader.
#[derive(Debug, Serialize)]
struct Object {
    path: PathBuf,
    inline_syscalls: usize,
    has_probes: bool,
}

impl Report {
    /// Returns a report on the program typed as `name`, of which nothing is known yet.
    pub fn new(name: &str) -> Report {
        Report { schema: 1, program: name.to_owned(), ..Report::default() }
    }

    /// Notes the program's file and its loader.
    pub fn add_program(&mut self, program: &Program) {
        self.binary = Some(program.binary.clone());
        self.interpreter.clone_from(&program.elf.interpreter);
    }

    /// Examines the objects of `program`: it can run.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub fn add_objects(
        &mut self,
        program: &Program,
        library: &Path,
        objects: &Objects,
    ) -> anyhow::Result<()> {
        self.works = true;
        self.glibc = objects.glibc.map(|minor| format!("2.{minor}"));
        self.library = Some(library.to_owned());
        let offered = Elf::read(library)?.exports;
        self.overridden = program.elf.exports.intersection(&offered).cloned().collect();
        let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let examined =
            objects.files.iter().filter(|file| !is_base(file) && !library::is_same(file, library));
        for file in std::iter::once(&program.binary).chain(examined) {
            let Elf { imports, has_probes, .. } = Elf::read(file)?;
            for name in imports {
                users.entry(name).or_default().push(short(file));
            }
            let (path, inline_syscalls) = (file.clone(), inline_syscalls(file)?);
            self.objects.push(Object { path, inline_syscalls, has_probes });
        }
        for (name, objects) in users {
            let kind = names::kind(&name);
            let list = match (offered.contains(&name), kind) {
                (true, _) => &mut self.covered,
                (false, Some(_)) => &mut self.uncovered,
                (false, None) => continue,
            };
            list.push(Name { name, kind, objects });
        }
        Ok(())
    }

    /// Notes why the program does not run.
    pub fn refuse(&mut self, refusal: &Refusal) {
        self.works = false;
        self.reason = Some(refusal.reason);
        self.message = Some(refusal.sentence.clone());
    }

    /// Renders the report as text.
    pub fn text(&self, style: TextStyle) -> String {
        let path = |path: &Option<PathBuf>| path.as_deref().map(show);
        let lines = [
            ("program", Some(printable(&self.program))),
            ("binary", path(&self.binary)),
            ("interpreter", path(&self.interpreter)),
            ("glibc", self.glibc.clone()),
            ("library", path(&self.library)),
            ("probes", self.probes()),
            ("verdict", Some(self.verdict())),
        ];
        let mut text = String::new();
        for (key, value) in lines {
            // Writing to a string cannot fail.
            let _ = value.map(|value| writeln!(text, "{key:<13}{value}"));
        }
        let tables = [self.covered_table(), self.uncovered_table(), self.syscalls_table()];
        for table in tables.iter().filter(|table| !table.rows.is_empty()) {
            text.push('\n');
            text += &table.to_text(style);
        }
        text
    }

    /// Names the objects that were built with probes.
    fn probes(&self) -> Option<String> {
        let with = self.objects.iter().filter(|object| object.has_probes);
        let names: Vec<String> = with.map(|object| short(&object.path)).collect();
        let say =
            |names: String| format!("in {names} (HEDDLE_MECHANISM=probe takes preemptions there)");
        (!names.is_empty()).then(|| say(names.join(", ")))
    }

    fn verdict(&self) -> String {
        match &self.message {
            Some(message) => format!("refused: {message}"),
            None if self.uncovered.is_empty() => "works; all names are covered".into(),
            None => format!("works; {} names are not covered", self.uncovered.len()),
        }
    }

    fn covered_table(&self) -> Table {
        let mut table =
            Table::new("Covered: Heddle's library takes their place", ["name", "used by"]);
        for name in &self.covered {
            table.push(vec![Cell::text(&name.name), Cell::text(name.users())]);
        }
        if !self.overridden.is_empty() {
            table.notes.push(format!("the program has its own: {}", self.overridden.join(", ")));
        }
        table
    }

    fn uncovered_table(&self) -> Table {
        let mut table =
            Table::new("Not covered: left to the C library", ["name", "used by", "what follows"]);
        for name in &self.uncovered {
            let follows = name.kind.map_or("", Kind::consequence);
            table.push(vec![Cell::text(&name.name), Cell::text(name.users()), Cell::text(follows)]);
        }
        table
    }

    fn syscalls_table(&self) -> Table {
        let mut table = Table::new("Inline system calls", ["object", "at most"]);
        for object in self.objects.iter().filter(|object| object.inline_syscalls > 0) {
            let count = Cell::number(object.inline_syscalls.to_string());
            table.push(vec![Cell::text(show(&object.path)), count]);
        }
        table.notes.push(
            "inline system calls are not seen: a thread that blocks there holds its CPU until the runtime \
             notices"
                .into(),
        );
        table
    }
}

impl Name {
    fn users(&self) -> String {
        let shown = self.objects.len().min(SHOWN_OBJECTS);
        let names = self.objects[..shown].join(", ");
        match self.objects.len() - shown {
            0 => names,
            more => format!("{names} and {more} more"),
        }
    }
}

/// Whether `file` is the C library or its loader, whose own calls no preload reaches.
fn is_base(file: &Path) -> bool {
    file.ends_with("libc.so.6") || file.ends_with(LOADER)
}

fn short(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_users_of_a_name_are_counted() {
        let users = |objects: &[&str]| {
            let objects = objects.iter().map(ToString::to_string).collect();
            Name { name: "read".into(), kind: None, objects }.users()
        };
        assert_eq!(users(&["a", "b", "c"]), "a, b, c");
        assert_eq!(users(&["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
    }

    #[test]
    fn a_refused_program_has_no_tables() {
        let mut report = Report::new("x\x1b");
        report.refuse(&Refusal::new("static", "x is static; relink it"));
        let text = report.text(TextStyle::PLAIN);
        assert_eq!(text, "program      x\\u{1b}\nverdict      refused: x is static; relink it\n");
    }
}
