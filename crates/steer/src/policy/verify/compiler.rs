//! Clang's errors, explained to the author of a policy: the first mistake, in the author's own file.

use super::report::{Problem, SourceLine};

/// A part of clang's message, what it means, and what to do.
const WORDS: &[(&str, &str, &str)] = &[
    (
        "function 'schedule' has internal linkage but is not defined",
        "there is no function `schedule`, so this is no policy",
        "write `static u32 schedule(struct hd_in *in)`: it returns the index of an executor, HD_PASS or HD_DROP",
    ),
    (
        "conflicting types for 'schedule'",
        "`schedule` takes or returns something else than a policy does",
        "write `static u32 schedule(struct hd_in *in)`",
    ),
    (
        "file not found",
        "there is no such header here: a policy runs in the kernel, without a C library",
        "include <heddle.h> only: it has the types, hd_load for the payload, maps, and loops may copy and compare",
    ),
    (
        "implicit declaration of function",
        "it calls a function that is not defined",
        "policies can call what heddle.h declares and what they define themselves; there is no C library",
    ),
    (
        "A call to built-in function 'mem",
        "it copies or sets more bytes at once than the compiler does without a C library",
        "copy what is needed, field by field or in a loop with a constant bound, or keep it in a map",
    ),
    (
        "A call to built-in function '__",
        "it calculates with fractions: there are no float and no double in the kernel",
        "use whole numbers: for a share, multiply first and divide then (x * 30 / 100)",
    ),
    (
        "SSE register",
        "it calculates with fractions: there are no float and no double in the kernel",
        "use whole numbers: for a share, multiply first and divide then (x * 30 / 100)",
    ),
    (
        "division by zero",
        "it divides by zero",
        "a division by something that turns out zero gives 0 in the kernel; by 0 as it is written, nothing sensible",
    ),
    (
        "stack limit",
        "its variables take more than the 512 bytes of stack that the kernel gives a policy",
        "keep tables in a map (HD_TABLE) or in static variables",
    ),
    (
        "is uninitialized",
        "a variable is read before anything was put into it",
        "give it a value where it is declared",
    ),
];

/// A message of clang.
struct Message<'a> {
    file: &'a str,
    line: u32,
    text: &'a str,
    /// Its line in the output.
    at: usize,
}

/// Parses `file:line:column: error: text`; the file name may contain colons too.
fn message(output: &str, at: usize) -> Option<Message<'_>> {
    let (place, text) =
        output.split_once(" error: ").or_else(|| output.split_once(" fatal error: "))?;
    let mut parts = place.trim_end_matches(" fatal").trim_end_matches(':').rsplitn(3, ':');
    let (_column, line, file) = (parts.next()?, parts.next()?, parts.next()?);
    Some(Message { file, line: line.parse().ok()?, text, at })
}

/// Returns the first mistake that clang found in the policy called `policy`.
pub fn explain(said: &str, policy: &str) -> Problem {
    let lines: Vec<&str> = said.lines().collect();
    let messages: Vec<Message<'_>> =
        lines.iter().enumerate().filter_map(|(at, line)| message(line, at)).collect();
    // The wrapper comes from standard input; a message about it only says that there is an error.
    let own = |m: &&Message<'_>| m.file != "<stdin>" && !super::is_heddles(m.file);
    let Some(first) = messages.iter().find(own).or(messages.first()) else {
        return Problem {
            said: said.to_owned(),
            ..Problem::of("clang does not compile it".into())
        };
    };
    let known = WORDS.iter().find(|(part, ..)| first.text.contains(part));
    let plain = plain(first.text);
    let (what, advice) = known.map_or((plain.as_str(), ""), |(_, what, advice)| (*what, *advice));
    let text = lines.get(first.at + 1).map_or("", |line| line.trim());
    let place = SourceLine { file: policy.into(), line: first.line, text: text.into() };
    Problem {
        place: own(&first).then_some(place),
        what: what.into(),
        advice: advice.into(),
        said: quote(&lines[first.at..], &plain),
    }
}

/// Without the name of the option that made it an error.
fn plain(text: &str) -> String {
    let end = text.rfind(" [-W").filter(|_| text.ends_with(']')).unwrap_or(text.len());
    text[..end].to_owned()
}

/// The message with the source line and the caret below it.
fn quote(lines: &[&str], plain: &str) -> String {
    let marked = lines.get(1..3).filter(|two| two[1].trim_start().starts_with(['^', '~']));
    let marked = marked.map_or(String::new(), |two| format!("\n{}\n{}", two[0], two[1]));
    format!("clang: {plain}{marked}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_mistake_in_the_policy_is_reported_without_its_wrapper() {
        let said = "<stdin>:5:5: error: Looks like the BPF stack limit of 512 bytes is exceeded.\nu32 \
            hd_policy\n    ^\nIn file included from <stdin>:4:\na:b.c:9:19: error: Looks like the BPF \
            stack limit of 512 bytes is exceeded.\n\treturn table[3];\n\t       ^\n2 errors generated.\n";
        let problem = explain(said, "a:b.c");
        let place = problem.place.clone().expect("a place");
        assert_eq!(
            (place.file.as_str(), place.line, place.text.as_str()),
            ("a:b.c", 9, "return table[3];")
        );
        assert!(problem.what.contains("512 bytes"), "{problem}");
        assert!(problem.said.ends_with("       ^"), "{problem}");
        assert!(!problem.to_string().contains("stdin"), "{problem}");
    }

    #[test]
    fn unknown_errors_are_reported_in_clangs_words() {
        let problem = explain(
            "x.c:5:10: error: expected ';' after return statement\n\treturn 0\n\t        ^\n",
            "x.c",
        );
        assert!(problem.what.contains("expected ';'"), "{problem}");
        assert!(explain("", "x.c").what.contains("clang"));
        assert_eq!(explain("clang: nonsense", "x.c").said, "clang: nonsense");
    }
}
