//! The line of an executor: where hooks meet to say who works on what (Syrup, section 5.3).
//!
//! A steering policy, the program that it steers to and an agent share an array of lines, one an executor, 64 bytes
//! each (`struct hd_line` in `include/heddle/policy.h`). The layers know nothing of each other but this.

/// Bytes of a line: one of the cache's.
pub const BYTES: u32 = 64;
/// Half word (of four bytes): the class of the work in hand, as program and policy number it; [`IDLE`] for none.
pub const CLASS: usize = 0;
/// Half word: one more than the number of the CPU that the executor runs on; 0: not known.
pub const CPU: usize = 1;
/// Word (of eight bytes) from which on a line belongs to the program and its policy.
pub const FIRST_WORD: usize = 1;
/// How many such words there are.
pub const WORDS: usize = 6;
/// Half word: the operating system's number of the thread that serves the executor; 0: not known.
pub const THREAD: usize = 14;

/// The class of an executor that does nothing.
pub const IDLE: u32 = 0;

/// How many executors a policy can have, and lines their map (`HD_MAX_EXECUTORS`).
pub const MOST: usize = 64;
