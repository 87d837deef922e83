//! Signals and the stacks on which they are handled.

use std::io;

/// A handler in the kernel's form.
pub type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// The previous action of a signal.
pub type Previous = libc::sigaction;

/// Installs `handler` for `signal` with `flags` (SA_SIGINFO and SA_RESTART are added) and an empty mask.
///
/// # Errors
/// The system's, if the signal cannot be handled.
///
/// # Safety
/// The handler does only what is allowed in a signal handler wherever the signal can arrive.
pub unsafe fn install(signal: i32, handler: Handler, flags: i32) -> io::Result<Previous> {
    // SAFETY: all-zero is a valid action, overwritten below; both pointers are valid.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | flags;
        let mut previous: libc::sigaction = core::mem::zeroed();
        if libc::sigaction(signal, &action, &mut previous) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(previous)
    }
}

/// Restores `previous`.
pub fn restore(signal: i32, previous: &Previous) {
    // SAFETY: an action that the kernel gave us.
    unsafe { libc::sigaction(signal, previous, core::ptr::null_mut()) };
}

/// Gives `signal` its default action, by the system call itself, as [`change_mask`] does.
pub fn set_default(signal: i32) {
    // The kernel's form: a handler, flags, a restorer and a mask, all zero.
    let action = [0u64; 4];
    // SAFETY: a valid action; a mask of the kernel has 8 bytes.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            &raw const action,
            core::ptr::null_mut::<u64>(),
            8usize,
        )
    };
}

/// Makes the kernel hold back `held` while a thread runs the handler of `signal`.
///
/// # Errors
/// The system's, if there is no such signal.
pub fn hold_back_while_handling(signal: i32, held: i32) -> io::Result<()> {
    // SAFETY: all-zero is a valid action, overwritten by the kernel's; the pointers are valid. The old
    // action is installed again, with a larger mask.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        if libc::sigaction(signal, core::ptr::null(), &mut action) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::sigaddset(&mut action.sa_mask, held);
        match libc::sigaction(signal, &action, core::ptr::null_mut()) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Makes `stack` the alternate signal stack of the calling kernel thread. Returns the previous one.
///
/// # Safety
/// Nothing else uses the memory, which lives until the thread ends or switches to another alternate stack.
pub unsafe fn set_alternate_stack(stack: libc::stack_t) -> libc::stack_t {
    let mut previous = stack;
    // SAFETY: the caller's memory; fails only where the thread runs on its alternate stack.
    unsafe { libc::sigaltstack(&stack, &mut previous) };
    previous
}

/// Blocks every signal for the calling kernel thread: threads that provide stacks must never run a handler.
pub fn block_all() {
    // The C library's own two stay open: it waits for every thread to answer.
    change_mask(libc::SIG_SETMASK, !(bit(32) | bit(33)));
}

/// Unblocks `signal` for the calling kernel thread.
pub fn unblock(signal: i32) {
    change_mask(libc::SIG_UNBLOCK, bit(signal));
}

/// The set of `signal` alone, in the kernel's form.
pub const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Changes the mask of the calling kernel thread by the system call itself, because a thread library may have masks of
/// its own behind the C library's names. Returns the previous mask, in the kernel's form.
pub fn change_mask(how: i32, set: u64) -> u64 {
    let mut previous = 0u64;
    // SAFETY: both sets have the kernel's 8 bytes.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const set, &raw mut previous, 8usize)
    };
    previous
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn ignore(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

    #[test]
    fn a_signal_is_held_back_while_another_is_handled() {
        // SAFETY: the handler does nothing.
        let previous = unsafe { install(libc::SIGWINCH, ignore, 0) }.unwrap();
        hold_back_while_handling(libc::SIGWINCH, libc::SIGURG).unwrap();
        // SAFETY: the handler does nothing; the sets are the kernel's.
        unsafe {
            let action = install(libc::SIGWINCH, ignore, 0).unwrap();
            assert_eq!(action.sa_sigaction, ignore as *const () as usize);
            assert_eq!(libc::sigismember(&action.sa_mask, libc::SIGURG), 1);
            assert_eq!(libc::sigismember(&action.sa_mask, libc::SIGTERM), 0);
        }
        restore(libc::SIGWINCH, &previous);
        assert!(hold_back_while_handling(1000, libc::SIGURG).is_err());
    }
}
