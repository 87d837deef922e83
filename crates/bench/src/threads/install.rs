//! The peers that this machine lacks, and their installation.

use std::path::Path;
use std::process::Command;

use super::{System, peer};

/// A system that cannot be measured before its packages are installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The system.
    pub system: System,
    /// Packages, by Debian's names.
    pub packages: &'static str,
}

/// Those of `systems` that lack a compiler or a library here.
pub fn missing_peers(systems: &[System]) -> Vec<Missing> {
    let lacks = |&system: &System| {
        peer::packages_if_missing(system).map(|packages| Missing { system, packages })
    };
    systems.iter().filter_map(lacks).collect()
}

/// One sentence on what is missing and what to do.
pub fn offer(missing: &[Missing]) -> String {
    let names: Vec<&str> = missing.iter().map(|one| one.system.name()).collect();
    format!(
        "Not installed here: {}. To compare with {}: {}, or run this with --install-peers.",
        names.join(", "),
        if missing.len() == 1 { "it" } else { "them" },
        command(missing, &Host::here()).map_or_else(
            |_| format!("install {} (Debian's names)", packages(missing).join(" ")),
            |words| words.join(" ")
        )
    )
}

/// Installs what is missing with this system's package manager, which may ask for a password.
///
/// # Errors
/// A sentence: no known package manager, no permission, or it failed.
pub fn install(missing: &[Missing]) -> Result<(), String> {
    let words = command(missing, &Host::here())?;
    let said = words.join(" ");
    // Its progress does not belong in our output.
    let status = Command::new(&words[0])
        .args(&words[1..])
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(std::io::stderr())
        .status()
        .map_err(|error| format!("cannot run `{said}`: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("`{said}` failed ({status}); `apt-get update` first may help")),
    }
}

/// The facts that decide how packages are installed.
struct Host {
    is_root: bool,
    has_apt: bool,
    has_sudo: bool,
}

impl Host {
    fn here() -> Host {
        let has = |program: &str| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).is_file())
        };
        Host {
            is_root: rustix::process::geteuid().is_root(),
            has_apt: has("apt-get"),
            has_sudo: has("sudo"),
        }
    }
}

fn packages(missing: &[Missing]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = missing.iter().flat_map(|one| one.packages.split(' ')).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn command(missing: &[Missing], host: &Host) -> Result<Vec<String>, String> {
    let packages = packages(missing);
    if !host.has_apt {
        return Err(format!(
            "this system has no apt-get: install {} by hand (Debian's names)",
            packages.join(" ")
        ));
    }
    if !host.is_root && !host.has_sudo {
        return Err(format!(
            "installing takes root, and there is no sudo: as root, run apt-get install {}",
            packages.join(" ")
        ));
    }
    let sudo = (!host.is_root).then_some("sudo");
    let apt = ["apt-get", "install", "-y", "--no-install-recommends"];
    Ok(sudo.into_iter().chain(apt).chain(packages).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOST: Missing =
        Missing { system: System::BoostFiber, packages: "g++ libboost-fiber-dev" };
    const GO: Missing = Missing { system: System::Go, packages: "golang-go" };

    #[test]
    fn the_command_is_one_that_can_be_typed() {
        let host = Host { is_root: false, has_apt: true, has_sudo: true };
        assert_eq!(
            command(&[BOOST, GO], &host).unwrap().join(" "),
            "sudo apt-get install -y --no-install-recommends g++ golang-go libboost-fiber-dev"
        );
        let root = Host { is_root: true, ..host };
        assert!(command(&[GO], &root).unwrap().join(" ").starts_with("apt-get install"));
    }

    #[test]
    fn without_a_way_to_install_the_packages_are_named() {
        let host = Host { is_root: false, has_apt: true, has_sudo: false };
        assert!(command(&[BOOST], &host).unwrap_err().contains("libboost-fiber-dev"));
        let other = Host { is_root: true, has_apt: false, has_sudo: true };
        assert!(command(&[BOOST], &other).unwrap_err().contains("no apt-get"));
    }

    #[test]
    fn the_offer_names_peers_and_option() {
        let offer = offer(&[BOOST]);
        assert!(
            offer.starts_with("Not installed here: boost-fiber. To compare with it: "),
            "{offer}"
        );
        assert!(
            offer.contains("libboost-fiber-dev") && offer.contains("--install-peers"),
            "{offer}"
        );
    }

    #[test]
    fn systems_in_this_program_are_never_missing() {
        assert_eq!(missing_peers(&[System::Heddle, System::Tokio, System::May, System::Std]), []);
    }
}
