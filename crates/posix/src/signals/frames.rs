//! Running a program's handler in a task: mask, stack, and the way back.

use super::actions::{Action, Kind, reset, store_set};
use super::{Set, UNBLOCKABLE, WORKERS, actions, deliver, set_mask};
use crate::errno;
use crate::real::{Real, real};
use crate::sys::syscall;
use crate::thread::Thread;
use heddle_rt::raw::Caller;
use heddle_sys::signal::{bit, change_mask};
use libc::{siginfo_t, ucontext_t};
use std::arch::{asm, naked_asm};
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::Ordering;

pub(super) type Handler = extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);

/// A handler that a task runs, on the stack that it interrupted.
pub(super) struct Frame {
    /// The mask that comes back after it.
    mask: Set,
    outer: *const Frame,
}

/// Bytes below the stack pointer that a function may use.
const RED_ZONE: usize = 128;

/// A value of `ss_flags` that the kernel refuses: a return from the frame leaves the alternate stack of whatever worker
/// it happens on.
const KEEP: c_int = 0x7fff;

/// Makes a return from `context` leave the worker's alternate stack alone: the task may be on another worker by then.
pub(super) fn keep_altstack(context: *mut ucontext_t) {
    // SAFETY: the kernel's context, on the calling task's stack.
    unsafe { (*context).uc_stack.ss_flags = KEEP };
}

/// Runs the handler of `action` in the calling task.
pub(super) fn run(
    thread: &'static Thread,
    action: &Action,
    info: &mut siginfo_t,
    context: *mut ucontext_t,
) {
    let state = &thread.signals;
    let signal = info.si_signo;
    if action.has(libc::SA_RESETHAND) {
        reset(signal);
    }
    let frame = Frame { mask: state.mask.load(Ordering::Relaxed), outer: state.frames.get() };
    let own = if action.has(libc::SA_NODEFER) { 0 } else { bit(signal) };
    state.frames.set(&frame);
    state.ran.set(state.ran.get() + 1);
    // What is queued for the process stays with this thread meanwhile.
    state.mask.store((frame.mask | action.mask | own) & !UNBLOCKABLE, Ordering::SeqCst);
    let stack = altstack_for(thread, action).unwrap_or_default();
    if context.is_null() && action.has(libc::SA_SIGINFO) {
        run_with_context(action.handler, info, frame.mask, stack);
    } else {
        // SAFETY: the program's handler, as the kernel would call it.
        unsafe { call(action.handler, signal, info, context.cast(), stack) };
    }
    state.frames.set(frame.outer);
    set_mask(thread, frame.mask);
}

/// Calls `handler` with a context as good as one can be that was not interrupted.
#[inline(never)]
fn run_with_context(handler: usize, info: &mut siginfo_t, mask: Set, stack: usize) {
    // SAFETY: all-zero is room for a context; the handler is the program's.
    unsafe {
        let mut context: ucontext_t = std::mem::zeroed();
        libc::getcontext(&mut context);
        store_set(&mut context.uc_sigmask, mask);
        call(handler, info.si_signo, info, (&raw mut context).cast(), stack);
    }
}

/// Returns the upper end of the alternate stack if `action` wants to run there and the caller does not already.
fn altstack_for(thread: &Thread, action: &Action) -> Option<usize> {
    let (base, size) = thread.signals.altstack.get();
    let here = ptr::from_ref(&base) as usize;
    let wanted = action.has(libc::SA_ONSTACK) && size > 0 && !(base..base + size).contains(&here);
    wanted.then_some(base + size)
}

/// Calls `handler(signal, info, context)` on `stack`, or where the caller is if that is 0.
#[unsafe(naked)]
unsafe extern "C-unwind" fn call(
    handler: usize,
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
    stack: usize,
) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "test r8, r8",
        "jz 2f",
        "mov rsp, r8",
        "2:",
        "and rsp, -16",
        "mov rax, rdi",
        "mov edi, esi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "call rax",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// The first bytes of a context, as far as the kernel writes and reads it: the C library's continues behind the mask.
const KERNEL_CONTEXT: usize = offset_of!(ucontext_t, uc_sigmask) + size_of::<Set>();

