//! Processes from /proc, and mounted cgroups: the objects named by `--pid`, `--cgroup` and `--unit`.

use crate::stat::Stat;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A process. Once it has ended, its number alone may belong to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// Its id in this process's namespace.
    pub pid: u32,
    /// When it started, in kernel ticks since boot.
    pub began: u64,
}

impl Process {
    /// Returns the process that has this id now; `None` if it has ended.
    #[must_use]
    pub fn of(pid: u32) -> Option<Process> {
        living(pid).map(|stat| Process { pid, began: stat.began })
    }

    /// Returns whether it has not ended.
    #[must_use]
    pub fn lives(self) -> bool {
        Process::of(self.pid) == Some(self)
    }

    /// Returns its short name, as `ps -o comm` shows it; empty if it has ended.
    #[must_use]
    pub fn name(self) -> String {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        name.trim_end().to_owned()
    }
}

/// Returns the parent of a process that has not ended.
#[must_use]
pub fn parent(pid: u32) -> Option<u32> {
    living(pid).map(|stat| stat.parent)
}

/// Returns `None` for processes that have ended, including zombies.
fn living(pid: u32) -> Option<Stat> {
    Stat::of(pid).filter(|stat| !stat.has_ended())
}

/// Returns the process and all its descendants, parents before children; nothing if it has ended. One pass over /proc:
/// a process created meanwhile may be missed.
#[must_use]
pub fn family(pid: u32) -> Vec<Process> {
    families([pid]).into_iter().map(|(_, process)| process).collect()
}

/// Returns the processes and all their descendants, each once, with the member of `roots` that it descends from;
/// parents before children. As for [`family`].
#[must_use]
pub fn families(roots: impl IntoIterator<Item = u32>) -> Vec<(Process, Process)> {
    let roots = roots.into_iter().filter_map(Process::of);
    let mut found: Vec<(Process, Process)> = roots.map(|root| (root, root)).collect();
    let mut seen: BTreeSet<Process> = found.iter().map(|(_, process)| *process).collect();
    let mut children: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
    for pid in all() {
        let Some(stat) = living(pid) else { continue };
        let process = Process { pid, began: stat.began };
        children.entry(stat.parent).or_default().push(process);
    }
    let mut next = 0;
    while let Some(&(root, process)) = found.get(next) {
        let of_it = children.remove(&process.pid).unwrap_or_default();
        found.extend(of_it.into_iter().filter(|child| seen.insert(*child)).map(|it| (root, it)));
        next += 1;
    }
    found
}

/// Returns the ids of all processes.
pub fn all() -> impl Iterator<Item = u32> {
    numbers(Path::new("/proc")).into_iter()
}

/// Returns the threads of a process, with their start times; none if it has ended.
#[must_use]
pub fn threads(pid: u32) -> Vec<Process> {
    numbers(&PathBuf::from(format!("/proc/{pid}/task")))
        .into_iter()
        .filter_map(Process::of)
        .collect()
}

fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the processes in a cgroup and in those below it, by id.
///
/// # Errors
/// There is no such cgroup, or it may not be read.
pub fn in_cgroup(folder: &Path) -> io::Result<Vec<Process>> {
    let mut processes = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(one) = folders.pop() {
        match fs::read_to_string(one.join("cgroup.procs")) {
            Ok(text) => {
                let pids = text.lines().filter_map(|line| line.parse().ok());
                processes.extend(pids.filter_map(Process::of));
            }
            // A cgroup below it was removed meanwhile.
            Err(error) if one == folder => return Err(error),
            Err(_) => {}
        }
        folders.extend(below(&one));
    }
    processes.sort();
    processes.dedup();
    Ok(processes)
}

fn below(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path())
}

/// Returns the cgroup by which the kernel shares CPU time between a process and others: the nearest with its own
/// weight. Returns `None` if that is the root, or if there are no cgroups.
#[must_use]
pub fn cpu_cgroup(pid: u32) -> Option<PathBuf> {
    let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let in_version_1 = || cpu_cgroup_of(&own, &mountinfo, "cgroup", "cpu.shares");
    cpu_cgroup_of(&own, &mountinfo, "cgroup2", "cpu.weight").or_else(in_version_1)
}

