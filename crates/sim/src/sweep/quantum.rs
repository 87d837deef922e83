//! The quantum in a policy's text.

use crate::scenario::check_policy as check;
use heddle_core::Ns;
use heddle_policies::find;

/// The quanta that a sweep tries: three per decade, 1 us to 1 ms.
pub const QUANTA: [Ns; 10] = [
    Ns::from_us(1),
    Ns::from_us(2),
    Ns::from_us(5),
    Ns::from_us(10),
    Ns::from_us(20),
    Ns::from_us(50),
    Ns::from_us(100),
    Ns::from_us(200),
    Ns::from_us(500),
    Ns::from_us(1000),
];

const KEY: &str = "quantum";

/// Returns the quantum in the text of `policy`, or else its default; `None` if the policy has none, and
/// `Some("none")` if it has one that is not set.
pub fn quantum_of(policy: &str) -> Option<&str> {
    let (name, params) = policy.split_once(':').unwrap_or((policy, ""));
    let default = find(name.trim())?.params.iter().find(|param| param.key == KEY)?.default;
    let written = params
        .split(',')
        .filter_map(|param| param.split_once('='))
        .find(|(key, _)| key.trim() == KEY);
    Some(written.map_or(default, |(_, value)| value.trim()))
}

/// Returns `policy` with another quantum and otherwise unchanged; `None` if it has no such parameter,
/// or cannot combine this quantum with its other parameters.
///
/// ```
/// use heddle_core::Ns;
/// use heddle_sim::sweep::with_quantum;
/// let policy = with_quantum("two-queue:long=1ms,quantum=5us", Ns::from_us(7));
/// assert_eq!(policy.as_deref(), Some("two-queue:long=1ms,quantum=7us"));
/// assert_eq!(with_quantum("fifo", Ns::from_us(7)), None);
/// ```
pub fn with_quantum(policy: &str, quantum: Ns) -> Option<String> {
    quantum_of(policy)?;
    let (name, params) = policy.split_once(':').unwrap_or((policy, ""));
    let others = params.split(',').map(str::trim).filter(|param| {
        !param.is_empty() && param.split_once('=').is_none_or(|(key, _)| key.trim() != KEY)
    });
    let params: Vec<String> =
        others.map(str::to_owned).chain([format!("{KEY}={quantum}")]).collect();
    let text = format!("{}:{}", name.trim(), params.join(","));
    check(&text).ok().map(|()| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantum_is_found_and_replaced() {
        assert_eq!(quantum_of("fifo"), None);
        assert_eq!(quantum_of("no-such-policy:quantum=1us"), None);
        assert_eq!(quantum_of("work-stealing"), Some("none"));
        assert_eq!(quantum_of("two-queue: long=1ms, quantum = 5us"), Some("5us"));
        assert_eq!(
            with_quantum("work-stealing", Ns::from_us(5)).as_deref(),
            Some("work-stealing:quantum=5us")
        );
    }
}
