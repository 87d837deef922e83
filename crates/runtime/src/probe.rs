//! Probes: checks that the compiler has put into the program, which look at the clock every microsecond or two.
//!
//! `docs/design/probes.md` describes them; `compiler/pass/Probes.cpp` places them. What an object with probes and the
//! runtime agree on:
//!
//! - Its note ([`NOTE`]) says where its *hook* is, a pointer to a function that is null at first. Its constructor calls
//!   [`heddle_probe_loaded`] if there is one, for objects that are loaded after the runtime has started.
//! - A probe subtracts the cost of the work since the last one from the *budget* of its thread, the first word of the
//!   object's [`State`] there. Where the budget runs out, it calls the hook with the state's distance from FS in r11,
//!   and goes on with the budget that the hook has granted. All registers but r11 and the flags are preserved, vectors
//!   as far as the processor's 256 bits.
//!
//! FS belongs to the task, and so does its state. So no other thread need know where the states of a program's objects
//! are: who wants a task to make way sets the time at which its worker looks ([`Remote::look_at`]).
//!
//! # How much is granted
//!
//! As much as the task used up in [`PERIOD`] ticks lately, so that costs misjudged by the compiler do no harm; and less
//! if the time to look comes before that.
//!
//! [`Remote::look_at`]: crate::worker::Remote

use crate::preempt::on_probe;
use crate::report;
use crate::task::Task;
use crate::worker::{LOOK_AT, STARTED};
use heddle_arch::PreemptCount;
use heddle_sys::notes::{Note, notes};
use std::arch::naked_asm;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

/// The thread-local variables of an object with probes. The compiler writes the budget, the hook the rest.
#[repr(C)]
struct State {
    /// Cost units left.
    budget: u32,
    /// Cost units of [`PERIOD`] ticks; 0 at first.
    refill: u32,
    /// Time stamp of the last grant of `refill`; 0 if something else was granted.
    granted_at: u64,
}

/// Ticks of the time stamp counter between two looks at it: 1 to 2 us. A power of two, which saves a division.
const PERIOD: u64 = 1 << PERIOD_SHIFT;
const PERIOD_SHIFT: u32 = 12;

/// The first budget, and the bounds of those that follow, in cost units. A unit is a cycle if the compiler is right.
const FIRST: u32 = 8000;
const LEAST: u32 = 500;
const MOST: u32 = 128_000;

/// Granted to threads that run no task. One may become a task at any time, and then does not know for so long.
const OUTSIDE: u32 = 1 << 18;

/// Whether the processor has, and the system keeps, vectors of 256 bits.
static HAS_AVX: AtomicU8 = AtomicU8::new(0);

