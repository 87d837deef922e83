//! Response files: `@FILE` on clang's command line stands for the words in the file.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

/// How deep files may name others.
const DEPTH: u32 = 8;

/// Returns `arguments` with the words of response files instead of their names. A file that cannot be read stays a
/// name, as in clang.
pub fn expand(arguments: &[OsString]) -> Vec<OsString> {
    let mut expanded = Vec::with_capacity(arguments.len());
    add(arguments, DEPTH, &mut expanded);
    expanded
}

fn add(arguments: &[OsString], depth: u32, expanded: &mut Vec<OsString>) {
    for argument in arguments {
        let file = argument.as_bytes().strip_prefix(b"@").filter(|_| depth > 0);
        let text =
            file.and_then(|name| fs::read(Path::new(std::ffi::OsStr::from_bytes(name))).ok());
        match text {
            Some(text) => add(&words(&text), depth - 1, expanded),
            None => expanded.push(argument.clone()),
        }
    }
}

/// Splits text as a shell does: at white space, with quotes and backslashes.
fn words(text: &[u8]) -> Vec<OsString> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<Vec<u8>>, None);
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (None, b' ' | b'\t' | b'\n' | b'\r') => words.extend(word.take()),
            (None, b'\'' | b'"') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (Some(open), _) if open == byte => quote = None,
            (None | Some(b'"'), b'\\') => word.get_or_insert_default().extend(bytes.next()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words.into_iter().map(OsString::from_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_clang_does() {
        let text = b"-c  'a b.c'\n-DX=\\\"y\\\" \"q\\\"r\"\t''  z";
        assert_eq!(words(text), ["-c", "a b.c", "-DX=\"y\"", "q\"r", "", "z"]);
        assert!(words(b" \n").is_empty());
    }

    #[test]
    fn files_may_name_files_and_a_missing_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let [outer, inner] = ["outer", "inner"].map(|name| folder.path().join(name));
        fs::write(&outer, format!("-c @{}", inner.display())).unwrap();
        fs::write(&inner, format!("a.c @{}", outer.display())).unwrap();
        let expanded = expand(&[format!("@{}", outer.display()).into(), "@missing".into()]);
        assert_eq!(expanded[..2], ["-c", "a.c"]);
        assert_eq!(expanded.last().unwrap(), "@missing");
    }
}
