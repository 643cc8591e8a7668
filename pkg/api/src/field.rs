//! A value and where it stands: what validation rules look through and complain with.
//!
//! Paths are not built until something is wrong: a [`Field`] is a value and its [`Place`].

use crate::place::Place;
use serde_json::{Map, Value};
use std::fmt;

/// One complaint about one field. Its `Display` is upstream's wording: `spec.replicas: Invalid value: -1: must be …`.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// What is wrong, in upstream's categories.
    pub reason: Reason,
    /// Where, as `spec.containers[0].name` or `metadata.labels[app]`; empty for the whole object.
    pub path: String,
    /// The offending value, where it helps to show it.
    pub value: Option<Value>,
    /// What was expected.
    pub detail: String,
}

/// Upstream's `field.ErrorType`: [`Reason::cause`] is the wire form, [`Reason::text`] the human one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A value that must be given is not.
    Required,
    /// A value is not of the form it must have.
    Invalid,
    /// A value is not one of those allowed.
    NotSupported,
    /// A value may not be given here (or not changed).
    Forbidden,
    /// A value stands twice where it may stand once.
    Duplicate,
    /// A reference leads nowhere.
    NotFound,
    /// A string is longer than allowed.
    TooLong,
    /// A list has more items than allowed.
    TooMany,
    /// A value is of another JSON type than the schema says.
    TypeInvalid,
    /// Something of ours failed while checking.
    Internal,
}

impl Reason {
    /// The `reason` of a `StatusCause`.
    pub fn cause(self) -> &'static str {
        match self {
            Reason::Required => "FieldValueRequired",
            Reason::Invalid => "FieldValueInvalid",
            Reason::NotSupported => "FieldValueNotSupported",
            Reason::Forbidden => "FieldValueForbidden",
            Reason::Duplicate => "FieldValueDuplicate",
            Reason::NotFound => "FieldValueNotFound",
            Reason::TooLong => "FieldValueTooLong",
            Reason::TooMany => "FieldValueTooMany",
            Reason::TypeInvalid => "FieldValueTypeInvalid",
            Reason::Internal => "InternalError",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Reason::Required => "Required value",
            Reason::Invalid => "Invalid value",
            Reason::NotSupported => "Unsupported value",
            Reason::Forbidden => "Forbidden",
            Reason::Duplicate => "Duplicate value",
            Reason::NotFound => "Not found",
            Reason::TooLong => "Too long",
            Reason::TooMany => "Too many",
            Reason::TypeInvalid => "Invalid value",
            Reason::Internal => "Internal error",
        }
    }
}

impl FieldError {
    /// The complaint without its path, as a `StatusCause` carries it.
    pub fn message(&self) -> String {
        let mut text = self.reason.text().to_owned();
        if let Some(value) = &self.value
            && !matches!(
                self.reason,
                Reason::Required | Reason::Forbidden | Reason::TooLong | Reason::Internal
            )
        {
            text.push_str(": ");
            text.push_str(&value.to_string());
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "<nil>" } else { &self.path };
        write!(f, "{path}: {}", self.message())
    }
}

/// The complaints collected so far. Bounded: a hostile object does not make a hostile answer.
#[derive(Debug, Default)]
pub struct Errors(Vec<FieldError>);

/// More complaints than this about one object help nobody.
const MOST_ERRORS: usize = 100;

impl Errors {
    /// No complaints yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a complaint, unless there are far too many already.
    pub fn push(&mut self, error: FieldError) {
        if self.0.len() < MOST_ERRORS {
            self.0.push(error);
        }
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The complaints, in the order they were found.
    pub fn into_vec(self) -> Vec<FieldError> {
        self.0
    }

    /// The complaints as they stand.
    pub fn as_slice(&self) -> &[FieldError] {
        &self.0
    }
}

/// A place in an object, with the value there if there is one.
///
/// ```
/// use api::{Errors, Field};
/// let pod = serde_json::json!({"spec": {"containers": [{"image": "x"}]}});
/// let mut errors = Errors::new();
/// for container in Field::root(&pod).get("spec").get("containers").items() {
///     container.get("name").required(&mut errors);
/// }
/// assert_eq!(errors.as_slice()[0].to_string(), "spec.containers[0].name: Required value");
/// ```
#[derive(Clone, Copy)]
pub struct Field<'a> {
    place: Place<'a>,
    value: Option<&'a Value>,
}

static NOTHING: Value = Value::Null;

