//! Label selectors: requirements that must all hold.

use super::parse::parse;
use super::{Lookup, MOST_SELECTOR_BYTES, SelectorError};
use crate::field::{FieldError, Reason};
use serde_json::Value;
use std::fmt;

/// A conjunction of requirements on labels. Its `Display` is the canonical text, sorted by key.
///
/// ```
/// use api::selector::{LabelSelector, Labels};
/// let selector = LabelSelector::parse("tier in (db, cache), app=web").unwrap();
/// assert_eq!(selector.to_string(), "app=web,tier in (cache,db)");
/// assert!(selector.matches(&Labels::from_iter([("app", "web"), ("tier", "db")])));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LabelSelector {
    requirements: Box<[Requirement]>,
    nothing: bool,
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// The label.
    pub key: Box<str>,
    /// The condition.
    pub operator: Operator,
    /// What the label is compared with, sorted; none for [`Operator::Exists`] and [`Operator::DoesNotExist`].
    pub values: Box<[Box<str>]>,
}

/// The condition of a [`Requirement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `a=b`
    Equals,
    /// `a==b`
    DoubleEquals,
    /// `a!=b`: also holds without the label.
    NotEquals,
    /// `a in (b,c)`
    In,
    /// `a notin (b,c)`: also holds without the label.
    NotIn,
    /// `a`
    Exists,
    /// `!a`
    DoesNotExist,
    /// `a>1`, as integers.
    GreaterThan,
    /// `a<1`, as integers.
    LessThan,
}

impl LabelSelector {
    /// Matches every object.
    pub fn everything() -> Self {
        LabelSelector::default()
    }

    /// Matches no object.
    pub fn nothing() -> Self {
        LabelSelector { nothing: true, ..LabelSelector::default() }
    }