/// The hook. In a task with preemption on whose time to look has come, it calls [`on_probe`]; then it grants a budget.
///
/// # Safety
/// Called by a probe, as the module describes.
#[unsafe(naked)]
unsafe extern "C" fn hook() {
    naked_asm!(
        ".cfi_startproc",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "rdtsc",
        "shl rdx, 32",
        "or rax, rdx",
        // No task: no worker behind GS.
        "mov rcx, [rip + heddle_rt_current@GOTTPOFF]",
        "cmp qword ptr fs:[rcx], 0",
        "je 9f",
        "cmp rax, gs:[{look_at}]",
        "jae 5f",
        // Adapt the refill, unless the last grant was less, or from before this turn.
        "mov rdx, fs:[r11 + {granted_at}]",
        "mov ecx, fs:[r11 + {refill}]",
        "cmp rdx, gs:[{started}]",
        "jb 3f",
        "sub rdx, rax",
        "neg rdx",
        "cmp rdx, {long}",
        "ja 2f",
        "cmp rdx, {short}",
        "jae 3f",
        "mov edx, ecx",
        "shr edx, 2",
        "add ecx, edx",
        "cmp ecx, {most}",
        "jbe 4f",
        "mov ecx, {most}",
        "jmp 4f",
        "2:",
        "shr ecx, 1",
        "cmp rdx, {very_long}",
        "jbe 7f",
        "shr ecx, 2",
        "7:",
        "cmp ecx, {least}",
        "jae 4f",
        "mov ecx, {least}",
        "4:",
        "mov fs:[r11 + {refill}], ecx",
        "3:",
        "test ecx, ecx",
        "jz 8f",
        // Less if the time to look comes sooner.
        "30:",
        "mov fs:[r11 + {granted_at}], rax",
        "mov rdx, gs:[{look_at}]",
        "sub rdx, rax",
        "cmp rdx, {period}",
        "jae 6f",
        "imul rdx, rcx",
        "shr rdx, {shift}",
        "mov ecx, {least_rest}",
        "cmp rdx, rcx",
        "cmova rcx, rdx",
        "mov qword ptr fs:[r11 + {granted_at}], 0",
        "6:",
        "mov fs:[r11], ecx",
        "pop rdx",
        ".cfi_remember_state",
        ".cfi_adjust_cfa_offset -8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "pop rax",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_restore_state",
        "8:",
        "mov ecx, {first}",
        "mov fs:[r11 + {refill}], ecx",
        "jmp 30b",
        "9:",
        "mov ecx, {outside}",
        "mov qword ptr fs:[r11 + {granted_at}], 0",
        "jmp 6b",
        // The time to look has come. If preemption is held off, it is pending.
        "5:",
        "test dword ptr gs:[8], 0x7fffffff",
        "jz 50f",
        "and dword ptr gs:[8], 0x7fffffff",
        "mov ecx, fs:[r11 + {refill}]",
        "mov qword ptr fs:[r11 + {granted_at}], 0",
        "test ecx, ecx",
        "jnz 6b",
        "mov ecx, {first}",
        "jmp 6b",
        "50:",
        "mov rax, rdi",
        // The probe, which may be in code that is not preempted.
        "mov rdi, [rsp + 24]",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push r8",
        ".cfi_adjust_cfa_offset 8",
        "push r9",
        ".cfi_adjust_cfa_offset 8",
        "push r10",
        ".cfi_adjust_cfa_offset 8",
        "push r11",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 512",
        ".cfi_adjust_cfa_offset 512",
        "cmp byte ptr [rip + {avx}], 0",
        "je 60f",
        "vmovups [rsp], ymm0",
        "vmovups [rsp + 32], ymm1",
        "vmovups [rsp + 64], ymm2",
        "vmovups [rsp + 96], ymm3",
        "vmovups [rsp + 128], ymm4",
        "vmovups [rsp + 160], ymm5",
        "vmovups [rsp + 192], ymm6",
        "vmovups [rsp + 224], ymm7",
        "vmovups [rsp + 256], ymm8",
        "vmovups [rsp + 288], ymm9",
        "vmovups [rsp + 320], ymm10",
        "vmovups [rsp + 352], ymm11",
        "vmovups [rsp + 384], ymm12",
        "vmovups [rsp + 416], ymm13",
        "vmovups [rsp + 448], ymm14",
        "vmovups [rsp + 480], ymm15",
        "vzeroupper",
        "call {on_probe}",
        "vmovups ymm0, [rsp]",
        "vmovups ymm1, [rsp + 32]",
        "vmovups ymm2, [rsp + 64]",
        "vmovups ymm3, [rsp + 96]",
        "vmovups ymm4, [rsp + 128]",
        "vmovups ymm5, [rsp + 160]",
        "vmovups ymm6, [rsp + 192]",
        "vmovups ymm7, [rsp + 224]",
        "vmovups ymm8, [rsp + 256]",
        "vmovups ymm9, [rsp + 288]",
        "vmovups ymm10, [rsp + 320]",
        "vmovups ymm11, [rsp + 352]",
        "vmovups ymm12, [rsp + 384]",
        "vmovups ymm13, [rsp + 416]",
        "vmovups ymm14, [rsp + 448]",
        "vmovups ymm15, [rsp + 480]",
        "61:",
        "add rsp, 512",
        ".cfi_remember_state",
        ".cfi_adjust_cfa_offset -512",
        "pop r11",
        ".cfi_adjust_cfa_offset -8",
        "pop r10",
        ".cfi_adjust_cfa_offset -8",
        "pop r9",
        ".cfi_adjust_cfa_offset -8",
        "pop r8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        // Perhaps in another turn, and on another worker.
        "rdtsc",
        "shl rdx, 32",
        "or rax, rdx",
        "mov ecx, fs:[r11 + {refill}]",
        "jmp 3b",
        ".cfi_restore_state",
        "60:",
        "movups [rsp], xmm0",
        "movups [rsp + 16], xmm1",
        "movups [rsp + 32], xmm2",
        "movups [rsp + 48], xmm3",
        "movups [rsp + 64], xmm4",
        "movups [rsp + 80], xmm5",
        "movups [rsp + 96], xmm6",
        "movups [rsp + 112], xmm7",
        "movups [rsp + 128], xmm8",
        "movups [rsp + 144], xmm9",
        "movups [rsp + 160], xmm10",
        "movups [rsp + 176], xmm11",
        "movups [rsp + 192], xmm12",
        "movups [rsp + 208], xmm13",
        "movups [rsp + 224], xmm14",
        "movups [rsp + 240], xmm15",
        "call {on_probe}",
        "movups xmm0, [rsp]",
        "movups xmm1, [rsp + 16]",
        "movups xmm2, [rsp + 32]",
        "movups xmm3, [rsp + 48]",
        "movups xmm4, [rsp + 64]",
        "movups xmm5, [rsp + 80]",
        "movups xmm6, [rsp + 96]",
        "movups xmm7, [rsp + 112]",
        "movups xmm8, [rsp + 128]",
        "movups xmm9, [rsp + 144]",
        "movups xmm10, [rsp + 160]",
        "movups xmm11, [rsp + 176]",
        "movups xmm12, [rsp + 192]",
        "movups xmm13, [rsp + 208]",
        "movups xmm14, [rsp + 224]",
        "movups xmm15, [rsp + 240]",
        "jmp 61b",
        ".cfi_endproc",
        look_at = const LOOK_AT,
        started = const STARTED,
        refill = const std::mem::offset_of!(State, refill),
        granted_at = const std::mem::offset_of!(State, granted_at),
        long = const PERIOD + PERIOD / 2,
        very_long = const 4 * PERIOD,
        short = const PERIOD * 3 / 4,
        period = const PERIOD,
        shift = const PERIOD_SHIFT,
        first = const FIRST,
        least = const LEAST,
        least_rest = const LEAST / 8,
        most = const MOST,
        outside = const OUTSIDE,
        avx = sym HAS_AVX,
        on_probe = sym on_probe,
    )
}

