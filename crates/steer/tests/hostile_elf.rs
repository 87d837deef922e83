//! Malicious files and objects: reading, checking and linking them neither panics nor grows without bound,
//! and what passes the check can only decide.

use heddle_steer::policy::{
    Function, Instruction, MAX_FILE, Object, Reference, Target, check, frame, link, read, shipped,
    shipped_names,
};
use proptest::prelude::*;

/// Numbers unexpected as sizes and offsets.
const EVIL: [u64; 8] = [0, 1, 7, 0x7fff_ffff, 0xffff_ffff, 1 << 31, u64::MAX - 7, u64::MAX];

#[derive(Clone, Debug)]
enum Harm {
    Flip { at: usize, bit: u8 },
    Cut { at: usize },
    Number { at: usize, value: u64, size: usize },
    Splice { from: usize, to: usize, size: usize },
}

fn harm() -> impl Strategy<Value = Harm> {
    let at = any::<usize>;
    prop_oneof![
        4 => (at(), 0..8_u8).prop_map(|(at, bit)| Harm::Flip { at, bit }),
        1 => at().prop_map(|at| Harm::Cut { at }),
        4 => (at(), prop::sample::select(&EVIL[..]), prop::sample::select(&[2_usize, 4, 8][..]))
            .prop_map(|(at, value, size)| Harm::Number { at, value, size }),
        2 => (at(), at(), 1..256_usize).prop_map(|(from, to, size)| Harm::Splice { from, to, size }),
    ]
}

fn apply(bytes: &mut Vec<u8>, harm: &Harm) {
    let length = bytes.len().max(1);
    match *harm {
        _ if bytes.is_empty() => {}
        Harm::Flip { at, bit } => bytes[at % length] ^= 1 << bit,
        Harm::Cut { at } => bytes.truncate(at % length),
        // Numbers of ELF files are aligned to their size.
        Harm::Number { at, value, size } => {
            let at = at % length / size * size;
            let end = (at + size).min(length);
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        }
        Harm::Splice { from, to, size } => {
            let (from, to) = (from % length, to % length);
            let size = size.min(length - from).min(length - to);
            bytes.copy_within(from..from + size, to);
        }
    }
}

fn policies() -> Vec<&'static [u8]> {
    shipped_names().filter_map(shipped).collect()
}

/// The bounds that `read` guarantees for any input.
fn bounded(object: &Object) {
    let code: usize = object.functions.iter().map(|function| function.code.len()).sum();
    let lines: usize = object.functions.iter().map(|function| function.lines.len()).sum();
    assert!(code <= 1 << 16 && object.maps.len() <= 1024, "{code}");
    assert!(lines <= 1 << 20, "{lines}");
    for function in &object.functions {
        assert!(function.references.is_sorted_by(|a, b| a.at < b.at), "{}", function.name);
        assert!(function.references.iter().all(|reference| reference.at < function.code.len()));
    }
}

/// An accepted policy in the frame: the frame's own code is untouched, followed only by instructions allowed
/// to policies.
fn only_decides(object: &Object) {
    let hook = frame("reuseport");
    let Ok(image) = link(&[&hook, &frame("common"), object]) else { return };
    let main = &hook.function("hd_main").expect("every frame has one").code;
    let (own, policy) = image.instructions.split_at(main.len());
    for (linked, compiled) in own.iter().zip(main) {
        let same_but_target =
            Instruction(*linked).with_immediate(0) == Instruction(*compiled).with_immediate(0);
        assert!(same_but_target || Instruction(*compiled).opcode() == 0, "the frame has changed");
    }
    let mut at = 0;
    while at < policy.len() {
        let instruction = Instruction(policy[at]);
        if instruction.opcode() == 0x85 && instruction.source() == 0 {
            assert!([1, 2, 3, 5, 7, 8].contains(&instruction.immediate()), "{instruction:?}");
        }
        if instruction.opcode() == 0x85 && instruction.source() == 1 {
            let to = i64::try_from(at).expect("small") + 1 + i64::from(instruction.immediate());
            assert!(
                usize::try_from(to).is_ok_and(|to| to < policy.len()),
                "a call out of the policy"
            );
        }
        assert!(instruction.opcode() != 0x18 || instruction.source() == 0, "a map by number");
        at += if instruction.opcode() == 0x18 { 2 } else { 1 };
    }
    for map_use in image.map_uses.iter().filter(|map_use| map_use.at >= main.len()) {
        let supplied = ["hd_lines", "hd_control"].contains(&map_use.map.as_str());
        assert!(supplied || object.map(&map_use.map).is_some(), "{}", map_use.map);
    }
}

