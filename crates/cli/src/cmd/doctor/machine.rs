//! The sources of the checks: `/proc` and `/sys` under a root that tests replace, and one CPUID bit.

use std::fs;
use std::path::PathBuf;

/// The machine as its files describe it. Nothing here requires privileges.
pub struct Machine {
    root: PathBuf,
    /// User interrupts in CPUID; `None` if not on x86-64.
    pub uintr: Option<bool>,
}

impl Machine {
    /// Returns the machine that this process runs on.
    pub fn here() -> Self {
        Self { root: PathBuf::from("/"), uintr: uintr_in_cpuid() }
    }

    /// Returns a machine made of the files under `root`.
    #[cfg(test)]
    pub fn at(root: impl Into<PathBuf>, uintr: Option<bool>) -> Self {
        Self { root: root.into(), uintr }
    }

    /// Reads `path` (absolute) without surrounding white space. Returns `None` if it cannot be read.
    pub fn read(&self, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.bytes(path)?).trim().to_owned())
    }

    /// Reads `path` as a number.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    /// Whether `path` exists.
    pub fn exists(&self, path: &str) -> bool {
        self.under_root(path).exists()
    }

    /// Reads the value of the line `key:` in a file like `/proc/self/status`.
    pub fn field(&self, path: &str, key: &str) -> Option<String> {
        self.read(path)?.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
    }

    /// Whether the processor has the flag, as the kernel lists it in `/proc/cpuinfo`.
    pub fn cpu_flag(&self, flag: &str) -> bool {
        self.field("/proc/cpuinfo", "flags")
            .is_some_and(|flags| flags.split(' ').any(|f| f == flag))
    }

    /// Returns a value of this process's auxiliary vector.
    pub fn auxv(&self, key: u64) -> Option<u64> {
        let bytes = self.bytes("/proc/self/auxv")?;
        let word = |half: &[u8]| {
            u64::from_ne_bytes(half.try_into().expect("chunks of 16 bytes have halves of 8"))
        };
        bytes.chunks_exact(16).find_map(|pair| {
            let (name, value) = pair.split_at(8);
            (word(name) == key).then(|| word(value))
        })
    }

    /// Returns a soft limit by its name in `/proc/self/limits`; "unlimited" is the largest number.
    pub fn limit(&self, name: &str) -> Option<u64> {
        let limits = self.read("/proc/self/limits")?;
        let soft =
            limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?;
        if soft == "unlimited" { Some(u64::MAX) } else { soft.parse().ok() }
    }

    /// Whether the process holds a capability, by its number in `<linux/capability.h>`.
    pub fn capable(&self, capability: u32) -> bool {
        self.field("/proc/self/status", "CapEff")
            .and_then(|hex| u64::from_str_radix(&hex, 16).ok())
            .is_some_and(|set| set >> capability & 1 == 1)
    }

    /// Returns the kernel's major and minor version.
    pub fn kernel(&self) -> Option<(u32, u32)> {
        let release = self.read("/proc/sys/kernel/osrelease")?;
        let mut parts = release.split(|c: char| !c.is_ascii_digit());
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }

    fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        fs::read(self.under_root(path)).ok()
    }

    fn under_root(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

/// CPUID leaf 7, EDX bit 5. Mainline kernels list no flag for it, so `/proc/cpuinfo` does not say.
#[cfg(target_arch = "x86_64")]
fn uintr_in_cpuid() -> Option<bool> {
    const UINTR: u32 = 1 << 5;
    Some(raw_cpuid::native_cpuid::cpuid_count(7, 0).edx & UINTR != 0)
}

#[cfg(not(target_arch = "x86_64"))]
fn uintr_in_cpuid() -> Option<bool> {
    None
}

/// Returns how many numbers a kernel list such as `0-3,8` contains.
pub fn list_len(list: &str) -> usize {
    list.split(',')
        .filter_map(|range| {
            let (first, last) =
                range.trim().split_once('-').unwrap_or((range.trim(), range.trim()));
            Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
        })
        .sum()
}
