//! The bounds of the allow-list and the relocations of the linker, for all cases below a size: code that
//! passes the check never leaves its function, and linked code calls what it names. The oracle here decodes
//! instructions independently.

use super::check::check;
use super::link::link;
use super::object::{DeclKind, Function, MapDecl, Object, Reference, Target};

const EXIT: u64 = 0x95;
const LOAD_64: u64 = 0x18;
const CALL: u64 = 0x85;
const MOVE: u64 = 0xb7;
const JUMP: u64 = 0x05;
/// Equal to a number, of 64 and of 32 bits; less or equal than a register.
const COMPARISONS: [u64; 3] = [0x15, 0x16, 0xdd];
const CLOCK: u64 = CALL | 5 << 32;

fn to(opcode: u64, distance: i16) -> u64 {
    opcode | u64::from(distance.cast_unsigned()) << 16
}

fn function(name: &str, code: Vec<u64>, references: Vec<Reference>) -> Function {
    Function { name: name.into(), code, references, lines: Vec::new() }
}

fn passes(code: &[u64]) -> bool {
    let policy = function("hd_policy", code.to_vec(), Vec::new());
    check(&Object { functions: vec![policy], maps: Vec::new() }).is_ok()
}

/// Returns where instructions begin.
fn starts(code: &[u64]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while at < code.len() {
        starts.push(at);
        at += if code[at] & 0xff == LOAD_64 { 2 } else { 1 };
    }
    starts
}

/// Returns where execution may continue after the instruction at `at`.
fn next(code: &[u64], at: usize) -> Vec<i64> {
    let here = i64::try_from(at).unwrap();
    let distance = i64::from((code[at] >> 16 & 0xffff) as u16 as i16);
    match code[at] & 0xff {
        EXIT => vec![],
        JUMP => vec![here + 1 + distance],
        opcode if COMPARISONS.contains(&opcode) => vec![here + 1, here + 1 + distance],
        LOAD_64 => vec![here + 2],
        _ => vec![here + 1],
    }
}

/// Returns whether everything reachable is an instruction of the code.
fn stays_inside(code: &[u64]) -> bool {
    let starts = starts(code);
    let (mut open, mut seen) = (vec![0_i64], Vec::new());
    while let Some(at) = open.pop() {
        let Some(at) = usize::try_from(at).ok().filter(|at| starts.contains(at)) else {
            return false;
        };
        if code[at] & 0xff == LOAD_64 && at + 1 >= code.len() {
            return false;
        }
        if !seen.contains(&at) {
            seen.push(at);
            open.extend(next(code, at));
        }
    }
    true
}

#[test]
fn no_path_through_an_accepted_function_leaves_it() {
    let distances = [-5, -4, -3, -2, -1, 0, 1, 2, 3, 4, i16::MIN, i16::MAX];
    // The second half of a load is a number, with opcode zero.
    let mut words = vec![EXIT, MOVE, LOAD_64, 0, 7 << 32, CLOCK];
    words.extend(distances.map(|distance| to(JUMP, distance)));
    words.extend(COMPARISONS.iter().flat_map(|c| distances.map(|distance| to(*c, distance))));
    let (mut accepted, mut refused) = (0_u32, 0_u32);
    for length in 1..=4 {
        let mut digits = vec![0; length];
        loop {
            let code: Vec<u64> = digits.iter().map(|digit| words[*digit]).collect();
            // Mostly the last instruction decides: those that cannot end a function are tried up to three.
            if length < 4 || matches!(code[3] & 0xff, EXIT | JUMP) {
                if passes(&code) {
                    accepted += 1;
                    assert!(stays_inside(&code), "{code:x?}");
                } else {
                    refused += 1;
                }
            }
            let Some(at) = digits.iter().rposition(|digit| *digit + 1 < words.len()) else { break };
            digits[at] += 1;
            digits[at + 1..].fill(0);
        }
    }
    assert!(accepted > 10_000 && refused > 10_000, "{accepted} accepted, {refused} refused");
}

#[test]
fn every_jump_distance_is_judged_correctly() {
    for opcode in [JUMP, COMPARISONS[0], COMPARISONS[2]] {
        for load_at in [None, Some(0), Some(2), Some(3)] {
            let mut code = vec![MOVE, MOVE, MOVE, MOVE, MOVE, EXIT];
            if let Some(at) = load_at {
                (code[at], code[at + 1]) = (LOAD_64, 0);
            }
            for at in starts(&code).into_iter().filter(|at| *at < 5 && code[*at] == MOVE) {
                for distance in i16::MIN..=i16::MAX {
                    let mut code = code.clone();
                    code[at] = to(opcode, distance);
                    let target = i64::try_from(at).unwrap() + 1 + i64::from(distance);
                    let inside = starts(&code).iter().any(|start| *start as i64 == target);
                    assert_eq!(passes(&code), inside, "{code:x?}");
                }
            }
        }
    }
}

