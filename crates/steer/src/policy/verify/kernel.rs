//! The kernel verifier's errors, explained to the author of a policy. Its log lists the instructions that it
//! visited; the last one before its complaint is where it stopped, and the compiler's line information maps
//! it to the source.

use heddle_bpf as bpf;

use super::super::framed::strict_image;
use super::super::instruction::Instruction;
use super::super::link::{Image, LinkError};
use super::super::object::Object;
use super::own_files;
use super::report::{Problem, SourceLine};

/// Parts of the verifier's messages, what they mean, and what to do.
const WORDS: &[(&[&str], &str, &str)] = &[
    (
        &["map_value_or_null"],
        "a value of a map is used without a look whether there is one",
        "hd_at, hd_find and hd_line give 0 where there is nothing: `if (!value) return HD_PASS;` first",
    ),
    (
        &["infinite loop", "back-edge"],
        "a loop may run forever",
        "give it a constant bound: `for (u32 i = 0; i < HD_MAX_EXECUTORS && i < n; i++)`",
    ),
    (
        &["too large. Processed", "jumps is too complex"],
        "it takes more than the 1,000,000 instructions that the kernel looks at before it gives up",
        "give its loops a small constant bound (HD_MAX_EXECUTORS): every round of every way through counts",
    ),
    (
        &[
            "!read_ok",
            "invalid read from stack",
            "invalid indirect read",
            "invalid size of register",
        ],
        "a variable is read before anything was put into it",
        "give it a value where it is declared",
    ),
    (
        &[
            "leaks addr",
            "pointer comparison prohibited",
            "partial copy of pointer",
            "as return value",
        ],
        "it gives away where the kernel keeps something",
        "pointers can be followed, but neither stored, compared with each other nor returned: keep what they point to",
    ),
    (
        &["write into map forbidden", "cannot write into"],
        "it writes what it may only read",
        "parameters, constants and what Heddle tells a policy do not change: copy the value to a variable",
    ),
    (
        &[
            "invalid access to map value",
            "unbounded memory access",
            "min value is negative",
            "unbounded min value",
            "outside of the allowed memory range",
            "outside of the memory region",
            "invalid access to memory",
            "makes pointer be out of bounds",
            "goes out of range",
        ],
        "it may read or write outside of what a pointer points to",
        "bound the index right before (`i % 64`, `i & 63`); read the payload with hd_load, which needs no bounds",
    ),
    (
        &["prohibited for !root", "pointer arithmetic"],
        "it calculates with a pointer in a way that the verifier cannot follow",
        "index with a number that is bounded right before (`table[i & 63]`), and not with pointers \
         chosen by conditions",
    ),
    (
        &["stack size", "invalid write to stack", "invalid variable-offset", "frames is too deep"],
        "it needs more than the 512 bytes of stack, or the eight calls, that the kernel gives a program",
        "keep tables in a map (HD_TABLE) or in static variables, and mark small functions static inline",
    ),
    (
        &["invalid mem access", "expected=", "invalid mem_access"],
        "something is used as a pointer to what it is not",
        "a number is no pointer, and a map is used through hd_at, hd_find and hd_put only",
    ),
];

/// Returns why the verifier refused `policy` in the strict frame, and where.
pub fn explain(refused: &bpf::LoadError, policy: &Object) -> Problem {
    explain_in(refused, policy, strict_image)
}

/// Returns why the verifier refused `policy` in the program that `linked` makes of it, and where.
pub fn explain_in(
    refused: &bpf::LoadError,
    policy: &Object,
    linked: fn(&Object) -> Result<Image, LinkError>,
) -> Problem {
    let said = complaint(&refused.log);
    let known = WORDS.iter().find(|(parts, ..)| parts.iter().any(|part| said.contains(part)));
    let (what, advice) = known
        .map_or(("the kernel's verifier refuses it", ""), |(_, what, advice)| (*what, *advice));
    let too_long = known.is_some_and(|(parts, ..)| parts.contains(&"too large. Processed"));
    let place = match (failed_at(&refused.log, said), linked(policy)) {
        (Some(at), Ok(image)) if !too_long => place_of(&image, at, policy),
        _ => loops(policy),
    };
    let said = if said.is_empty() { refused.error.to_string() } else { said.to_owned() };
    Problem {
        place,
        what: what.into(),
        advice: advice.into(),
        said: format!("the verifier: {said}"),
    }
}

/// Returns the last line that is neither a step nor a count.
fn complaint(log: &str) -> &str {
    let counts = [
        "processed ",
        "verification time",
        "stack depth",
        "mark_precise",
        "from ",
        "arg#",
        "old state",
        "cur state",
    ];
    let words = |line: &&str| {
        !line.is_empty() && step(line).is_none() && !counts.iter().any(|c| line.starts_with(c))
    };
    log.lines().map(str::trim).rfind(words).unwrap_or_default()
}

/// Parses the instruction number of a log line: `12: (61) r1 = ...`, or a state `12: R0=...`.
fn step(line: &str) -> Option<usize> {
    let (number, rest) = line.split_once(": ")?;
    let is_step = rest.starts_with('(') || rest.starts_with('R') || rest.starts_with("; ");
    number.parse().ok().filter(|_| is_step)
}

/// Returns the instruction where it stopped: the one that it names, or the last in the log.
fn failed_at(log: &str, said: &str) -> Option<usize> {
    let named = said.split_once("at insn ").or_else(|| said.split_once("from insn "));
    let named =
        named.and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
    named.or_else(|| log.lines().rev().find_map(|line| step(line.trim())))
}

/// Returns the line of the policy's own file at or before instruction `at`, skipping inlined header code.
fn place_of(image: &Image, at: usize, policy: &Object) -> Option<SourceLine> {
    let own = own_files(policy);
    let before = image.lines.iter().rev().filter(|line| line.at <= at);
    before.into_iter().find(|line| own.contains(line.file.as_str())).cloned().map(Into::into)
}

/// Returns where the first loop begins: what else would take long?
fn loops(policy: &Object) -> Option<SourceLine> {
    let own = own_files(policy);
    let back = |(at, code): (usize, &u64)| {
        let distance = Instruction(*code).jump().filter(|distance| *distance < 0)?;
        (at + 1).checked_add_signed(distance.into())
    };
    policy.functions.iter().find_map(|function| {
        let to = function.code.iter().enumerate().find_map(back)?;
        let mut lines = function.lines.iter().filter(|line| own.contains(line.file.as_str()));
        let begin = lines.clone().rfind(|line| line.at <= to).or_else(|| lines.next())?;
        Some(begin.clone().into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "func#0 @0\n0: R1=ctx() R10=fp0\n0: (bf) r6 = r1\n14: (85) call \
        bpf_map_lookup_elem#1\n15: R0_w=map_value_or_null(id=1)\n15: (79) r1 = *(u64 *)(r0 +0)\nR0 \
        invalid mem access 'map_value_or_null'\nprocessed 15 insns (limit 1000000) max_states_per_insn \
        0 total_states 1 peak_states 1 mark_read 1\n\n";

    #[test]
    fn the_verifiers_complaint_and_its_instruction_are_found() {
        assert_eq!(complaint(LOG), "R0 invalid mem access 'map_value_or_null'");
        assert_eq!(failed_at(LOG, complaint(LOG)), Some(15));
        let said = "infinite loop detected at insn 7";
        assert_eq!(failed_at(LOG, said), Some(7));
        assert_eq!(failed_at("", ""), None);
    }
}
