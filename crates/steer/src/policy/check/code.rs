//! The instructions that a policy may contain: those of clang's `-mcpu=v3`, except those that reach outside
//! it. Anything unlisted is refused, so that new instructions of later kernels open no hole.

use super::super::instruction::{
    CALL, EXIT, Instruction, JUMP, LOAD_64, atomic, call, class, load, mode, op,
};
use super::super::object::{DeclKind, Function, Object, Target};
use super::{SUPPLIED_FUNCTIONS, SUPPLIED_MAPS};

/// Helpers that a policy may call, as heddle.h declares them, with their descriptions.
pub const HELPERS: &[(i32, &str)] = &[
    (1, "map lookup"),
    (2, "map update"),
    (3, "map delete"),
    (5, "clock"),
    (7, "random number"),
    (8, "CPU number"),
];

/// Returns whether `function` calls a helper.
pub fn calls_helper(function: &Function, id: i32) -> bool {
    let calls = |i: Instruction| i.opcode() == CALL && i.source() == call::HELPER;
    function.code.iter().copied().map(Instruction).any(|i| calls(i) && i.immediate() == id)
}

/// What is wrong at an instruction.
pub struct Wrong {
    pub at: usize,
    pub what: String,
}

type Verdict = Result<(), String>;

fn no(what: impl Into<String>) -> Verdict {
    Err(what.into())
}

/// Checks that all instructions of `function` are allowed, and that control stays inside it.
pub fn check(object: &Object, function: &Function) -> Result<(), Wrong> {
    let code: Vec<Instruction> = function.code.iter().copied().map(Instruction).collect();
    let mut starts = vec![false; code.len()];
    let mut references = function.references.iter().peekable();
    let mut at = 0;
    while at < code.len() {
        starts[at] = true;
        let target = references.next_if(|reference| reference.at == at).map(|r| &r.to);
        instruction(object, &code, at, target).map_err(|what| Wrong { at, what })?;
        at += code[at].slots();
    }
    // In order, so any reference left over points backwards, into the middle of an instruction, twice to one,
    // or outside.
    if let Some(reference) = references.next() {
        let what = "has a reference where nothing refers to anything".into();
        return Err(Wrong { at: reference.at, what });
    }
    flow(&code, &starts)
}

/// Checks that jumps land on instructions of the same function, and that execution does not run past its end.
fn flow(code: &[Instruction], starts: &[bool]) -> Result<(), Wrong> {
    for (at, instruction) in code.iter().enumerate().filter(|(at, _)| starts[*at]) {
        let Some(distance) = instruction.jump() else { continue };
        let target = i64::try_from(at).unwrap_or(0) + 1 + i64::from(distance);
        let inside = usize::try_from(target).ok().and_then(|target| starts.get(target));
        if inside != Some(&true) {
            return Err(Wrong { at, what: "jumps out of itself".into() });
        }
    }
    match starts.iter().rposition(|start| *start) {
        Some(last) if matches!(code[last].opcode(), EXIT | JUMP) => Ok(()),
        last => Err(Wrong { at: last.unwrap_or(0), what: "does not return at its end".into() }),
    }
}

fn instruction(
    object: &Object,
    code: &[Instruction],
    at: usize,
    target: Option<&Target>,
) -> Verdict {
    let this = code[at];
    if this.source() > 10 || this.destination() > 10 {
        return no("uses a register that there is not");
    }
    match this.opcode() {
        CALL => return calls(object, this, target),
        LOAD_64 => return loads(object, this, code.get(at + 1).copied(), target),
        _ if target.is_some() => return no("has a reference where nothing refers to anything"),
        _ => {}
    }
    match this.class() {
        class::LOAD if matches!(this.mode(), mode::ABSOLUTE | mode::INDIRECT) => {
            no("reads the packet in the old way (LD_ABS): a policy sees its input, with hd_load")
        }
        class::LOAD_MEMORY | class::STORE_NUMBER if this.mode() == mode::MEMORY => Ok(()),
        class::STORE if this.mode() == mode::MEMORY => Ok(()),
        class::STORE if this.mode() == mode::ATOMIC => atomics(this),
        class::NUMBERS_32 | class::NUMBERS_64 => numbers(this),
        class::JUMPS | class::JUMPS_32 => jumps(this),
        _ => unknown(this),
    }
}

