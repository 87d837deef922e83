//! What every layer shows, for `heddle metrics`, `heddle top` and `heddle record`. Each source may be missing, and says
//! why.

pub mod agents;
pub mod kernel;
pub mod lanes;
pub mod pages;
pub mod shares;
pub mod steering;
pub mod threads;

use std::path::Path;

/// The longest name of a service.
const LONGEST: usize = 40;

/// Returns the name of a process as a service: the short one, or that of its program.
pub fn service_name(short: &str, command: &str) -> String {
    let program = command.split_whitespace().next().unwrap_or_default();
    let program = Path::new(program).file_name().and_then(|name| name.to_str());
    let name = if short.is_empty() { program.unwrap_or_default() } else { short };
    name.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_called_as_its_process() {
        assert_eq!(service_name("gunicorn", "/usr/bin/python3 x"), "gunicorn");
        assert_eq!(service_name("", "/usr/bin/python3 x"), "python3");
        assert_eq!(service_name("", ""), "");
    }
}
