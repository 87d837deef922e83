//! What may happen to a file, and how inotify reports it.

use rustix::fs::inotify::{ReadFlags, WatchFlags};
use rustix::fs::{FileType, Stat};
use std::ops::BitOr;

/// A set of changes of a file. The bits are those of BSD's `NOTE_DELETE` and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileChanges(u32);

impl FileChanges {
    /// Its last name was removed. For a directory that some process holds open, this is reported when it is
    /// closed.
    pub const DELETE: FileChanges = FileChanges(1);
    /// It was written to or truncated; for a directory, names were added or removed.
    pub const WRITE: FileChanges = FileChanges(2);
    /// It has grown; for a directory, names were added or removed by renaming. Always together with
    /// [`FileChanges::WRITE`] if that is asked for.
    pub const EXTEND: FileChanges = FileChanges(4);
    /// Its mode, owner, times or extended attributes were set.
    pub const ATTRIB: FileChanges = FileChanges(8);
    /// Its number of names has changed; for a directory, subdirectories were added or removed.
    pub const LINK: FileChanges = FileChanges(0x10);
    /// It was renamed.
    pub const RENAME: FileChanges = FileChanges(0x20);
    /// Its file system was unmounted. Only for directories: other files keep their file system mounted while
    /// they are registered.
    pub const REVOKE: FileChanges = FileChanges(0x40);
    /// No change.
    pub const NONE: FileChanges = FileChanges(0);
    /// All changes.
    pub const ALL: FileChanges = FileChanges(0x7F);

    /// Whether all of `others` are among these.
    #[must_use]
    pub fn contains(self, others: FileChanges) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns the changes that are in both sets.
    #[must_use]
    pub fn and(self, others: FileChanges) -> FileChanges {
        FileChanges(self.0 & others.0)
    }

    fn any_of(self, others: FileChanges) -> bool {
        self.0 & others.0 != 0
    }

    fn when(self, is_so: bool) -> FileChanges {
        if is_so { self } else { FileChanges::NONE }
    }
}

impl BitOr for FileChanges {
    type Output = FileChanges;
    fn bitor(self, others: FileChanges) -> FileChanges {
        FileChanges(self.0 | others.0)
    }
}

/// From [`Event::data`](crate::Event::data), or from BSD's bits; others are ignored.
impl From<u64> for FileChanges {
    fn from(data: u64) -> FileChanges {
        FileChanges(data as u32 & FileChanges::ALL.0)
    }
}

impl From<FileChanges> for u64 {
    fn from(changes: FileChanges) -> u64 {
        changes.0.into()
    }
}

/// What was known of a file at the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub is_directory: bool,
    pub names: u64,
    size: i64,
    /// Mode, owner, group.
    rights: (u32, u32, u32),
}

impl From<&Stat> for Look {
    fn from(stat: &Stat) -> Look {
        Look {
            is_directory: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
            names: stat.st_nlink,
            size: stat.st_size,
            rights: (stat.st_mode, stat.st_uid, stat.st_gid),
        }
    }
}

const RENAMED: ReadFlags = ReadFlags::MOVED_FROM.union(ReadFlags::MOVED_TO);
const NAMES: ReadFlags = RENAMED.union(ReadFlags::CREATE).union(ReadFlags::DELETE);

impl Look {
    /// Returns what inotify must report for `changes`. Never empty, which inotify refuses.
    pub fn mask(&self, changes: FileChanges) -> WatchFlags {
        use FileChanges as C;
        let when = |any: FileChanges, flags| match changes.any_of(any) {
            true => flags,
            false => WatchFlags::empty(),
        };
        let common = WatchFlags::DELETE_SELF
            | when(C::RENAME, WatchFlags::MOVE_SELF)
            | when(C::ATTRIB, WatchFlags::ATTRIB);
        let names = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
        common
            | match self.is_directory {
                // Not MODIFY, which for a directory reports changes of the files in it.
                true => when(C::WRITE | C::EXTEND | C::LINK, names),
                false => {
                    when(C::WRITE | C::EXTEND, WatchFlags::MODIFY)
                        | when(C::LINK | C::DELETE, WatchFlags::ATTRIB)
                }
            }
    }

