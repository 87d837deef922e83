//! Maps that outlive their attachment because a process holds a descriptor of them: they still take memory,
//! so they still count. The kernel's map ids increase and are not reused for two billion maps.

use std::fs::{self, File};
use std::io::{self, ErrorKind as Io, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use heddle_bpf::Map;
use serde::{Deserialize, Serialize};

use super::quota::map_bytes;
use crate::executor::LINES;
use crate::policy::Maps;
use crate::request::{Error, ErrorKind};

/// The maximum number per user.
const MOST: usize = 512;

/// A map of a former attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LeftMap {
    uid: u32,
    id: u32,
    bytes: u64,
}

/// Maps that may still exist, in a file for the next process.
#[derive(Debug)]
pub struct RemainingMaps {
    file: PathBuf,
    maps: Mutex<Option<Vec<LeftMap>>>,
}

impl RemainingMaps {
    /// Loads those listed in `file`.
    pub fn at(file: PathBuf) -> Self {
        Self { file, maps: Mutex::default() }
    }

    /// Notes that `maps`, of a policy of user `uid`, are about to lose their attachment.
    ///
    /// # Errors
    /// If the file cannot be read or written. They count nevertheless, until this process ends.
    pub fn add(&self, uid: u32, maps: &Maps) -> Result<(), Error> {
        // Root has no quota to count them against.
        if uid == 0 {
            return Ok(());
        }
        // Those that a user may have: the policy's, and the lines.
        let of_users = maps.iter().filter(|(name, _)| !name.starts_with("hd_") || *name == LINES);
        let new: Vec<LeftMap> = of_users
            .filter_map(|(_, map)| Some((map.id().ok()?, map_bytes(map.spec()))))
            .map(|(id, bytes)| LeftMap { uid, id, bytes })
            .collect();
        self.change(|left| {
            left.retain(|map| new.iter().all(|other| other.id != map.id));
            left.extend(&new);
        })
        .map(drop)
    }

    /// Returns the bytes of user `uid`'s existing maps that are not `counted` for their attachments; and of
    /// all users' that are not `counted_together`.
    ///
    /// # Errors
    /// If the user has too many, since each is looked up at every change; if the file cannot be read or
    /// written, or the kernel does not report what exists.
    pub fn bytes(
        &self,
        uid: u32,
        counted: impl Fn(u32) -> bool,
        counted_together: impl Fn(u32) -> bool,
    ) -> Result<(u64, u64), Error> {
        let left = self.change(|_| ())?;
        let (mut own, mut all, mut number) = (0_u64, 0_u64, 0);
        for map in left {
            if !counted_together(map.id) {
                all = all.saturating_add(map.bytes);
            }
            if map.uid == uid && !counted(map.id) {
                own = own.saturating_add(map.bytes);
                number += 1;
            }
        }
        if number > MOST {
            let text = format!(
                "user {uid} keeps {number} maps open of attachments that have ended, and may keep \
                 {MOST}: close their descriptors"
            );
            return Err(Error::new(ErrorKind::Denied, text));
        }
        Ok((own, all))
    }

    /// Applies `change`, drops maps that no longer exist, and returns the rest.
    fn change(&self, change: impl FnOnce(&mut Vec<LeftMap>)) -> Result<Vec<LeftMap>, Error> {
        let failed = |error: io::Error| {
            Error::system(format!("cannot keep {}", self.file.display()), &error)
        };
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = match maps.take() {
            Some(left) => left,
            None => self.read().map_err(failed)?,
        };
        let before = left.clone();
        change(&mut left);
        let mut there = Vec::new();
        let mut asked = Ok(());
        for map in left {
            match Map::by_id(map.id) {
                Err(error) if error.kind() == Io::NotFound => {}
                result => {
                    asked = asked.and(result.map(drop));
                    there.push(map);
                }
            }
        }
        let written = if there == before { Ok(()) } else { self.write(&there) };
        *maps = Some(there.clone());
        written.and(asked).map_err(failed)?;
        Ok(there)
    }

    fn read(&self) -> io::Result<Vec<LeftMap>> {
        match fs::read(&self.file) {
            Err(error) if error.kind() == Io::NotFound => Ok(Vec::new()),
            // A damaged file is treated as empty, like a damaged record.
            bytes => Ok(serde_json::from_slice(&bytes?).unwrap_or_default()),
        }
    }

    fn write(&self, left: &[LeftMap]) -> io::Result<()> {
        let new = self.file.with_extension("new");
        let write = || {
            let mut file =
                File::options().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&serde_json::to_vec(left)?)?;
            fs::rename(&new, &self.file)
        };
        write().inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })
    }
}
