//! Wrong usage as one sentence: what is wrong, what would be right, and which help to read.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use heddle_policies::nearest;

use crate::{definition, exit};

/// Prints help or the version as asked for, or what is wrong with the command line `words`. Returns the exit
/// code: 0, or 2.
pub fn report(error: &clap::Error, words: &[OsString]) -> ExitCode {
    let is_help =
        !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_help {
        // Printing fails only if the reader is gone (I2).
        let _ = error.print();
    } else {
        exit::note(&sentence(error, words));
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// `heddle: unexpected argument '--prot' found; a similar argument exists: '--port' (see heddle steer attach --help)`
fn sentence(error: &clap::Error, words: &[OsString]) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let (what, more) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut sentence = format!("heddle: {}", one_line(what));
    for tip in more.lines().filter_map(|line| line.trim().strip_prefix("tip: ")) {
        sentence += &format!("; {tip}");
    }
    if let (Some(ContextValue::String(word)), None) =
        (error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::SuggestedSubcommand))
        && let Some(meant) = verb(word)
    {
        sentence += &format!("; did you mean `{meant}`?");
    }
    sentence + &format!(" (see {} --help)", command(words))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The command that `words` reach: `heddle steer attach`.
fn command(words: &[OsString]) -> String {
    let (mut command, mut name) = (definition(), "heddle".to_owned());
    for word in &words[1..] {
        let Some(sub) = command.find_subcommand(word).cloned() else { break };
        name += &format!(" {}", sub.get_name());
        command = sub;
    }
    name
}

/// The verb that `word` most likely means, of any noun: `heddle agent status` for `status`.
fn verb(word: &str) -> Option<String> {
    let all = definition();
    let verbs = |noun: &clap::Command| {
        let verbs = noun.get_subcommands().filter(|verb| !verb.is_hide_set());
        let name = noun.get_name().to_owned();
        verbs.map(|verb| (verb.get_name().to_owned(), name.clone())).collect::<Vec<_>>()
    };
    let known: Vec<(String, String)> = all.get_subcommands().flat_map(verbs).collect();
    let meant = nearest(word, known.iter().map(|(verb, _)| verb.as_str()))?;
    let (verb, noun) = known.iter().find(|(verb, _)| verb == meant)?;
    Some(format!("heddle {noun} {verb}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::Cli;

    fn wrong(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = Cli::try_parse_from(&words).err().expect("wrong usage");
        sentence(&error, &words)
    }

    #[test]
    fn wrong_usage_is_one_sentence_with_a_suggestion_and_the_help_to_read() {
        for (line, says) in [
            ("heddle docter", ["'docter'", "'doctor'", "(see heddle --help)"]),
            ("heddle upgrade", ["'upgrade'", "`heddle agent upgrade`", "(see heddle --help)"]),
            ("heddle steer atach", ["'atach'", "'attach'", "(see heddle steer --help)"]),
            (
                "heddle steer attach --prot 1",
                ["'--prot'", "'--port'", "(see heddle steer attach --help)"],
            ),
            ("heddle steer attach", ["--policy", "--port", "(see heddle steer attach --help)"]),
            (
                "heddle steer ls --protocol sctp",
                ["'sctp'", "possible values: tcp, udp", "(see heddle steer ls --help)"],
            ),
        ] {
            let sentence = wrong(line);
            assert_eq!(sentence.lines().count(), 1, "{sentence}");
            assert!(says.iter().all(|part| sentence.contains(part)), "{line}: {sentence}");
        }
    }
}
