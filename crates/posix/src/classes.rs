//! The classes of threads, by their names and by whose code they run:
//! `HEDDLE_PTHREAD_CLASSES=be=rocksdb:low*;be=module:libbackup.so*;lc=main*`.
//!
//! The first rule that fits a thread decides. `heddle run --class` checks the rules before it sets the variable; what
//! does not parse here is passed over.

use crate::image::is_own_code;
use heddle_core::{Class, glob};
use std::borrow::Cow;
use std::ffi::{CStr, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A class, and the pattern of what has it.
struct Rule {
    class: Class,
    subject: Subject,
    pattern: String,
}

/// What a pattern is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    /// The thread's name.
    Name,
    /// The file name of the object that has the thread's start routine.
    Module,
}

/// The index of the first rule that fits a thread's module.
pub(crate) type RuleIndex = u8;

/// No rule fits the module.
pub(crate) const NONE: RuleIndex = RuleIndex::MAX;

fn rules() -> &'static [Rule] {
    static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
    RULES.get_or_init(|| {
        let text = std::env::var("HEDDLE_PTHREAD_CLASSES").unwrap_or_default();
        text.split(';').filter_map(rule).take(usize::from(NONE)).collect()
    })
}

fn rule(text: &str) -> Option<Rule> {
    let (class, pattern) = text.split_once('=')?;
    let class = match class {
        "lc" => Class::LC,
        "be" => Class::BE,
        number => Class(number.parse().ok()?),
    };
    let (subject, pattern) = match pattern.strip_prefix("module:") {
        Some(module) => (Subject::Module, module),
        None => (Subject::Name, pattern),
    };
    Some(Rule { class, subject, pattern: pattern.to_owned() })
}

/// Returns whether there are rules.
pub(crate) fn exist() -> bool {
    !rules().is_empty()
}

/// Returns the class of a thread with this name, if a rule says so. `of_module` is the index of the first that fits its
/// module.
pub(crate) fn of(name: &str, of_module: RuleIndex) -> Option<Class> {
    let fits = |(index, rule): &(usize, &Rule)| match rule.subject {
        Subject::Name => glob::fits(&rule.pattern, name),
        Subject::Module => *index == usize::from(of_module),
    };
    rules().iter().enumerate().find(fits).map(|(_, rule)| rule.class)
}

/// Returns the index of the first rule that fits the module of a thread that begins with `entry(argument)`.
///
/// # Safety
/// `argument` is what the thread gets.
pub(crate) unsafe fn of_start(entry: usize, argument: *mut c_void) -> RuleIndex {
    if !rules().iter().any(|rule| rule.subject == Subject::Module) {
        return NONE;
    }
    // SAFETY: the caller's promise.
    of_code(unsafe { routine(entry, argument) })
}

/// Returns an address in the module whose code the thread is to run. C++'s threads all begin in the C++ library, with a
/// virtual object that holds what the program gave them: its table of functions is in the program's module. C11's begin
/// in this library, with the program's function first in what they get.
///
/// # Safety
/// As [`of_start`].
unsafe fn routine(entry: usize, argument: *mut c_void) -> usize {
    let is_cxx = || module(entry).starts_with("libstdc++.so");
    if !argument.is_null() && (is_own_code(entry) || is_cxx()) {
        // SAFETY: what such a start routine gets begins with a pointer.
        return unsafe { argument.cast::<usize>().read() };
    }
    entry
}

/// Returns the index of the first rule that fits the module of `address`. Remembers the last answers: to find a module
/// takes a lock of the loader's.
fn of_code(address: usize) -> RuleIndex {
    /// An address and, in the upper byte, the answer; 0 is none.
    static KNOWN: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
    const ANSWER: u32 = 56;
    let entry = &KNOWN[(address >> 4) % KNOWN.len()];
    let known = entry.load(Ordering::Relaxed);
    if known != 0 && known << 8 == (address as u64) << 8 {
        return (known >> ANSWER) as RuleIndex;
    }
    let module = module(address);
    let fits = |rule: &Rule| rule.subject == Subject::Module && glob::fits(&rule.pattern, &module);
    let index = rules().iter().position(fits).map_or(NONE, |index| index as RuleIndex);
    entry.store(address as u64 | u64::from(index) << ANSWER, Ordering::Relaxed);
    index
}

/// Returns the file name of the object that has `address`, without its folder.
fn module(address: usize) -> Cow<'static, str> {
    // SAFETY: all-zero is valid; the loader fills it. An object's name stays as long as the object, whose code is about
    // to run.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return Cow::Borrowed("");
        }
        let path = CStr::from_ptr(info.dli_fname).to_bytes();
        String::from_utf8_lossy(path.rsplit(|&byte| byte == b'/').next().unwrap_or_default())
    }
}
