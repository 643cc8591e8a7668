//! The part of kubectl's JSONPath that columns and scale paths use.
//!
//! ```text
//! .spec.replicas   .a['b.c']   .a\.b   .items[0]   [-1]   [1:3]   [*]   .*   ..name   [?(@.type=="Ready")].status
//! ```
//!
//! What is not there is not an error: a path finds what it finds. No functions, no ranges, no unions.

use serde_json::Value;
use std::cmp::Ordering;

/// A path, parsed once and used for many objects.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath(Vec<Step>);

/// Why a text is not a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unrecognized path {path:?} at character {at}: {what}")]
pub struct JsonPathError {
    path: String,
    at: usize,
    what: &'static str,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    /// A member.
    Name(String),
    /// All members or elements.
    All,
    /// An element; negative from the end.
    Index(i64),
    /// Elements from, to and by.
    Slice(Option<i64>, Option<i64>, i64),
    /// Elements that a comparison holds for.
    Filter(Operand, Option<(Comparison, Operand)>),
    /// The value and all below it.
    Descend,
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(JsonPath),
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A path with more steps than this is nobody's.
const MOST_STEPS: usize = 64;
/// What a path finds is bounded, since `..` multiplies.
const MOST_FOUND: usize = 10_000;

impl JsonPath {
    /// Parses a path; the braces of kubectl's templates and a leading `$` may be left out.
    pub fn parse(path: &str) -> Result<JsonPath, JsonPathError> {
        let trimmed = path.trim();
        let inner =
            trimmed.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(trimmed).trim();
        let mut parser = Parser { text: inner, at: 0 };
        parser.eat("$");
        let steps = parser.steps();
        let rest = parser.rest().is_empty();
        match steps {
            Ok(steps) if rest => Ok(JsonPath(steps)),
            Ok(_) => Err(("expected . or [", parser.at)),
            Err(what) => Err((what, parser.at)),
        }
        .map_err(|(what, at)| JsonPathError { path: path.to_owned(), at, what })
    }

    /// All values at the path, in order.
    pub fn find<'a>(&'a self, root: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![root];
        for step in &self.0 {
            let mut next = Vec::new();
            for value in found {
                step.apply(value, &mut next);
            }
            found = next;
        }
        found
    }

    /// The first value at the path.
    pub fn first<'a>(&'a self, root: &'a Value) -> Option<&'a Value> {
        self.find(root).into_iter().next()
    }
}

impl Step {
    fn apply<'a>(&'a self, value: &'a Value, found: &mut Vec<&'a Value>) {
        if found.len() >= MOST_FOUND {
            return;
        }
        let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
        match self {
            Step::Name(name) => found.extend(value.get(name)),
            Step::All => match value {
                Value::Object(members) => found.extend(members.values()),
                _ => found.extend(list),
            },
            Step::Index(index) => {
                found.extend(position(*index, list.len()).and_then(|index| list.get(index)))
            }
            Step::Slice(from, to, by) => {
                let bound = |bound: i64| position(bound, list.len()).unwrap_or(0).min(list.len());
                let (from, to) = (from.map_or(0, bound), to.map_or(list.len(), bound));
                let by = usize::try_from(*by).unwrap_or(1).max(1);
                found.extend(list.get(from..to).unwrap_or_default().iter().step_by(by));
            }
            Step::Filter(left, right) => {
                found.extend(list.iter().filter(|element| holds(left, right.as_ref(), element)));
            }
            Step::Descend => descend(value, found),
        }
    }
}

/// A place counted from the end where it is negative; `None` before the beginning.
fn position(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if index < 0 { length + index } else { index }).ok()
}

fn descend<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    if found.len() >= MOST_FOUND {
        return;
    }
    found.push(value);
    match value {
        Value::Object(members) => members.values().for_each(|member| descend(member, found)),
        Value::Array(items) => items.iter().for_each(|item| descend(item, found)),
        _ => {}
    }
}

