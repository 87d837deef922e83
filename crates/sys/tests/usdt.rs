//! The probes of a program, as tracers find them in its file.
#![allow(missing_docs)]

use heddle_core::Layer;
use heddle_sys::notes::notes;
use heddle_sys::usdt;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection};
use std::fs;

/// A probe: the name, the number of its arguments, and the bytes of the program from its place on.
#[derive(Debug)]
struct Probe<'a> {
    name: String,
    arguments: usize,
    code: &'a [u8],
}

/// Returns Heddle's probes in a program, by name.
fn probes<'a>(elf: &ElfFile64<'a, Endianness>) -> Vec<Probe<'a>> {
    /// As SystemTap calls its notes.
    const OWNER: (&[u8], u32) = (b"stapsdt\0", 3);
    let data = |name| elf.section_by_name(name).expect("the section").data().expect("its bytes");
    let notes = notes(data(".note.stapsdt")).filter(|note| (note.owner, note.kind) == OWNER);
    let base = elf.section_by_name(".stapsdt.base").expect("the section").address();
    let probe = |content: &[u8]| {
        // Three words: the place, an address by which it moves if the program's file is changed, and a semaphore's.
        let [at, moved, semaphore] =
            [0, 8, 16].map(|word| u64::from_le_bytes(content[word..][..8].try_into().unwrap()));
        assert_eq!((moved, semaphore), (base, 0));
        let texts = content[24..].split(|&byte| byte == 0).map(String::from_utf8_lossy);
        let [provider, name, arguments] = [0, 1, 2].map(|n| texts.clone().nth(n).unwrap());
        (provider == "heddle").then(|| Probe {
            name: name.into_owned(),
            arguments: arguments.split_whitespace().count(),
            code: code_at(elf, at),
        })
    };
    let mut probes: Vec<_> = notes.filter_map(|note| probe(note.content)).collect();
    probes.sort_by(|a, b| a.name.cmp(&b.name));
    probes
}

fn code_at<'a>(elf: &ElfFile64<'a, Endianness>, at: u64) -> &'a [u8] {
    let holds = |section: &object::read::elf::ElfSection64<'a, '_, Endianness>| {
        (section.address()..section.address() + section.size()).contains(&at)
    };
    let section = elf.sections().find(holds).expect("a section of code");
    &section.data().expect("its bytes")[(at - section.address()) as usize..]
}

#[test]
fn each_probe_is_found_with_its_arguments_at_a_nop_of_one_byte() {
    const NOP: u8 = 0x90;
    // Without a tracer they do nothing; calling them keeps them in this program.
    usdt::policy_replaced(Layer::Steer, 1, "fifo");
    usdt::agent_gone(1, "killed");
    usdt::worker_stuck(0, 1, 2, -1);
    usdt::stack_overflow(1, 2, 3);
    usdt::preempt_sent(0, 1);
    let program = fs::read("/proc/self/exe").unwrap();
    let found = probes(&ElfFile64::parse(&*program).unwrap());
    let shapes: Vec<_> = found.iter().map(|probe| (&probe.name[..], probe.arguments)).collect();
    let expected = [
        ("agent_gone", 3),
        ("policy_replaced", 4),
        ("preempt_sent", 2),
        ("stack_overflow", 3),
        ("worker_stuck", 4),
    ];
    assert_eq!(shapes, expected);
    assert!(found.iter().all(|probe| probe.code[0] == NOP), "{found:?}");
}
