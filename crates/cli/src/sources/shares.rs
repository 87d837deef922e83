//! Shares of CPUs, as their brokers describe them.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use heddle_broker::{Owner, QueryError, Report, query_within};

/// How long a broker may take to answer: one that is stopped keeps no other source waiting for long.
const PATIENCE: Duration = Duration::from_millis(300);

/// Returns the sockets in the default folders of this user and of root, whether or not a broker listens there.
pub fn sockets() -> Vec<PathBuf> {
    let owner = Owner::current();
    let own = owner.check_folders().is_ok().then(|| owner.folder());
    let mut folders: Vec<PathBuf> = own.into_iter().chain([Owner::root().folder()]).collect();
    folders.dedup();
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut sockets: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect();
    sockets.sort();
    sockets
}

/// Returns the shares at the default places and at the sockets `named`, and sentences about those that do not answer.
pub fn read(named: &[PathBuf]) -> (Vec<Report>, Vec<String>) {
    let (mut shares, mut missing) = (Vec::new(), Vec::new());
    let found = sockets();
    let others = named.iter().filter(|socket| !found.contains(socket));
    for socket in found.iter().chain(others) {
        match query_within(socket, PATIENCE) {
            Ok(report) => shares.push(report),
            Err(error) if is_other(&error) && !named.contains(socket) => {}
            Err(error) => missing.push(format!("no share: {error}")),
        }
    }
    (shares, missing)
}

/// Whether it is what a killed broker left behind, or a share for other users.
fn is_other(error: &QueryError) -> bool {
    let QueryError::NoBroker { source, .. } = error else { return false };
    matches!(
        source.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::NotFound | ErrorKind::PermissionDenied
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_share_without_a_broker_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let (_, missing) = read(&[folder.path().join("a.sock")]);
        assert!(missing.iter().any(|why| why.starts_with("no share: no broker answers at")));
    }
}
