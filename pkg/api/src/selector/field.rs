//! Field selectors: fields that must (or must not) have a value. A field that is not there is empty.

use super::{Lookup, MOST_SELECTOR_BYTES, SelectorError};
use std::fmt;

/// A conjunction of [`Term`]s. Its `Display` is the canonical text.
///
/// ```
/// use api::selector::FieldSelector;
/// let selector = FieldSelector::parse("status.phase!=Failed,spec.nodeName==n1").unwrap();
/// assert_eq!(selector.to_string(), "spec.nodeName=n1,status.phase!=Failed");
/// assert_eq!(selector.pinned("spec.nodeName"), Some("n1"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FieldSelector {
    terms: Box<[Term]>,
}

/// One condition on one field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    /// The field, as a dotted path.
    pub field: Box<str>,
    /// Whether the field must have the value, or must not.
    pub equal: bool,
    /// The value, without escapes.
    pub value: Box<str>,
}

impl FieldSelector {
    /// Matches every object.
    pub fn everything() -> Self {
        FieldSelector::default()
    }

    /// The form of query strings: `a=b,a==b,a!=b`, with `\` before a `\`, `,` or `=` in a value.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.len() > MOST_SELECTOR_BYTES {
            return Err(SelectorError::too_long(text.len()));
        }
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((field, equal, value)) = split_term(part) else {
                return Err(SelectorError(format!("invalid selector: '{text}'; can't understand '{part}'")));
            };
            terms.push(Term { field: field.into(), equal, value: unescape(value)?.into() });
        }
        // Their texts are not in the order of what they mean: `a==b` and `a=b` mean the same.
        terms.sort_unstable();
        Ok(FieldSelector { terms: terms.into() })
    }

    /// Whether all terms hold.
    pub fn matches(&self, fields: &impl Lookup) -> bool {
        let holds =
            |term: &Term| (fields.look_up(&term.field).unwrap_or_default() == &*term.value) == term.equal;
        self.terms.iter().all(holds)
    }

    /// Whether it leaves nothing out.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value that a field must have, where only one will do.
    pub fn pinned(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.equal && &*term.field == field).map(|term| &*term.value)
    }

    /// The terms, to check or rename their fields.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }
}

impl FromIterator<Term> for FieldSelector {
    fn from_iter<I: IntoIterator<Item = Term>>(terms: I) -> Self {
        FieldSelector { terms: terms.into_iter().collect() }
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let operator = if term.equal { "=" } else { "!=" };
            write!(f, "{comma}{}{operator}{}", term.field, escape(&term.value))?;
        }
        Ok(())
    }
}

/// The parts between commas that are not escaped; escapes stay in.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Field, whether equal, and the value as it stands. The first operator counts: fields have no escapes.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.match_indices(['!', '=']).map(|(at, _)| at);
    at.into_iter().find_map(|at| {
        let (field, rest) = term.split_at(at);
        match (rest.strip_prefix("!="), rest.strip_prefix("=="), rest.strip_prefix('=')) {
            (Some(value), _, _) => Some((field, false, value)),
            (_, Some(value), _) | (_, _, Some(value)) => Some((field, true, value)),
            _ => None,
        }
    })
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut rest = value.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(SelectorError(format!(
                        "invalid field selector: invalid escape sequence: {sequence}"
                    )));
                }
            },
            // Upstream prints the character's number.
            ',' | '=' => {
                let code = u32::from(c);
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {code}"
                )));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selector::Labels;
    use proptest::prelude::*;

    #[test]
    fn a_selector_written_in_another_way_is_the_same() {
        let one = FieldSelector::parse("a==,a=b,a=").unwrap();
        assert_eq!(one, FieldSelector::parse("a=,a==b,a==").unwrap());
        assert_eq!(FieldSelector::parse(&one.to_string()).unwrap(), one);
    }

    #[test]
    fn selectors_are_understood_as_upstream_does() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let parsed = FieldSelector::parse(text).map(|s| s.to_string()).map_err(|e| e.to_string());
            assert_eq!(parsed, expected.map(String::from).map_err(String::from), "{text}");
        };
        check("", Ok(""));
        check(",,", Ok(""));
        check("a=b", Ok("a=b"));
        check("b==c,a!=d", Ok("a!=d,b=c"));
        check("a=", Ok("a="));
        check("=b", Ok("=b"));
        check(r"a=x\,y\=z\\", Ok(r"a=x\,y\=z\\"));
        check("a!b=c", Ok("a!b=c"));
        check("a", Err("invalid selector: 'a'; can't understand 'a'"));
        check("a=b,c", Err("invalid selector: 'a=b,c'; can't understand 'c'"));
        check("a=b=c", Err("invalid field selector: unescaped character in value: 61"));
        check(r"a=\x", Err(r"invalid field selector: invalid escape sequence: \x"));
        check(r"a=b\", Err(r"invalid field selector: invalid escape sequence: \"));
    }

    #[test]
    fn fields_that_are_missing_are_empty() {
        let check = |selector: &str, expected: bool| {
            let fields = Labels::from_iter([("spec.nodeName", "n1"), ("status.phase", "Running")]);
            assert_eq!(FieldSelector::parse(selector).unwrap().matches(&fields), expected, "{selector}");
        };
        check("", true);
        check("spec.nodeName=n1", true);
        check("spec.nodeName=n2", false);
        check("spec.nodeName!=n2,status.phase=Running", true);
        check("status.podIP=", true);
        check("status.podIP!=", false);
    }

    proptest! {
        #[test]
        fn the_canonical_text_means_the_same(text in r"([ab.]|[=!,\\]|ä){0,16}") {
            if let Ok(selector) = FieldSelector::parse(&text) {
                prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
            }
        }

        #[test]
        fn any_value_survives_its_escapes(value in ".{0,12}") {
            let selector: FieldSelector =
                [Term { field: "f".into(), equal: true, value: value.into() }].into_iter().collect();
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
        }
    }
}
