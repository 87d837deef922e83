//! Programs that are refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use heddle_test_support::run;

use super::sandbox::{NOTHING, STUB, Sandbox, assert_refused, text};

#[test]
fn files_that_are_no_programs_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.refuses_program("no-such-program", "not-found", &["`no-such-program`", "PATH"]);
    sandbox.refuses_program("/nonexistent/x", "not-found", &["/nonexistent/x", "check the path"]);
    sandbox.refuses_program("/etc", "not-executable", &["/etc is a folder"]);
    sandbox.refuses_program("/etc/passwd", "not-executable", &["/etc/passwd", "chmod +x"]);
    sandbox.refuses_program("/dev/null", "not-executable", &["no regular file"]);
    let note = sandbox.script("note", "a text\n");
    sandbox.refuses_program(&note, "not-elf", &["note is no ELF program", "sh FILE"]);
    let short = sandbox.script("short", "\x7fELF");
    sandbox.refuses_program(&short, "not-elf", &["cut off"]);
    sandbox.refuses(&["--", "a\x1bb"], &["`a\\u{1b}b`"]);
}

#[test]
fn a_file_in_path_that_is_not_executable_is_named() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("server"), "").unwrap();
    let mut command = sandbox.command(&["--", "server"]);
    let says = [&*sandbox.text("server"), "chmod +x"];
    assert_refused(command.env("PATH", format!("/nonexistent:{}", sandbox.text(""))), &says);
}

#[test]
fn programs_for_other_machines_are_refused() {
    let sandbox = Sandbox::new();
    let native = fs::read(sandbox.compile(NOTHING, "native", &[])).unwrap();
    for (class, machine, says) in
        [(1, 3, "32-bit x86"), (1, 62, "32-bit x86"), (2, 183, "AArch64"), (2, 243, "machine 243")]
    {
        let mut bytes = native.clone();
        (bytes[4], bytes[18]) = (class, machine);
        let file = sandbox.path("foreign");
        fs::write(&file, bytes).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        sandbox.refuses_program(&sandbox.text("foreign"), "machine", &[says, "x86-64"]);
    }
}

#[test]
fn static_programs_are_refused() {
    let sandbox = Sandbox::new();
    for option in ["-static", "-static-pie"] {
        let program = sandbox.compile(NOTHING, "static", &[option]);
        let says = ["static is linked statically", "without -static", "`heddle agent`"];
        sandbox.refuses_program(&program, "static", &says);
    }
}

#[test]
fn go_programs_are_sent_to_heddle_go_first() {
    let sandbox = Sandbox::new();
    for (section, option) in
        [(".go.buildinfo", "-static"), (".go.buildinfo", "-pie"), (".note.go.buildid", "-pie")]
    {
        let source = format!("__attribute__((section(\"{section}\"))) int mark = 1; {NOTHING}");
        let program = sandbox.compile(&source, "gopher", &[option]);
        sandbox.refuses_program(&program, "go", &["gopher is a Go program", "`heddle go build`"]);
    }
}

#[test]
fn other_c_libraries_are_refused() {
    let sandbox = Sandbox::new();
    let musl = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1";
    let program = sandbox.compile(NOTHING, "alpine", &[musl]);
    sandbox.refuses_program(&program, "libc", &["ld-musl-x86_64.so.1", "glibc 2.34"]);
}

#[test]
fn a_glibc_that_is_too_old_is_refused() {
    let sandbox = Sandbox::new();
    let bare = ["-nostdlib", "-fno-stack-protector"];
    fs::write(sandbox.path("versions"), "GLIBC_2.2.5 { read; };\nGLIBC_2.31 { *; } GLIBC_2.2.5;\n")
        .unwrap();
    let name = ["-Wl,-soname,libc.so.6", "-Wl,--version-script=versions", "-shared", "-fPIC"];
    let libc = "int read(void) { return 0; } int wait(void) { return 0; }";
    sandbox.compile(libc, "libc.so.6", &[&bare[..], &name].concat());
    sandbox.compile(STUB, "stub.so", &[&bare[..], &["-shared", "-fPIC"]].concat());
    let link = ["-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed", "-L.", "-l:libc.so.6"];
    let source = "int read(void); int _start(void) { return read(); }";
    let program = sandbox.compile(source, "old", &[&bare[..], &link].concat());
    sandbox.refuses_program(&program, "glibc", &["glibc 2.31", "too old", "2.34 or later"]);
}

