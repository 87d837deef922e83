//! What may happen to a file, and how that is seen in what inotify says.

use rustix::fs::inotify::{ReadFlags, WatchFlags};
use rustix::fs::{FileType, Stat};
use std::ops::BitOr;

/// Changes of a file, a set. The bits are those of BSD's `NOTE_DELETE` and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileChanges(u32);

impl FileChanges {
    /// Its last name was removed. Of a directory that some process holds open this is told when it is closed.
    pub const DELETE: FileChanges = FileChanges(1);
    /// It was written to or cut; in a directory names came or went.
    pub const WRITE: FileChanges = FileChanges(2);
    /// It has become larger; in a directory names came or went by renaming. Always together with [`FileChanges::WRITE`], where that is asked
    /// for.
    pub const EXTEND: FileChanges = FileChanges(4);
    /// Its mode, owner, times or extended attributes were set.
    pub const ATTRIB: FileChanges = FileChanges(8);
    /// It has more or fewer names than before; in a directory other directories came or went.
    pub const LINK: FileChanges = FileChanges(0x10);
    /// It was renamed.
    pub const RENAME: FileChanges = FileChanges(0x20);
    /// Its file system was unmounted. Directories only: other files keep theirs mounted while they are registered.
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

    /// Those that are in both sets.
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

/// What was known of a file when it was looked at last.
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
    /// What inotify has to say so that `changes` can be told. Never nothing, which it refuses.
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
                // Not MODIFY: of a directory it says what happens to the files in it.
                true => when(C::WRITE | C::EXTEND | C::LINK, names),
                false => {
                    when(C::WRITE | C::EXTEND, WatchFlags::MODIFY)
                        | when(C::LINK | C::DELETE, WatchFlags::ATTRIB)
                }
            }
    }

    /// What happened, from what inotify says and how the file looks `now`, if it can be looked at. `of_entry`: it is about a file in the
    /// directory.
    pub fn changes(&mut self, said: ReadFlags, of_entry: bool, now: Option<Look>) -> FileChanges {
        use FileChanges as C;
        if of_entry {
            return C::WRITE.when(said.intersects(NAMES))
                | C::EXTEND.when(said.intersects(RENAMED))
                | C::LINK.when(said.intersects(NAMES) && said.contains(ReadFlags::ISDIR));
        }
        let mut changes = C::DELETE.when(said.contains(ReadFlags::DELETE_SELF))
            | C::RENAME.when(said.contains(ReadFlags::MOVE_SELF))
            | C::REVOKE.when(said.contains(ReadFlags::UNMOUNT));
        if said.contains(ReadFlags::MODIFY) {
            changes = changes | self.modified(now);
        }
        if said.contains(ReadFlags::ATTRIB) {
            changes = changes | self.attributes(now);
        }
        changes
    }

    /// Only the size is learnt: what else has changed is said by what inotify says next.
    fn modified(&mut self, now: Option<Look>) -> FileChanges {
        let Some(now) = now else { return FileChanges::WRITE };
        let grew = now.size > self.size;
        self.size = now.size;
        FileChanges::WRITE | FileChanges::EXTEND.when(grew)
    }

    /// inotify says the same of a new name, of one that was removed and of a new mode.
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
    fn names_are_told_from_attributes_by_their_number() {
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
    fn what_one_word_of_inotify_is_about_does_not_hide_what_the_next_is_about() {
        let mut look = FILE;
        // Written to, then removed; both are there by the time anybody looks.
        let now = Some(Look { names: 0, size: 20, ..FILE });
        let written = look.changes(ReadFlags::MODIFY, false, now);
        assert_eq!(written, FileChanges::WRITE | FileChanges::EXTEND);
        assert_eq!(look.changes(ReadFlags::ATTRIB, false, now), FileChanges::DELETE);
        assert_eq!(look.changes(ReadFlags::MODIFY, false, now), FileChanges::WRITE);
    }

    #[test]
    fn a_directory_is_asked_for_names_and_not_for_its_files_contents() {
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
