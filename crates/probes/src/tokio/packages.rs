//! Which releases of tokio a program uses.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;

/// A release of tokio, as cargo has unpacked it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its version.
    pub version: String,
    /// Its folder.
    pub folder: PathBuf,
}

/// Options of cargo's compiling subcommands that decide which packages a program uses, and have a value.
const WITH_VALUE: [&str; 4] = ["--manifest-path", "--config", "--features", "-Z"];
/// The same without a value.
const WITHOUT_VALUE: [&str; 5] =
    ["--locked", "--offline", "--frozen", "--all-features", "--no-default-features"];

/// Returns the releases of tokio that the program uses which `cargo` would compile with `arguments`.
///
/// # Errors
/// If cargo cannot say so, there is none, or one does not come from a registry.
pub fn find(cargo: &Path, arguments: &[OsString]) -> Result<Vec<Package>, Error> {
    let mut command = Command::new(cargo);
    command.args(metadata_arguments(arguments)).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| no_metadata(&error.to_string()))?;
    if !output.status.success() {
        return Err(no_metadata("its messages are above"));
    }
    parse(&output.stdout)
}

/// Returns the arguments of `cargo metadata` for the same program.
fn metadata_arguments(arguments: &[OsString]) -> Vec<OsString> {
    let mut metadata = Vec::new();
    let mut words = arguments.iter().take_while(|word| *word != "--").peekable();
    metadata.extend(words.next_if(|word| word.to_string_lossy().starts_with('+')).cloned());
    metadata.extend(["metadata", "--format-version=1"].map(OsString::from));
    // The program is for this machine.
    metadata.extend(["--filter-platform", "x86_64-unknown-linux-gnu"].map(OsString::from));
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let (option, value) = match text.split_once('=') {
            Some((option, _)) => (option, true),
            None => (&*text, false),
        };
        let is_attached = option.starts_with("-Z") && option != "-Z";
        if WITH_VALUE.contains(&option) || option == "-F" {
            metadata.push(word.clone());
            if !value {
                metadata.extend(words.next().cloned());
            }
        } else if WITHOUT_VALUE.contains(&option) || is_attached || option.starts_with("-F") {
            metadata.push(word.clone());
        }
    }
    metadata
}

/// Finds tokio in what `cargo metadata` prints.
fn parse(json: &[u8]) -> Result<Vec<Package>, Error> {
    #[derive(serde::Deserialize)]
    struct Metadata {
        packages: Vec<Entry>,
    }
    #[derive(serde::Deserialize)]
    struct Entry {
        name: String,
        version: String,
        source: Option<String>,
        manifest_path: PathBuf,
    }

    let metadata: Metadata =
        serde_json::from_slice(json).map_err(|error| no_metadata(&error.to_string()))?;
    let mut packages = Vec::new();
    for entry in metadata.packages.into_iter().filter(|entry| entry.name == "tokio") {
        let folder = entry.manifest_path.parent().unwrap_or(Path::new("/")).to_owned();
        let source = entry.source.unwrap_or_default();
        let is_release = ["registry+", "sparse+"].iter().any(|kind| source.starts_with(kind));
        if !is_release {
            return Err(Error::Usage(format!(
                "tokio {} is the source in {}, not a release from a registry, and only releases are known to work; \
                 remove its entry from [patch], or build without --tokio",
                entry.version,
                folder.display()
            )));
        }
        packages.push(Package { version: entry.version, folder });
    }
    if packages.is_empty() {
        return Err(Error::Usage(
            "the program does not use tokio; build it without --tokio, or name another with --manifest-path".into(),
        ));
    }
    Ok(packages)
}

fn no_metadata(reason: &str) -> Error {
    Error::Usage(format!("`cargo metadata` does not say which tokio the program uses: {reason}"))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn metadata_is_asked_for_the_same_program() {
        let all = "+1.95 build --release --manifest-path a/Cargo.toml --locked -p x --features=a,b \
                   -F c -Fd -- --offline";
        let asked = metadata_arguments(&words(all)).join(OsStr::new(" ")).into_string().unwrap();
        assert_eq!(
            asked,
            "+1.95 metadata --format-version=1 --filter-platform x86_64-unknown-linux-gnu \
             --manifest-path a/Cargo.toml --locked --features=a,b -F c -Fd"
        );
    }

    fn parsed(package: &str) -> Result<Vec<Package>, String> {
        parse(format!("{{\"packages\":[{package}]}}").as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn releases_are_found_and_nothing_else() {
        let entry = |name: &str, source: &str| {
            format!(
                r#"{{"name":"{name}","version":"1.54.1","source":{source},"manifest_path":"/r/Cargo.toml"}}"#
            )
        };
        let registry = "\"registry+https://github.com/rust-lang/crates.io-index\"";
        let found = parsed(&entry("tokio", registry)).unwrap();
        assert_eq!(found, [Package { version: "1.54.1".into(), folder: "/r".into() }]);
        let none = parsed(&entry("tokio-util", registry)).unwrap_err();
        assert!(none.contains("does not use tokio"), "{none}");
        for other in ["null", "\"git+https://example.org/tokio#0123\""] {
            let error = parsed(&entry("tokio", other)).unwrap_err();
            assert!(
                error.contains("1.54.1 is the source in /r,") && error.contains("[patch]"),
                "{error}"
            );
        }
        assert!(parsed("3").unwrap_err().contains("`cargo metadata`"));
    }
}
