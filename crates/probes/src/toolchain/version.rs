//! What compilers print about themselves.

use std::ops::RangeInclusive;

/// The major versions of LLVM that the pass can be built for.
pub const MAJORS: RangeInclusive<u32> = 14..=22;

/// How builds of vendors begin whose LLVM is not the released one of the same number.
const VENDORS: [&str; 5] = ["Apple", "Android", "AMD", "Intel", "Arm"];

/// The version of a clang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClangVersion {
    /// Such as `14.0.6`.
    pub release: String,
    /// LLVM's major version.
    pub major: u32,
}

/// The version of a rustc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RustVersion {
    /// Such as `1.95.0`.
    pub release: String,
    /// LLVM's version, such as `22.1.2`.
    pub llvm: String,
    /// LLVM's major version.
    pub major: u32,
}

/// Parses what `clang --version` prints. Returns why the clang is not supported if it is not.
pub fn parse_clang(text: &str) -> Result<ClangVersion, String> {
    let first = text.lines().next().unwrap_or_default();
    if let Some(vendor) = VENDORS.iter().find(|vendor| first.starts_with(*vendor)) {
        return Err(format!(
            "it is {vendor}'s build ({first}), whose LLVM is not the released one; install clang from the \
             distribution or apt.llvm.org"
        ));
    }
    let Some((_, version)) = first.split_once("clang version ") else {
        return Err(format!("it is not clang: its version is `{first}`"));
    };
    let release = version.split([' ', '(']).next().unwrap_or_default();
    let target = field(text, "Target: ").unwrap_or_default();
    if !is_supported_target(target) {
        return Err(format!("it compiles for {target}; only x86_64 Linux is supported"));
    }
    Ok(ClangVersion { release: release.into(), major: supported(release, "it")? })
}

/// Parses what `rustc -vV` prints. Returns why the rustc is not supported if it is not.
pub fn parse_rustc(text: &str) -> Result<RustVersion, String> {
    let Some(llvm) = field(text, "LLVM version: ") else {
        return Err(
            "it does not say its LLVM version (rustc -vV); it may use another backend".into()
        );
    };
    let host = field(text, "host: ").unwrap_or_default();
    if !is_supported_target(host) || host.ends_with("-musl") {
        return Err(format!(
            "it is built for {host}; a pass can be loaded into that for x86_64-unknown-linux-gnu only"
        ));
    }
    let release = field(text, "release: ").unwrap_or_default();
    let major = supported(llvm, "its LLVM")?;
    Ok(RustVersion { release: release.into(), llvm: llvm.into(), major })
}

/// Returns whether `target` is x86_64 Linux, the only one that the pass supports.
pub fn is_supported_target(target: &str) -> bool {
    let mut parts = target.split('-');
    matches!(parts.next(), Some("x86_64" | "amd64"))
        && parts.any(|part| part == "linux")
        && !target.contains("android")
        && !target.ends_with("x32")
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Returns the major version of `release` if it is supported.
fn supported(release: &str, subject: &str) -> Result<u32, String> {
    let (least, most) = MAJORS.into_inner();
    let major = release.split('.').next().and_then(|major| major.parse().ok());
    major
        .filter(|major| MAJORS.contains(major))
        .ok_or_else(|| format!("{subject} has version {release}; {least} to {most} are supported"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN: &str = "Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu\nThread model: posix\n\
                          InstalledDir: /usr/bin";
    const RUST: &str = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\n\
                        commit-hash: 59807616e1fa2540724bfbac14d7976d7e4a3860\ncommit-date: 2026-04-14\n\
                        host: x86_64-unknown-linux-gnu\nrelease: 1.95.0\nLLVM version: 22.1.2";

    fn clang(first: &str, target: &str) -> Result<ClangVersion, String> {
        parse_clang(&format!("{first}\nTarget: {target}\nThread model: posix"))
    }

    #[test]
    fn versions_of_clang_are_read() {
        assert_eq!(parse_clang(DEBIAN), Ok(ClangVersion { release: "14.0.6".into(), major: 14 }));
        for (first, release) in [
            ("Debian clang version 22.1.8 (1~deb12u1)", "22.1.8"),
            ("Ubuntu clang version 18.1.3 (1ubuntu1)", "18.1.3"),
            ("clang version 17.0.6 (Fedora 17.0.6-2.fc39)", "17.0.6"),
            (
                "clang version 19.0.0git (https://github.com/llvm/llvm-project.git 1a2b)",
                "19.0.0git",
            ),
            ("clang version 20.1.8", "20.1.8"),
        ] {
            assert_eq!(clang(first, "x86_64-unknown-linux-gnu").unwrap().release, release);
        }
    }

    #[test]
    fn other_compilers_are_refused_with_the_reason() {
        let linux = "x86_64-pc-linux-gnu";
        for (first, target, says) in [
            (
                "Apple clang version 15.0.0 (clang-1500.3.9.4)",
                "arm64-apple-darwin23",
                "Apple's build",
            ),
            (
                "Android (11349228, based on r487747e) clang version 17.0.2",
                linux,
                "Android's build",
            ),
            ("AMD clang version 17.0.6 (CLANG: AOCC_5.0.0)", linux, "AMD's build"),
            ("Intel(R) oneAPI DPC++/C++ Compiler 2024.0.0", linux, "Intel's build"),
            ("gcc (Debian 12.2.0-14) 12.2.0", linux, "it is not clang"),
            ("Debian clang version 13.0.1", linux, "it has version 13.0.1; 14 to 22 are supported"),
            ("clang version 23.0.0git", linux, "14 to 22"),
            ("clang version 18.1.8", "aarch64-unknown-linux-gnu", "only x86_64 Linux"),
            ("clang version 18.1.8", "x86_64-unknown-freebsd14", "only x86_64 Linux"),
        ] {
            let reason = clang(first, target).unwrap_err();
            assert!(reason.contains(says), "{first}: {reason}");
        }
    }

    #[test]
    fn the_llvm_of_a_rustc_is_read() {
        let version = parse_rustc(RUST).unwrap();
        assert_eq!((&*version.release, &*version.llvm, version.major), ("1.95.0", "22.1.2", 22));
        for (from, to, says) in [
            ("LLVM version: 22.1.2", "", "does not say its LLVM version"),
            ("LLVM version: 22", "LLVM version: 23", "its LLVM has version 23.1.2"),
            ("linux-gnu", "linux-musl", "x86_64-unknown-linux-gnu only"),
            ("x86_64-unknown", "aarch64-unknown", "built for aarch64-unknown-linux-gnu"),
        ] {
            let reason = parse_rustc(&RUST.replace(from, to)).unwrap_err();
            assert!(reason.contains(says), "{to}: {reason}");
        }
    }

    #[test]
    fn targets_are_recognised() {
        for good in
            ["x86_64-linux-gnu", "x86_64-pc-linux-gnu", "x86_64-unknown-linux-musl", "amd64-linux"]
        {
            assert!(is_supported_target(good), "{good}");
        }
        for bad in [
            "i686-linux-gnu",
            "x86_64-w64-mingw32",
            "x86_64-linux-android30",
            "x86_64-linux-gnux32",
            "",
        ] {
            assert!(!is_supported_target(bad), "{bad}");
        }
    }
}
