//! The worker's block behind GS, and the preempt count in it.

use core::arch::asm;

/// Bit 31 of the preempt count, set while no preemption is pending. It is inverted, so that enabling preemption is one
/// subtraction whose result is zero exactly if the count falls to zero and a preemption is pending (Caladan's trick).
const NOT_PENDING: u32 = 1 << 31;

/// Byte offset of the preempt count in the block behind GS; the word at offset 0 is the block's own address.
const COUNT: usize = 8;

/// Returns the GS base of this kernel thread; 0 if it is not a worker.
#[inline]
pub fn gs_base() -> usize {
    let base: usize;
    // SAFETY: reads a register; `fsgsbase_supported` is checked before the first worker starts.
    unsafe { asm!("rdgsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// Makes `base` the block of this kernel thread.
///
/// # Safety
/// `base` is 0 or the address of a block that starts with its own address and the preempt count, that stays
/// valid while GS points there and that is not the block of another running thread.
#[inline]
pub unsafe fn set_gs_base(base: usize) {
    // SAFETY: by the caller's promise.
    unsafe { asm!("wrgsbase {}", in(reg) base, options(nostack, preserves_flags)) };
}

/// Returns the first word of the block: its address. One instruction, so a preemption cannot come between choosing the
/// worker and the read.
///
/// # Safety
/// GS points to a block.
#[inline]
pub unsafe fn gs_word() -> usize {
    let block: usize;
    // SAFETY: by the caller's promise. Not `pure`: after a switch the same code may run on another worker.
    unsafe { asm!("mov {}, gs:[0]", out(reg) block, options(nostack, preserves_flags)) };
    block
}

/// The preempt count of the worker that runs the caller. Every function is one instruction on GS-relative
/// memory: a preemption comes before or after it, never in between.
///
/// # Safety of all functions
/// GS points to a block.
pub struct PreemptCount;

impl PreemptCount {
    /// The count of a worker that may be preempted and has no preemption pending.
    pub const ENABLED: u32 = NOT_PENDING;

    /// Holds preemption off until the matching [`PreemptCount::enable`].
    ///
    /// # Safety
    /// GS points to a block.
    #[inline]
    pub unsafe fn disable() {
        // SAFETY: by the caller's promise. The compiler must not move memory accesses over it (no `nomem`).
        unsafe { asm!("add dword ptr gs:[{c}], 1", c = const COUNT, options(nostack)) };
    }

    /// Ends one [`PreemptCount::disable`]. Returns true if that was the last and a preemption is pending.
    ///
    /// # Safety
    /// GS points to a block and the count is not zero.
    #[inline]
    #[must_use]
    pub unsafe fn enable() -> bool {
        let due: u8;
        // SAFETY: by the caller's promise.
        unsafe {
            asm!("sub dword ptr gs:[{c}], 1", "setz {d}", c = const COUNT, d = out(reg_byte) due, options(nostack));
        }
        due != 0
    }

    /// Returns how many times preemption is held off.
    ///
    /// # Safety
    /// GS points to a block.
    #[inline]
    pub unsafe fn depth() -> u32 {
        let count: u32;
        // SAFETY: by the caller's promise.
        unsafe {
            asm!("mov {:e}, gs:[{c}]", out(reg) count, c = const COUNT, options(nostack, preserves_flags))
        };
        count & !NOT_PENDING
    }

    /// Sets the depth and clears a pending preemption.
    ///
    /// # Safety
    /// GS points to a block.
    #[inline]
    pub unsafe fn set_depth(depth: u32) {
        let count = depth | NOT_PENDING;
        // SAFETY: by the caller's promise.
        unsafe {
            asm!("mov dword ptr gs:[{c}], {:e}", in(reg) count, c = const COUNT, options(nostack, preserves_flags))
        };
    }

    /// Marks a preemption as due once the count falls to zero.
    ///
    /// # Safety
    /// GS points to a block.
    #[inline]
    pub unsafe fn set_pending() {
        // SAFETY: by the caller's promise.
        unsafe {
            asm!("and dword ptr gs:[{c}], {m}", c = const COUNT, m = const !NOT_PENDING as i32, options(nostack))
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Block {
        this: usize,
        count: u32,
    }

    #[test]
    fn a_pending_preemption_is_due_at_the_last_enable_only() {
        let mut block = Block { this: 0, count: PreemptCount::ENABLED };
        block.this = &raw const block as usize;
        // SAFETY: the block is valid until GS is reset below, and this thread alone uses it.
        unsafe {
            set_gs_base(block.this);
            assert_eq!((gs_base(), gs_word()), (block.this, block.this));
            PreemptCount::disable();
            PreemptCount::disable();
            assert!(!PreemptCount::enable());
            PreemptCount::set_pending();
            PreemptCount::disable();
            assert!(!PreemptCount::enable());
            assert_eq!(PreemptCount::depth(), 1);
            assert!(PreemptCount::enable());
            PreemptCount::set_depth(1);
            assert!(!PreemptCount::enable(), "nothing pending after set_depth");
            set_gs_base(0);
        }
    }
}
