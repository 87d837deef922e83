//! Untrusted compiled policies. Reading one never panics and stays within its size limits, and a policy that passes
//! the check does in the frame only what policies may do.
#![no_main]

use std::sync::LazyLock;

use heddle_steer::policy::{
    Instruction, Object, check, frame, link, pairs, params, read, set_params,
};
use libfuzzer_sys::fuzz_target;

static FRAMES: LazyLock<[Object; 3]> =
    LazyLock::new(|| ["reuseport", "common", "observe"].map(|name| frame(name).clone()));

/// The bounds that `read` promises for any input.
fn is_bounded(object: &Object) {
    let code: usize = object.functions.iter().map(|function| function.code.len()).sum();
    let lines: usize = object.functions.iter().map(|function| function.lines.len()).sum();
    assert!(code <= 1 << 16 && lines <= 1 << 20 && object.maps.len() <= 1024);
    for function in &object.functions {
        assert!(function.references.is_sorted_by(|a, b| a.at < b.at));
        assert!(function.references.iter().all(|reference| reference.at < function.code.len()));
    }
}

/// The frame's own code is unchanged, and the policy behind it neither calls out nor names maps by number.
fn only_decides(object: &Object) {
    let [hook, common, observe] = &*FRAMES;
    let Ok(image) = link(&[hook, common, observe, object]) else { return };
    let main = &hook.function("hd_main").expect("every frame has one").code;
    let (own, policy) = image.instructions.split_at(main.len());
    for (linked, compiled) in own.iter().zip(main) {
        let same =
            Instruction(*linked).with_immediate(0) == Instruction(*compiled).with_immediate(0);
        assert!(same || Instruction(*compiled).opcode() == 0, "the frame has changed");
    }
    let mut at = 0;
    while at < policy.len() {
        let one = Instruction(policy[at]);
        assert!(one.opcode() != 0x18 || one.source() == 0, "a map by number");
        if one.opcode() == 0x85 && one.source() == 1 {
            let to = at as i64 + 1 + i64::from(one.immediate());
            assert!((0..policy.len() as i64).contains(&to), "a call out of the policy");
        }
        at += if one.opcode() == 0x18 { 2 } else { 1 };
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut object) = read(bytes) else { return };
    is_bounded(&object);
    let all = params(&object);
    if let Some(first) = all.first().filter(|first| first.least <= first.most) {
        // It can be set to its minimum, or the error says why not.
        let given = pairs(&format!("{}={}", first.name, first.least));
        let _ = given.and_then(|given| set_params(&mut object, &given)).map_err(|e| e.to_string());
        assert_eq!(params(&object).len(), all.len());
    }
    let [hook, common, observe] = &*FRAMES;
    let _ = link(&[hook, common, observe, &object]);
    match check(&object) {
        Ok(_) => only_decides(&object),
        Err(refused) => assert!(!refused.to_string().is_empty()),
    }
});
