//! Compiles Heddle's programs for the kernel and the policies that it ships, so that their users need no compiler.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

include!("src/policy/flags.rs");

fn main() {
    let root =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where")).join("../..");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where"));
    for part in ["include", "bpf"] {
        println!("cargo::rerun-if-changed={}", root.join(part).display());
    }
    println!("cargo::rerun-if-changed=src/policy/flags.rs");
    println!("cargo::rerun-if-env-changed=HEDDLE_CLANG");
    let mut table = String::new();
    list(&mut table, "FRAMES", &sources(&root.join("bpf/steer/hooks")), |source| {
        compile(&root, &out.join("frames"), source, &[FLAGS, &["-c"]], None)
    });
    list(&mut table, "POLICIES", &sources(&root.join("bpf/steer/policies")), |source| {
        compile(&root, &out.join("policies"), source, &[FLAGS, &["-c"]], Some(UNIT))
    });
    list(&mut table, "PICK_NEXTS", &sources(&root.join("bpf/steer/pick_next")), |source| {
        compile(&root, &out.join("pick_next"), source, &[FLAGS, &["-c"]], Some(PICK_NEXT_UNIT))
    });
    let target = format!("--target={}", env::var("TARGET").expect("cargo says for what"));
    let cross: &[&str] = if env::var("HOST") == env::var("TARGET") { &[] } else { &[&target] };
    list(&mut table, "NATIVE", &sources(&root.join("bpf/steer/policies")), |source| {
        compile(&root, &out.join("native"), source, &[NATIVE_FLAGS, cross], Some(UNIT))
    });
    fs::write(out.join("compiled.rs"), table).expect("OUT_DIR can be written");
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "c"));
    files.sort();
    files
}

/// A constant of names, source texts and compiled objects.
fn list(table: &mut String, name: &str, sources: &[PathBuf], compile: impl Fn(&Path) -> PathBuf) {
    let _ = writeln!(table, "pub(crate) const {name}: &[(&str, &str, &[u8])] = &[");
    for source in sources {
        let stem = source.file_stem().unwrap_or_default().to_string_lossy();
        let object = compile(source);
        let source = source.canonicalize().expect("it was just listed");
        let _ = writeln!(
            table,
            "    ({stem:?}, include_str!({source:?}), include_bytes!({object:?})),"
        );
    }
    let _ = writeln!(table, "];");
}

fn compile(
    root: &Path,
    folder: &Path,
    source: &Path,
    flags: &[&[&str]],
    unit: Option<&str>,
) -> PathBuf {
    fs::create_dir_all(folder).expect("OUT_DIR can be written");
    let source = source.canonicalize().expect("it was just listed");
    let object = folder.join(source.file_name().expect("a file")).with_extension("o");
    let text = match unit {
        Some(unit) => unit.replace('@', &source.to_string_lossy()),
        None => format!("#include {source:?}\n"),
    };
    let clang = env::var("HEDDLE_CLANG").unwrap_or_else(|_| "clang".into());
    let mut command = Command::new(&clang);
    command.args(flags.concat()).arg("-Werror");
    command.arg("-I").arg(root.join("include")).arg("-I").arg(root.join("bpf/include"));
    command.args(["-x", "c", "-", "-o"]).arg(&object).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| {
        panic!(
            "Heddle's kernel programs are compiled with `{clang}`, which cannot run ({error}): \
            scripts/setup installs it"
        )
    });
    child
        .stdin
        .take()
        .expect("it is piped")
        .write_all(text.as_bytes())
        .expect("clang reads its input");
    assert!(child.wait().expect("it runs").success(), "clang failed on {}", source.display());
    object
}
