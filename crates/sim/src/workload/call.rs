//! Calls such as `pareto(10us, shape=1.5)`.

use super::grammar::{GrammarError, Span};
use heddle_core::Ns;

/// The form of a call: its name and the names of its arguments. The first `places` of them may be given
/// without their name, in this order.
pub(crate) struct Form {
    pub name: &'static str,
    pub arguments: &'static [&'static str],
    pub places: usize,
    pub example: &'static str,
}

/// A text that matches a [`Form`].
pub(crate) struct Call<'a> {
    pub form: &'static Form,
    whole: Span<'a>,
    given: Vec<(&'static str, Span<'a>)>,
}

impl<'a> Call<'a> {
    /// Reads `name`, `name()` or `name(value, key=value)` for one of `forms`.
    pub fn read(span: Span<'a>, forms: &'static [Form]) -> Result<Call<'a>, GrammarError> {
        let example = forms[0].example;
        let (name, inside) = span.call(example)?;
        let known = forms.iter().find(|form| form.name == name.text());
        let form = known.ok_or_else(|| {
            let names: Vec<_> = forms.iter().map(|form| form.name).collect();
            name.not(&format!("one of {}", names.join(", ")), example)
        })?;
        let mut call = Call { form, whole: span, given: Vec::new() };
        let given = inside.filter(|inside| !inside.text().is_empty());
        given.into_iter().flat_map(Span::pieces).try_for_each(|piece| call.take(piece))?;
        Ok(call)
    }

    fn take(&mut self, piece: Span<'a>) -> Result<(), GrammarError> {
        let Form { arguments, places, example, .. } = *self.form;
        let position = self.given.len();
        let (key, value) = piece.cut('=').unwrap_or((piece, piece));
        let known = match piece.cut('=') {
            Some(_) => arguments.iter().find(|&&a| a == key.text()),
            None => arguments[..places].get(position),
        };
        let &argument = known.ok_or_else(|| key.not(&self.expected(), example))?;
        if self.find(argument).is_some() {
            return Err(key.wrong(&format!("{argument} is given twice"), "it once", example));
        }
        self.given.push((argument, value));
        Ok(())
    }

    fn expected(&self) -> String {
        let Form { name, arguments, places, .. } = self.form;
        let named = |(i, a): (usize, &&str)| format!("{a}{}", if i < *places { "" } else { "=" });
        match arguments.len() {
            0 => format!("no arguments for {name}"),
            _ => {
                let all: Vec<_> = arguments.iter().enumerate().map(named).collect();
                format!("{name}({})", all.join(", "))
            }
        }
    }

    pub fn find(&self, argument: &str) -> Option<Span<'a>> {
        self.given.iter().find(|(name, _)| *name == argument).map(|&(_, value)| value)
    }

    pub fn value(&self, argument: &'static str) -> Result<Span<'a>, GrammarError> {
        self.find(argument).ok_or_else(|| {
            let missing = format!("{argument} is missing");
            self.whole.wrong(&missing, &self.expected(), self.form.example)
        })
    }

    pub fn ns(&self, argument: &'static str) -> Result<Ns, GrammarError> {
        self.value(argument)?.ns(self.form.example)
    }

    /// Returns a finite number; `expected` describes the valid ones.
    pub fn number(&self, argument: &'static str, expected: &str) -> Result<f64, GrammarError> {
        let value = self.value(argument)?;
        let number = value.text().parse().ok().filter(|n: &f64| n.is_finite());
        number.ok_or_else(|| value.not(expected, self.form.example))
    }

    /// Returns the error that `argument`, or the whole call if it was not given, is not what is
    /// expected.
    pub fn not(&self, argument: &str, expected: &str) -> GrammarError {
        self.find(argument).unwrap_or(self.whole).not(expected, self.form.example)
    }
}
