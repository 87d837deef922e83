//! The edits, in a tree with nothing but their anchors.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;

/// Writes a release into `folder` that has each anchor once.
fn fixture(folder: &Path, minor: u32) {
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for edit in EDITS.iter().filter(|edit| edit.minors.contains(&minor)) {
        if !FILES.iter().any(|(file, _)| *file == edit.file) {
            let text = texts.entry(edit.file).or_insert_with(|| "// tokio's\n".into());
            text.push_str(edit.anchor);
            text.push('\n');
        }
    }
    for (file, text) in texts {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

#[test]
fn each_supported_release_is_edited() {
    for minor in MINORS {
        let folder = tempfile::tempdir().unwrap();
        let (source, target) = (folder.path().join("source"), folder.path().join("target"));
        fixture(&source, minor);
        copy_edited(&source, &format!("1.{minor}.0"), &target).unwrap();
        for (file, _) in FILES {
            assert!(target.join(file).is_file() && !source.join(file).exists(), "{file}");
        }
        for edit in EDITS.iter().filter(|edit| edit.minors.contains(&minor)) {
            let text = fs::read_to_string(target.join(edit.file)).unwrap();
            assert!(text.contains(edit.with), "{}: {}", edit.file, edit.with);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else remains");
    }
}

#[test]
fn a_copy_is_made_once_and_a_copy_of_a_copy_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("source"), folder.path().join("target"));
    fixture(&source, 54);
    copy_edited(&source, "1.54.1", &target).unwrap();
    fs::write(target.join("mark"), "").unwrap();
    copy_edited(&source, "1.54.1", &target).unwrap();
    assert!(target.join("mark").exists(), "the first one stays");
    let error =
        copy_edited(&target, "1.54.1", &folder.path().join("again")).unwrap_err().to_string();
    assert!(error.contains("tokio 1.54.1: ") && error.contains("exists already"), "{error}");
}

#[test]
fn an_anchor_that_is_missing_or_not_unique_is_named() {
    for (change, found) in [("", 0), ("mod loom;\nmod loom;\n", 2)] {
        let folder = tempfile::tempdir().unwrap();
        let (source, target) = (folder.path().join("source"), folder.path().join("target"));
        fixture(&source, 54);
        fs::write(source.join("src/lib.rs"), change).unwrap();
        let error = copy_edited(&source, "1.54.1", &target).unwrap_err();
        assert!(error.is_usage());
        let error = error.to_string();
        let says = format!(
            "tokio 1.54.1 is not supported: src/lib.rs: anchor \"mod loom;\": found {found} times, want 1"
        );
        assert!(error.starts_with(&says), "{error}");
        assert!(!target.exists());
    }
}

#[test]
fn a_source_that_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fixture(&source, 54);
    fs::remove_file(source.join("src/lib.rs")).unwrap();
    let error = copy_edited(&source, "1.54.1", &folder.path().join("target")).unwrap_err();
    let error = error.to_string();
    assert!(
        error.starts_with("tokio 1.54.1: cannot read") && error.contains("src/lib.rs"),
        "{error}"
    );
}

#[test]
fn unknown_releases_are_refused() {
    for version in ["1.48.0", "1.55.0", "0.2.25", "2.0.0", "1", ""] {
        let package = Package { version: version.into(), folder: "/none".into() };
        let error = prepare(&[package]).unwrap_err();
        assert!(error.is_usage());
        let error = error.to_string();
        assert!(
            error.starts_with(&format!(
                "tokio {version} is not supported: this Heddle knows 1.49 to 1.54"
            )) && error.contains("cargo update -p tokio --precise"),
            "{error}"
        );
    }
}

#[test]
fn the_edits_are_complete() {
    let edited = |minor: u32| EDITS.iter().filter(move |edit| edit.minors.contains(&minor));
    for edit in &EDITS {
        assert!(MINORS.contains(edit.minors.start()) && MINORS.contains(edit.minors.end()));
        assert_ne!(edit.anchor, edit.with);
    }
    for minor in MINORS {
        for (file, _) in FILES.iter().skip(1) {
            let path = format!("#[path = \"../../{}\"]", file.strip_prefix("src/").unwrap());
            assert_eq!(edited(minor).filter(|edit| edit.with.contains(&path)).count(), 1, "{file}");
        }
    }
}
