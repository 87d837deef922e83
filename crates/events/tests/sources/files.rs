//! Changes of files.

use super::{HANG, delivered, delivered_now, is_alone, unshare};
use heddle_events::{EventOptions, EventQueue, FileChanges, Worker};
use std::path::{Path, PathBuf};

/// A test's own folder, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("heddle-{test}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, "0123456789").unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn append(path: &Path) {
    use std::io::Write as _;
    std::fs::OpenOptions::new().append(true).open(path).unwrap().write_all(b"more").unwrap();
}

/// Returns the changes that are reported next.
fn changes(worker: &mut Worker) -> FileChanges {
    FileChanges::from(delivered(worker, 1)[0].1)
}

#[test]
fn changes_of_a_file_are_reported_by_kind() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("file");
    let (path, link, moved) = (folder.file("a"), folder.0.join("link"), folder.0.join("moved"));
    let queue = EventQueue::new().unwrap();
    let mut worker = queue.worker().unwrap();
    queue.register_file(&path, FileChanges::ALL, 1, EventOptions::default()).unwrap();
    append(&path);
    assert_eq!(changes(&mut worker), FileChanges::WRITE | FileChanges::EXTEND);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1).unwrap();
    assert_eq!(changes(&mut worker), FileChanges::WRITE);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(changes(&mut worker), FileChanges::ATTRIB);
    std::fs::hard_link(&path, &link).unwrap();
    assert_eq!(changes(&mut worker), FileChanges::LINK);
    std::fs::rename(&path, &moved).unwrap();
    assert_eq!(changes(&mut worker), FileChanges::RENAME);
    std::fs::remove_file(&link).unwrap();
    assert_eq!(changes(&mut worker), FileChanges::LINK);
    append(&moved);
    assert_eq!(changes(&mut worker), FileChanges::WRITE | FileChanges::EXTEND, "by any name");
    std::fs::remove_file(&moved).unwrap();
    assert_eq!(changes(&mut worker), FileChanges::DELETE);
    assert_eq!(delivered_now(&mut worker), []);
}

#[test]
fn only_requested_changes_are_reported_to_each_registration() {
    let folder = Folder::new("asked");
    let path = folder.file("a");
    let queue = EventQueue::new().unwrap();
    let mut worker = queue.worker().unwrap();
    let register = |changes, token| {
        queue.register_file(&path, changes, token, EventOptions::default()).unwrap()
    };
    let write = register(FileChanges::WRITE, 1);
    register(FileChanges::DELETE | FileChanges::EXTEND, 2);
    append(&path);
    let mut both = delivered(&mut worker, 2);
    both.sort_unstable();
    assert_eq!(both, [(1, FileChanges::WRITE.into()), (2, FileChanges::EXTEND.into())]);
    queue.deregister(write).unwrap();
    std::fs::write(&path, "").unwrap();
    assert_eq!(delivered_now(&mut worker), []);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(delivered(&mut worker, 1), [(2, FileChanges::DELETE.into())]);
}

#[test]
fn a_file_known_only_by_descriptor_is_watched_and_its_end_reported_once() {
    use std::os::fd::AsRawFd as _;
    let folder = Folder::new("number");
    let path = folder.file("a");
    let file = std::fs::File::open(&path).unwrap();
    let queue = EventQueue::new().unwrap();
    let mut worker = queue.worker().unwrap();
    let number = format!("/proc/self/fd/{}", file.as_raw_fd());
    let id = queue.register_file(number, FileChanges::ALL, 1, EventOptions::default()).unwrap();
    std::fs::rename(folder.file("b"), &path).unwrap();
    assert_eq!(changes(&mut worker), FileChanges::DELETE, "another file has its name");
    drop(file);
    assert_eq!(delivered_now(&mut worker), []);
    queue.deregister(id).unwrap();
    assert!(queue.is_empty());
}

#[test]
fn a_directory_reports_names_not_contents() {
    let folder = Folder::new("names");
    let (inner, file) = (folder.0.join("inner"), folder.file("a"));
    std::fs::create_dir(&inner).unwrap();
    let queue = EventQueue::new().unwrap();
    let mut worker = queue.worker().unwrap();
    let options = EventOptions::default();
    let outer = queue.register_file(&folder.0, FileChanges::ALL, 1, options).unwrap();
    queue.register_file(&inner, FileChanges::ALL, 2, options).unwrap();
    append(&file);
    assert_eq!(delivered_now(&mut worker), []);
    let fresh = folder.file("b");
    assert_eq!(changes(&mut worker), FileChanges::WRITE);
    std::fs::rename(&fresh, &file).unwrap();
    assert_eq!(changes(&mut worker), FileChanges::WRITE | FileChanges::EXTEND);
    std::fs::remove_dir(&inner).unwrap();
    let mut both = delivered(&mut worker, 2);
    both.sort_unstable();
    let names = FileChanges::WRITE | FileChanges::LINK;
    assert_eq!(both, [(1, names.into()), (2, FileChanges::DELETE.into())]);
    queue.deregister(outer).unwrap();
    folder.file("c");
    assert_eq!(delivered_now(&mut worker), []);
}

