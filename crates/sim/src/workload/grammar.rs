//! Parts of a text that remember their position, so that an error can point at them.

use heddle_core::Ns;
use std::fmt;

/// A text that does not describe a workload: what is wrong, where, and what would be right.
///
/// ```
/// use heddle_sim::workload::Service;
/// let error = "pareto(10us, shape=0.5)".parse::<Service>().unwrap_err().to_string();
/// assert_eq!(
///     error,
///     "`pareto(10us, shape=0.5)`, character 20: `0.5` will not do; expected a number above 1 \
///      and at most 1000 (below, the mean is infinite, unless max= bounds it), for example pareto(10us, shape=1.5)"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}`, character {at}: {problem}; expected {expected}, for example {example}", Shortened(.text))]
pub struct GrammarError {
    /// The whole text.
    pub text: String,
    /// The position in it, in characters from 1.
    pub at: usize,
    /// What was found there.
    pub problem: String,
    /// What is allowed there.
    pub expected: String,
    /// A correct text.
    pub example: &'static str,
}

/// A text that errors shorten to one line.
pub(crate) struct Shortened<'a>(pub &'a str);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 120;
        match self.0.char_indices().nth(SHOWN) {
            None => f.write_str(self.0),
            Some((end, _)) => write!(f, "{}...", &self.0[..end]),
        }
    }
}

/// A part of a text that remembers the whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    whole: &'a str,
    from: usize,
    to: usize,
}

impl<'a> Span<'a> {
    pub fn new(whole: &'a str) -> Span<'a> {
        Span { whole, from: 0, to: whole.len() }.trim()
    }

    pub fn text(self) -> &'a str {
        &self.whole[self.from..self.to]
    }

    fn part(self, from: usize, to: usize) -> Span<'a> {
        Span { whole: self.whole, from, to }.trim()
    }

    fn trim(self) -> Span<'a> {
        let from = self.to - self.text().trim_start().len();
        let to = from + self.text().trim().len();
        Span { from, to, ..self }
    }

    /// Returns where `mark` occurs outside parentheses and quotes.
    fn marks(self, mark: char) -> impl Iterator<Item = usize> + 'a {
        let (mut depth, mut quoted, mut escaped) = (0u32, false, false);
        let outside = move |&(_, c): &(usize, char)| {
            let found = c == mark && depth == 0 && !quoted;
            match c {
                _ if escaped => escaped = false,
                '\\' if quoted => escaped = true,
                '"' => quoted = !quoted,
                '(' if !quoted => depth += 1,
                ')' if !quoted => depth = depth.saturating_sub(1),
                _ => {}
            }
            found
        };
        self.text().char_indices().filter(outside).map(move |(i, _)| self.from + i)
    }

    /// Returns the pieces between commas outside parentheses and quotes; at least one.
    pub fn pieces(self) -> impl Iterator<Item = Span<'a>> {
        let mut from = self.from;
        self.marks(',').chain([self.to]).map(move |to| {
            let piece = self.part(from, to);
            from = to + 1;
            piece
        })
    }

    /// Returns what comes before and after the first `mark` outside parentheses and quotes.
    pub fn cut(self, mark: char) -> Option<(Span<'a>, Span<'a>)> {
        let at = self.marks(mark).next()?;
        Some((self.part(self.from, at), self.part(at + mark.len_utf8(), self.to)))
    }

    /// Splits `name(inside)` into its two parts; the second is `None` if there is no parenthesis.
    pub fn call(self, example: &'static str) -> Result<(Span<'a>, Option<Span<'a>>), GrammarError> {
        let Some(open) = self.marks('(').next() else { return Ok((self, None)) };
        let inside = Span { from: open + 1, ..self };
        let Some(close) = inside.marks(')').next() else {
            let opened = self.part(open, open + 1);
            return Err(opened.wrong(
                "this parenthesis, or a quote in it, stays open",
                "a closing one",
                example,
            ));
        };
        let after = self.part(close + 1, self.to);
        if !after.text().is_empty() {
            return Err(after.wrong(
                &format!("`{}` is left over", after.text()),
                "the end",
                example,
            ));
        }
        Ok((self.part(self.from, open), Some(self.part(open + 1, close))))
    }

    pub fn wrong(self, problem: &str, expected: &str, example: &'static str) -> GrammarError {
        GrammarError {
            text: self.whole.to_string(),
            at: self.whole[..self.from].chars().count() + 1,
            problem: problem.to_string(),
            expected: expected.to_string(),
            example,
        }
    }

    /// Returns the error that this text is not what is expected.
    pub fn not(self, expected: &str, example: &'static str) -> GrammarError {
        let problem = match self.text() {
            "" => "something is missing here".to_string(),
            text => format!("`{}` will not do", Shortened(text)),
        };
        self.wrong(&problem, expected, example)
    }

    pub fn ns(self, example: &'static str) -> Result<Ns, GrammarError> {
        let time = self.text().parse().ok().filter(|&ns| ns > Ns::ZERO);
        time.ok_or_else(|| self.not("a time above zero such as 250ns, 10us or 1.5ms", example))
    }

    /// Returns the text between quotes, or as it is.
    pub fn unquoted(self, example: &'static str) -> Result<String, GrammarError> {
        let Some(rest) = self.text().strip_prefix('"') else { return Ok(self.text().to_string()) };
        let mut text = String::new();
        let mut chars = rest.chars();
        loop {
            match chars.next() {
                Some('\\') => text.extend(chars.next()),
                Some('"') if chars.as_str().is_empty() => return Ok(text),
                Some('"') | None => return Err(self.not("one text between two quotes", example)),
                Some(c) => text.push(c),
            }
        }
    }
}

/// A file's name as [`Span::unquoted`] reads it back: in quotes if it contains marks of the grammar.
pub(crate) struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |c: char| c.is_alphanumeric() || "_-./~+@".contains(c);
        if !self.0.is_empty() && self.0.chars().all(plain) {
            return f.write_str(self.0);
        }
        write!(f, "\"{}\"", self.0.replace('\\', "\\\\").replace('"', "\\\""))
    }
}