/// A fault, on the stack where its handler runs.
#[repr(C, align(16))]
struct Moved {
    context: [u8; KERNEL_CONTEXT.next_multiple_of(16)],
    info: siginfo_t,
    thread: *const Thread,
}

/// Handles a fault of `thread`, the caller, which `context` describes: the handler runs in the task, on the stack that
/// the program chose. Returns false if the program has none or has blocked the signal.
pub(super) fn fault(
    thread: &'static Thread,
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut ucontext_t,
) -> bool {
    let action = actions::get(signal);
    let blocked = !thread.signals.accepts(signal) && signal != libc::SIGABRT;
    if action.kind(signal) != Kind::Handled || blocked {
        return false;
    }
    if !is_on_altstack_of_worker() {
        // The frame is the task's own. The worker's mask comes back first: others may run on it meanwhile.
        keep_altstack(context);
        // SAFETY: the kernel's frame, until the return from it.
        unsafe {
            change_mask(libc::SIG_SETMASK, actions::set_of(&(*context).uc_sigmask));
            run(thread, &action, &mut *info, context);
        }
        return true;
    }
    // SAFETY: the kernel's frame, on the worker's own alternate stack.
    unsafe { move_away(thread, &action, info, context) }
}

/// Returns whether the caller runs on the kernel's alternate stack.
fn is_on_altstack_of_worker() -> bool {
    // SAFETY: all-zero is room for a description; the call fills it.
    unsafe {
        let mut stack: libc::stack_t = std::mem::zeroed();
        syscall!(libc::SYS_sigaltstack, 0, &raw mut stack);
        stack.ss_flags & libc::SS_ONSTACK != 0
    }
}

/// Copies the frame of a fault to the task's stack, or to its alternate one, and makes the kernel return into
/// [`continue_at`] there. Returns false if there is no room: the stack has overflowed.
///
/// # Safety
/// The kernel's frame, from which the caller returns.
unsafe fn move_away(
    thread: &'static Thread,
    action: &Action,
    info: *mut siginfo_t,
    context: *mut ucontext_t,
) -> bool {
    // SAFETY: the kernel's frame.
    let registers = unsafe { &mut (*context).uc_mcontext };
    let sp = registers.gregs[libc::REG_RSP as usize] as usize;
    let (base, size) = thread.signals.altstack.get();
    let is_inside = (base..base + size).contains(&sp);
    let (top, floor) = if action.has(libc::SA_ONSTACK) && size > 0 && !is_inside {
        (base + size, base)
    } else {
        let own = thread.task.stack();
        let floor = if own.contains(&sp) || sp < own.start { own.start } else { 0 };
        (sp.saturating_sub(RED_ZONE), floor)
    };
    let state = registers.fpregs.cast::<u8>();
    // SAFETY: null, or the kernel's saved state.
    let state_size = if state.is_null() { 0 } else { unsafe { state_size(state) } };
    let room = state_size + 64 + size_of::<Moved>() + 4096;
    if top < floor + room {
        return false;
    }
    let state_at = (top - state_size) & !63;
    let at = (state_at - size_of::<Moved>()) & !15;
    let moved = at as *mut Moved;
    // SAFETY: free memory of the stack, with room for both.
    unsafe {
        ptr::copy_nonoverlapping(state, state_at as *mut u8, state_size);
        ptr::copy_nonoverlapping(
            context.cast::<u8>(),
            (*moved).context.as_mut_ptr(),
            KERNEL_CONTEXT,
        );
        (&raw mut (*moved).info).copy_from(info, 1);
        (&raw mut (*moved).thread).write(thread);
        let copy = moved.cast::<ucontext_t>();
        (*copy).uc_stack.ss_flags = KEEP;
        if !state.is_null() {
            (*copy).uc_mcontext.fpregs = state_at as *mut _;
        }
        // As a called function finds it.
        ((at - 8) as *mut usize).write(0);
    }
    registers.gregs[libc::REG_RDI as usize] = at as i64;
    registers.gregs[libc::REG_RSP as usize] = (at - 8) as i64;
    registers.gregs[libc::REG_RIP as usize] = continue_at as *const () as i64;
    /// The direction and the trap flag.
    const FLAGS: i64 = 1 << 10 | 1 << 8;
    registers.gregs[libc::REG_EFL as usize] &= !FLAGS;
    true
}

