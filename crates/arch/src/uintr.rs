//! The instructions of user interrupts (Intel's Software Developer's Manual, volume 3, chapter "User Interrupts").
//!
//! They are undefined, and end in SIGILL, on a CPU whose kernel has not enabled user interrupts.

use core::arch::asm;

/// Sends the interrupt of the entry `target` of the calling thread's table. The receiver's handler begins a moment
/// later if it runs, otherwise where it runs again.
///
/// # Safety
/// The calling thread is registered, and its table has such an entry (else SIGSEGV).
#[inline]
pub unsafe fn send(target: u64) {
    // SAFETY: by the caller's promise. What was written before is seen by the handler: the instruction is locked.
    unsafe { asm!("senduipi {}", in(reg) target, options(nostack, preserves_flags)) };
}

/// Lets the calling thread be interrupted.
///
/// # Safety
/// User interrupts are enabled on this machine.
#[inline]
pub unsafe fn enable() {
    // SAFETY: by the caller's promise. No memory access moves over it (no `nomem`).
    unsafe { asm!("stui", options(nostack, preserves_flags)) };
}

/// Holds interrupts of the calling thread back until [`enable`] or the end of a handler.
///
/// # Safety
/// User interrupts are enabled on this machine.
#[inline]
pub unsafe fn disable() {
    // SAFETY: as above.
    unsafe { asm!("clui", options(nostack, preserves_flags)) };
}

/// What XSAVEC saves of a task that is interrupted anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedState {
    /// Bits of the components: all that the kernel has enabled.
    pub components: u64,
    /// Bytes of an area for all of them, compacted. Those that a task has not used are not written.
    pub size: usize,
}

impl ExtendedState {
    /// Asks the processor. `None` if it has no XSAVEC; each with user interrupts has.
    pub fn of_this_machine() -> Option<ExtendedState> {
        use core::arch::x86_64::{__cpuid, __cpuid_count};
        const OSXSAVE: u32 = 1 << 27;
        const XSAVEC: u32 = 1 << 1;
        /// The part that SSE and x87 have, and the header behind it.
        const LEGACY: usize = 512 + 64;
        if __cpuid(0).eax < 0xd || __cpuid(1).ecx & OSXSAVE == 0 {
            return None;
        }
        if __cpuid_count(0xd, 1).eax & XSAVEC == 0 {
            return None;
        }
        let (low, high): (u32, u32);
        // SAFETY: OSXSAVE says that the register can be read.
        unsafe {
            asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
        }
        let components = u64::from(high) << 32 | u64::from(low);
        let mut size = LEGACY;
        for component in (2..63).filter(|component| components >> component & 1 == 1) {
            let part = __cpuid_count(0xd, component);
            if part.ecx & 2 != 0 {
                size = size.next_multiple_of(64);
            }
            size += part.eax as usize;
        }
        Some(ExtendedState { components, size: size.next_multiple_of(64) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_is_as_large_as_the_processor_says() {
        let Some(state) = ExtendedState::of_this_machine() else { return };
        // What the processor counts includes components that only the kernel saves, behind ours.
        let all = core::arch::x86_64::__cpuid_count(0xd, 1).ebx as usize;
        assert!(state.components & 3 == 3 && state.size >= 576, "{state:?}");
        assert!(state.size <= all.next_multiple_of(64), "{state:?}, the processor says {all}");
    }
}
