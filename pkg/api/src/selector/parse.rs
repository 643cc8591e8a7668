//! The grammar of label selectors in query strings.
//!
//! ```text
//! selector    = [ requirement *( "," requirement ) ]
//! requirement = "!" KEY / KEY [ ("=" / "==" / "!=" / ">" / "<") VALUE / ("in" / "notin") "(" VALUE *( "," VALUE ) ")" ]
//! ```
//! A VALUE may be empty; `in` and `notin` are keywords only where an operator is expected.

use super::SelectorError;
use super::label::{Operator, Requirement, label_key_errors};
use crate::field::{FieldError, Reason};
use std::collections::BTreeSet;

const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

/// The requirements in the order they stand.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut tokens = Tokens { rest: text };
    let mut requirements = Vec::new();
    if tokens.peek() == Token::End {
        return Ok(requirements);
    }
    loop {
        if !matches!(tokens.peek(), Token::Word(_) | Token::Symbol("!")) {
            let found = tokens.next().text();
            return Err(SelectorError(if requirements.is_empty() {
                format!("found '{found}', expected: !, identifier, or 'end of string'")
            } else {
                format!("found '{found}', expected: identifier after ','")
            }));
        }
        let requirement = requirement(&mut tokens)
            .map_err(|error| SelectorError(format!("unable to parse requirement: {error}")))?;
        requirements.push(requirement);
        match tokens.next() {
            Token::End => return Ok(requirements),
            Token::Symbol(",") => {}
            other => return expected(other, "',' or 'end of string'"),
        }
    }
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<Requirement, SelectorError> {
    let mut token = tokens.next();
    let absent = token == Token::Symbol("!");
    if absent {
        token = tokens.next();
    }
    let Token::Word(key) = token else { return expected(token, "identifier") };
    let key_errors = label_key_errors(key);
    if !key_errors.is_empty() {
        let (path, detail) = (String::new(), key_errors.join("; "));
        let error = FieldError { reason: Reason::Invalid, path, value: Some(key.into()), detail };
        return Err(SelectorError(error.to_string()));
    }
    if absent {
        return Requirement::new(key, Operator::DoesNotExist, Vec::new());
    }
    if matches!(tokens.peek(), Token::End | Token::Symbol(",")) {
        return Requirement::new(key, Operator::Exists, Vec::new());
    }
    let operator = match tokens.next() {
        Token::Word("in") => Operator::In,
        Token::Word("notin") => Operator::NotIn,
        Token::Symbol("=") => Operator::Equals,
        Token::Symbol("==") => Operator::DoubleEquals,
        Token::Symbol("!=") => Operator::NotEquals,
        Token::Symbol(">") => Operator::GreaterThan,
        Token::Symbol("<") => Operator::LessThan,
        other => return expected(other, OPERATORS),
    };
    let values = match operator {
        Operator::In | Operator::NotIn => value_set(tokens)?.into_iter().collect(),
        _ => vec![exact_value(tokens)?],
    };
    Requirement::new(key, operator, values)
}

fn exact_value<'a>(tokens: &mut Tokens<'a>) -> Result<&'a str, SelectorError> {
    if matches!(tokens.peek(), Token::End | Token::Symbol(",")) {
        return Ok("");
    }
    match tokens.next() {
        Token::Word(value) => Ok(value),
        other => expected(other, "identifier"),
    }
}

/// `(a,b)`, where a missing value between commas, or none at all, is the empty one.
fn value_set<'a>(tokens: &mut Tokens<'a>) -> Result<BTreeSet<&'a str>, SelectorError> {
    match tokens.next() {
        Token::Symbol("(") => {}
        other => return Err(SelectorError(format!("found '{}' expected: '('", other.text()))),
    }
    if !matches!(tokens.peek(), Token::Word(_) | Token::Symbol("," | ")")) {
        return expected(tokens.next(), "',', ')' or identifier");
    }
    let mut values = BTreeSet::new();
    loop {
        match tokens.next() {
            Token::Word(value) => {
                values.insert(value);
                if !matches!(tokens.peek(), Token::Symbol("," | ")")) {
                    return expected(tokens.next(), "',' or ')'");
                }
            }
            Token::Symbol(",") => {
                if values.is_empty() || matches!(tokens.peek(), Token::Symbol("," | ")")) {
                    values.insert("");
                }
            }
            Token::Symbol(")") => {
                if values.is_empty() {
                    values.insert("");
                }
                return Ok(values);
            }
            other => return expected(other, "',', or identifier"),
        }
    }
}

fn expected<T>(found: Token<'_>, what: &str) -> Result<T, SelectorError> {
    Err(SelectorError(format!("found '{}', expected: {what}", found.text())))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    End,
    /// An operator, comma or parenthesis.
    Symbol(&'a str),
    /// A key, a value or a keyword.
    Word(&'a str),
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Token::End => "",
            Token::Symbol(text) | Token::Word(text) => text,
        }
    }
}

struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn peek(&self) -> Token<'a> {
        self.split().0
    }

    fn next(&mut self) -> Token<'a> {
        let (token, rest) = self.split();
        self.rest = rest;
        token
    }

    fn split(&self) -> (Token<'a>, &'a str) {
        let rest = self.rest.trim_start_matches(is_space);
        if rest.is_empty() {
            return (Token::End, rest);
        }
        let pair = rest.get(..2).filter(|pair| matches!(*pair, "==" | "!="));
        if let Some(pair) = pair {
            return (Token::Symbol(pair), &rest[2..]);
        }
        if rest.starts_with(is_symbol) {
            return (Token::Symbol(&rest[..1]), &rest[1..]);
        }
        let end = rest.find(|c| is_symbol(c) || is_space(c)).unwrap_or(rest.len());
        (Token::Word(&rest[..end]), &rest[end..])
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_symbol(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

#[cfg(test)]
mod tests {
    use crate::selector::{LabelSelector, MOST_SELECTOR_BYTES};
    use proptest::prelude::*;

    #[test]
    fn selectors_are_understood_as_upstream_does() {
        let check = |text: &str, canonical: &str| {
            let selector = LabelSelector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(selector.to_string(), canonical, "{text}");
        };
        check("", "");
        check(" ", "");
        check("x=a,y=b,z=c", "x=a,y=b,z=c");
        check("x!=a,y=b", "x!=a,y=b");
        check("x=", "x=");
        check("x= ", "x=");
        check("x=,z= ", "x=,z=");
        check("x= ,z= ", "x=,z=");
        check("!x", "!x");
        check("x>1", "x>1");
        check("x>1,z<5", "x>1,z<5");
        check("b,a", "a,b");
        check("\tx == y\r\n", "x==y");
        check("x in (c,a, b)", "x in (a,b,c)");
        check("x in (a,a)", "x in (a)");
        check("x in ()", "x in ()");
        check("x in (,)", "x in ()");
        check("x in (,a)", "x in (,a)");
        check("x in (a,)", "x in (,a)");
        check("x in (a,,b)", "x in (,a,b)");
        check("x in (,,a)", "x in (,a)");
        check("x in (in,notin)", "x in (in,notin)");
        check("in in (in)", "in in (in)");
        check("in,notin", "in,notin");
        check("x notin (a),!y", "x notin (a),!y");
        check("example.com/a=b", "example.com/a=b");
        check("a=b,a!=c", "a=b,a!=c");
    }

    #[test]
    fn what_is_not_understood_is_refused_in_upstreams_words() {
        let check = |text: &str, message: &str| {
            let error = LabelSelector::parse(text).expect_err(text).to_string();
            assert_eq!(error, message, "{text}");
        };
        const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        check(",", "found ',', expected: !, identifier, or 'end of string'");
        check("x,", "found '', expected: identifier after ','");
        check("x,,y", "found ',', expected: identifier after ','");
        check(
            "x=a||y=b",
            "unable to parse requirement: values[0][x]: Invalid value: \"a||y\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        );
        check("x=a,!=b", "found '!=', expected: identifier after ','");
        check("x==a==b", "found '==', expected: ',' or 'end of string'");
        check("!", "unable to parse requirement: found '', expected: identifier");
        check("!x=a", "found '=', expected: ',' or 'end of string'");
        check("x !", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt");
        check("x y", "unable to parse requirement: found 'y', expected: in, notin, =, ==, !=, gt, lt");
        check("x in", "unable to parse requirement: found '' expected: '('");
        check("x in (a", "unable to parse requirement: found '', expected: ',' or ')'");
        check("x in (a,", "unable to parse requirement: found '', expected: ',', or identifier");
        check("x in (=", "unable to parse requirement: found '=', expected: ',', ')' or identifier");
        check("x in (a=b)", "unable to parse requirement: found '=', expected: ',' or ')'");
        check("x=(", "unable to parse requirement: found '(', expected: identifier");
        check(
            "x>a",
            "unable to parse requirement: values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value must be an integer",
        );
        check(
            "-x=a",
            &format!("unable to parse requirement: <nil>: Invalid value: \"-x\": name part {NAME}"),
        );
        check(
            "/x",
            "unable to parse requirement: <nil>: Invalid value: \"/x\": prefix part must be non-empty",
        );
        check(
            "a/",
            &format!(
                "unable to parse requirement: <nil>: Invalid value: \"a/\": name part must be non-empty; name part {NAME}"
            ),
        );
        check(
            "a/b/c",
            &format!(
                "unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid label key {NAME} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ),
        );
        let long = "x".repeat(MOST_SELECTOR_BYTES + 1);
        check(&long, "selector is 65537 bytes long, more than 65536");
        let long = "x".repeat(64);
        check(
            &long,
            &format!(
                "unable to parse requirement: <nil>: Invalid value: \"{long}\": name part must be no more than 63 bytes"
            ),
        );
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,40}") {
            let _ = LabelSelector::parse(&text);
        }

        #[test]
        fn the_canonical_text_means_the_same(text in "(!|[ab/.]|in|notin|[ =!,()<>]|1){0,16}") {
            if let Ok(selector) = LabelSelector::parse(&text) {
                let again = LabelSelector::parse(&selector.to_string());
                prop_assert_eq!(again, Ok(selector));
            }
        }
    }
}
