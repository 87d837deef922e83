//! Whether a policy looks at its input's payload. If certainly not, the payload is not copied for it.

use super::instruction::{CALL, EXIT, Instruction, JUMP, LOAD_64, call, class, op};
use super::object::{Function, Object};

/// `struct hd_in`: from here on lies what depends on the payload, `seen` and the window.
const PAYLOAD: i32 = 14;
/// The registers that a call overwrites.
const BY_CALL: u16 = 0b11_1111;
/// The registers of arguments.
const ARGUMENTS: u16 = 0b11_1110;
/// The helpers without arguments: time, random number, CPU.
const WITHOUT_ARGUMENTS: [i32; 3] = [5, 7, 8];
/// `r = r`, 64 bits; and the operation of all moves.
const MOVE_64: u8 = 0xbf;
const MOVE: u8 = 0xb0;

/// Returns whether `policy` may read its input's payload, or how much of it there is. `true` unless every way through
/// its entry uses the input's address for nothing but reading the fields before the payload.
pub fn reads_payload(policy: &Object) -> bool {
    policy.function("hd_policy").and_then(keeps_off).is_none()
}

/// Follows which registers may hold the input's address, as a set of bits at each instruction. `None` if the address
/// is used for anything else.
fn keeps_off(function: &Function) -> Option<()> {
    let mut before: Vec<Option<u16>> = vec![None; function.code.len()];
    // The entry's only argument.
    *before.first_mut()? = Some(1 << 1);
    let mut open = vec![0];
    while let Some(at) = open.pop() {
        let instruction = Instruction(*function.code.get(at)?);
        let (after, next) = step(instruction, before[at]?, at)?;
        for to in next.into_iter().flatten() {
            let known = before.get_mut(to)?;
            let both = known.unwrap_or(0) | after;
            if *known != Some(both) {
                *known = Some(both);
                open.push(to);
            }
        }
    }
    Some(())
}

