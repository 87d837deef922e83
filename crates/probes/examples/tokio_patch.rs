//! Makes an edited copy of a release of tokio, as `heddle cargo --tokio` does: `tokio_patch SOURCE VERSION TARGET`.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, version, target] = &arguments[..] else {
        eprintln!("usage: tokio_patch SOURCE VERSION TARGET; each is a folder but the version");
        return ExitCode::from(2);
    };
    let result = heddle_probes::tokio::copy_edited(Path::new(source), version, Path::new(target));
    if let Err(error) = result {
        eprintln!("tokio_patch: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