fn unknown(this: Instruction) -> Verdict {
    no(format!(
        "has an instruction (opcode {:#04x}) that policies may not have: clang -mcpu=v3 makes those that they may",
        this.opcode()
    ))
}

fn numbers(this: Instruction) -> Verdict {
    // A non-zero offset here means signed division, sign extension or address-space casts, all later than v3.
    let known = this.op() <= op::SWAP_BYTES && this.offset() == 0;
    let swaps_64 = this.op() == op::SWAP_BYTES && this.class() == class::NUMBERS_64;
    if known && !swaps_64 { Ok(()) } else { unknown(this) }
}

fn jumps(this: Instruction) -> Verdict {
    let wide = this.class() == class::JUMPS;
    match this.op() {
        op::JUMP | op::EXIT if wide && !this.from_register() => Ok(()),
        op::JUMP | op::EXIT => unknown(this),
        op::CALL => no("calls through a pointer to a function"),
        comparison if comparison <= op::LAST_COMPARISON => Ok(()),
        _ => unknown(this),
    }
}

fn atomics(this: Instruction) -> Verdict {
    let sized = matches!(this.size(), 4 | 8);
    if sized && atomic::ALL.contains(&this.immediate()) {
        return Ok(());
    }
    no(
        "has an atomic operation other than add, or, and, xor, exchange and compare-and-exchange of 4 or 8 bytes",
    )
}

fn calls(object: &Object, this: Instruction, target: Option<&Target>) -> Verdict {
    if this.offset() != 0 || this.destination() != 0 {
        return unknown(this);
    }
    match (this.source(), target) {
        (call::HELPER, None) if HELPERS.iter().any(|(id, _)| *id == this.immediate()) => Ok(()),
        (call::HELPER, None) => no(format!(
            "calls helper {} of the kernel, which policies may not: heddle.h has what they may",
            this.immediate()
        )),
        (call::FUNCTION, Some(Target::Name(name))) if is_function(object, name) => Ok(()),
        (call::FUNCTION, Some(Target::Name(name))) => no(format!(
            "calls `{name:.128}`, which is not defined: policies can call what heddle.h declares and \
             what they define themselves"
        )),
        (call::FUNCTION, _) => no("calls something that is no function of a policy"),
        _ => no("calls a function of the kernel"),
    }
}

fn is_function(object: &Object, name: &str) -> bool {
    object.function(name).is_some() || SUPPLIED_FUNCTIONS.contains(&name)
}

fn loads(
    object: &Object,
    this: Instruction,
    second: Option<Instruction>,
    target: Option<&Target>,
) -> Verdict {
    // The second half holds a number and nothing else.
    if this.offset() != 0 || second.is_none_or(|second| second.0 & 0xffff_ffff != 0) {
        return no("ends in the middle of an instruction");
    }
    if this.source() != load::NUMBER {
        return no("names a map by number");
    }
    let Some(target) = target else { return Ok(()) };
    let allowed = match target {
        Target::Name(name) => object.map(name).is_some() || SUPPLIED_MAPS.contains(&name.as_str()),
        Target::Data { map, offset } => object.map(map).is_some_and(|map| {
            matches!(map.kind, DeclKind::Data { .. }) && *offset < map.value_size
        }),
    };
    let (Target::Name(name) | Target::Data { map: name, .. }) = target;
    match allowed {
        true => Ok(()),
        false => no(format!("uses `{name:.128}`, which it does not declare")),
    }
}