/// Returns the bytes of the processor state at `state`, which the kernel saved.
unsafe fn state_size(state: *const u8) -> usize {
    /// Where the kernel describes what follows the old format, and how it marks that.
    const SOFTWARE: usize = 464;
    const MAGIC: u32 = 0x4650_5853;
    const OLD_FORMAT: usize = 512;
    // SAFETY: the old format is always there.
    unsafe {
        let words = state.add(SOFTWARE).cast::<u32>();
        if words.read() == MAGIC { words.add(1).read() as usize } else { OLD_FORMAT }
    }
}

/// Where a task goes on after a fault: runs the handler, and returns to where the fault was.
unsafe extern "C-unwind" fn continue_at(moved: *mut Moved) -> ! {
    // SAFETY: `move_away` wrote it, on this stack.
    unsafe {
        let (thread, info) = (&*(*moved).thread, &mut (*moved).info);
        let context = moved.cast::<ucontext_t>();
        let action = actions::get(info.si_signo);
        if action.kind(info.si_signo) == Kind::Handled {
            run(thread, &action, info, context);
        }
        // The kernel finds the frame from the stack pointer: the context begins there.
        asm!(
            "mov rsp, {context}",
            "mov eax, {call}",
            "syscall",
            "ud2",
            context = in(reg) context,
            call = const libc::SYS_rt_sigreturn,
            options(noreturn),
        )
    }
}

/// POSIX's `sigaltstack`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
    // The runtime gives its workers stacks when they are no tasks.
    let Some(thread) = Thread::current() else {
        // SAFETY: the caller's contract.
        return errno::of_kernel(unsafe { syscall!(libc::SYS_sigaltstack, new, old) }) as c_int;
    };
    let (base, size) = thread.signals.altstack.get();
    let here = ptr::from_ref(&base) as usize;
    let is_on_it = (base..base + size).contains(&here);
    // SAFETY: the caller's pointers are null or valid.
    let (wanted, old) = unsafe { (new.as_ref(), old.as_mut()) };
    let wanted = wanted.copied();
    if let Some(old) = old {
        let ss_flags = match (size, is_on_it) {
            (0, _) => libc::SS_DISABLE,
            (_, true) => libc::SS_ONSTACK,
            _ => 0,
        };
        *old = libc::stack_t { ss_sp: base as *mut c_void, ss_flags, ss_size: size };
    }
    let Some(wanted) = wanted else { return 0 };
    /// Off while a handler runs on it, which a moved task cannot tell the kernel.
    const SS_AUTODISARM: c_int = 1 << 31;
    match wanted.ss_flags & !SS_AUTODISARM {
        _ if is_on_it => return errno::fail(libc::EPERM),
        libc::SS_DISABLE => thread.signals.altstack.set((0, 0)),
        0 | libc::SS_ONSTACK if wanted.ss_size < libc::MINSIGSTKSZ => {
            return errno::fail(libc::ENOMEM);
        }
        0 | libc::SS_ONSTACK => {
            thread.signals.altstack.set((wanted.ss_sp as usize, wanted.ss_size));
        }
        _ => return errno::fail(libc::EINVAL),
    }
    0
}

/// Where a jump buffer says whether it has a mask, and the mask. The first word is what the C library gives the kernel;
/// the second is ours.
const HAS_MASK: usize = 64;
const KERNEL_MASK: usize = 72;
const OWN_MASK: usize = 80;
/// Where it marks ours.
const MARK_AT: usize = 88;
const MARK: u64 = 0x6865_6464_6c65_7369;

/// Writes the calling task's mask into `buffer`: the C library is going to write the worker's.
extern "C" fn save_mask(buffer: *mut u8) {
    let thread = Thread::current();
    let mask = thread.map_or(0, |thread| thread.signals.mask.load(Ordering::Relaxed));
    // SAFETY: a jump buffer with room for a mask of 128 bytes, of which the kernel uses 8.
    unsafe {
        buffer.add(OWN_MASK).cast::<Set>().write(mask);
        buffer.add(MARK_AT).cast::<u64>().write(if thread.is_some() { MARK } else { 0 });
    }
}

static REAL_SIGSETJMP: Real = Real::new(c"__sigsetjmp");

extern "C" fn real_sigsetjmp() -> usize {
    REAL_SIGSETJMP.address()
}