#[test]
fn programs_with_more_rights_than_the_user_are_refused() {
    let sandbox = Sandbox::new();
    for bit in [0o4755, 0o2755] {
        let file = sandbox.path("true");
        fs::copy("/bin/true", &file).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(bit)).unwrap();
        let says = ["set-user-ID or set-group-ID", "ignores preloads", "`heddle agent`"];
        sandbox.refuses_program(&sandbox.text("true"), "privileges", &says);
    }
    let file = sandbox.path("capable");
    fs::copy("/bin/true", &file).unwrap();
    // Version 2 of the format, with CAP_NET_BIND_SERVICE permitted and effective.
    let mut capability = [0u8; 20];
    (capability[0], capability[3], capability[5]) = (1, 2, 4);
    let flags = rustix::fs::XattrFlags::empty();
    if let Err(error) = rustix::fs::setxattr(&file, "security.capability", &capability, flags) {
        return eprintln!("skipped: file capabilities cannot be set here ({error}): needs root");
    }
    sandbox.refuses_program(&sandbox.text("capable"), "privileges", &["file capabilities"]);
}

#[test]
fn sanitizers_are_refused() {
    let sandbox = Sandbox::new();
    for name in ["__asan_init", "__msan_init", "__tsan_init"] {
        let source =
            format!("int {name}(void) {{ return 0; }} int main(void) {{ return {name}(); }}");
        for option in ["-rdynamic", "-no-pie"] {
            let program = sandbox.compile(&source, "checked", &[option]);
            sandbox.refuses_program(&program, "sanitizer", &[name, "without -fsanitize"]);
        }
    }
    for object in ["libasan.so.8", "librtsan.so"] {
        let program = sandbox.needs(object);
        sandbox.refuses_program(&program, "sanitizer", &[object]);
    }
    // Only the loader knows of this one.
    sandbox.needs("libtsan.so.2");
    let middle = ["-shared", "-fPIC", "-Wl,--no-as-needed", "-L.", "-l:libtsan.so.2"];
    sandbox.compile("", "libmiddle.so", &[&middle[..], &["-Wl,-rpath,$ORIGIN"]].concat());
    let outer = ["-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", "-L.", "-l:libmiddle.so"];
    let outer = sandbox.compile(NOTHING, "outer", &outer);
    sandbox.refuses_program(&outer, "sanitizer", &["libtsan.so.2"]);
}

#[test]
fn virtual_machines_need_force() {
    let sandbox = Sandbox::new();
    for object in ["libjvm.so", "libcoreclr.so", "libjli.so"] {
        let mut program = sandbox.needs(object);
        if object == "libjli.so" {
            let force = sandbox.output(&["--", &program]);
            assert_eq!(force.status.code(), Some(0), "the name decides: {}", text(&force.stderr));
            fs::rename(&program, sandbox.path("java")).unwrap();
            program = sandbox.text("java");
        }
        sandbox.refuses_program(&program, "virtual-machine", &["virtual machine", "--force"]);
        let output = sandbox.output(&["--force", "--", &program]);
        assert_eq!(output.status.code(), Some(0), "{object}: {}", text(&output.stderr));
    }
}

#[test]
fn programs_with_heddles_runtime_are_refused() {
    let sandbox = Sandbox::new();
    let says = ["Heddle's runtime already", "as it is"];
    // This command contains it, with its symbols and without.
    let command = env!("CARGO_BIN_EXE_heddle");
    sandbox.refuses_program(command, "heddle", &says);
    let stripped = sandbox.text("stripped");
    run(Command::new("strip").arg("-o").args([&stripped, command]));
    sandbox.refuses_program(&stripped, "heddle", &says);
    let program = sandbox.needs("libheddle.so.0");
    sandbox.refuses_program(&program, "heddle", &says);
}