/// A function of `length` instructions whose end identifies it, with a call of `names[called.1]` at
/// `called.0`.
fn tagged(names: [&str; 3], which: usize, length: usize, called: Option<(usize, usize)>) -> Function {
    let mut code = vec![MOVE; length - 1];
    code.push(EXIT | (which as u64) << 32);
    let references = called.into_iter().map(|(at, callee)| {
        code[at] = CALL | 1 << 12;
        Reference { at, to: Target::Name(names[callee].into()) }
    });
    let references = references.collect();
    function(names[which], code, references)
}

#[test]
fn every_call_reaches_the_function_it_names() {
    let names = ["hd_main", "a", "b"];
    let mut shapes = vec![(1, None), (2, None), (3, None)];
    for callee in 0..3 {
        shapes.extend([(2, Some((0, callee))), (3, Some((0, callee))), (3, Some((1, callee)))]);
    }
    let mut calls = 0;
    for (first, second, third) in (0..12 * 12 * 12).map(|n| (n % 12, n / 12 % 12, n / 144)) {
        let of = |which: usize, shape: usize| tagged(names, which, shapes[shape].0, shapes[shape].1);
        let functions = vec![of(0, first), of(1, second), of(2, third)];
        let object = Object { functions, maps: Vec::new() };
        let image = link(&[&object]).unwrap();
        // Each function ends with its tag.
        let ends: Vec<usize> = (0..image.instructions.len())
            .filter(|at| image.instructions[*at] & 0xff == EXIT)
            .collect();
        let mut begin = 0;
        let mut begins = [None; 3];
        for end in &ends {
            begins[(image.instructions[*end] >> 32) as usize] = Some(begin);
            begin = end + 1;
        }
        assert_eq!(begins[0], Some(0), "the entry is first");
        for (which, at) in begins.iter().enumerate().filter_map(|(n, at)| Some((n, (*at)?))) {
            for reference in &object.functions[which].references {
                let Target::Name(name) = &reference.to else { unreachable!() };
                let callee = names.iter().position(|other| other == name).unwrap();
                let from = at + reference.at;
                let distance = i64::from((image.instructions[from] >> 32) as u32 as i32);
                let target = i64::try_from(from).unwrap() + 1 + distance;
                assert_eq!(usize::try_from(target).ok(), begins[callee], "{name}");
                calls += 1;
            }
        }
    }
    assert!(calls > 1000, "{calls}");
}

#[test]
fn descriptors_are_patched_only_into_loads_of_their_maps() {
    let map = |name: &str, kind| MapDecl { name: name.into(), kind, key_size: 4, value_size: 8, entries: 1 };
    let data = DeclKind::Data { bytes: vec![0; 8], constant: false };
    let maps = vec![map("one", DeclKind::Array), map("two", data)];
    for uses in 0..27_u32 {
        let chosen = [uses % 3, uses / 3 % 3, uses / 9];
        let mut code = Vec::new();
        let mut references = Vec::new();
        for which in chosen {
            let to = match which {
                0 => Target::Name("one".into()),
                1 => Target::Data { map: "two".into(), offset: 4 },
                _ => {
                    code.push(MOVE);
                    continue;
                }
            };
            references.push(Reference { at: code.len(), to });
            code.extend([LOAD_64, 0]);
        }
        code.push(EXIT);
        let main = function("hd_main", code.clone(), references.clone());
        let image = link(&[&Object { functions: vec![main], maps: maps.clone() }]).unwrap();
        let number = |name: &str| Some(if name == "one" { 77 } else { 99 });
        let placed = image.with_maps(number).unwrap();
        let mut expected = code;
        for reference in &references {
            let (kind, fd, offset) = match &reference.to {
                Target::Name(_) => (1_u64, 77_u64, 0_u64),
                Target::Data { offset, .. } => (2, 99, u64::from(*offset)),
            };
            expected[reference.at] = LOAD_64 | kind << 12 | fd << 32;
            expected[reference.at + 1] = offset << 32;
        }
        assert_eq!(placed, expected);
        let missing = image.with_maps(|_| None);
        assert_eq!(missing.is_err(), !references.is_empty());
    }
}
