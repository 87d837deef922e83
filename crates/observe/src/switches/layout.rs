//! What the program at every switch shares (`bpf/observe/include/switch.h`), as words of eight bytes.

use heddle_core::Ns;

/// Groups of processes; 0 is all that are in no other.
pub const GROUPS: usize = 16;
/// Buckets of a histogram: below 8 each value has one, above there are 8 for each power of two.
pub const BUCKETS: usize = 496;

pub(super) const RECORD: u64 = 1;
pub(super) const THREADS: u64 = 2;
pub(super) const BURSTS: u64 = 4;

/// Words of `ob_switch_control` and of `ob_cpu_counts`.
pub(super) mod control {
    pub(crate) const FLAGS: usize = 0;
    pub(crate) const BURSTS_LOST: usize = 1;
    pub(crate) const REFUSED: usize = 2;
    pub(crate) const SWITCHES: usize = 0;
    pub(crate) const LOST: usize = 1;
}

/// Processes in an `ob_pids`.
pub(super) const PIDS: usize = 64;
/// Words of a burst, an event and an `ob_use`.
pub(super) const BURST: usize = 4;
pub(super) const EVENT: usize = 4;
pub(super) const USE: usize = 16;

const PREEMPTED: u32 = 0x8000_0000;

/// A CPU went from one thread to another. In the ring it has the layout of an event of any layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// When, by `CLOCK_MONOTONIC`.
    pub at: Ns,
    /// On which CPU.
    pub cpu: u16,
    /// The thread that left; 0 if the CPU was idle.
    pub from: u32,
    /// The thread that got the CPU; 0 if the CPU is idle now.
    pub to: u32,
    /// How long `from` had waited in the run queue before the turn that ends here. It had become runnable by a wakeup,
    /// if it slept before, that long before its turn.
    pub waited: Ns,
    /// The kernel's state of `from`: 0 if it is runnable still.
    pub state: u32,
    /// Whether `from` was preempted, whatever its state.
    pub preempted: bool,
}

impl Switch {
    pub(super) fn of(words: &[u64; EVENT]) -> Switch {
        let (arg, rest) = (words[3] as u32, words[3] >> 32);
        Switch {
            at: Ns(words[0]),
            to: words[1] as u32,
            from: (words[1] >> 32) as u32,
            waited: Ns(words[2]),
            state: arg & !PREEMPTED,
            preempted: arg & PREEMPTED != 0,
            cpu: rest as u16,
        }
    }

    /// Returns whether `from` sleeps or has ended now: it must be woken before it runs again.
    #[must_use]
    pub fn sleeps(&self) -> bool {
        !self.preempted && self.state != 0
    }
}

/// What a thread used since the program was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Its id.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// Its name when it was first seen; bytes that are no text, and control characters, are replaced.
    pub name: String,
    /// CPU time.
    pub cpu: Ns,
    /// Time in which it was runnable and did not run.
    pub run_queue: Ns,
    /// Times that it got a CPU.
    pub switches: u64,
    /// Times that it was taken off while runnable.
    pub preempted: u64,
    /// How long threads of any group but 0 waited on a CPU while it ran there.
    pub delayed: Ns,
    /// The CPUs on which it ran, a bit each, by number modulo 64.
    pub cpus: u64,
    /// How many bursts it had.
    pub bursts: u64,
    /// Whether it has ended.
    pub ended: bool,
}

impl Use {
    pub(super) fn of(words: &[u64; USE]) -> Use {
        let name: Vec<u8> = words[1..3].iter().flat_map(|word| word.to_ne_bytes()).collect();
        Use {
            thread: words[0] as u32,
            process: (words[0] >> 32) as u32,
            name: readable(&name),
            cpu: Ns(words[3]),
            run_queue: Ns(words[4]),
            switches: words[5],
            preempted: words[6],
            delayed: Ns(words[7]),
            cpus: words[8],
            bursts: words[9],
            ended: words[13] != 0,
        }
    }
}

/// Returns a name of up to its first zero as text without control characters: programs choose their names, and may put
/// newlines and escape sequences into them.
pub(crate) fn readable(name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let text = String::from_utf8_lossy(&name[..end]);
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Returns how many bursts one in the sample stands for once a thread had `number` of them, as the kernel's program
/// does.
pub(super) fn sampled_every(number: u64) -> u64 {
    let mut every = 1;
    while number >> 9 >= every {
        every <<= 1;
    }
    every
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_read_as_written() {
        let words = [5, 7 << 32 | 9, 11, 2 << 56 | 3 << 48 | 1 << 32 | 0x8000_0001];
        let switch = Switch::of(&words);
        assert_eq!((switch.at, switch.from, switch.to, switch.waited), (Ns(5), 7, 9, Ns(11)));
        assert_eq!((switch.cpu, switch.state, switch.preempted), (1, 1, true));
        assert!(!switch.sleeps());
    }

    #[test]
    fn names_become_harmless() {
        assert_eq!(readable(b"nginx\0junk"), "nginx");
        assert_eq!(readable(b"a\nb\x1b[2J\xff\0"), "a\u{fffd}b\u{fffd}[2J\u{fffd}");
        assert_eq!(readable(b"0123456789abcdef"), "0123456789abcdef");
    }

    #[test]
    fn the_sample_holds_between_512_and_1024_bursts() {
        assert_eq!([0, 511, 512, 1023, 1024, 2048].map(sampled_every), [1, 1, 2, 2, 4, 8]);
        for count in [600_u64, 1024, 5000, 100_000] {
            let every = sampled_every(count - 1);
            let kept = (0..count).filter(|number| number % every == 0).count();
            assert!((256..=1024).contains(&kept), "{count}: {kept}");
        }
    }
}