#[test]
fn lost_changes_are_reported_as_all_changes() {
    let folder = Folder::new("overflow");
    let (one, other) = (folder.file("a"), folder.file("b"));
    let queue = EventQueue::new().unwrap();
    let asked = FileChanges::DELETE | FileChanges::WRITE | FileChanges::LINK;
    let options = EventOptions::default();
    queue.register_file(&one, asked, 1, options).unwrap();
    queue.register_file(&other, FileChanges::WRITE, 2, options).unwrap();
    queue.register_file(folder.file("c"), FileChanges::RENAME, 3, options).unwrap();
    let most = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let most: usize = most.trim().parse().unwrap();
    // The same report twice in a row is merged into one.
    for _ in 0..=most / 2 {
        append(&one);
        append(&other);
    }
    let mut worker = queue.worker().unwrap();
    let mut all = delivered(&mut worker, 3);
    all.sort_unstable();
    let of = |token, changes: FileChanges| (token, u64::from(changes));
    assert_eq!(all, [of(1, asked), of(2, FileChanges::WRITE), of(3, FileChanges::RENAME)]);
    std::fs::remove_file(&one).unwrap();
    assert_eq!(delivered(&mut worker, 1), [of(1, FileChanges::DELETE)], "it goes on after that");
}

#[test]
fn file_errors_are_explained_and_change_nothing() {
    let queue = EventQueue::new().unwrap();
    let register = |path: &str| {
        queue.register_file(path, FileChanges::ALL, 0, EventOptions::default()).unwrap_err()
    };
    assert_eq!(register("/nowhere/at/all").errno(), 2);
    assert_eq!(register("/proc/self/fd/9999").errno(), 2);
    assert!(register("/nowhere").to_string().contains("open a file to watch"));
    assert!(queue.is_empty());
}

#[test]
fn a_directory_reports_that_its_file_system_is_unmounted() {
    let Some(unshare) = unshare() else { return };
    let before = format!("exec {unshare} \"$0\" \"$@\";");
    if !is_alone("files::a_directory_reports_that_its_file_system_is_unmounted", &before) {
        return;
    }
    let run = |command: &str, folder: &Folder| {
        let script = format!("{command} \"$0\"");
        let mut shell = std::process::Command::new("sh");
        assert!(shell.args(["-c", &script]).arg(&folder.0).status().unwrap().success(), "{script}");
    };
    let folder = Folder::new("unmounted");
    run("mount -t tmpfs none", &folder);
    let queue = EventQueue::new().unwrap();
    let id = queue.register_file(&folder.0, FileChanges::ALL, 1, EventOptions::default()).unwrap();
    run("umount", &folder);
    let mut worker = queue.worker().unwrap();
    assert_eq!(changes(&mut worker), FileChanges::REVOKE);
    assert_eq!(delivered_now(&mut worker), []);
    queue.deregister(id).unwrap();
}

/// Each write is delivered to one of several threads, which leave and join, and none is lost.
#[test]
fn changes_are_delivered_while_workers_come_and_go() {
    let folder = Folder::new("threads");
    let files: Vec<PathBuf> = (0..8).map(|i| folder.file(&i.to_string())).collect();
    let queue = EventQueue::new().unwrap();
    for (token, file) in files.iter().enumerate() {
        let options = EventOptions::default();
        queue.register_file(file, FileChanges::WRITE, token as u64, options).unwrap();
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (queue, sender) = (&queue, sender.clone());
            scope.spawn(move || {
                while let Ok(mut worker) = queue.worker() {
                    for _ in 0..if thread == 0 { usize::MAX } else { 5 } {
                        let Ok(batch) = worker.wait(HANG) else { return };
                        batch.for_each(|event| sender.send(event.token()).unwrap());
                    }
                }
            });
        }
        for _ in 0..50 {
            files.iter().for_each(|file| append(file));
            let mut left: std::collections::BTreeSet<u64> = (0..files.len() as u64).collect();
            while !left.is_empty() {
                left.remove(&receiver.recv_timeout(HANG.unwrap()).expect("a change is delivered"));
            }
        }
        queue.close();
    });
}