/// What `sigsetjmp` and `setjmp` call.
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn __sigsetjmp(buffer: *mut c_void, save: c_int) -> c_int {
    // The C library's own function must find the caller's frame: it is jumped to.
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "test esi, esi",
        "jz 2f",
        "call {save}",
        "2:",
        "call {real}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        save = sym save_mask,
        real = sym real_sigsetjmp,
    )
}

/// Gives the calling thread the mask of `buffer`, and forgets the handlers that the jump leaves.
fn before_jump(buffer: *mut u8) {
    let thread = Thread::current();
    // SAFETY: a jump buffer, which the caller jumps to.
    let mask = unsafe { convert_mask(buffer, thread.is_some()) };
    let Some(thread) = thread else { return };
    // SAFETY: as above.
    let target = unsafe { stack_pointer_of(buffer) };
    let state = &thread.signals;
    let mut left = state.frames.get();
    // SAFETY: null, or a frame below on a stack of the task's.
    while let Some(frame) = unsafe { left.as_ref() } {
        if !is_left(thread, left as usize, target) {
            break;
        }
        left = frame.outer;
    }
    state.frames.set(left);
    if let Some(mask) = mask {
        set_mask(thread, mask);
        if Caller::here() == Caller::Task {
            deliver(thread, ptr::null_mut());
        }
    }
}

/// Makes the mask in `buffer`, if there is one, fit who jumps: a task, on whatever worker, or a kernel thread. The
/// first thread may have been the other when it saved the mask: it becomes a task, and in a fork's child a kernel
/// thread. Returns the mask.
///
/// # Safety
/// A jump buffer that no other thread uses. One without a mask is smaller, and is not read beyond where it says so.
unsafe fn convert_mask(buffer: *mut u8, is_task: bool) -> Option<Set> {
    // SAFETY: the caller's promise.
    unsafe {
        if buffer.add(HAS_MASK).cast::<c_int>().read() == 0 {
            return None;
        }
        let mark = buffer.add(MARK_AT).cast::<u64>();
        let (kernels, own) =
            (buffer.add(KERNEL_MASK).cast::<Set>(), buffer.add(OWN_MASK).cast::<Set>());
        match (is_task, mark.read() == MARK) {
            (true, false) => {
                own.write(kernels.read());
                kernels.write(WORKERS);
                mark.write(MARK);
            }
            (false, true) => {
                kernels.write(own.read());
                mark.write(0);
            }
            _ => {}
        }
        Some(if is_task { own.read() } else { kernels.read() })
    }
}

/// Returns whether a jump to the stack pointer `target` leaves the handler whose frame is at `frame`.
fn is_left(thread: &Thread, frame: usize, target: usize) -> bool {
    let (base, size) = thread.signals.altstack.get();
    let alternate = base..base + size;
    match (alternate.contains(&frame), alternate.contains(&target)) {
        // A handler that runs on the alternate stack has its frame on the one that it interrupted.
        (false, true) => false,
        (true, false) => true,
        _ => frame < target,
    }
}

/// Returns the stack pointer in a jump buffer, which the C library has scrambled with its guard.
unsafe fn stack_pointer_of(buffer: *const u8) -> usize {
    const STACK_POINTER: usize = 6 * 8;
    const ROTATED: u32 = 0x11;
    let guard: usize;
    // SAFETY: the buffer has eight registers; the guard is where every x86-64 descriptor has it.
    unsafe {
        asm!("mov {}, fs:[0x30]", out(reg) guard, options(nostack, readonly, preserves_flags));
        buffer.add(STACK_POINTER).cast::<usize>().read().rotate_right(ROTATED) ^ guard
    }
}

/// Defines the names of the C library's jumps.
macro_rules! jumps {
    ($($name:ident)*) => {$(
        /// C's jump of this name.
        ///
        /// # Safety
        /// C's contract.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(buffer: *mut c_void, value: c_int) -> ! {
            before_jump(buffer.cast());
            // SAFETY: the function has this type; the caller's contract.
            unsafe { real!($name(buffer: *mut c_void, value: c_int) -> ()) }
            unreachable!("a jump does not return")
        }
    )*};
}

jumps! { longjmp _longjmp siglongjmp __longjmp_chk }
