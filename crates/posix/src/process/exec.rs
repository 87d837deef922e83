//! Programs in place of the process. They inherit the mask and the CPUs of the kernel thread that starts them, which in
//! a task are the worker's.

use crate::real::real;
use crate::signals;
use crate::thread::Thread;
use heddle_rt::raw;
use std::arch::naked_asm;
use std::ffi::{c_char, c_int};

type Strings = *const *const c_char;

/// Runs `exec`, which comes back only if it fails.
fn replace(exec: impl FnOnce() -> c_int) -> c_int {
    match Thread::current() {
        Some(_) => raw::unpinned(|| signals::with_own_mask(exec)),
        None => exec(),
    }
}

/// Defines functions that pass their arguments on.
macro_rules! execs {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// POSIX's function of this name.
        ///
        /// # Safety
        /// POSIX's contract.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the function has this type; the caller's contract.
            replace(|| unsafe { real!($name($($argument: $type),*) -> c_int) })
        }
    )*};
}

execs! {
    execve(path: *const c_char, argv: Strings, envp: Strings);
    execv(path: *const c_char, argv: Strings);
    execvp(file: *const c_char, argv: Strings);
    execvpe(file: *const c_char, argv: Strings, envp: Strings);
    fexecve(file: c_int, argv: Strings, envp: Strings);
    execveat(folder: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int);
}

/// Defines functions whose arguments are listed: the assembly lays those from registers in front of those on the stack,
/// which makes an array of them, and passes it to `$then`.
macro_rules! listed {
    ($($name:ident => $then:ident;)*) => {$(
        /// POSIX's function of this name: `name(file, arguments..., null)`.
        ///
        /// # Safety
        /// POSIX's contract.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(file: *const c_char, first: *const c_char) -> c_int {
            naked_asm!(
                "pop r11",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push r11",
                "call {then}",
                "pop r11",
                "add rsp, 40",
                "push r11",
                "ret",
                then = sym $then,
            )
        }
    )*};
}

listed! {
    execl => execv;
    execlp => execvp;
    execle => execle_by_list;
}

/// # Safety
/// `list` has arguments up to a null, and the environment behind it.
unsafe extern "C" fn execle_by_list(path: *const c_char, list: Strings) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut at = list;
        while !(*at).is_null() {
            at = at.add(1);
        }
        execve(path, list, at.add(1).cast::<Strings>().read())
    }
}
