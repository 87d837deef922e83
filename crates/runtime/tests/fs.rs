//! Files by way of `blocking`: in the shape of `std::fs`, without holding up other tasks.

mod common;

use common::{runtime, two_workers};
use heddle_rt::fs::{self, File, OpenOptions};
use heddle_rt::{spawn, yield_now};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::io::{BufRead, BufReader, ErrorKind, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A fresh directory, removed when dropped.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (pid, nth) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("heddle-fs-{pid}-{nth}"));
        fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn files_are_written_read_and_changed_by_tasks_and_threads() {
    let test = || {
        let dir = Dir::new();
        let path = dir.at("file");
        let mut file = File::create_new(&path).unwrap();
        assert_eq!(File::create_new(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
        file.write_all(b"0123456789").unwrap();
        assert_eq!(file.write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"cd")]).unwrap(), 4);
        file.flush().unwrap();
        file.sync_all().unwrap();
        file.sync_data().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 14);
        assert_eq!(file.seek(SeekFrom::Start(8)).unwrap(), 8);
        let mut buf = [0; 4];
        file.read_exact(&mut buf).unwrap();
        assert_eq!(&buf, b"89ab");
        file.read_exact_at(&mut buf, 2).unwrap();
        assert_eq!(&buf, b"2345");
        file.write_all_at(b"xy", 0).unwrap();
        assert_eq!(file.stream_position().unwrap(), 12, "positioned access leaves the position");
        file.set_len(4).unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.try_clone().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "xy23");
        let std = std::fs::File::from(file);
        assert_eq!(File::from(std).metadata().unwrap().len(), 4);
    };
    runtime("fifo").run(test);
    test();
}

#[test]
fn a_file_is_opened_as_its_options_say() {
    runtime("fifo").run(|| {
        let dir = Dir::new();
        let path = dir.at("file");
        let missing = OpenOptions::new().read(true).open(&path).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let mut options = File::options();
        options.append(true).create(true).mode(0o640);
        options.open(&path).unwrap().write_all(b"one\n").unwrap();
        options.open(&path).unwrap().write_all(b"two\n").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        let lines = BufReader::new(File::open(&path).unwrap()).lines();
        assert_eq!(lines.map(Result::unwrap).collect::<Vec<_>>(), ["one", "two"]);
        drop(OpenOptions::new().write(true).truncate(true).open(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"");
        assert!(File::open(&path).unwrap().write(b"x").is_err(), "opened for reading");
    });
}

#[test]
fn directories_links_and_names_are_handled_as_by_std() {
    two_workers("work-stealing").run(|| {
        let dir = Dir::new();
        fs::create_dir_all(dir.at("a/b/c")).unwrap();
        assert_eq!(fs::create_dir(dir.at("a")).unwrap_err().kind(), ErrorKind::AlreadyExists);
        // More than one chunk of entries.
        for i in 0..150 {
            fs::write(dir.at(&format!("a/{i}")), i.to_string()).unwrap();
        }
        let entries: Vec<_> = fs::read_dir(dir.at("a")).unwrap().map(Result::unwrap).collect();
        assert_eq!(entries.len(), 151);
        assert_eq!(entries.iter().filter(|e| e.file_type().unwrap().is_dir()).count(), 1);
        for entry in entries.iter().filter(|e| e.file_name() != "b") {
            let text = fs::read_to_string(entry.path()).unwrap();
            assert_eq!(entry.file_name(), *text);
            assert_eq!(entry.metadata().unwrap().len(), text.len() as u64);
        }
        assert_eq!(fs::copy(dir.at("a/7"), dir.at("copy")).unwrap(), 1);
        fs::hard_link(dir.at("copy"), dir.at("second")).unwrap();
        fs::symlink("copy", dir.at("link")).unwrap();
        assert_eq!(fs::read_link(dir.at("link")).unwrap(), PathBuf::from("copy"));
        assert_eq!(
            fs::canonicalize(dir.at("link")).unwrap(),
            fs::canonicalize(dir.at("copy")).unwrap()
        );
        assert!(fs::symlink_metadata(dir.at("link")).unwrap().is_symlink());
        fs::rename(dir.at("copy"), dir.at("moved")).unwrap();
        assert!(!fs::exists(dir.at("link")).unwrap() && fs::exists(dir.at("moved")).unwrap());
        let mut permissions = fs::metadata(dir.at("moved")).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(dir.at("moved"), permissions).unwrap();
        assert!(fs::metadata(dir.at("second")).unwrap().permissions().readonly());
        fs::remove_file(dir.at("moved")).unwrap();
        assert!(fs::remove_dir(dir.at("a")).is_err(), "not empty");
        fs::remove_dir_all(dir.at("a")).unwrap();
        assert_eq!(fs::read_dir(dir.at("a")).unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_file_that_blocks_leaves_the_only_worker_to_other_tasks() {
    runtime("fifo").run(|| {
        let dir = Dir::new();
        let path = dir.at("fifo");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // Opening a FIFO blocks until the other end is opened; the reads block until there is data.
        let reader_path = path.clone();
        let reader = spawn(move || fs::read_to_string(reader_path).unwrap());
        yield_now();
        let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
        for _ in 0..10 {
            writer.write_all(b"line\n").unwrap();
            yield_now();
        }
        drop(writer);
        assert_eq!(reader.join().unwrap(), "line\n".repeat(10));
    });
}

#[test]
fn many_tasks_use_files_under_preemption() {
    two_workers("work-stealing:quantum=100us").run(|| {
        let dir = Dir::new();
        let tasks: Vec<_> = (0..20)
            .map(|i: u8| {
                let path = dir.at(&i.to_string());
                spawn(move || {
                    for round in 0..20usize {
                        fs::write(&path, vec![i; 1000 * round]).unwrap();
                        assert!(fs::read(&path).unwrap() == vec![i; 1000 * round]);
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
    });
}
