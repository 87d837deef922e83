//! What a command line of clang's asks for: whether anything is compiled, and what cannot be with probes.

use std::ffi::OsString;
use std::path::Path;

use crate::Error;
use crate::response;
use crate::toolchain::version::is_supported_target;

/// Options whose value is the next argument, which is therefore no input.
const WITH_VALUE: &[&str] = &[
    "-o",
    "-I",
    "-D",
    "-U",
    "-L",
    "-l",
    "-F",
    "-T",
    "-u",
    "-z",
    "-e",
    "-MF",
    "-MT",
    "-MQ",
    "-MJ",
    "-Xclang",
    "-Xlinker",
    "-Xassembler",
    "-Xpreprocessor",
    "-Xanalyzer",
    "-mllvm",
    "-include",
    "-imacros",
    "-include-pch",
    "-isystem",
    "-isystem-after",
    "-iquote",
    "-idirafter",
    "-iprefix",
    "-iwithprefix",
    "-iwithprefixbefore",
    "-isysroot",
    "-working-directory",
    "--param",
    "--sysroot",
    "--serialize-diagnostics",
    "-rpath",
    "-arch",
];

/// Options after which no code is generated.
const NO_CODE: [&str; 6] = ["-E", "-M", "-MM", "-fsyntax-only", "--preprocess", "--analyze"];

/// Extensions of files that clang compiles: C and C++ in all their forms, and LLVM's own code.
const COMPILED: [&str; 22] = [
    "c", "i", "cc", "cp", "cpp", "cxx", "c++", "C", "CC", "CPP", "CXX", "C++", "ii", "cppm", "ccm",
    "cxxm", "ixx", "m", "mm", "mi", "ll", "bc",
];

/// A command line, as far as it matters here.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Whether there is any input. Without one it is a question, such as `--version`.
    pub has_input: bool,
    /// Whether code is generated from an input in C, C++ or LLVM's intermediate representation.
    pub compiles: bool,
    /// Whether the linker is going to optimise, by its own LLVM, which has no pass.
    pub is_optimised_by_linker: bool,
    /// The last of each kind of options that are not supported.
    sanitizer: Option<String>,
    width: Option<String>,
    target: Option<String>,
}

impl Request {
    /// Reads a command line, with the response files that it names.
    pub fn of(arguments: &[OsString]) -> Request {
        let expanded = response::expand(arguments);
        let mut words = expanded.iter().map(|word| word.to_string_lossy());
        let (mut request, mut generates_code) = (Request::default(), true);
        let (mut language, mut only_inputs) = (None::<String>, false);
        while let Some(word) = words.next() {
            if only_inputs || !word.starts_with('-') || word == "-" {
                request.has_input = true;
                request.compiles |= is_compiled(&word, language.as_deref());
            } else if word == "--" {
                only_inputs = true;
            } else if let Some(named) = language_option(&word) {
                let named =
                    if named.is_empty() { words.next().unwrap_or_default() } else { named.into() };
                language = Some(named.into_owned()).filter(|named| named != "none");
            } else if word == "-target" {
                request.target = words.next().map(|target| format!("-target {target}"));
            } else if WITH_VALUE.contains(&&*word) {
                words.next();
            } else {
                generates_code &= !NO_CODE.contains(&&*word);
                request.note(&word);
            }
        }
        request.compiles &= generates_code;
        request
    }

    /// Notes what `option` sets or resets. The last one counts, as in clang.
    fn note(&mut self, option: &str) {
        let shown = || Some(option.to_owned());
        match option {
            "-flto" => self.is_optimised_by_linker = true,
            "-fno-lto" => self.is_optimised_by_linker = false,
            "-m32" | "-mx32" | "-m16" => self.width = shown(),
            "-m64" => self.width = None,
            "-fno-sanitize=all" => self.sanitizer = None,
            _ if option.starts_with("-flto=") => self.is_optimised_by_linker = true,
            _ if option.starts_with("-fsanitize=") => self.sanitizer = shown(),
            _ if option.starts_with("--target=") => self.target = shown(),
            _ => {}
        }
    }

