//! Text of others on somebody's terminal: what the terminal would obey is shown instead.

use std::borrow::Cow;
use std::fmt::Write;

/// The text with control characters as people can read them, but for tabs and ends of lines: an event's message, say, may
/// not move the cursor, name the window or hide what stands before it. Escape and carriage return are shown as upstream
/// shows them.
pub fn plain(text: &str) -> Cow<'_, str> {
    // Characters that set the direction of what follows make one text look like another.
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_odd = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || turns(c);
    if !text.contains(is_odd) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\r' => shown.push_str("\\r"),
            // ^[ is Escape: the letter of what is pressed with Ctrl.
            '\0'..='\u{1f}' if is_odd(c) => shown.extend(['^', (c as u8 + b'@') as char]),
            _ if is_odd(c) => {
                let _ = write!(shown, "\\u{:04x}", u32::from(c));
            }
            _ => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_terminal_obeys_nobody_elses_text() {
        let check = |text: &str, expected: &str| assert_eq!(plain(text), expected, "{text:?}");
        check("Pulled image\tin 2s\n", "Pulled image\tin 2s\n");
        check("größer → 日本", "größer → 日本");
        check("\u{1b}[31mred\u{1b}[0m", "^[[31mred^[[0m");
        check("\u{1b}]0;title\u{7}", "^[]0;title^G");
        check("safe\rgone", "safe\\rgone");
        check("a\u{8}b\u{c}c\u{0}", "a^Hb^Lc^@");
        check("\u{9b}31m\u{7f}", "\\u009b31m\\u007f");
        check("abc\u{202e}fed\u{2066}", "abc\\u202efed\\u2066");
    }

    proptest! {
        #[test]
        fn nothing_is_left_that_a_terminal_obeys(text in any::<String>()) {
            let shown = plain(&text).into_owned();
            prop_assert!(!shown.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
            prop_assert_eq!(plain(&shown), shown.as_str());
        }
    }
}
