//! Untrusted policies and the kernel's verifier: a policy that passes Heddle's own check and is loaded can
//! only decide. Needs root and BPF; otherwise skips, and says so.

use heddle_steer::hook::reuseport;
use heddle_steer::hook::xdp::{self, Executors, Mode, PolicyError};
use heddle_steer::policy::{
    self, Function, LoadError, Maps, Object, Reference, Target, check, read, shipped, shipped_names,
};

/// The hooks with a frame of their own.
const FRAMES: [&str; 3] = ["reuseport", "xdp_cpu", "xdp_xsk"];

fn load(frame: &str, object: &Object) -> Result<(), LoadError> {
    let maps = &mut Maps::new();
    let executors = match frame {
        "reuseport" => return reuseport::load_policy("test", object, maps).map(drop),
        "xdp_cpu" => Executors::Cpus,
        _ => Executors::Sockets,
    };
    match xdp::load_policy("test", (executors, Mode::Native), object, maps) {
        Err(PolicyError::Load(error)) => Err(error),
        result => {
            result.expect("the mode is right");
            Ok(())
        }
    }
}

fn privileged(test: &str) -> bool {
    let here = rustix::process::geteuid().is_root();
    if !here {
        eprintln!("skipped: {test} needs root and BPF");
    }
    here
}