/// Returns the set after an instruction, and where it may go on.
fn step(instruction: Instruction, set: u16, at: usize) -> Option<(u16, [Option<usize>; 2])> {
    let opcode = instruction.opcode();
    let to = 1_u16.checked_shl(instruction.destination().into())?;
    let from = 1_u16.checked_shl(instruction.source().into())?;
    let (has_to, has_from) = (set & to != 0, set & from != 0);
    let on = [Some(at + instruction.slots()), None];
    match instruction.class() {
        class::LOAD if opcode == LOAD_64 => Some((set & !to, on)),
        class::LOAD_MEMORY => {
            let (offset, size) = (i32::from(instruction.offset()), i32::from(instruction.size()));
            let is_before = offset >= 0 && offset + size <= PAYLOAD;
            (!has_from || is_before).then_some((set & !to, on))
        }
        class::STORE_NUMBER => (!has_to).then_some((set, on)),
        class::STORE => (!has_to && !has_from).then_some((set, on)),
        class::NUMBERS_32 | class::NUMBERS_64 => {
            let has_from = instruction.from_register() && has_from;
            match (opcode, has_from, has_to) {
                (MOVE_64, true, _) if instruction.offset() == 0 => Some((set | to, on)),
                (_, true, _) => None,
                (_, false, true) if instruction.op() != MOVE => None,
                _ => Some((set & !to, on)),
            }
        }
        class::JUMPS if opcode == EXIT => Some((set, [None, None])),
        class::JUMPS if opcode == CALL => {
            let takes_none = instruction.source() == call::HELPER
                && WITHOUT_ARGUMENTS.contains(&instruction.immediate());
            (takes_none || set & ARGUMENTS == 0).then_some((set & !BY_CALL, on))
        }
        class::JUMPS | class::JUMPS_32 => {
            let target = isize::from(instruction.offset()).checked_add_unsigned(at + 1)?;
            let target = usize::try_from(target).ok()?;
            if opcode == JUMP {
                return Some((set, [Some(target), None]));
            }
            let is_comparison = !matches!(instruction.op(), op::JUMP | op::CALL | op::EXIT);
            let has_from = instruction.from_register() && has_from;
            let next = [Some(at + 1), Some(target)];
            (is_comparison && !has_to && !has_from).then_some((set, next))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{read, shipped, shipped_names};

    #[test]
    fn shipped_policies_that_look_at_no_payload_are_known() {
        let looks =
            |name: &&str| reads_payload(&read(shipped(name).expect("shipped")).expect("readable"));
        let names: Vec<&str> = shipped_names().filter(looks).collect();
        assert_eq!(names, ["class", "classify", "key-hash", "sita", "token"]);
    }

    fn entry(code: &[u64]) -> Object {
        let (name, code) = ("hd_policy".into(), code.to_vec());
        let function = Function { name, code, references: Vec::new(), lines: Vec::new() };
        Object { functions: vec![function], maps: Vec::new() }
    }

    /// An instruction: opcode, destination, source, offset, immediate.
    fn op(opcode: u8, to: u8, from: u8, offset: i16, number: i32) -> u64 {
        let ([low, high], [a, b, c, d]) = (offset.to_le_bytes(), number.to_le_bytes());
        u64::from_le_bytes([opcode, to | from << 4, low, high, a, b, c, d])
    }

    #[test]
    fn whatever_may_reach_the_payload_counts() {
        let exit = op(EXIT, 0, 0, 0, 0);
        let read_at = |offset, from| op(0x71, 0, from, offset, 0);
        let copied = op(MOVE_64, 6, 1, 0, 0);
        for (what, code) in [
            ("the window", vec![read_at(16, 1), exit]),
            ("how much is seen", vec![op(0x69, 0, 1, 14, 0), exit]),
            ("beyond the fields", vec![op(0x61, 0, 1, 12, 0), exit]),
            ("before the input", vec![read_at(-1, 1), exit]),
            ("by a copy", vec![copied, read_at(16, 6), exit]),
            ("by a sum", vec![op(0x07, 1, 0, 0, 16), read_at(0, 1), exit]),
            ("by a sum with it", vec![op(0xb7, 2, 0, 0, 16), op(0x0f, 2, 1, 0, 0), exit]),
            ("by its lower half", vec![op(0xbc, 6, 1, 0, 0), exit]),
            ("by the stack", vec![op(0x7b, 10, 1, -8, 0), exit]),
            ("in a helper", vec![op(CALL, 0, 0, 0, 1), exit]),
            ("in a function", vec![op(CALL, 0, 1, 0, 0), exit, exit]),
            (
                "on one of two ways",
                vec![
                    op(0x61, 0, 1, 0, 0),
                    op(0x15, 0, 0, 1, 0),
                    op(0xb7, 1, 0, 0, 0),
                    read_at(16, 1),
                    exit,
                ],
            ),
            (
                "in the second round",
                vec![
                    op(0xb7, 2, 0, 0, 0),
                    read_at(16, 2),
                    op(MOVE_64, 2, 1, 0, 0),
                    op(JUMP, 0, 0, -3, 0),
                ],
            ),
            ("outside of the code", vec![op(JUMP, 0, 0, 7, 0)]),
            ("without an end", vec![op(0xb7, 0, 0, 0, 0)]),
            ("by an unknown instruction", vec![op(0x06, 0, 0, 0, 0), exit]),
            ("in no code", vec![]),
        ] {
            assert!(reads_payload(&entry(&code)), "{what}");
        }
        for (what, code) in [
            ("its hash", vec![op(0x61, 0, 1, 4, 0), exit]),
            ("its family, by a copy", vec![copied, read_at(13, 6), exit]),
            ("a random number", vec![op(CALL, 0, 0, 0, 7), exit]),
            ("another memory", vec![op(0xb7, 1, 0, 0, 0), read_at(16, 1), exit]),
        ] {
            assert!(!reads_payload(&entry(&code)), "{what}");
        }
    }
}