fn holds(left: &Operand, right: Option<&(Comparison, Operand)>, element: &Value) -> bool {
    let value = |operand: &Operand| match operand {
        Operand::Path(path) => path.first(element).cloned(),
        Operand::Literal(value) => Some(value.clone()),
    };
    let Some(left) = value(left) else { return false };
    let Some((comparison, right)) = right else { return true };
    let Some(right) = value(right) else { return false };
    let order = match (&left, &right) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (a, b) if a == b => Some(Ordering::Equal),
        _ => None,
    };
    match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::NotEqual => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::LessOrEqual => order.is_some_and(Ordering::is_le),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn eat(&mut self, token: &str) -> bool {
        let there = self.rest().starts_with(token);
        if there {
            self.at += token.len();
        }
        there
    }

    fn skip_space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    /// Takes characters as long as they are wanted.
    fn take(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = &rest[..rest.find(|c| !wanted(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    fn steps(&mut self) -> Result<Vec<Step>, &'static str> {
        let mut steps = Vec::new();
        // A bare name may begin a path.
        if self.rest().starts_with(|c: char| c.is_alphanumeric() || c == '_') {
            steps.push(Step::Name(self.name()));
        }
        loop {
            if steps.len() > MOST_STEPS {
                return Err("too many steps");
            }
            if self.eat("..") {
                steps.push(Step::Descend);
                if !self.rest().starts_with('[') {
                    steps.push(self.member()?);
                }
            } else if self.eat(".") {
                // A lone dot is the object itself, and one before a bracket says nothing.
                if !self.rest().is_empty() && !self.rest().starts_with('[') {
                    steps.push(self.member()?);
                }
            } else if self.eat("[") {
                steps.push(self.bracket()?);
            } else {
                return Ok(steps);
            }
        }
    }

    fn member(&mut self) -> Result<Step, &'static str> {
        if self.eat("*") {
            return Ok(Step::All);
        }
        match self.name() {
            name if name.is_empty() => Err("expected a name"),
            name => Ok(Step::Name(name)),
        }
    }

    /// A name; a backslash takes the character after it as it is.
    fn name(&mut self) -> String {
        let mut name = String::new();
        loop {
            name.push_str(self.take(|c| {
                !matches!(c, '.' | '[' | ']' | '(' | ')' | '\\' | '=' | '!' | '<' | '>' | ' ' | ',')
            }));
            if !self.eat("\\") {
                return name;
            }
            if let Some(c) = self.rest().chars().next() {
                name.push(c);
                self.at += c.len_utf8();
            }
        }
    }

    /// What stands in brackets, the opening one already taken.
    fn bracket(&mut self) -> Result<Step, &'static str> {
        self.skip_space();
        let step = if self.eat("*") {
            Step::All
        } else if self.eat("?(") {
            let filter = self.filter()?;
            if !self.eat(")") {
                return Err("expected )");
            }
            filter
        } else if self.rest().starts_with(['\'', '"']) {
            Step::Name(self.quoted()?)
        } else {
            self.index()?
        };
        self.skip_space();
        if self.eat("]") { Ok(step) } else { Err("expected ]") }
    }

    fn quoted(&mut self) -> Result<String, &'static str> {
        let quote = self.rest().chars().next().unwrap_or('"');
        self.at += 1;
        let mut text = String::new();
        loop {
            text.push_str(self.take(|c| c != quote && c != '\\'));
            if self.eat("\\") {
                let Some(c) = self.rest().chars().next() else { return Err("unterminated string") };
                text.push(c);
                self.at += c.len_utf8();
            } else if self.rest().is_empty() {
                return Err("unterminated string");
            } else {
                self.at += 1;
                return Ok(text);
            }
        }
    }

    fn number(&mut self) -> Result<Option<i64>, &'static str> {
        match self.take(|c| c.is_ascii_digit() || c == '-') {
            "" => Ok(None),
            digits => digits.parse().map(Some).map_err(|_| "expected a number"),
        }
    }

    fn index(&mut self) -> Result<Step, &'static str> {
        let first = self.number()?;
        if !self.eat(":") {
            return first.map(Step::Index).ok_or("expected an index");
        }
        let to = self.number()?;
        let by = if self.eat(":") { self.number()? } else { None };
        Ok(Step::Slice(first, to, by.unwrap_or(1)))
    }

    fn filter(&mut self) -> Result<Step, &'static str> {
        let left = self.operand()?;
        self.skip_space();
        const COMPARISONS: [(&str, Comparison); 7] = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
            ("=", Comparison::Equal),
        ];
        let comparison = COMPARISONS.into_iter().find(|(token, _)| self.eat(token));
        let right = match comparison {
            Some((_, comparison)) => Some((comparison, self.operand()?)),
            None => None,
        };
        self.skip_space();
        Ok(Step::Filter(left, right))
    }

    fn operand(&mut self) -> Result<Operand, &'static str> {
        self.skip_space();
        if self.eat("@") {
            return Ok(Operand::Path(JsonPath(self.steps()?)));
        }
        if self.rest().starts_with(['\'', '"']) {
            return Ok(Operand::Literal(self.quoted()?.into()));
        }
        let word = self.take(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+'));
        serde_json::from_str(word).map(Operand::Literal).map_err(|_| "expected a value")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[track_caller]
    fn check(path: &str, expected: Value) {
        let object = json!({
            "spec": {"replicas": 3, "a.b": "dotted", "list": [1, 2, 3, 4]},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "code": 5},
                {"type": "Other", "status": "False", "code": 7}]},
        });
        let path = JsonPath::parse(path).unwrap();
        assert_eq!(json!(path.find(&object)), expected, "{path:?}");
    }

    #[test]
    fn paths_find_what_kubectl_finds() {
        check(".spec.replicas", json!([3]));
        check("{.spec.replicas}", json!([3]));
        check("$.spec['replicas']", json!([3]));
        check("spec.replicas", json!([3]));
        check(r".spec.a\.b", json!(["dotted"]));
        check(".spec['a.b']", json!(["dotted"]));
        check(".spec.list[0]", json!([1]));
        check(".spec.list[-1]", json!([4]));
        check(".spec.list[1:3]", json!([2, 3]));
        check(".spec.list[::2]", json!([1, 3]));
        check(".spec.list[-2:]", json!([3, 4]));
        check(".spec.list[9]", json!([]));
        check(".spec.missing.more", json!([]));
        check(".status.conditions[*].type", json!(["Ready", "Other"]));
        check(r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"]));
        check(".status.conditions[?(@.type != 'Ready')].status", json!(["False"]));
        check(".status.conditions[?(@.code > 5)].type", json!(["Other"]));
        check(".status.conditions[?(@.missing)].type", json!([]));
        check("..type", json!(["Ready", "Other"]));
        check(".status.*[0].code", json!([5]));
    }

    #[test]
    fn other_texts_are_refused_with_the_place() {
        for (path, at) in [(".a[", 3), (".a[?(@.b==)]", 10), (".a]", 2), (".a['b", 5), (".a..", 4)] {
            assert_eq!(JsonPath::parse(path).unwrap_err().at, at, "{path}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(path in r#"[.\[\]*?(@='"a0:\\ é)<>-]{0,24}"#) {
            if let Ok(path) = JsonPath::parse(&path) {
                path.find(&json!({"a": [{"a": 0}, "é"]}));
            }
        }
    }
}
