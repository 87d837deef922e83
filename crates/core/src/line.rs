//! The line of an executor, through which hooks tell each other which executor works on what (Syrup, section 5.3).
//!
//! A steering policy, the program that it steers to and an agent share an array of lines, one per executor, 64 bytes
//! each (`struct hd_line` in `include/heddle/policy.h`). That is all the layers know of each other.

/// Bytes of a line: one cache line.
pub const BYTES: u32 = 64;
/// Half word (four bytes): the class of the work in progress, as numbered by program and policy; [`IDLE`] if none.
pub const CLASS: usize = 0;
/// Half word: one more than the number of the CPU that the executor runs on; 0 if unknown.
pub const CPU: usize = 1;
/// Word (eight bytes) from which on a line belongs to the program and its policy.
pub const FIRST_WORD: usize = 1;
/// Number of such words.
pub const WORDS: usize = 6;
/// Half word: the operating system's id of the thread that serves the executor; 0 if unknown.
pub const THREAD: usize = 14;

/// The class of an idle executor.
pub const IDLE: u32 = 0;

/// The maximum number of executors of a policy, and of lines in their map (`HD_MAX_EXECUTORS`).
pub const MOST: usize = 1024;