    /// The form of query strings: `a=b,a==b,a!=b,a in (x,y),a notin (x),a,!a,a>1,a<1`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.len() > MOST_SELECTOR_BYTES {
            return Err(SelectorError::too_long(text.len()));
        }
        Ok(LabelSelector::new(parse(text)?))
    }

    /// The form of objects: `matchLabels` and `matchExpressions`. No selector at all (`null`) matches nothing, an
    /// empty one everything.
    pub fn from_json(selector: &Value) -> Result<Self, SelectorError> {
        if selector.is_null() {
            return Ok(LabelSelector::nothing());
        }
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            requirements.push(Requirement::new(key, Operator::Equals, vec![text(value)?])?);
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let operator = match text(&expression["operator"])? {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    return Err(SelectorError(format!("{other:?} is not a valid label selector operator")));
                }
            };
            let values = expression["values"].as_array().into_iter().flatten().map(text);
            let values = values.collect::<Result<Vec<&str>, _>>()?;
            requirements.push(Requirement::new(text(&expression["key"])?, operator, values)?);
        }
        Ok(LabelSelector::new(requirements))
    }

    /// Whether all requirements hold.
    pub fn matches(&self, labels: &impl Lookup) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.matches(labels))
    }

    /// Whether it leaves nothing out.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Whether it was made to match nothing.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// The value that a label must have, where only one will do.
    pub fn pinned(&self, key: &str) -> Option<&str> {
        self.requirements.iter().filter(|requirement| &*requirement.key == key).find_map(Requirement::pinned)
    }

    /// The requirements, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    fn new(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        LabelSelector { requirements: requirements.into(), nothing: false }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl Requirement {
    /// A requirement that makes sense: key and values are valid, and the operator takes as many values as there are.
    pub fn new(key: &str, operator: Operator, mut values: Vec<&str>) -> Result<Self, SelectorError> {
        let mut errors: Vec<String> = Vec::new();
        let mut invalid = |path: String, value: Value, detail: String| {
            errors.push(FieldError { reason: Reason::Invalid, path, value: Some(value), detail }.to_string());
        };
        let key_errors = label_key_errors(key);
        if !key_errors.is_empty() {
            invalid("key".into(), key.into(), key_errors.join("; "));
        }
        if let Some(detail) = operator.wrong_count(values.len()) {
            invalid("values".into(), values.clone().into(), detail.into());
        }
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
            for (index, value) in values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err())
            {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                invalid(format!("values[{index}]"), (*value).into(), detail.into());
            }
        }
        for (index, value) in values.iter().enumerate() {
            let value_errors = label_value_errors(value);
            if !value_errors.is_empty() {
                invalid(format!("values[{index}][{key}]"), (*value).into(), value_errors.join("; "));
            }
        }
        if !errors.is_empty() {
            return Err(SelectorError(aggregate(errors)));
        }
        values.sort_unstable();
        Ok(Requirement { key: key.into(), operator, values: values.into_iter().map(Box::from).collect() })
    }

    /// Whether the labels satisfy it.
    pub fn matches(&self, labels: &impl Lookup) -> bool {
        let value = labels.look_up(&self.key);
        match self.operator {
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Equals | Operator::DoubleEquals | Operator::In => value.is_some_and(|v| self.has(v)),
            Operator::NotEquals | Operator::NotIn => !value.is_some_and(|v| self.has(v)),
            Operator::GreaterThan => self.compare(value).is_some_and(std::cmp::Ordering::is_gt),
            Operator::LessThan => self.compare(value).is_some_and(std::cmp::Ordering::is_lt),
        }
    }

    fn has(&self, value: &str) -> bool {
        self.values.iter().any(|v| &**v == value)
    }

    fn compare(&self, value: Option<&str>) -> Option<std::cmp::Ordering> {
        let bound = self.values.first()?.parse::<i64>().ok()?;
        Some(value?.parse::<i64>().ok()?.cmp(&bound))
    }

    fn pinned(&self) -> Option<&str> {
        match (self.operator, &*self.values) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => Some(value),
            _ => None,
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let values = self.values.join(",");
        match self.operator {
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

impl Operator {
    fn wrong_count(self, values: usize) -> Option<&'static str> {
        use Operator::*;
        match self {
            In | NotIn if values == 0 => Some("for 'in', 'notin' operators, values set can't be empty"),
            Equals | DoubleEquals | NotEquals if values != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Exists | DoesNotExist if values != 0 => {
                Some("values set must be empty for exists and does not exist")
            }
            GreaterThan | LessThan if values != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        }
    }
}

const NAME_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const SUBDOMAIN_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const MOST_NAME_BYTES: usize = 63;
const MOST_SUBDOMAIN_BYTES: usize = 253;

/// What is wrong with a label's (or annotation's) key, in upstream's words; nothing if it is valid.
pub fn label_key_errors(key: &str) -> Vec<String> {
    let form = format!(
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
         character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{NAME_FORMAT}')"
    );
    let mut errors = Vec::new();
    let mut parts = key.split('/');
    let (prefix, name) = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => (None, name),
        (Some(prefix), Some(name), None) => (Some(prefix), name),
        _ => {
            return vec![format!(
                "a valid label key {form} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    match prefix {
        Some("") => errors.push("prefix part must be non-empty".into()),
        Some(prefix) => {
            if prefix.len() > MOST_SUBDOMAIN_BYTES {
                errors.push(format!("prefix part must be no more than {MOST_SUBDOMAIN_BYTES} bytes"));
            }
            if !is_subdomain(prefix) {
                errors.push(format!(
                    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                     characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
                     'example.com', regex used for validation is '{SUBDOMAIN_FORMAT}')"
                ));
            }
        }
        None => {}
    }
    if name.is_empty() {
        errors.push("name part must be non-empty".into());
    } else if name.len() > MOST_NAME_BYTES {
        errors.push(format!("name part must be no more than {MOST_NAME_BYTES} bytes"));
    }
    if !is_name(name) {
        errors.push(format!("name part {form}"));
    }
    errors
}

/// What is wrong with a label's value, in upstream's words; nothing if it is valid.
pub fn label_value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > MOST_NAME_BYTES {
        errors.push(format!("must be no more than {MOST_NAME_BYTES} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
             for validation is '({NAME_FORMAT})?')"
        ));
    }
    errors
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_subdomain(text: &str) -> bool {
    let lower = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.split('.').map(str::as_bytes).all(|part| {
        [part.first(), part.last()].iter().all(|end| end.is_some_and(lower))
            && part.iter().all(|b| lower(b) || *b == b'-')
    })
}

/// Several complaints as one text, as upstream's aggregates print: each once, in brackets.
fn aggregate(mut errors: Vec<String>) -> String {
    let mut seen = std::collections::HashSet::new();
    errors.retain(|error| seen.insert(error.clone()));
    if errors.len() == 1 { errors.remove(0) } else { format!("[{}]", errors.join(", ")) }
}

fn text(value: &Value) -> Result<&str, SelectorError> {
    value.as_str().ok_or_else(|| SelectorError(format!("{value} in a label selector is not a string")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selector::Labels;
    use serde_json::json;

    #[test]
    fn requirements_match_as_upstreams() {
        let check = |selector: &str, labels: &[(&str, &str)], expected: bool| {
            let labels: Labels = labels.iter().copied().collect();
            let selector = LabelSelector::parse(selector).unwrap();
            assert_eq!(selector.matches(&labels), expected, "{selector} on {labels:?}");
        };
        check("", &[("x", "y")], true);
        check("x=y", &[("x", "y")], true);
        check("x=y,z=w", &[("x", "y"), ("z", "w")], true);
        check("x!=y,z!=w", &[("x", "z"), ("z", "a")], true);
        check("notin=in", &[("notin", "in")], true);
        check("x", &[("x", "z")], true);
        check("!x", &[("y", "z")], true);
        check("x>1", &[("x", "2")], true);
        check("x<1", &[("x", "0")], true);
        check("x>1", &[("x", "two")], false);
        check("x>1", &[], false);
        check("x=z", &[], false);
        check("x=y", &[("x", "z")], false);
        check("x=y,z=w", &[("x", "w"), ("z", "w")], false);
        check("x!=y,z!=w", &[("x", "z"), ("z", "w")], false);
        check("x", &[("y", "z")], false);
        check("!x", &[("x", "z")], false);
        check("x in (a,)", &[("x", "")], true);
        check("x in (a,b)", &[("x", "c")], false);
        check("x notin (a)", &[], true);
        check("x notin (a)", &[("x", "a")], false);
        check("x=", &[("x", "")], true);
        check("x=", &[], false);
    }

    #[test]
    fn selectors_come_from_objects_too() {
        let check = |json: Value, expected: Result<&str, &str>| {
            let text = LabelSelector::from_json(&json).map(|s| s.to_string()).map_err(|e| e.to_string());
            assert_eq!(text, expected.map(String::from).map_err(String::from), "{json}");
        };
        check(json!({}), Ok(""));
        check(json!({"matchLabels": {"b": "1", "a": "2"}}), Ok("a=2,b=1"));
        check(
            json!({"matchLabels": {"z": "1"}, "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["y", "x"]},
                {"key": "b", "operator": "NotIn", "values": ["x"]},
                {"key": "c", "operator": "Exists"},
                {"key": "d", "operator": "DoesNotExist"},
            ]}),
            Ok("a in (x,y),b notin (x),c,!d,z=1"),
        );
        check(
            json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}),
            Err(r#""Gt" is not a valid label selector operator"#),
        );
        check(
            json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            Err("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"),
        );
        check(json!({"matchLabels": {"a": 1}}), Err("1 in a label selector is not a string"));
        assert!(LabelSelector::from_json(&Value::Null).unwrap().is_nothing());
        assert!(!LabelSelector::nothing().matches(&Labels::default()));
        assert_ne!(LabelSelector::nothing(), LabelSelector::everything());
    }

    #[test]
    fn a_label_is_pinned_where_only_one_value_will_do() {
        let selector = LabelSelector::parse("a=1,b in (2),c in (3,4),d!=5,e,e=6").unwrap();
        let pins: Vec<_> = ["a", "b", "c", "d", "e", "f"].iter().map(|key| selector.pinned(key)).collect();
        assert_eq!(pins, [Some("1"), Some("2"), None, None, Some("6"), None]);
    }
}
