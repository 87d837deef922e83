//! The size of machine code in a file.

use std::fs;
use std::io;
use std::path::Path;

use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSection as _, SectionKind};

/// Returns the bytes of all sections with code.
///
/// # Errors
/// The file cannot be read, or is no ELF file of 64 bits; the message names it.
pub(super) fn bytes(file: &Path) -> io::Result<u64> {
    let wrong = |why: String| io::Error::other(format!("{}: {why}", file.display()));
    let content = fs::read(file).map_err(|error| wrong(error.to_string()))?;
    let parsed = ElfFile64::<Endianness>::parse(&*content);
    let parsed: ElfFile64<'_, Endianness> = parsed.map_err(|error| wrong(error.to_string()))?;
    let code = parsed.sections().filter(|section| section.kind() == SectionKind::Text);
    Ok(code.map(|section| section.size()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_code_and_a_text_is_refused_by_name() {
        let own = std::env::current_exe().unwrap();
        let size = bytes(&own).unwrap();
        assert!(size > 0 && size < fs::metadata(own).unwrap().len(), "{size}");
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        fs::write(&text, "no program").unwrap();
        let error = bytes(&text).unwrap_err().to_string();
        assert!(error.starts_with(&text.display().to_string()), "{error}");
    }
}
