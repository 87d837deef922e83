//! The CPU quota of this process's control group, version 1 or 2.

use super::machine::Machine;

/// Returns the CPU time that the control group grants, in cores: the tightest quota of it and its ancestors.
pub fn cpu_quota(machine: &Machine) -> Option<f64> {
    let groups = machine.read("/proc/self/cgroup")?;
    let path = |version: &str| {
        groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            (controllers.split(',').any(|c| c == version))
                .then(|| path.trim_end_matches('/').to_owned())
        })
    };
    let unified = path("").into_iter().flat_map(ancestors).filter_map(|path| {
        let max = machine.read(&format!("/sys/fs/cgroup{path}/cpu.max"))?;
        let (quota, period) = max.split_once(' ')?;
        Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    });
    let legacy = path("cpu").into_iter().flat_map(ancestors).filter_map(|path| {
        let group = format!("/sys/fs/cgroup/cpu{path}");
        let quota = machine.number(&format!("{group}/cpu.cfs_quota_us"))? as f64;
        Some(quota / machine.number(&format!("{group}/cpu.cfs_period_us"))? as f64)
    });
    unified.chain(legacy).reduce(f64::min)
}

/// Returns a control group's path and its ancestors' paths.
fn ancestors(path: String) -> impl Iterator<Item = String> {
    std::iter::successors(Some(path), |path| Some(path.rsplit_once('/')?.0.to_owned()))
}
