//! `heddle cc`, `heddle c++` and `heddle cargo` through the built command, with the installed compilers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use heddle_test_support::{TempDir, temp_dir};
use object::{Object as _, ObjectSymbol as _};
use serde_json::Value;

/// A program whose loop has no known number of iterations.
const PROGRAM: &str = "\
#include <stdio.h>
int main(int argc, char **argv) {
    unsigned long n = 26 + argc, steps = 1;
    for (; n != 1; steps++) n = n & 1 ? 3 * n + 1 : n / 2;
    printf(\"%lu\\n\", steps);
    return 7;
}
";

const REPORT: &str = "--heddle-report=report.jsonl";

/// Returns a command with the tests' cache, in `folder`.
fn command(folder: &Path, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command.env("HEDDLE_CACHE_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/probes"));
    for variable in [
        "HEDDLE_PROBES",
        "HEDDLE_PROBES_SOURCE",
        "HEDDLE_CLANG",
        "RUSTC_WRAPPER",
        "CARGO_TARGET_DIR",
    ] {
        command.env_remove(variable);
    }
    command
}

fn heddle(folder: &Path, arguments: &[&str]) -> Command {
    command(folder, env!("CARGO_BIN_EXE_heddle"), arguments)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must succeed, and returns its output.
#[track_caller]
fn succeed(command: &mut Command) -> Output {
    let output = command.output().expect("the command starts");
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output.stderr));
    output
}

/// Runs a command that must be refused, and returns the sentence that says why.
#[track_caller]
fn refused(command: &mut Command) -> String {
    let output = command.output().expect("the command starts");
    let sentence = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{command:?}: {sentence}");
    assert_eq!(sentence.lines().count(), 1, "{sentence}");
    sentence
}