/// Returns to how many CPUs at a time cgroups limit a process: the tightest quota of its own and those above it.
#[must_use]
pub fn cpu_quota(pid: u32) -> Option<f64> {
    tightest_quota(&cpu_cgroup(pid)?)
}

/// Like [`cpu_quota`], of a cgroup's folder.
fn tightest_quota(folder: &Path) -> Option<f64> {
    let number = |folder: &Path, file| fs::read_to_string(folder.join(file)).ok();
    let quota = |folder: &Path| {
        let text = number(folder, "cpu.max").or_else(|| {
            let quota = number(folder, "cpu.cfs_quota_us")?;
            Some(format!("{quota} {}", number(folder, "cpu.cfs_period_us")?))
        })?;
        let mut numbers = text.split_whitespace().map(|number| number.parse::<f64>().ok());
        let (quota, period) = (numbers.next()??, numbers.next()??);
        (quota > 0.0 && period > 0.0).then(|| quota / period)
    };
    folder.ancestors().filter_map(quota).reduce(f64::min)
}

/// Returns the hierarchy in which cgroups have weights: the root of version 2 if its children have the `cpu`
/// controller, else that of version 1.
#[must_use]
pub fn cpu_hierarchy() -> Option<PathBuf> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let has_cpu = |root: &Path| {
        let controllers = fs::read_to_string(root.join("cgroup.subtree_control"));
        controllers.is_ok_and(|text| text.split_whitespace().any(|name| name == "cpu"))
    };
    let mounts = || mountinfo.lines().filter_map(mount);
    let in_version_2 = mounts().find(|(root, kind, _)| *kind == "cgroup2" && has_cpu(root));
    let in_version_1 =
        || mounts().find(|(_, kind, of)| *kind == "cgroup" && of.split(',').any(|it| it == "cpu"));
    in_version_2.or_else(in_version_1).map(|(root, ..)| root)
}

/// Like [`cpu_cgroup`], from the contents of `/proc/PID/cgroup` (`5:cpu,cpuacct:/a`, `0::/a`) and of mountinfo.
fn cpu_cgroup_of(own: &str, mountinfo: &str, kind: &str, weight: &str) -> Option<PathBuf> {
    let is_it = |controllers: &str| match kind {
        "cgroup2" => controllers.is_empty(),
        _ => controllers.split(',').any(|name| name == "cpu"),
    };
    let path = own.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        is_it(controllers).then_some(path)
    })?;
    let root = mountinfo.lines().find_map(|line| {
        let (path, filesystem, options) = mount(line)?;
        let options = if kind == "cgroup2" { "" } else { options };
        (filesystem == kind && is_it(options)).then_some(path)
    })?;
    let mut folder = root.join(path.trim_start_matches('/'));
    while folder != root && folder.starts_with(&root) {
        if folder.join(weight).exists() {
            return Some(folder);
        }
        folder.pop();
    }
    None
}

/// Returns the folder of a cgroup: `/sys/fs/cgroup/system.slice`, or as named in `/proc/PID/cgroup`, `/system.slice`.
///
/// # Errors
/// A sentence if there is no such cgroup.
pub fn cgroup(path: &Path) -> Result<PathBuf, String> {
    let hierarchies = hierarchies();
    let relative = path.strip_prefix("/").unwrap_or(path);
    let candidates = hierarchies.iter().map(|root| root.join(relative));
    let mut found =
        std::iter::once(path.to_owned()).chain(candidates).filter(|path| is_cgroup(path));
    found.next().ok_or_else(|| {
        format!("there is no cgroup {} (searched under {})", path.display(), listed(&hierarchies))
    })
}

fn is_cgroup(path: &Path) -> bool {
    path.is_absolute() && path.join("cgroup.procs").exists()
}