    /// Returns what happened, from inotify's report and the file's state `now`, if known. `of_entry`: the
    /// report is about a file in the directory.
    pub fn changes(&mut self, report: ReadFlags, of_entry: bool, now: Option<Look>) -> FileChanges {
        use FileChanges as C;
        if of_entry {
            return C::WRITE.when(report.intersects(NAMES))
                | C::EXTEND.when(report.intersects(RENAMED))
                | C::LINK.when(report.intersects(NAMES) && report.contains(ReadFlags::ISDIR));
        }
        let mut changes = C::DELETE.when(report.contains(ReadFlags::DELETE_SELF))
            | C::RENAME.when(report.contains(ReadFlags::MOVE_SELF))
            | C::REVOKE.when(report.contains(ReadFlags::UNMOUNT));
        if report.contains(ReadFlags::MODIFY) {
            changes = changes | self.modified(now);
        }
        if report.contains(ReadFlags::ATTRIB) {
            changes = changes | self.attributes(now);
        }
        changes
    }

    /// Updates only the size: other changes come with their own reports.
    fn modified(&mut self, now: Option<Look>) -> FileChanges {
        let Some(now) = now else { return FileChanges::WRITE };
        let grew = now.size > self.size;
        self.size = now.size;
        FileChanges::WRITE | FileChanges::EXTEND.when(grew)
    }

    /// inotify reports new names, removed names and new modes in the same way.
    fn attributes(&mut self, now: Option<Look>) -> FileChanges {
        let Some(now) = now else { return FileChanges::ATTRIB };
        let before = std::mem::replace(self, Look { size: self.size, ..now });
        let names = match now.names {
            same if same == before.names => return FileChanges::ATTRIB,
            0 => FileChanges::DELETE,
            _ => FileChanges::LINK,
        };
        names | FileChanges::ATTRIB.when(before.rights != now.rights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Look = Look { is_directory: false, names: 1, size: 10, rights: (0o644, 0, 0) };

    #[test]
    fn names_are_distinguished_from_attributes_by_their_number() {
        let attrib = |names, mode| {
            let (mut before, now) = (FILE, Look { names, rights: (mode, 0, 0), ..FILE });
            before.changes(ReadFlags::ATTRIB, false, Some(now))
        };
        assert_eq!(attrib(1, 0o600), FileChanges::ATTRIB);
        assert_eq!(attrib(1, 0o644), FileChanges::ATTRIB, "times, for instance");
        assert_eq!(attrib(2, 0o644), FileChanges::LINK);
        assert_eq!(attrib(2, 0o600), FileChanges::LINK | FileChanges::ATTRIB);
        assert_eq!(attrib(0, 0o644), FileChanges::DELETE);
    }

    #[test]
    fn one_report_of_inotify_does_not_hide_the_next() {
        let mut look = FILE;
        // Written to, then removed; both happened before the first look.
        let now = Some(Look { names: 0, size: 20, ..FILE });
        let written = look.changes(ReadFlags::MODIFY, false, now);
        assert_eq!(written, FileChanges::WRITE | FileChanges::EXTEND);
        assert_eq!(look.changes(ReadFlags::ATTRIB, false, now), FileChanges::DELETE);
        assert_eq!(look.changes(ReadFlags::MODIFY, false, now), FileChanges::WRITE);
    }

    #[test]
    fn a_directory_is_watched_for_names_not_contents() {
        let directory = Look { is_directory: true, ..FILE };
        let mask = directory.mask(FileChanges::ALL);
        assert!(mask.contains(WatchFlags::CREATE) && !mask.intersects(WatchFlags::MODIFY));
        let created = ReadFlags::CREATE | ReadFlags::ISDIR;
        let mut look = directory;
        assert_eq!(look.changes(created, true, None), FileChanges::WRITE | FileChanges::LINK);
        assert_eq!(look.changes(ReadFlags::ATTRIB, true, None), FileChanges::NONE);
        assert!(!FILE.mask(FileChanges::NONE).is_empty());
    }
}
