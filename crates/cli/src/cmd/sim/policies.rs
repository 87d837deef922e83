//! Lists of policies on the command line.

/// Splits a comma-separated list of policies. Commas also separate a policy's parameters: a piece with `=`
/// before any `:` belongs to the preceding policy.
pub fn split(list: &str) -> Vec<String> {
    let mut policies: Vec<String> = Vec::new();
    for piece in list.split(',').map(str::trim).filter(|piece| !piece.is_empty()) {
        let parameter = piece.split(':').next().is_some_and(|head| head.contains('='));
        match policies.last_mut() {
            Some(last) if parameter => last.extend([",", piece]),
            _ => policies.push(piece.into()),
        }
    }
    policies
}

/// The policies that a scenario's own is compared with by default.
const OTHERS: [&str; 4] = ["fifo", "work-stealing", "two-queue", "shinjuku"];

/// Returns the requested policies, or by default the scenario's own and the others, without duplicates.
pub fn chosen(asked: &[String], own: &str) -> Vec<String> {
    let mut all: Vec<String> = asked.iter().flat_map(|list| split(list)).collect();
    if all.is_empty() {
        let others = OTHERS.into_iter().filter(|name| own.split(':').next() != Some(name));
        all = [own].into_iter().chain(others).map(String::from).collect();
    }
    let mut seen = Vec::new();
    all.retain(|policy| {
        let new = !seen.contains(policy);
        seen.push(policy.clone());
        new
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_separate_policies_and_parameters() {
        assert_eq!(
            split("two-queue:quantum=5us,long=1ms, fifo,shinjuku:quantum=5us"),
            ["two-queue:quantum=5us,long=1ms", "fifo", "shinjuku:quantum=5us"]
        );
        assert_eq!(split("fifo"), ["fifo"]);
        assert_eq!(split(""), Vec::<String>::new());
    }

    #[test]
    fn the_scenarios_own_policy_comes_first_and_once() {
        let own = "two-queue:quantum=5us";
        assert_eq!(chosen(&[], own), [own, "fifo", "work-stealing", "shinjuku"]);
        assert_eq!(chosen(&["fifo".into(), "sjf,fifo".into()], "x"), ["fifo", "sjf"]);
    }
}