/// Returns the cgroup of a running systemd unit: `nginx` (a service), `nginx.service`, `user.slice`.
///
/// # Errors
/// A sentence if the unit does not run, or if several units have the name.
pub fn unit(name: &str) -> Result<PathBuf, String> {
    if name.is_empty() || name.contains('/') {
        return Err(format!("`{name}` is not the name of a unit, such as nginx.service"));
    }
    let name = if name.contains('.') { name.to_owned() } else { format!("{name}.service") };
    let hierarchies = hierarchies();
    for root in &hierarchies {
        let found = named(root, &name);
        match &found[..] {
            [] => {}
            [one] => return Ok(one.clone()),
            several => {
                return Err(format!(
                    "several units are called {name}; choose one by its cgroup ({})",
                    listed(several)
                ));
            }
        }
    }
    Err(format!(
        "no unit {name} is running (searched under {}); see systemctl status {name}",
        listed(&hierarchies)
    ))
}

/// Returns all folders of that name below `root`; folders inside a match are not searched.
fn named(root: &Path, name: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for one in below(&folder) {
            let is_it = one.file_name().is_some_and(|file| file == name);
            if is_it { found.push(one) } else { folders.push(one) }
        }
    }
    found.sort();
    found
}

fn listed(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    if paths.is_empty() { "no mounted hierarchy".into() } else { paths.join(", ") }
}

