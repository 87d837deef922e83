//! Escapes text for HTML (I5).

/// Escapes `text` for use in an element or a quoted attribute. Control characters, which HTML forbids, become
/// the replacement character.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

/// Escapes JSON for use in a script element. In JSON these characters occur only in strings, where the escaped
/// form means the same; without `<` no text can end the element.
pub(crate) fn escape_json(json: &str) -> String {
    json.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

/// `<name class="class">escaped text</name>`; empty if `text` is.
pub(crate) fn element(name: &str, class: &str, text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    format!("<{name}{class}>{}</{name}>\n", escape(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn escaped_text_has_no_markup(text in ".*") {
            let out = escape(&text);
            prop_assert!(!out.contains(['<', '>', '"', '\'']));
            let back = out.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'")
                .replace("&amp;", "&");
            let safe: String = text.chars()
                .map(|c| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c })
                .collect();
            prop_assert_eq!(back, safe);
        }

        #[test]
        fn escaped_json_decodes_to_the_same_value(text in ".*") {
            let json = serde_json::to_string(&text).unwrap();
            let escaped = escape_json(&json);
            prop_assert!(!escaped.contains('<'));
            prop_assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        }
    }
}
