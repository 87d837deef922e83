//! Programs in C in a folder, and `heddle run` on them with a stub of the library.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use heddle_test_support::{run, temp_dir};
use tempfile::TempDir;

/// A program that does nothing.
pub const NOTHING: &str = "int main(void) { return 0; }";
/// What the stub covers.
pub const STUB: &str = "int pthread_create(void) { return 11; } int unused(void) { return 0; }";

/// A folder with a stub of the library, in which tests make programs.
pub struct Sandbox {
    folder: TempDir,
}

impl Sandbox {
    pub fn new() -> Sandbox {
        let this = Sandbox { folder: temp_dir() };
        this.compile(STUB, "stub.so", &["-shared", "-fPIC"]);
        this
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles `source` to the file `name`, from which the options name others by relative paths.
    pub fn compile(&self, source: &str, name: &str, options: &[&str]) -> String {
        let file = self.path(&format!("{name}.c"));
        fs::write(&file, source).unwrap();
        let mut cc = Command::new("cc");
        cc.current_dir(self.folder.path()).arg("-o").arg(name).arg(file).args(options);
        run(&mut cc);
        self.text(name)
    }

    /// The path of `name` as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes a script in another process: if it were open here while another test forks, running it would fail
    /// ("text file busy").
    pub fn script(&self, name: &str, text: &str) -> String {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", r#"cat > "$0" && chmod +x "$0""#]).arg(self.path(name));
        let mut shell = shell.stdin(Stdio::piped()).spawn().unwrap();
        shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
        self.text(name)
    }

    /// Returns a program that needs a shared object of this name, and makes the object.
    pub fn needs(&self, object: &str) -> String {
        let name = format!("-Wl,-soname,{object}");
        self.compile("", object, &["-shared", "-fPIC", &name]);
        let link = ["-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", "-L.", &format!("-l:{object}")];
        self.compile(NOTHING, "program", &link)
    }

    /// Returns `heddle run` with these words and the stub.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = plain(words);
        command.env("HEDDLE_PTHREAD_LIBRARY", self.path("stub.so"));
        command
    }

    pub fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the built command starts")
    }

    /// Asserts that the program is refused in one sentence with all of `says`.
    #[track_caller]
    pub fn refuses(&self, words: &[&str], says: &[&str]) {
        assert_refused(&mut self.command(words), says);
    }

    /// Asserts that the program is refused, in a check too, for this reason and in one sentence with all of `says`.
    #[track_caller]
    pub fn refuses_program(&self, program: &str, reason: &str, says: &[&str]) {
        self.refuses(&["--", program], says);
        let output = self.output(&["--check", "--json", program]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(output.status.code(), Some(2));
        assert_eq!((&report["works"], &report["reason"]), (&false.into(), &reason.into()));
        let (message, said) = (report["message"].as_str().unwrap(), text(&output.stderr));
        assert_eq!(format!("heddle: {message}\n"), said);
    }
}

/// `heddle run` with these words, and no settings from outside.
pub fn plain(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.arg("run").args(words).stdin(Stdio::null()).env_remove("LD_PRELOAD");
    let names = std::env::vars_os().map(|(name, _)| name);
    names.filter(|name| name.to_string_lossy().starts_with("HEDDLE_")).for_each(|name| {
        command.env_remove(name);
    });
    command
}

#[track_caller]
pub fn assert_refused(command: &mut Command, says: &[&str]) {
    let output = command.output().expect("the built command starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
    assert!(output.stdout.is_empty(), "{command:?} started: {}", text(&output.stdout));
    assert!(said.starts_with("heddle: ") && said.lines().count() == 1, "{said}");
    assert!(says.iter().all(|part| said.contains(part)), "{said} without one of {says:?}");
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