/// Returns where cgroups are mounted: version 2, then systemd's own hierarchy of version 1, then the others.
fn hierarchies() -> Vec<PathBuf> {
    hierarchies_of(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

fn hierarchies_of(mountinfo: &str) -> Vec<PathBuf> {
    let mut found: Vec<(u8, PathBuf)> = mountinfo.lines().filter_map(hierarchy).collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

fn hierarchy(line: &str) -> Option<(u8, PathBuf)> {
    let (path, filesystem, options) = mount(line)?;
    let rank = match (filesystem, options) {
        ("cgroup2", _) => 0,
        ("cgroup", options) if options.contains("name=systemd") => 1,
        ("cgroup", _) => 2,
        _ => return None,
    };
    Some((rank, path))
}

/// Returns a mount point, its file system, and the file system's options.
fn mount(line: &str) -> Option<(PathBuf, &str, &str)> {
    let (mount, filesystem) = line.split_once(" - ")?;
    // Spaces and the like are written as \040.
    let path = PathBuf::from(mount.split(' ').nth(4)?.replace("\\040", " "));
    let mut filesystem = filesystem.split(' ');
    Some((path, filesystem.next()?, filesystem.nth(1).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    /// Starts a shell with a child and a grandchild, and returns their ids. All end when the shell's input does.
    fn three() -> (Child, Vec<u32>) {
        let script = "sh -c 'echo $$; sh -c \"echo \\$\\$; read _\"; :'; :";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut pids = vec![child.id()];
        pids.extend(lines.take(2).map(|line| line.unwrap().parse::<u32>().unwrap()));
        (child, pids)
    }

    #[test]
    fn a_family_is_a_process_and_all_its_descendants() {
        let (mut child, pids) = three();
        let found = family(pids[0]);
        assert_eq!(found.iter().map(|process| process.pid).collect::<Vec<_>>(), pids);
        assert!(found.iter().all(|process| process.lives()));
        assert_eq!(found[0].name(), "sh");
        assert_eq!(family(pids[1]).len(), 2);
        let roots = [pids[0], pids[2], u32::MAX];
        let of: Vec<u32> = families(roots).iter().map(|(root, _)| root.pid).collect();
        assert_eq!(of, [pids[0], pids[2], pids[0]], "each once, a root as its own");
        assert_eq!(threads(pids[1]), [found[1]]);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(family(pids[0]).is_empty() && !found[0].lives());
        let other =
            Process { began: found[0].began + 1, ..Process::of(std::process::id()).unwrap() };
        assert!(!other.lives(), "the number is another's");
    }

    #[test]
    fn the_tightest_quota_counts_in_both_versions() {
        let root = tempfile::tempdir().unwrap();
        let (top, low) = (root.path().join("top"), root.path().join("top/low"));
        fs::create_dir_all(&low).unwrap();
        let write = |folder: &Path, file, text| fs::write(folder.join(file), text).unwrap();
        assert_eq!(tightest_quota(&low), None);
        write(&low, "cpu.max", "max 100000\n");
        assert_eq!(tightest_quota(&low), None);
        write(&top, "cpu.cfs_quota_us", "-1\n");
        write(&top, "cpu.cfs_period_us", "100000\n");
        assert_eq!(tightest_quota(&low), None);
        write(&top, "cpu.cfs_quota_us", "150000\n");
        assert_eq!(tightest_quota(&low), Some(1.5));
        write(&low, "cpu.max", "200000 100000\n");
        assert_eq!(tightest_quota(&low), Some(1.5));
        write(&low, "cpu.max", "50000 100000\n");
        assert_eq!(tightest_quota(&low), Some(0.5));
    }

    #[test]
    fn the_processes_of_a_cgroup_are_those_below_it_too() {
        let root = tempfile::tempdir().unwrap();
        let (top, low) = (root.path().join("top"), root.path().join("top/low"));
        fs::create_dir_all(&low).unwrap();
        let (mut child, pids) = three();
        fs::write(top.join("cgroup.procs"), format!("{}\n{}\n", pids[0], u32::MAX)).unwrap();
        fs::write(low.join("cgroup.procs"), format!("{}\n{}\n", pids[1], pids[0])).unwrap();
        let found: Vec<u32> = in_cgroup(&top).unwrap().iter().map(|one| one.pid).collect();
        let mut wanted = pids[..2].to_vec();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
        assert!(in_cgroup(&root.path().join("none")).is_err());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(named(root.path(), "low"), [low]);
        assert!(named(root.path(), "lo").is_empty());
    }

    #[test]
    fn the_nearest_cgroup_with_a_weight_is_the_one_that_counts() {
        let root = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        for file in ["cpu.weight", "a/cpu.weight", "a/b/cgroup.procs", "v1/c/cpu.shares"] {
            make(file);
        }
        let at = root.path().display();
        let mounts = format!(
            "1 0 0:1 / {at} rw - cgroup2 cgroup2 rw\n2 0 0:2 / {at}/v1 rw - cgroup cgroup rw,cpu,cpuacct\n"
        );
        let of = |own, kind, weight| cpu_cgroup_of(own, &mounts, kind, weight);
        let own = "4:cpu,cpuacct:/c\n2:cpuset:/x\n0::/a/b\n";
        assert_eq!(of(own, "cgroup2", "cpu.weight"), Some(root.path().join("a")));
        assert_eq!(of(own, "cgroup", "cpu.shares"), Some(root.path().join("v1/c")));
        assert_eq!(of("0::/\n", "cgroup2", "cpu.weight"), None, "the root is shared by all");
        assert_eq!(of("0::/b\n", "cgroup2", "cpu.weight"), None);
    }

    #[test]
    fn cgroup_version_2_comes_first() {
        let mountinfo = "\
30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
31 25 0:27 / /sys/fs/cgroup/systemd rw,relatime shared:5 - cgroup cgroup rw,name=systemd
32 25 0:28 / /sys/fs/cgroup/with\\040space rw shared:9 - cgroup2 cgroup2 rw
33 25 0:29 / /proc rw - proc proc rw
";
        let found = hierarchies_of(mountinfo);
        let wanted = ["/sys/fs/cgroup/with space", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/cpu"];
        assert_eq!(found, wanted.map(PathBuf::from));
    }

    #[test]
    fn errors_name_missing_units_and_cgroups() {
        let said = unit("no-such-unit-here").unwrap_err();
        assert!(said.contains("no unit no-such-unit-here.service is running"), "{said}");
        assert!(unit("a/b").unwrap_err().contains("not the name of a unit"));
        assert!(cgroup(Path::new("/no/such")).unwrap_err().contains("no cgroup /no/such"));
    }
}
