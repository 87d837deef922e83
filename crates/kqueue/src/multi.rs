//! SKQ's encoding of policies (its sys/event.h), translated to Heddle's.

/// The parameters of FKQTUNE.
pub const FREQ: u32 = 1;
pub const SHARE: u32 = 2;

const QUEUE: u32 = 1;
const CPU: u32 = 2;
const BEST: u32 = 4;
/// Work stealing.
const STEALS: u32 = 1;
/// The most workers that SKQ compares, and events that it steals at once.
const MOST: u32 = 8;

/// Returns the policy that a word encodes: its number in the lowest byte, its argument in the next, then the
/// feature and its argument.
pub fn policy(word: u32) -> Option<String> {
    let [policy, choices, feature, steal] = word.to_le_bytes().map(u32::from);
    if choices > MOST || steal > MOST || feature > STEALS {
        return None;
    }
    let steals = feature == STEALS;
    let hybrid = |affinity: &str, choices: u32, more: &str| {
        let (choices, steal) = (choices.max(1), steal.max(1));
        Some(format!("hybrid:affinity={affinity},choices={choices},steal={steal}{more}"))
    };
    match (policy, choices, steals) {
        (0, 0, false) => Some("best-of-two:choices=1".into()),
        (0, 0, true) => hybrid("none", 1, ",penalty=1s"),
        (QUEUE, 0, false) => Some("queue-affinity".into()),
        (CPU, 0, false) => Some("cpu-affinity".into()),
        // A penalty that no other worker is worth leaves affinity and stealing.
        (QUEUE, 0, true) => hybrid("queue", 1, ",penalty=1s"),
        (CPU, 0, true) => hybrid("cpu", 1, ",penalty=1s"),
        (QUEUE, _, _) => hybrid("queue", choices, ""),
        (CPU, _, _) => hybrid("cpu", choices, ""),
        (BEST, 0..=1, _) => None,
        (BEST, _, false) => Some(format!("best-of-two:choices={choices}")),
        (BEST, _, true) => hybrid("none", choices - 1, ",penalty=1ns"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_events::EventQueue;

    #[test]
    fn every_word_of_skq_s_benchmarks_is_a_policy() {
        let words = [
            (0, "best-of-two:choices=1"),
            (QUEUE, "queue-affinity"),
            (CPU, "cpu-affinity"),
            (BEST | 2 << 8, "best-of-two:choices=2"),
            (QUEUE | 2 << 8, "hybrid:affinity=queue,choices=2,steal=1"),
            (CPU | 2 << 8 | 1 << 16 | 1 << 24, "hybrid:affinity=cpu,choices=2,steal=1"),
            (
                BEST | 2 << 8 | 1 << 16 | 4 << 24,
                "hybrid:affinity=none,choices=1,steal=4,penalty=1ns",
            ),
            (CPU | 1 << 16 | 1 << 24, "hybrid:affinity=cpu,choices=1,steal=1,penalty=1s"),
        ];
        for (word, text) in words {
            assert_eq!(policy(word).as_deref(), Some(text), "{word:#x}");
            EventQueue::builder().policy(text).build().unwrap();
        }
    }

    #[test]
    fn words_that_mean_nothing_are_refused() {
        for word in [3, BEST, BEST | 1 << 8, CPU | 9 << 8, CPU | 2 << 16, CPU | 1 << 16 | 9 << 24] {
            assert_eq!(policy(word), None, "{word:#x}");
        }
    }
}