fn through_everything(object: &Object) {
    bounded(object);
    let _ = link(&[&frame("reuseport"), &frame("common"), &frame("observe"), object]);
    if check(object).is_ok() {
        only_decides(object);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damaged_files_are_refused_or_harmless(
        which in any::<prop::sample::Index>(),
        harms in prop::collection::vec(harm(), 1..12),
    ) {
        let mut bytes = which.get(&policies()).to_vec();
        for harm in &harms {
            apply(&mut bytes, harm);
        }
        if let Ok(object) = read(&bytes) {
            through_everything(&object);
        }
    }

    /// An object need not come from a file: it crosses from another process as text.
    #[test]
    fn made_up_objects_are_refused_or_harmless(
        code in prop::collection::vec(instruction(), 0..24),
        references in prop::collection::vec((0..26_usize, target()), 0..4),
    ) {
        let references = references.into_iter().map(|(at, to)| Reference { at, to }).collect();
        let function = Function { name: "hd_policy".into(), code, references, lines: vec![] };
        let object = Object { functions: vec![function], maps: vec![] };
        let _ = link(&[&frame("reuseport"), &frame("common"), &object]);
        if check(&object).is_ok() {
            only_decides(&object);
        }
    }
}

/// Likely values more often than others, so that some objects pass.
fn instruction() -> impl Strategy<Value = u64> {
    let likely = vec![0x95, 0xb7, 0x18, 0, 0x85, 0x85 | 1 << 12, 0x05, 0x0f, 0x79, 0x15];
    prop_oneof![
        8 => (prop::sample::select(likely), -4..4_i16, 0..12_u32).prop_map(|(op, offset, n)| {
            let jumps = op == 0x05 || op == 0x15;
            let offset = if jumps { u64::from(offset.cast_unsigned()) << 16 } else { 0 };
            if op == 0 { 0 } else { op | offset | u64::from(n) << 32 }
        }),
        1 => any::<u64>(),
    ]
}

fn target() -> impl Strategy<Value = Target> {
    const NAMES: [&str; 8] = [
        "hd_lines",
        "hd_control",
        "hd_executor",
        "hd_counts",
        "hd_main",
        "hd_policy",
        "hd_qlen",
        "",
    ];
    let name = || prop::sample::select(&NAMES[..]).prop_map(str::to_owned);
    prop_oneof![
        name().prop_map(Target::Name),
        (name(), any::<u32>()).prop_map(|(map, offset)| Target::Data { map, offset }),
    ]
}

#[test]
fn files_not_made_by_clang_are_refused() {
    for bytes in [&b""[..], b"\x7fELF", b"int main() {}", &[0; 4096], &vec![0; MAX_FILE + 1]] {
        assert!(read(bytes).is_err());
    }
    let own = std::fs::read(std::env::current_exe().expect("a file")).expect("readable");
    assert!(read(&own[..own.len().min(MAX_FILE)]).is_err());
}

/// A section without contents costs its file nothing, and its reader as much as its header says.
#[test]
fn empty_sections_take_no_memory() {
    let bytes = shipped("round-robin").expect("shipped");
    let number = |bytes: &[u8], at: usize, size: usize| {
        bytes[at..at + size].iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte))
    };
    let headers = usize::try_from(number(bytes, 40, 8)).expect("small");
    let count = usize::try_from(number(bytes, 60, 2)).expect("small");
    let nothing = (0..count).map(|i| headers + i * 64).find(|at| number(bytes, at + 4, 4) == 8);
    let nothing = nothing.expect("the variable `next` is in a section without contents");
    for size in [2 << 20, u64::MAX] {
        let mut bytes = bytes.to_vec();
        bytes[nothing + 32..nothing + 40].copy_from_slice(&size.to_le_bytes());
        let error = read(&bytes).expect_err("too much").to_string();
        assert!(error.contains("bytes of variables"), "{error}");
    }
}
