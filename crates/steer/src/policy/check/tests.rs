use super::super::object::Reference;
use super::super::{frame, link, read, shipped, shipped_names};
use super::*;

const EXIT: u64 = 0x95;

fn load_64() -> [u64; 2] {
    [0x18, 0]
}

fn policy(code: Vec<u64>, references: Vec<Reference>) -> Object {
    let lines = Vec::new();
    let function = Function { name: "hd_policy".into(), code, references, lines };
    Object { functions: vec![function], maps: Vec::new() }
}

fn why(object: &Object) -> String {
    check(object).expect_err("it must be refused").why
}

fn named(at: usize, name: &str) -> Reference {
    Reference { at, to: Target::Name(name.into()) }
}

#[test]
fn shipped_policies_pass_and_heddles_frames_do_not() {
    for name in shipped_names() {
        let object = read(shipped(name).expect("shipped")).expect("readable");
        check(&object).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    for name in ["reuseport", "observe", "common"] {
        let mut object = frame(name);
        object.functions.extend(policy(vec![EXIT], vec![]).functions);
        assert!(check(&object).is_err(), "{name}");
    }
}

/// Every opcode, with every source register: only the listed ones pass.
#[test]
fn only_listed_opcodes_are_allowed() {
    let mut allowed = 0;
    for opcode in 0..=255_u64 {
        let object = policy(vec![opcode, EXIT], vec![]);
        allowed += u32::from(check(&object).is_ok());
    }
    // Of each of two widths: 13 arithmetic operations with a number or a register, and swaps to one byte
    // order or the other (of one width); 11 comparisons. 4 loads, 8 stores, 2 atomic adds (immediate 0), the
    // plain jump, the return.
    let arithmetic = 2 * 13 * 2 + 2;
    let comparisons = 2 * 11 * 2;
    assert_eq!(allowed, arithmetic + 4 + 8 + 2 + comparisons + 1 + 1);
}

#[test]
fn dangerous_instructions_are_refused_with_a_reason() {
    let helper = |id: u64| 0x85 | id << 32;
    for (instruction, word) in [
        (helper(113), "helper 113"),
        (helper(12), "helper 12"),
        (helper(51), "helper 51"),
        (0x85 | 2 << 12, "a function of the kernel"),
        (0x8d, "through a pointer"),
        (0x20, "LD_ABS"),
        (0x40, "LD_ABS"),
        (0xe5, "opcode 0xe5"),
        (0xbf | 1 << 16 | 1 << 32, "opcode 0xbf"),
        (0x3f | 1 << 16, "opcode 0x3f"),
        (0x81, "opcode 0x81"),
        (0xd7, "opcode 0xd7"),
        (0x06, "opcode 0x06"),
        (0xdb | 0x100 << 32, "atomic"),
        (0xcb, "atomic"),
        (0xbf | 11 << 8, "register"),
    ] {
        let why = why(&policy(vec![instruction, EXIT], vec![]));
        assert!(why.contains(word), "{instruction:#x}: {why}");
    }
}

#[test]
fn jumps_and_calls_stay_within_the_object() {
    let jump = |distance: i16| 0x05 | u64::from(distance.cast_unsigned()) << 16;
    for code in [
        vec![jump(1), EXIT],
        vec![jump(-2), EXIT],
        vec![jump(i16::MAX), EXIT],
        vec![jump(i16::MIN), EXIT],
        // Into the second half of a load.
        vec![jump(1), load_64()[0], load_64()[1], EXIT],
        // Past the end, and cut off in a load.
        vec![0xb7],
        vec![EXIT, 0x18],
        vec![],
        // The second half is an instruction.
        vec![0x18, EXIT, EXIT],
    ] {
        assert!(check(&policy(code.clone(), vec![])).is_err(), "{code:x?}");
    }
    assert_eq!(check(&policy(vec![jump(0), jump(-2)], vec![])), Ok(()));
}

#[test]
fn references_are_not_trusted() {
    let [first, second] = load_64();
    let call = 0x85 | 1 << 12;
    let line = || named(0, "hd_lines");
    for (code, references) in [
        (vec![first, second, EXIT], vec![named(1, "hd_lines")]),
        (vec![first, second, EXIT], vec![named(9, "hd_lines")]),
        (vec![first, second, EXIT], vec![named(usize::MAX, "hd_lines")]),
        (vec![first, second, EXIT], vec![line(), line()]),
        (vec![first, second, EXIT], vec![named(2, "hd_lines")]),
        (vec![first, second, EXIT], vec![named(0, "hd_counts")]),
        (vec![first, second, EXIT], vec![named(0, "hd_executor")]),
        (vec![first, second, EXIT], vec![named(0, "hd_slot")]),
        (vec![first, second, EXIT], vec![named(0, "hd_sockets")]),
        (vec![first, second, EXIT], vec![named(0, "hd_inputs")]),
        (vec![first, second, EXIT], vec![named(0, "hd_policy")]),
        (vec![first | 1 << 12, second, EXIT], vec![]),
        (vec![first | 2 << 12, second, EXIT], vec![]),
        (vec![first | 4 << 12, second, EXIT], vec![]),
        (vec![call, EXIT], vec![]),
        (vec![call, EXIT], vec![named(0, "hd_main")]),
        (vec![call, EXIT], vec![named(0, "hd_lines")]),
        (vec![call, EXIT], vec![named(0, "hd_idle"), named(0, "hd_main")]),
    ] {
        let object = policy(code.clone(), references.clone());
        assert!(check(&object).is_err(), "{code:x?} {references:?}");
    }
    assert_eq!(check(&policy(vec![first, second, EXIT], vec![line()])), Ok(()));
    assert_eq!(check(&policy(vec![call, EXIT], vec![named(0, "hd_idle")])), Ok(()));
}

#[test]
fn no_function_calls_itself() {
    let call = 0x85 | 1 << 12;
    let mut object = policy(vec![call, EXIT], vec![named(0, "a")]);
    for (name, called) in [("a", "b"), ("b", "a")] {
        let mut function = object.functions[0].clone();
        function.name = name.into();
        function.references = vec![named(0, called)];
        object.functions.push(function);
    }
    assert!(why(&object).contains("call each other"), "{}", why(&object));
    object.functions[2].references = vec![named(0, "hd_qlen")];
    assert_eq!(check(&object), Ok(()));
}

#[test]
fn names_and_maps_are_not_trusted() {
    let map = |name: &str, kind, key_size, value_size, entries| {
        let mut object = policy(vec![EXIT], vec![]);
        object.maps = vec![MapDecl { name: name.into(), kind, key_size, value_size, entries }];
        check(&object)
    };
    let data = |size: usize| DeclKind::Data { bytes: vec![0; size], constant: false };
    assert_eq!(map("fine", DeclKind::Array, 4, 64, 64), Ok(()));
    for (name, kind, key, value, entries) in [
        ("../../etc/passwd", DeclKind::Array, 4, 64, 64),
        ("", DeclKind::Array, 4, 64, 64),
        ("hd_control", data(4), 4, 4, 1),
        ("hd_policy", DeclKind::Array, 4, 64, 64),
        ("ten_gigabytes", DeclKind::Array, 4, 1 << 20, 10_240),
        ("overflow", DeclKind::Array, 4, u32::MAX, u32::MAX),
        ("overflow", DeclKind::Hash, 8, u32::MAX, u32::MAX),
        ("key", DeclKind::Hash, 1 << 20, 8, 1),
        ("key", DeclKind::Array, 8, 8, 1),
        ("nothing", DeclKind::Array, 4, 0, 1),
        ("data", data(8), 4, 16, 1),
        ("data", data(8), 4, 8, 2),
        ("programs", DeclKind::Programs, 4, 4, 1),
        ("sockets", DeclKind::Reuseport, 4, 8, 1),
        ("cpus", DeclKind::Cpus, 4, 4, 1),
        ("each_cpu", DeclKind::PerCpu, 4, 4, 1),
    ] {
        assert!(map(name, kind, key, value, entries).is_err(), "{name}");
    }
}

/// A helper copies a whole value, and that time counts as the policy's.
#[test]
fn values_too_large_to_copy_are_refused_with_a_reason() {
    let map = |kind, value_size| {
        let mut object = policy(vec![EXIT], vec![]);
        let key_size = 4;
        object.maps = vec![MapDecl { name: "big".into(), kind, key_size, value_size, entries: 1 }];
        check(&object)
    };
    for kind in [DeclKind::Array, DeclKind::Hash] {
        assert_eq!(map(kind.clone(), 4096), Ok(()));
        let why = map(kind, 4104).expect_err("too long").why;
        assert!(why.contains("`big`") && why.contains("4104") && why.contains("4096"), "{why}");
    }
    // Variables are not a map that a helper accepts.
    let bytes = vec![0; 1 << 20];
    assert_eq!(map(DeclKind::Data { bytes, constant: false }, 1 << 20), Ok(()));
}

/// However a policy refers to data, it gets the address of a byte and never a map.
#[test]
fn data_sections_cannot_be_passed_as_maps() {
    let [first, second] = load_64();
    let call = 0x85 | 1 << 12;
    let data = |offset| Target::Data { map: "data".into(), offset };
    for to in [Target::Name("data".into()), data(0), data(8)] {
        let mut object = policy(vec![first, second, EXIT], vec![Reference { at: 0, to }]);
        let kind = DeclKind::Data { bytes: vec![0; 16], constant: false };
        let (name, key_size, value_size, entries) = ("data".into(), 4, 16, 1);
        object.maps = vec![MapDecl { name, kind, key_size, value_size, entries }];
        assert_eq!(check(&object), Ok(()));
        let mut main = object.functions[0].clone();
        (main.name, main.code) = ("hd_main".into(), vec![call, EXIT]);
        main.references = vec![named(0, "hd_policy")];
        let frame = Object { functions: vec![main], maps: Vec::new() };
        let image = link(&[&frame, &object]).expect("linked");
        assert_eq!(image.map_uses.len(), 1);
        assert!(image.map_uses[0].offset.is_some(), "{:?}", image.map_uses);
        // BPF_PSEUDO_MAP_VALUE
        let loaded = image.with_maps(|_| Some(3)).expect("there")[image.map_uses[0].at];
        assert_eq!(loaded >> 12 & 0xf, 2);
    }
}

#[test]
fn line_information_is_not_trusted() {
    let mut object = policy(vec![0xb7, EXIT], vec![]);
    let line = |at| Line { at, file: "f.c".into(), number: 1, text: String::new() };
    object.functions[0].lines = vec![line(usize::MAX)];
    assert!(check(&object).is_err());
    object.functions[0].lines = vec![line(1), line(0)];
    assert!(check(&object).is_err());
}

/// Linking does not rely on the check: it refuses invalid references too, and nothing panics.
#[test]
fn linking_survives_what_the_check_refuses() {
    let call = 0x85 | 1 << 12;
    for (code, references) in [
        (vec![0x18], vec![named(0, "hd_lines")]),
        (vec![0x18, 0, EXIT], vec![named(1, "hd_lines")]),
        (vec![0x18, 0, EXIT], vec![named(0, "hd_lines"), named(0, "hd_lines")]),
        (vec![0x18, 0, EXIT], vec![named(usize::MAX, "hd_lines")]),
        (vec![0x18 | 1 << 12, 0, EXIT], vec![]),
        (
            vec![0x18, 0, EXIT],
            vec![Reference { at: 0, to: Target::Data { map: "hd_lines".into(), offset: 4 } }],
        ),
        (vec![call, EXIT], vec![]),
        (vec![call, EXIT], vec![named(0, "hd_lines")]),
        (vec![EXIT], vec![named(0, "hd_lines")]),
    ] {
        let object = policy(code.clone(), references.clone());
        let linked = link(&[&frame("reuseport"), &frame("common"), &object]);
        assert!(linked.is_err(), "{code:x?} {references:?}");
    }
}