#[test]
fn every_shipped_policy_passes_the_rules_for_unprivileged_users() {
    if !privileged("verifying shipped policies") {
        return;
    }
    let mut wrong = Vec::new();
    for name in shipped_names() {
        let object = read(shipped(name).expect("shipped")).expect("readable");
        for frame in FRAMES {
            let sockets_only = matches!(name, "jiq" | "jsq") && frame != "reuseport";
            match load(frame, &object) {
                Ok(()) if sockets_only => wrong.push(format!("{name} at {frame}: loaded")),
                Err(error) if !sockets_only => wrong.push(format!(
                    "{name} at {frame}: {error}\n{}",
                    match &error {
                        LoadError::Refused(e) => e.log.clone(),
                        _ => String::new(),
                    }
                )),
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const EXIT: u64 = 0x95;
/// `r0 = 0`.
const ZERO: u64 = 0xb7;

/// An instruction: opcode, destination, source, offset, number.
fn op(opcode: u8, to: u8, from: u8, offset: i16, number: i32) -> u64 {
    let [low, high] = offset.to_le_bytes();
    let [a, b, c, d] = number.to_le_bytes();
    u64::from_le_bytes([opcode, to | from << 4, low, high, a, b, c, d])
}

fn object(code: Vec<u64>, references: Vec<Reference>) -> Object {
    let name = "hd_policy".into();
    let function = Function { name, code, references, lines: Vec::new() };
    let lines = policy::MapDecl {
        name: "own".into(),
        kind: policy::DeclKind::Data { bytes: vec![0; 8], constant: false },
        key_size: 4,
        value_size: 8,
        entries: 1,
    };
    Object { functions: vec![function], maps: vec![lines] }
}

/// Passes the check, and is refused by the kernel at every hook.
fn refused(what: &str, code: Vec<u64>, references: Vec<Reference>) {
    let object = object(code, references);
    check(&object).unwrap_or_else(|error| panic!("{what}: {error}"));
    for frame in FRAMES {
        match load(frame, &object) {
            Err(LoadError::Refused(error)) => {
                assert!(error.error.raw_os_error() != Some(1), "{what}: {error}");
            }
            other => panic!("{what} at {frame}: {other:?}"),
        }
    }
}

fn own(at: usize) -> Reference {
    Reference { at, to: Target::Data { map: "own".into(), offset: 0 } }
}

fn supplied(at: usize, name: &str) -> Reference {
    Reference { at, to: Target::Name(name.into()) }
}

#[test]
fn a_policy_that_passes_the_check_cannot_escape() {
    if !privileged("verifying hostile policies") {
        return;
    }
    let read = |offset| vec![op(0x79, 0, 1, offset, 0), ZERO, EXIT];
    let write = |offset| vec![op(0x7a, 1, 0, offset, 0), ZERO, EXIT];
    refused("before its input", read(-8), vec![]);
    refused("behind its input", read(144), vec![]);
    refused("before its input, writing", write(-8), vec![]);
    refused("behind its input, writing", write(144), vec![]);
    for register in 2..=9 {
        let code = vec![op(0x79, 0, register, 0, 0), ZERO, EXIT];
        refused("what its caller left in registers", code, vec![]);
    }
    refused("uninitialised stack", vec![op(0x79, 0, 10, -8, 0), EXIT], vec![]);
    refused("the stack of its caller", vec![op(0x79, 0, 10, 8, 0), EXIT], vec![]);
    let load = |to| [op(0x18, to, 0, 0, 0), 0];
    let store = |from| [load(2).as_slice(), &[op(0x7b, 2, from, 0, 0), ZERO, EXIT]].concat();
    refused("the kernel's address of its input, kept", store(1), vec![own(0)]);
    refused("the kernel's address of its stack, kept", store(10), vec![own(0)]);
    let keep_map = [load(3).as_slice(), &load(2), &[op(0x7b, 2, 3, 0, 0), ZERO, EXIT]].concat();
    let both = vec![supplied(0, "hd_lines"), own(2)];
    refused("the kernel's address of a map, kept", keep_map, both);
    let control = [load(2).as_slice(), &[op(0x62, 2, 0, 0, 99), ZERO, EXIT]].concat();
    refused("the number of executors, changed", control, vec![supplied(0, "hd_control")]);
    refused("a pointer for a decision", vec![op(0xbf, 0, 1, 0, 0), EXIT], vec![]);
    refused("a loop without an end", vec![ZERO, op(0x05, 0, 0, -2, 0), EXIT], vec![]);
}

/// The observer reads kernel memory, and a policy that uses it is loaded with that privilege. It may still do
/// no more than any other.
#[test]
fn reading_sockets_gives_a_policy_no_rights() {
    if !privileged("verifying policies that observe") {
        return;
    }
    let [first, second] = [op(0x18, 2, 0, 0, 0), 0];
    let ask = [op(0xbf, 6, 1, 0, 0), op(0xb7, 1, 0, 0, 0), op(0x85, 0, 1, 0, 0)];
    let keep = [first, second, op(0x7b, 2, 6, 0, 0), ZERO, EXIT];
    let code = [ask.as_slice(), &keep].concat();
    let object = object(code, vec![supplied(2, "hd_qlen"), own(3)]);
    assert_eq!(check(&object), Ok(()));
    let error = load("reuseport", &object).expect_err("it keeps an address of the kernel");
    assert!(matches!(error, LoadError::Refused(_)), "{error}");
}

/// After a load the thread has its former privileges.
#[test]
fn capabilities_are_restored() {
    if !privileged("loading") {
        return;
    }
    let before = rustix::thread::capabilities(None).expect("readable");
    let _ = load("reuseport", &object(vec![EXIT], vec![]));
    assert_eq!(rustix::thread::capabilities(None).expect("readable"), before);
}

/// Reads a byte of a table at an index taken from the packet.
const UNPRIVILEGED_INDEX: &str = "#include <heddle.h>
struct row { u8 cells[4096]; };
HD_TABLE(table, struct row, 1);
static u32 schedule(struct hd_in *in)
{
	struct row *row = hd_at(table, 0);
	return row ? row->cells[in->hash & 4095] : 0;
}";

#[test]
fn an_unprivileged_index_is_masked_against_speculation() {
    if !privileged("loading policies") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("index.c");
    std::fs::write(&file, UNPRIVILEGED_INDEX).expect("written");
    let policy = heddle_steer::client::policy_of(&file.display().to_string()).expect("it compiles");
    let object = read(&policy.object.expect("compiled")).expect("readable");
    let instructions = |program: heddle_bpf::Program| program.info().expect("info").instructions;
    let loaded = reuseport::load_policy("test", &object, &mut Maps::new()).expect("loaded");
    let frames = [&policy::frame("reuseport_flow"), &policy::frame("common"), &object];
    let image = policy::link(&frames).expect("linked");
    let kind = heddle_bpf::ProgramKind::SkReuseport;
    let trusted = policy::load("trusted", kind, &image, &mut Maps::new()).expect("loaded");
    // The verifier's masks are instructions of their own.
    let (loaded, trusted) = (instructions(loaded), instructions(trusted));
    assert!(loaded > trusted, "{loaded} instructions, {trusted} if it were trusted");
}
