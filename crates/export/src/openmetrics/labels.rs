//! The few labels that a series may have.

use std::fmt;

use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};

/// The longest value; longer ones are cut.
const LONGEST: usize = 128;

/// The labels of a series. Those that are empty are not written.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels {
    /// The program, attachment or enclave.
    pub service: String,
    /// The worker or socket, by a number that stays small.
    pub executor: String,
    /// The class of tasks or requests.
    pub class: String,
    /// The policy.
    pub policy: String,
}

impl Labels {
    /// Labels of a whole service.
    #[must_use]
    pub fn service(name: &str) -> Labels {
        Labels { service: cut(name), ..Labels::default() }
    }

    /// Returns these labels with those of a list `key=value,...`, of which other keys are left out. A `worker` is an
    /// executor.
    #[must_use]
    pub fn with(&self, list: &str) -> Labels {
        let mut labels = self.clone();
        for (key, value) in list.split(',').filter_map(|pair| pair.split_once('=')) {
            let label = match key.trim() {
                "service" => &mut labels.service,
                "executor" | "worker" => &mut labels.executor,
                "class" => &mut labels.class,
                "policy" => &mut labels.policy,
                _ => continue,
            };
            *label = cut(value.trim());
        }
        labels
    }
}

/// Returns `text` without control characters, and not longer than a label may be.
fn cut(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(LONGEST).collect()
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        let all = [
            ("service", &self.service),
            ("executor", &self.executor),
            ("class", &self.class),
            ("policy", &self.policy),
        ];
        let stated = all.into_iter().filter(|(_, value)| !value.is_empty());
        stated.into_iter().try_for_each(|(key, value)| {
            // Quotes, backslashes and newlines are escaped there.
            (key, &value[..]).encode(encoder.encode_label())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_labels_are_left_out() {
        let labels = Labels::service("a\x1b\nb").with("worker=3,tid=77,class=lc,policy=two-queue");
        let expected = Labels {
            service: "a??b".into(),
            executor: "3".into(),
            class: "lc".into(),
            policy: "two-queue".into(),
        };
        assert_eq!(labels, expected);
        assert_eq!(Labels::service(&"x".repeat(999)).service.len(), LONGEST);
    }
}
