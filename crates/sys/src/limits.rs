//! Limits of the process.

/// Raises the limit of open descriptors as far as this user may. The usual one of 1,024 is kept for programs that use
/// select(2). Returns the limit; `None` if there is none.
pub fn raise_descriptors() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it writes a limit, which outlives the call. It cannot fail for a resource that exists.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: it reads a limit. No more than the maximum is asked for, which is always allowed.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    (limit.rlim_max != libc::RLIM_INFINITY).then_some(limit.rlim_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_is_in_force() {
        let limit = raise_descriptors();
        let text = std::fs::read_to_string("/proc/self/limits").expect("limits");
        let line = text.lines().find(|line| line.starts_with("Max open files")).expect("a line");
        let now: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
        let limit = limit.map_or_else(|| "unlimited".into(), |limit| limit.to_string());
        assert_eq!(now, [limit.as_str(); 2]);
    }
}