    /// Refuses what cannot be compiled or linked with probes.
    pub fn check(&self) -> Result<(), Error> {
        if !self.has_input {
            return Ok(());
        }
        let target = self.target.as_deref().filter(|option| {
            let triple = option.trim_start_matches("--target=").trim_start_matches("-target ");
            !is_supported_target(triple)
        });
        let refusals = [
            (
                self.sanitizer.as_deref(),
                "is not supported yet: sanitizers have not been tried with probes; drop it, or compile with clang \
                 itself",
            ),
            (self.width.as_deref(), "is not supported: probes are for 64-bit x86; drop it"),
            (
                target,
                "is not supported: probes are for x86_64 Linux; drop it, or compile with clang itself",
            ),
        ];
        let refused = refusals.into_iter().find_map(|(option, why)| Some((option?, why)));
        refused.map_or(Ok(()), |(option, why)| Err(Error::Usage(format!("{option} {why}"))))
    }
}

/// Returns the language of `-x`, in one word or, then empty, in two.
fn language_option(word: &str) -> Option<&str> {
    match word.strip_prefix("--language") {
        Some(rest) => rest.strip_prefix('=').or(rest.is_empty().then_some("")),
        // Options of other meaning begin with -x only in capital letters.
        None => word.strip_prefix("-x"),
    }
}

fn is_compiled(input: &str, language: Option<&str>) -> bool {
    if let Some(language) = language {
        let is_header = language.ends_with("-header") || language.ends_with("-pch");
        return !is_header && !language.starts_with("assembler");
    }
    let extension = Path::new(input).extension().unwrap_or_default().to_string_lossy();
    input == "-" || COMPILED.contains(&&*extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Request {
        Request::of(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn compilations_are_recognised() {
        for line in [
            "-c a.c",
            "a.cc b.o -o prog",
            "-S x.cpp",
            "-O2 -MD -MF a.d -c -o a.o /src/a.C",
            "-x c -",
            "-xc++ text",
            "-x c a.txt",
            "-c -- a.c",
            "--language=c foo",
            "-c a.ll",
            "-emit-llvm -c a.c",
            "-c -",
            "-v a.c",
            "-### a.c",
        ] {
            assert!(request(line).compiles, "{line}");
        }
        for line in [
            "a.o b.o -o prog",
            "a.o -o a.c",
            "-E a.c",
            "-M a.c",
            "-MM a.c",
            "-c a.s",
            "-c a.S",
            "-x assembler a.c",
            "-x c-header a.h",
            "a.h",
            "--version",
            "-dumpmachine",
            "-print-search-dirs",
            "-v",
            "",
            "-include a.c b.o",
            "-Xlinker a.c b.o",
            "-fsyntax-only a.c",
            "-x c -x none a.o",
            "-shared liba.a",
        ] {
            assert!(!request(line).compiles, "{line}");
        }
    }

    #[test]
    fn a_command_without_input_is_a_question() {
        for line in [
            "--version",
            "-v",
            "-dumpmachine",
            "-m32 -print-libgcc-file-name",
            "-flto -dumpversion",
        ] {
            assert!(!request(line).has_input, "{line}");
            assert!(request(line).check().is_ok(), "{line}");
        }
        assert!(request("a.o").has_input);
    }

    #[test]
    fn what_is_not_supported_is_refused_with_the_reason() {
        for (line, says) in [
            ("-fsanitize=address a.c", "-fsanitize=address is not supported yet"),
            ("-fsanitize=undefined a.c", "-fsanitize=undefined is not supported yet"),
            ("-m32 a.c", "-m32 is not supported: probes are for 64-bit x86"),
            ("--target=aarch64-linux-gnu a.c", "--target=aarch64-linux-gnu is not supported"),
            ("-target i686-linux-gnu a.c", "-target i686-linux-gnu is not supported"),
        ] {
            let error = request(line).check().unwrap_err();
            assert!(error.is_usage() && error.to_string().starts_with(says), "{error}");
        }
        for line in [
            "-m32 -m64 a.c",
            "--target=x86_64-linux-gnu a.c",
            "-target x86_64-pc-linux-gnu a.c",
            "-fsanitize=address -fno-sanitize=all a.c",
            "-march=native -mavx2 a.c",
        ] {
            assert!(request(line).check().is_ok(), "{line}");
        }
    }

    #[test]
    fn response_files_count() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "-m32 a.c").unwrap();
        let request = request(&format!("-c @{}", file.path().display()));
        assert!(request.compiles && request.check().is_err());
    }

    #[test]
    fn the_last_option_of_link_time_optimisation_counts() {
        for line in ["-flto a.c", "-flto=thin -c a.c", "-fno-lto -flto=full a.c"] {
            assert!(request(line).is_optimised_by_linker, "{line}");
        }
        for line in ["a.c", "-flto -fno-lto a.c", "-Xclang -flto a.c"] {
            assert!(!request(line).is_optimised_by_linker, "{line}");
        }
    }
}