/// Returns the supported compilers whose name begins with `prefix`; prints "skipped" if there is none.
fn compilers(prefix: &str) -> Vec<PathBuf> {
    let folder = temp_dir();
    let output = heddle(folder.path(), &["cc", "--check", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = report["compilers"].as_array().unwrap().iter();
    let usable = all.filter(|one| one["supported"] == true);
    let named = usable.filter(|one| one["name"].as_str().unwrap().starts_with(prefix));
    let paths: Vec<_> = named.map(|one| one["path"].as_str().unwrap().into()).collect();
    if paths.is_empty() {
        eprintln!("skipped: no {prefix} with the headers of its LLVM (packages clang, llvm-N-dev)");
    }
    paths
}

/// Returns whether a file of machine code has probes.
fn has_probes(file: &Path) -> bool {
    let bytes = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let object = object::File::parse(&*bytes).expect("an object");
    object.symbols().any(|symbol| symbol.name() == Ok("__heddle_probe"))
}

fn sources() -> TempDir {
    let folder = temp_dir();
    fs::write(folder.path().join("a.c"), PROGRAM).unwrap();
    fs::write(folder.path().join("a.cc"), PROGRAM).unwrap();
    folder
}

#[test]
fn programs_get_probes_and_run_as_before() {
    let folder = sources();
    for clang in compilers("clang") {
        for (driver, source) in [("cc", "a.c"), ("c++", "a.cc")] {
            for level in ["-O0", "-O2"] {
                let mut compile = heddle(folder.path(), &[driver, level, source, "-o", "a"]);
                let output = succeed(compile.env("HEDDLE_CLANG", &clang));
                assert_eq!(text(&output.stdout), "");
                let program = folder.path().join("a");
                assert!(has_probes(&program), "{} {level} {source}", clang.display());
                let output = Command::new(&program).output().unwrap();
                assert_eq!((output.status.code(), &*output.stdout), (Some(7), &b"112\n"[..]));
            }
        }
    }
}

#[test]
fn build_systems_see_clang() {
    let folder = sources();
    let Some(clang) = compilers("clang").into_iter().next() else { return };
    // The pass is built, and announced, here.
    succeed(heddle(folder.path(), &["cc", "-c", "a.c"]).env("HEDDLE_CLANG", &clang));
    for question in [
        &["--version"][..],
        &["-dumpmachine"],
        &["-print-search-dirs"],
        &["-v"],
        &["-E", "a.c"],
        &["-MM", "a.c"],
        &["missing.c"],
        &[],
    ] {
        let arguments = [&["cc"], question].concat();
        let ours = heddle(folder.path(), &arguments).env("HEDDLE_CLANG", &clang).output().unwrap();
        let same = command(folder.path(), &clang, question).output().unwrap();
        assert_eq!(ours.status, same.status, "{question:?}");
        assert_eq!(text(&ours.stdout), text(&same.stdout), "{question:?}");
        assert_eq!(text(&ours.stderr), text(&same.stderr), "{question:?}");
    }
}

#[test]
fn steps_can_be_separate_and_warnings_can_be_errors() {
    let folder = sources();
    if compilers("clang").is_empty() {
        return;
    }
    for step in [
        &["-c", "a.c"][..],
        &["a.o", "-o", "a"],
        &["-S", "a.c"],
        &["-c", "a.s"],
        &["-x", "c", "-c", "--", "a.c"],
    ] {
        succeed(&mut heddle(folder.path(), &[&["cc", "-Werror"], step].concat()));
    }
    assert!(has_probes(&folder.path().join("a")));
}

#[test]
fn what_is_not_supported_is_refused() {
    let folder = sources();
    if compilers("clang").is_empty() {
        return;
    }
    for (arguments, says) in [
        (&["c++", "-fsanitize=thread", "a.cc"][..], "-fsanitize=thread is not supported yet"),
        (&["cc", "-m32", "a.c"], "64-bit x86"),
        (&["cc", "--target=riscv64-linux-gnu", "a.c"], "x86_64 Linux"),
        (&["cc", "--heddle-speed=1", "a.c"], "--heddle-placement="),
        (&["cc", "--heddle-period=1", "a.c"], "from 50 to 1000000"),
        (&["cc", "--json", "a.c"], "--check and --report"),
        (&["cc", "--report"], "needs the files"),
        (&["cargo", "install"], "build, test, run, bench, check"),
    ] {
        let sentence = refused(&mut heddle(folder.path(), arguments));
        assert!(sentence.starts_with("heddle: ") && sentence.contains(says), "{sentence}");
    }
    let wrong = refused(heddle(folder.path(), &["cc", "a.c"]).env("HEDDLE_PROBES", "period=x"));
    assert!(wrong.contains("HEDDLE_PROBES=period=x"), "{wrong}");
    let missing = refused(heddle(folder.path(), &["cc", "a.c"]).env("HEDDLE_CLANG", "/no/clang"));
    assert!(missing.contains("there is no clang in /no"), "{missing}");
    let wrapper =
        refused(heddle(folder.path(), &["cargo", "build"]).env("RUSTC_WRAPPER", "sccache"));
    assert!(wrapper.contains("RUSTC_WRAPPER=sccache"), "{wrapper}");
}

#[test]
fn compilers_that_start_together_build_the_pass_once() {
    let (folder, cache) = (sources(), temp_dir());
    if compilers("clang").is_empty() {
        return;
    }
    let compile = |object: &str| {
        let mut command = heddle(folder.path(), &["cc", "-c", "a.c", "-o", object]);
        command.env("HEDDLE_CACHE_DIR", cache.path()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children = ["1.o", "2.o", "3.o"].map(compile);
    let outputs = children.map(|child| child.wait_with_output().unwrap());
    assert!(outputs.iter().all(|output| output.status.success()), "{outputs:?}");
    let notes: String = outputs.iter().map(|output| text(&output.stderr)).collect();
    assert_eq!(notes.lines().count(), 1, "{notes}");
    assert!(notes.starts_with("heddle: building the probe pass for LLVM "), "{notes}");
}

#[test]
fn a_cache_that_cannot_be_written_is_reported() {
    let folder = sources();
    if compilers("clang").is_empty() {
        return;
    }
    let output = heddle(folder.path(), &["cc", "-c", "a.c"])
        .env("HEDDLE_CACHE_DIR", "/proc/no")
        .output()
        .unwrap();
    let sentence = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{sentence}");
    assert!(
        sentence.contains("cannot write /proc/no/probes/") && sentence.contains("HEDDLE_CACHE_DIR"),
        "{sentence}"
    );
}

/// A variable of a fixed size that is not in a function's first block moves the stack pointer when the function runs.
#[test]
fn variables_in_memory_stay_in_the_first_block() {
    let folder = sources();
    fs::write(
        folder.path().join("depth.c"),
        "int use(int *);\n\
        int depth(int n) { int all[9] = {n}, sum = use(all); return n ? depth(n - 1) + depth(sum) + *all : 0; }\n",
    )
    .unwrap();
    for clang in compilers("clang") {
        for placement in ["bounded", "naive"] {
            let placement = format!("--heddle-placement={placement}");
            let arguments = ["cc", "-O2", "-S", "-emit-llvm", &placement, "depth.c", "-o", "a.ll"];
            succeed(heddle(folder.path(), &arguments).env("HEDDLE_CLANG", &clang));
            let code = fs::read_to_string(folder.path().join("a.ll")).unwrap();
            let function = code.split("@depth(").nth(1).expect("the function");
            let first_block = &function[..function.find("\n  br ").expect("a probe")];
            assert!(first_block.contains(" = alloca "), "{} {placement}: {code}", clang.display());
        }
    }
}

#[test]
fn the_report_names_each_function() {
    let folder = sources();
    if compilers("clang").is_empty() {
        return;
    }
    succeed(&mut heddle(folder.path(), &["cc", "-O2", "-c", "a.c", REPORT]));
    let table =
        text(&succeed(&mut heddle(folder.path(), &["cc", "--report", "report.jsonl"])).stdout);
    assert!(table.lines().nth(1).unwrap().starts_with("main "), "{table}");
    for arguments in [["--json", "report.jsonl"], ["report.jsonl", "--json"]] {
        let output =
            succeed(&mut heddle(folder.path(), &[&["cc", "--report"], &arguments[..]].concat()));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["functions"][0]["function"], "main");
        assert_eq!(report["functions"][0]["loops"], 1);
    }
}

#[test]
fn the_shims_are_compilers() {
    let folder = sources();
    if compilers("clang").is_empty() {
        return;
    }
    let output = succeed(&mut heddle(folder.path(), &["cc", "--check", "--json"]));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cc = PathBuf::from(report["cc"].as_str().unwrap());
    succeed(&mut command(folder.path(), &cc, &["a.c", "-o", "c"]));
    succeed(&mut command(folder.path(), cc.with_file_name("heddle-c++"), &["a.cc", "-o", "cxx"]));
    for program in ["c", "cxx"] {
        assert!(has_probes(&folder.path().join(program)));
    }
    let sentence =
        refused(&mut command(folder.path(), cc.with_file_name("heddle-rustc"), &["rustc"]));
    assert!(sentence.contains("heddle cargo"), "{sentence}");
}

/// A program with a procedural macro and a build script, of which neither needs another crate.
fn package() -> TempDir {
    let folder = temp_dir();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    let head = "version = \"0.1.0\"\nedition = \"2021\"\n";
    write(
        "Cargo.toml",
        &format!(
            "[package]\nname = \"app\"\n{head}[dependencies]\nanswer = {{ path = \"answer\" }}\n[workspace]\n"
        ),
    );
    write(
        "answer/Cargo.toml",
        &format!("[package]\nname = \"answer\"\n{head}[lib]\nproc-macro = true\n"),
    );
    write(
        "answer/src/lib.rs",
        "\
        #[proc_macro]\n\
        pub fn start(_: proc_macro::TokenStream) -> proc_macro::TokenStream { \"27\".parse().unwrap() }\n",
    );
    write("build.rs", "fn main() { println!(\"cargo::rerun-if-changed=build.rs\"); }\n");
    write(
        "src/main.rs",
        "\
        fn steps(mut n: u64) -> u64 {\n\
            let mut steps = 1;\n\
            while n != 1 { n = if n % 2 == 1 { 3 * n + 1 } else { n / 2 }; steps += 1; }\n\
            steps\n\
        }\n\
        fn main() { println!(\"{}\", steps(std::hint::black_box(answer::start!()))); }\n\
        #[test]\n\
        fn counts() { assert_eq!(steps(27), 112); }\n",
    );
    folder
}

#[test]
fn rust_programs_get_probes_but_not_their_macros() {
    if compilers("rustc").is_empty() {
        return;
    }
    let folder = package();
    let run = |arguments: &[&str]| {
        let output = succeed(&mut heddle(folder.path(), &[&["cargo"], arguments].concat()));
        (text(&output.stdout), text(&output.stderr))
    };
    let program = folder.path().join("target/debug/app");
    assert_eq!(run(&["run", "--offline"]).0, "112\n");
    assert!(has_probes(&program));
    let deps = fs::read_dir(folder.path().join("target/debug/deps")).unwrap().flatten();
    let files: Vec<PathBuf> = deps.map(|entry| entry.path()).collect();
    let library =
        files.iter().find(|file| file.extension().is_some_and(|extension| extension == "so"));
    assert!(!has_probes(library.expect("the macro's library")));

    assert!(!run(&["build", "--offline"]).1.contains("Compiling"), "it is up to date");
    assert!(run(&["build", "--offline", "--heddle-period=900"]).1.contains("Compiling app"));
    assert!(run(&["test", "--offline"]).0.contains("1 passed"));
    run(&["check", "--offline"]);

    // Without probes it is another program, and both are kept.
    succeed(&mut command(folder.path(), "cargo", &["build", "--offline"]));
    assert!(!has_probes(&program));
    assert!(!run(&["build", "--offline"]).1.contains("Compiling"), "it was kept");
    assert!(has_probes(&program));

    let mut by_linker = heddle(folder.path(), &["cargo", "build", "--offline", "--release"]);
    let output = by_linker.env("RUSTFLAGS", "-Clinker-plugin-lto").output().unwrap();
    let error = text(&output.stderr);
    assert!(!output.status.success() && error.contains("heddle: linker-plugin-lto"), "{error}");
}
