//! The C sources, which are part of this program.

/// A kernel of `compiler/kernels`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kernel {
    /// Its name in results.
    pub(super) name: &'static str,
    pub(super) source: &'static str,
}

macro_rules! kernels {
    ($($name:literal),*) => {
        [$(Kernel {
            name: $name,
            source: include_str!(concat!("../../../../compiler/kernels/", $name, ".c")),
        }),*]
    };
}

/// The kernels, in the order of the tables.
pub(super) const KERNELS: [Kernel; 10] = kernels![
    "blackscholes",
    "fft",
    "fib",
    "histogram",
    "linear_regression",
    "lu",
    "matrix_multiply",
    "pca",
    "reverse_index",
    "string_match"
];

/// Not a kernel of them: it only looks at the clock, for what the machine itself does.
pub(super) const CLOCK: Kernel = Kernel { name: "clock", source: include_str!("sources/clock.c") };

/// The harness that times a kernel.
pub(super) const MAIN: (&str, &str) = ("main", include_str!("../../../../compiler/kernels/main.c"));
/// The harness that records when a kernel looks at the clock.
pub(super) const RECORDER: (&str, &str) = ("recorder", include_str!("sources/recorder.c"));
/// Two threads that compute.
pub(super) const TURNS: (&str, &str) = ("turns", include_str!("sources/turns.c"));

/// What they include.
pub(super) const HEADERS: [(&str, &str); 2] = [
    ("kernel.h", include_str!("../../../../compiler/kernels/kernel.h")),
    ("program.h", include_str!("../posix/programs/program.h")),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of `const NAME: T = VALUE;` or of `#define NAME VALUE`.
    fn constant<'a>(text: &'a str, name: &str) -> &'a str {
        let of = |line: &'a str| {
            let rust = line
                .strip_prefix(&format!("const {name}:"))
                .and_then(|rest| Some(rest.split_once(" = ")?.1.trim_end_matches(';')));
            rust.or_else(|| line.strip_prefix(&format!("#define {name} ")))
        };
        text.lines().find_map(of).unwrap_or_else(|| panic!("no {name}"))
    }

    /// The recorder grants budgets as the runtime does.
    #[test]
    fn the_recorder_has_the_runtimes_constants() {
        let runtime = include_str!("../../../runtime/src/probe.rs");
        for name in ["PERIOD_SHIFT", "FIRST", "LEAST", "MOST"] {
            let plain = |text: &str| text.replace('_', "");
            assert_eq!(
                plain(constant(RECORDER.1, name)),
                plain(constant(runtime, name)),
                "{name} in recorder.c and in crates/runtime/src/probe.rs"
            );
        }
    }
}