impl<'a> Field<'a> {
    /// The whole object.
    pub fn root(value: &'a Value) -> Self {
        Field { place: Place::root(), value: Some(value) }
    }

    /// The named member, present or not. `null` counts as absent.
    pub fn get(&'a self, name: &'a str) -> Field<'a> {
        let value = self.value.and_then(|v| v.get(name)).filter(|v| !v.is_null());
        Field { place: self.place.name(name), value }
    }

    /// The elements of a list; none where there is no list.
    pub fn items(&'a self) -> impl Iterator<Item = Field<'a>> {
        let list = self.value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        list.iter()
            .enumerate()
            .map(move |(index, value)| Field { place: self.place.index(index), value: Some(value) })
    }

    /// The entries of a map; none where there is no map.
    pub fn entries(&'a self) -> impl Iterator<Item = (&'a str, Field<'a>)> {
        self.value
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(move |(key, value)| (key.as_str(), Field { place: self.place.key(key), value: Some(value) }))
    }

    /// The place of a map's key, for complaints about it.
    pub fn key(&'a self, key: &'a str) -> Field<'a> {
        let value = self.value.and_then(|v| v.get(key));
        Field { place: self.place.key(key), value }
    }

    /// The same place with another value to look at: where upstream's paths differ from the wire's.
    pub fn with_value(&self, value: &'a Value) -> Field<'a> {
        Field { value: Some(value).filter(|value| !value.is_null()), ..*self }
    }

    /// Whether there is a value here.
    pub fn exists(&self) -> bool {
        self.value.is_some()
    }

    /// The value here, `null` where there is none.
    pub fn value(&self) -> &'a Value {
        self.value.unwrap_or(&NOTHING)
    }

    /// The string here.
    pub fn str(&self) -> Option<&'a str> {
        self.value.and_then(Value::as_str)
    }

    /// The string here, empty where there is none.
    pub fn text(&self) -> &'a str {
        self.str().unwrap_or_default()
    }

    /// The integer here.
    pub fn int(&self) -> Option<i64> {
        self.value.and_then(Value::as_i64)
    }

    /// The boolean here; absent is false.
    pub fn bool(&self) -> bool {
        self.value.and_then(Value::as_bool).unwrap_or(false)
    }

    /// The members of the object here.
    pub fn object(&self) -> Option<&'a Map<String, Value>> {
        self.value.and_then(Value::as_object)
    }

    /// How many items or entries there are.
    pub fn len(&self) -> usize {
        match self.value {
            Some(Value::Array(list)) => list.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        }
    }

    /// Whether the list or map here is missing or has nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The path from the root: `spec.containers[0].name`.
    pub fn path(&self) -> String {
        self.place.path()
    }

    /// Complains unless there is a value here that is not an empty string, list or map. Returns whether there is.
    pub fn required(&self, errors: &mut Errors) -> bool {
        self.required_because("", errors)
    }

    /// [`Field::required`] with a reason.
    pub fn required_because(&self, detail: &str, errors: &mut Errors) -> bool {
        let there = match self.value {
            None => false,
            Some(Value::String(s)) => !s.is_empty(),
            Some(Value::Array(_) | Value::Object(_)) => !self.is_empty(),
            Some(_) => true,
        };
        if !there {
            self.complain(Reason::Required, detail, errors);
        }
        there
    }

    /// Complains that the value here is not of the form it must have.
    pub fn invalid(&self, detail: impl Into<String>, errors: &mut Errors) {
        self.complain(Reason::Invalid, detail, errors);
    }

    /// [`Field::invalid`] about a value other than the one here: a key, or what an absent field stands for.
    pub fn invalid_value(&self, value: impl Into<Value>, detail: impl Into<String>, errors: &mut Errors) {
        let (path, value, detail) = (self.path(), Some(value.into()), detail.into());
        errors.push(FieldError { reason: Reason::Invalid, path, value, detail });
    }

    /// Complains once for each fault that the check finds in the text here; absent reads as empty.
    pub fn conforms(&self, check: crate::names::Check, errors: &mut Errors) {
        for fault in check(self.text()) {
            self.invalid_value(self.text(), fault, errors);
        }
    }

    /// Complains that nothing (or no change) is allowed here.
    pub fn forbidden(&self, detail: impl Into<String>, errors: &mut Errors) {
        self.complain(Reason::Forbidden, detail, errors);
    }

    /// Complains about a reference that leads nowhere.
    pub fn not_found(&self, errors: &mut Errors) {
        self.complain(Reason::NotFound, "", errors);
    }

    /// Complains that the value here already stands elsewhere.
    pub fn duplicate(&self, errors: &mut Errors) {
        self.complain(Reason::Duplicate, "", errors);
    }

    /// Complains about a string longer than `most` bytes.
    pub fn too_long(&self, most: usize, errors: &mut Errors) {
        self.complain(Reason::TooLong, format!("may not be more than {most} bytes"), errors);
    }

    /// Complains about a list of more than `most` items.
    pub fn too_many(&self, most: usize, errors: &mut Errors) {
        let items = if most == 1 { "item" } else { "items" };
        let (path, detail) = (self.path(), format!("must have at most {most} {items}"));
        let value = Some(self.len().into());
        errors.push(FieldError { reason: Reason::TooMany, path, value, detail });
    }

    /// Complains if there is a value here and it is not one of `allowed`.
    pub fn one_of(&self, allowed: &[&str], errors: &mut Errors) {
        if self.exists() && !self.str().is_some_and(|s| allowed.contains(&s)) {
            self.not_supported(allowed, errors);
        }
    }

    /// Complains that the value here is not one of `allowed`.
    pub fn not_supported(&self, allowed: &[&str], errors: &mut Errors) {
        let mut sorted = allowed.to_vec();
        sorted.sort_unstable();
        self.not_supported_in_order(&sorted, errors);
    }

    /// [`Field::not_supported`], naming what is allowed in the order given. An absent value reads as empty text.
    pub fn not_supported_in_order(&self, allowed: &[&str], errors: &mut Errors) {
        let list: Vec<String> = allowed.iter().map(|a| format!("{a:?}")).collect();
        let (path, detail) = (self.path(), format!("supported values: {}", list.join(", ")));
        let value = Some(self.value.cloned().unwrap_or_else(|| "".into()));
        errors.push(FieldError { reason: Reason::NotSupported, path, value, detail });
    }

    /// Complains unless there is a value here and it is one of `allowed`.
    pub fn required_one_of(&self, allowed: &[&str], errors: &mut Errors) {
        if self.required(errors) {
            self.one_of(allowed, errors);
        }
    }

    /// Complains unless the integer here, if there is one, is at least zero.
    pub fn non_negative(&self, errors: &mut Errors) {
        if self.int().is_some_and(|n| n < 0) {
            self.invalid("must be greater than or equal to 0", errors);
        }
    }

    /// Complains unless the integer here, if there is one, lies in the range.
    pub fn in_range(&self, range: std::ops::RangeInclusive<i64>, errors: &mut Errors) {
        if self.int().is_some_and(|n| !range.contains(&n)) {
            self.invalid(format!("must be between {} and {}, inclusive", range.start(), range.end()), errors);
        }
    }

    /// Complains unless the value here equals the one at the same place of `old`.
    pub fn immutable(&self, old: &Field<'_>, errors: &mut Errors) {
        if !crate::equality::same(self.value(), old.value()) {
            self.invalid("field is immutable", errors);
        }
    }

    /// Complains in any of upstream's categories.
    pub fn complain(&self, reason: Reason, detail: impl Into<String>, errors: &mut Errors) {
        errors.push(FieldError {
            reason,
            path: self.path(),
            value: self.value.cloned(),
            detail: detail.into(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn complaints_read_as_upstreams() {
        let object = json!({"spec": {"replicas": -1, "type": "X", "ports": [{"port": 0}]}, "metadata": {"labels": {"a/b": "!"}}});
        let root = Field::root(&object);
        let mut errors = Errors::new();
        root.get("spec").get("replicas").non_negative(&mut errors);
        root.get("spec").get("type").one_of(&["B", "A"], &mut errors);
        root.get("spec").get("name").required(&mut errors);
        for port in root.get("spec").get("ports").items() {
            port.get("port").in_range(1..=65535, &mut errors);
        }
        for (_, value) in root.get("metadata").get("labels").entries() {
            value.invalid("bad", &mut errors);
        }
        let text: Vec<String> = errors.into_vec().iter().map(FieldError::to_string).collect();
        assert_eq!(
            text,
            [
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                r#"spec.type: Unsupported value: "X": supported values: "A", "B""#,
                "spec.name: Required value",
                "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                r#"metadata.labels[a/b]: Invalid value: "!": bad"#,
            ]
        );
    }
}
