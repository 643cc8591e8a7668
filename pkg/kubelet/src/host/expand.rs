//! `$(NAME)` in commands, arguments and environment; `$$` stands for `$`.

/// Expands a text. What nobody knows stays as it is written.
pub(crate) fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(&value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_escapes_and_what_is_neither() {
        let lookup = |name: &str| (name == "A").then(|| "1".to_owned());
        for (text, expected) in [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$$(A)", "$(A)"),
            ("$(B)", "$(B)"),
            ("$A $", "$A $"),
            ("$(A", "$(A"),
            ("$$$(A)", "$1"),
        ] {
            assert_eq!(expand(text, lookup), expected, "{text}");
        }
    }
}