/// The note of an object with probes: its owner, its type, and the version of what the module describes.
const NOTE: (&[u8], u32, u32) = (b"Heddle-probes\0", 1, 1);

/// What was found in the objects that are loaded.
#[derive(Default)]
struct Loaded {
    hooked: usize,
    of_other_version: Option<u32>,
}

/// Whether objects that are loaded from here on are hooked, too.
static HOOKS: AtomicBool = AtomicBool::new(false);

/// Called by the constructor of an object with probes: hooks them if a runtime preempts there.
///
/// # Safety
/// `word` is the object's hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_probe_loaded(word: *const AtomicPtr<c_void>) {
    if HOOKS.load(Ordering::Acquire) {
        // SAFETY: by the caller's promise.
        unsafe { (*word).store(hook as *mut c_void, Ordering::Release) };
    }
}

/// Returns whether the program itself was built with probes, as this Heddle knows them.
pub(crate) fn is_in_program() -> bool {
    /// Ends the iteration at the first object, the program, with 2 if it has probes.
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> i32 {
        // SAFETY: the loader passes a valid entry with that many headers, and has mapped what they describe.
        let has_probes = unsafe {
            let info = &*info;
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
            headers.iter().filter(|header| header.p_type == libc::PT_NOTE).any(|header| {
                let start = (info.dlpi_addr + header.p_vaddr) as *const u8;
                let notes = std::slice::from_raw_parts(start, header.p_memsz as usize);
                probe_notes(notes).iter().any(|&(version, ..)| version == NOTE.2)
            })
        };
        1 + i32::from(has_probes)
    }
    // SAFETY: the callback matches.
    unsafe { libc::dl_iterate_phdr(Some(first), std::ptr::null_mut()) == 2 }
}

