//! Regular expressions as Go writes them.

use regex::{Regex, RegexBuilder};

/// A pattern of a schema. One that does not compile matches nothing and says why.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    pub(super) text: String,
    compiled: Result<Regex, String>,
}

/// A compiled pattern larger than this is refused: a schema must not take the server's memory.
const MOST_PATTERN_BYTES: usize = 8 << 20;

impl Pattern {
    pub(super) fn new(text: &str) -> Pattern {
        Pattern { text: text.to_owned(), compiled: compile(text) }
    }

    pub(super) fn is_match(&self, value: &str) -> bool {
        self.compiled.as_ref().is_ok_and(|regex| regex.is_match(value))
    }

    /// Why the pattern does not compile.
    pub(super) fn error(&self) -> Option<&str> {
        self.compiled.as_ref().err().map(String::as_str)
    }
}

/// Compiles a pattern, or says why it is none.
pub(crate) fn compile(text: &str) -> Result<Regex, String> {
    RegexBuilder::new(&from_go(text)).size_limit(MOST_PATTERN_BYTES).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "expression is too large".to_owned(),
        // The crate's message is a drawing of several lines; its last line says what is wrong.
        other => other.to_string().lines().last().unwrap_or_default().trim().replacen("error: ", "", 1),
    })
}

/// Go's syntax is that of the regex crate with two differences. Inside brackets Go knows neither nested classes nor
/// set operators, so the characters that begin them stand for themselves. And its `\d`, `\w`, `\s` and `\b` mean
/// ASCII only.
fn from_go(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut chars = text.chars().peekable();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        if c == '\\' {
            escape(chars.next(), in_class, &mut out);
            continue;
        }
        out.push(c);
        match c {
            '[' if !in_class => {
                in_class = true;
                out.extend(chars.next_if_eq(&'^'));
                // A bracket that stands first in a class stands for itself.
                if chars.next_if_eq(&']').is_some() {
                    out.push_str(r"\]");
                }
            }
            '[' if chars.peek() != Some(&':') => {
                out.insert(out.len() - 1, '\\');
            }
            '[' => {
                // A named class: [:alpha:].
                for c in chars.by_ref() {
                    out.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            ']' => in_class = false,
            '&' | '~' | '-' if in_class && chars.peek() == Some(&c) => out.insert(out.len() - 1, '\\'),
            _ => {}
        }
    }
    out
}

/// Writes the escape `\c`.
fn escape(c: Option<char>, in_class: bool, out: &mut String) {
    let class = match c {
        Some('d' | 'D') => "0-9",
        Some('w' | 'W') => "0-9A-Za-z_",
        Some('s' | 'S') => r"\t\n\f\r ",
        Some(edge @ ('b' | 'B')) if !in_class => return out.push_str(&format!(r"(?-u:\{edge})")),
        other => {
            out.push('\\');
            return out.extend(other);
        }
    };
    match c.is_some_and(|c| c.is_ascii_uppercase()) {
        true => out.push_str(&format!("[^{class}]")),
        false if in_class => out.push_str(class),
        false => out.push_str(&format!("[{class}]")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gos_brackets_are_taken_as_go_takes_them() {
        for (pattern, matches, misses) in [
            (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a-b", "-a"),
            (r"^[[]x$", "[x", "x"),
            (r"^[^[]$", "a", "["),
            (r"^[]a]+$", "a]", "b"),
            (r"^[a&&b]+$", "a&b", "c"),
            (r"^[[:alpha:]]+$", "ab", "1"),
            (r"^\/dev\/[\w\-]+$", "/dev/a-b", "/tmp/x"),
            (r"^[\[\]]$", "[", "x"),
            (r"^\d+$", "12", "١"),
            (r"^[\w.]{1,253}$", "a_1.b", "é"),
            (r"^[^\S]$", " ", "x"),
            (r"\bweb\b", "a web b", "cobweb"),
        ] {
            let pattern = Pattern::new(pattern);
            assert_eq!(pattern.error(), None, "{}", pattern.text);
            assert!(pattern.is_match(matches), "{} {matches}", pattern.text);
            assert!(!pattern.is_match(misses), "{} {misses}", pattern.text);
        }
    }

    #[test]
    fn a_pattern_that_does_not_compile_says_why() {
        let pattern = Pattern::new("(a");
        assert_eq!(pattern.error(), Some("unclosed group"));
        assert!(!pattern.is_match("a"));
        assert!(Pattern::new("((a{1,1000}){1,1000}){1,1000}").error().is_some());
    }
}
