//! Attachments that ended by themselves, in a file beside the records, so that their user can find out later
//! that they ended, and why. Bounded: the last few of each user, for a day.

use std::fs::{self, File};
use std::io::{self, ErrorKind as Io, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use super::{Caller, may, now_ms};
use crate::request::{Attachment, Ended, Error};

/// How many are kept per user.
const MOST: usize = 16;
/// How long an entry is kept, milliseconds.
const KEPT_MS: u64 = 24 * 3600 * 1000;

/// The file of ended attachments. Changing it requires the lock of the state; reading does not.
#[derive(Debug)]
pub struct EndedFile(PathBuf);

impl EndedFile {
    /// Uses the file at `path`.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Returns those that `caller` may see, oldest first.
    pub fn list(&self, caller: Caller) -> Result<Vec<Ended>, Error> {
        let mut list = self.read()?;
        list.retain(|ended| may(caller, &ended.attachment));
        Ok(list)
    }

    /// Adds `attachment`, which ended because of `why`.
    pub fn add(&self, attachment: &Attachment, why: &str) -> Result<(), Error> {
        let mut list = self.read()?;
        let uid = attachment.uid;
        let attachment = Attachment {
            executors: Vec::new(),
            sockets: Vec::new(),
            maps: Vec::new(),
            ..attachment.clone()
        };
        list.push(Ended { attachment, at_ms: now_ms(), why: why.into() });
        let of_user = list.iter().filter(|ended| ended.attachment.uid == uid).count();
        let mut surplus = of_user.saturating_sub(MOST);
        list.retain(|ended| {
            let goes = surplus > 0 && ended.attachment.uid == uid;
            surplus -= usize::from(goes);
            !goes
        });
        self.write(&list)
    }

    /// Removes those that `attachment` has replaced.
    pub fn succeeded_by(&self, attachment: &Attachment) -> Result<(), Error> {
        let place = |a: &Attachment| {
            (a.uid, a.hook, a.protocol.clone(), a.address.clone(), a.interface.clone())
        };
        let before = self.read()?;
        let mut list = before.clone();
        list.retain(|ended| place(&ended.attachment) != place(attachment));
        if list == before { Ok(()) } else { self.write(&list) }
    }

    fn failed(&self, error: &io::Error) -> Error {
        Error::system(format!("cannot keep {}", self.0.display()), error)
    }

    fn read(&self) -> Result<Vec<Ended>, Error> {
        let bytes = match fs::read(&self.0) {
            Err(error) if error.kind() == Io::NotFound => return Ok(Vec::new()),
            bytes => bytes.map_err(|error| self.failed(&error))?,
        };
        // A damaged file is treated as empty, like a damaged record.
        let mut list: Vec<Ended> = serde_json::from_slice(&bytes).unwrap_or_default();
        let now = now_ms();
        list.retain(|ended| now.saturating_sub(ended.at_ms) < KEPT_MS);
        Ok(list)
    }

    fn write(&self, list: &[Ended]) -> Result<(), Error> {
        let new = self.0.with_extension("new");
        let write = || {
            let mut file =
                File::options().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&serde_json::to_vec(list)?)?;
            fs::rename(&new, &self.0)
        };
        write().map_err(|error| {
            // If the disk is full, leave no half-written list.
            let _ = fs::remove_file(&new);
            self.failed(&error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(id: u32, uid: u32, address: &str) -> Attachment {
        let text = format!(
            r#"{{"id":{id},"hook":"socket-select","policy":"p","parameters":[],"uid":{uid},"pid":1,"command":"","protocol":"udp","address":"{address}","interface":null,"executors":["a"],"since_ms":0,"status":"active"}}"#
        );
        serde_json::from_str(&text).expect("a record")
    }

    fn ids(file: &EndedFile, uid: u32) -> Vec<u32> {
        let list = file.list(Caller { uid }).expect("readable");
        list.iter().map(|ended| ended.attachment.id).collect()
    }

    #[test]
    fn the_last_few_of_each_user_are_kept_until_pushed_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = EndedFile::at(folder.path().join("ended"));
        file.add(&attachment(1, 7, "127.0.0.1:1"), "gone").expect("written");
        for id in 2..40 {
            file.add(&attachment(id, 8, "127.0.0.1:2"), "gone").expect("written");
        }
        assert_eq!(ids(&file, 7), [1], "another's many push out nothing of his");
        assert_eq!(ids(&file, 8), (24..40).collect::<Vec<_>>());
        assert_eq!(ids(&file, 0).len(), 17);
        file.succeeded_by(&attachment(50, 8, "127.0.0.1:2")).expect("written");
        assert_eq!((ids(&file, 7), ids(&file, 8)), (vec![1], vec![]));
    }
}