/// Hooks the probes of every object that is loaded, and says on stderr if there are none, once per process.
pub(crate) fn hook_loaded() {
    HAS_AVX.store(u8::from(std::is_x86_feature_detected!("avx")), Ordering::Relaxed);
    HOOKS.store(true, Ordering::Release);
    let mut found = Loaded::default();
    // SAFETY: the callback matches, and runs before the call returns.
    unsafe { libc::dl_iterate_phdr(Some(hook_object), (&raw mut found).cast()) };
    static IS_AGAIN: AtomicBool = AtomicBool::new(false);
    if IS_AGAIN.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the handler follows its contract; it stays as long as the process.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    if let Some(version) = found.of_other_version {
        report::say(format_args!(
            "heddle: something here was built with probes of version {version}, and this Heddle knows version {}; \
             build it anew with this Heddle's `heddle cc` or `heddle cargo`",
            NOTE.2
        ));
    } else if found.hooked == 0 {
        report::say(format_args!(
            "heddle: HEDDLE_MECHANISM=probe, but nothing that this program has loaded was built with probes \
             (`heddle cc`, `heddle cargo`); quanta end by signals, 100 us late"
        ));
    }
}

/// In the child of a fork the calling task goes on alone: at a probe it would make way for the copy of another.
unsafe extern "C" fn in_child() {
    if Task::current().is_some() {
        // SAFETY: a task runs on a worker, in the child on its copy.
        unsafe { PreemptCount::disable() };
    }
}

/// Hooks the probes of one object.
unsafe extern "C" fn hook_object(
    info: *mut libc::dl_phdr_info,
    _: usize,
    found: *mut c_void,
) -> i32 {
    // SAFETY: the loader passes a valid entry with that many headers; `found` is that of `hook_loaded`.
    let (info, headers, found) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        (info, headers, &mut *found.cast::<Loaded>())
    };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_NOTE) {
        let start = (info.dlpi_addr + header.p_vaddr) as usize;
        // SAFETY: the loader has mapped what the header describes.
        let notes =
            unsafe { std::slice::from_raw_parts(start as *const u8, header.p_memsz as usize) };
        for (version, at, distance) in probe_notes(notes) {
            if version != NOTE.2 {
                found.of_other_version = Some(version);
                continue;
            }
            let hook_at = (start + at).wrapping_add_signed(distance as isize);
            let is_data = |h: &&libc::Elf64_Phdr| {
                let from = (info.dlpi_addr + h.p_vaddr) as usize;
                let writable = h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_W != 0;
                writable && (from..from + h.p_memsz as usize).contains(&hook_at)
            };
            if hook_at.is_multiple_of(8) && headers.iter().any(|h| is_data(&h)) {
                // SAFETY: an aligned word of the object's data, which its note calls the hook. The object's probes read
                // it as a whole.
                let word = unsafe { &*(hook_at as *const AtomicPtr<c_void>) };
                word.store(hook as *mut c_void, Ordering::Release);
                found.hooked += 1;
            }
        }
    }
    0
}

/// Returns the version in each of our notes, and where the hook is: a distance from an offset in `bytes`.
fn probe_notes(bytes: &[u8]) -> Vec<(u32, usize, i32)> {
    let is_ours = |note: &Note<'_>| {
        (note.owner, note.kind, note.content.len()) == (NOTE.0, NOTE.1, 2 * size_of::<u32>())
    };
    let read = |note: Note<'_>| Some((note.word(0)?, note.at + 4, note.word(4)?.cast_signed()));
    notes(bytes).filter(is_ours).filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(owner: &[u8], kind: u32, content: &[u32]) -> Vec<u8> {
        let mut note = vec![];
        for word in [owner.len() as u32, content.len() as u32 * 4, kind] {
            note.extend(word.to_le_bytes());
        }
        note.extend(owner);
        note.resize(note.len().next_multiple_of(4), 0);
        for word in content {
            note.extend(word.to_le_bytes());
        }
        note
    }

    #[test]
    fn our_notes_are_found_among_others() {
        let mut notes = note(b"GNU\0", 3, &[1, 2, 3, 4, 5]);
        let at = notes.len() + 32;
        notes.extend(note(b"Heddle-probes\0", 1, &[1, 4096]));
        notes.extend(note(b"Heddle-probes\0", 2, &[1, 8]));
        notes.extend(note(b"Heddle-probes\0", 1, &[7, -16i32 as u32]));
        assert_eq!(probe_notes(&notes), [(1, at, 4096), (7, notes.len() - 4, -16)]);
    }

    #[test]
    fn notes_that_are_cut_off_are_passed_over() {
        let whole = note(b"Heddle-probes\0", 1, &[1, 4096]);
        for length in 0..whole.len() {
            assert!(probe_notes(&whole[..length]).is_empty());
        }
        assert!(probe_notes(&[0xff; 40]).is_empty(), "sizes beyond the end");
    }
}
