//! Does an object keep its schema's rules? Complaints are worded as upstream's OpenAPI validator words them.

use super::structural::{Additional, Bound, Rules, Structural, Type};
use crate::field::{Errors, FieldError, Reason};
use crate::place::Place;
use crate::schema::ListType;
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// Complains about `object`; what is unchanged since `old` is let be.
pub(super) fn validate(schema: &Structural, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let root = Place::root();
    let mut outcome = Outcome::default();
    check(schema, object, old, &root, &mut outcome);
    outcome.complaints.into_iter().for_each(|complaint| errors.push(complaint));
    if !schema.has_keyed_lists {
        return;
    }
    // Lists that already had duplicates may keep them.
    let mut before = Errors::new();
    if let Some(old) = old {
        check_lists(schema, old, &root, &mut before);
    }
    if before.is_empty() {
        check_lists(schema, object, &root, errors);
    }
}

/// What was found. `matches` counts what was right: of alternatives that all fail, the one that came closest is
/// complained about.
#[derive(Default)]
struct Outcome {
    complaints: Vec<FieldError>,
    matches: usize,
}

/// More complaints than this about one object help nobody, and must not be collected.
const MOST_COMPLAINTS: usize = 100;

impl Outcome {
    fn push(&mut self, reason: Reason, path: String, value: Value, detail: String) {
        if self.complaints.len() < MOST_COMPLAINTS {
            self.complaints.push(FieldError { reason, path, value: Some(value), detail });
        }
    }

    fn invalid(&mut self, place: &Place<'_>, value: Value, what: &str) {
        let path = place.path();
        let detail = format!("{path} in body {what}");
        self.push(Reason::Invalid, path, value, detail);
    }

    /// A value of another type: upstream shows the type that was found.
    fn wrong_type(&mut self, place: &Place<'_>, expected: &str, found: &str) {
        let path = place.path();
        let detail = format!("{path} in body must be of type {expected}: {found:?}");
        self.push(Reason::TypeInvalid, path, found.into(), detail);
    }

    /// A complaint about alternatives: upstream gives it no path of its own.
    fn alternatives(&mut self, place: &Place<'_>, what: &str) {
        let detail = format!("{:?} {what}", place.path());
        self.push(Reason::Invalid, String::new(), "".into(), detail);
    }

    fn merge(&mut self, other: Outcome) {
        self.complaints.extend(other.complaints);
        self.complaints.truncate(MOST_COMPLAINTS);
        self.matches += other.matches;
    }
}

fn check(schema: &Structural, value: &Value, old: Option<&Value>, place: &Place<'_>, outcome: &mut Outcome) {
    check_type(schema, value, place, outcome);
    let rules = schema.rules.as_deref();
    if value.is_null() {
        if let Some(rules) = rules {
            check_enum(rules, value, place, outcome);
        }
        return;
    }
    if let Some(rules) = rules {
        check_alternatives(rules, value, place, outcome);
    }
    outcome.matches += 3;
    match value {
        Value::String(text) => {
            if let Some(rules) = rules {
                check_string(rules, text, place, outcome);
            }
        }
        Value::Number(_) => {
            if let Some(rules) = rules {
                check_number(rules, value, place, outcome);
            }
        }
        Value::Array(items) => check_array(schema, rules, items, old, place, outcome),
        _ => {}
    }
    if let Some(rules) = rules {
        check_enum(rules, value, place, outcome);
    }
    if let Value::Object(members) = value {
        check_object(schema, rules, members, old, place, outcome);
    }
}

fn check_type(schema: &Structural, value: &Value, place: &Place<'_>, outcome: &mut Outcome) {
    let Some(ty) = schema.ty else { return };
    let (fits, found) = match value {
        Value::Null => (schema.nullable, "null"),
        Value::Bool(_) => (ty == Type::Boolean, "boolean"),
        Value::String(_) => (matches!(ty, Type::String | Type::IntOrString), "string"),
        Value::Array(_) => (ty == Type::Array, "array"),
        Value::Object(_) => (ty == Type::Object, "object"),
        Value::Number(number) if number.is_f64() => {
            let whole = value.as_f64().is_some_and(is_json_integer);
            let fits = ty == Type::Number || whole && matches!(ty, Type::Integer | Type::IntOrString);
            (fits, "number")
        }
        Value::Number(_) => (matches!(ty, Type::Integer | Type::Number | Type::IntOrString), "integer"),
    };
    if fits {
        outcome.matches += 1;
    } else {
        outcome.wrong_type(place, ty.name(), found);
    }
}

/// Whether a float holds a whole number that JSON can carry exactly.
fn is_json_integer(number: f64) -> bool {
    number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0
}

fn check_alternatives(rules: &Rules, value: &Value, place: &Place<'_>, outcome: &mut Outcome) {
    let run = |schema: &Structural| {
        let mut inner = Outcome::default();
        // Every alternative sees the whole value: one that skipped what is unchanged would match too easily.
        check(schema, value, None, place, &mut inner);
        inner
    };
    if !rules.any_of.is_empty() {
        let tried: Vec<Outcome> = rules.any_of.iter().map(run).collect();
        if tried.iter().all(|inner| !inner.complaints.is_empty()) {
            outcome.alternatives(place, "must validate at least one schema (anyOf)");
            closest(tried).into_iter().for_each(|inner| outcome.merge(inner));
        }
    }
    if !rules.one_of.is_empty() {
        let tried: Vec<Outcome> = rules.one_of.iter().map(run).collect();
        match tried.iter().filter(|inner| inner.complaints.is_empty()).count() {
            1 => {}
            0 => {
                outcome
                    .alternatives(place, "must validate one and only one schema (oneOf). Found none valid");
                closest(tried).into_iter().for_each(|inner| outcome.merge(inner));
            }
            valid => outcome.alternatives(
                place,
                &format!("must validate one and only one schema (oneOf). Found {valid} valid alternatives"),
            ),
        }
    }
    let mut failed = 0;
    for schema in &rules.all_of {
        let inner = run(schema);
        failed += usize::from(!inner.complaints.is_empty());
        outcome.merge(inner);
    }
    if failed > 0 {
        let none = if failed == rules.all_of.len() { ". None validated" } else { "" };
        outcome.alternatives(place, &format!("must validate all the schemas (allOf){none}"));
    }
    if rules.not.as_deref().is_some_and(|not| run(not).complaints.is_empty()) {
        outcome.alternatives(place, "must not validate the schema (not)");
    }
}

/// Of alternatives that all failed, the first of those with most that was right.
fn closest(tried: Vec<Outcome>) -> Option<Outcome> {
    tried.into_iter().reduce(|best, next| if next.matches > best.matches { next } else { best })
}

fn check_string(rules: &Rules, text: &str, place: &Place<'_>, outcome: &mut Outcome) {
    let length = || text.chars().count() as u64;
    if let Some(most) = rules.max_length.filter(|&most| text.len() as u64 > most && length() > most) {
        let bytes = if most == 1 { "byte" } else { "bytes" };
        outcome.push(
            Reason::TooLong,
            place.path(),
            "".into(),
            format!("may not be more than {most} {bytes}"),
        );
    } else if let Some(least) = rules.min_length.filter(|&least| length() < least) {
        outcome.invalid(place, text.into(), &format!("should be at least {least} chars long"));
    } else if let Some(pattern) = rules.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        let reason = pattern.error().map(|error| format!(", but pattern is invalid: {error}"));
        let what = format!("should match '{}{}'", pattern.text, reason.unwrap_or_default());
        outcome.invalid(place, text.into(), &what);
    }
    if let Some(format) = rules.format.as_ref().filter(|format| !format.is_match(text)) {
        outcome.wrong_type(place, &format.name, text);
    }
}

fn check_number(rules: &Rules, value: &Value, place: &Place<'_>, outcome: &mut Outcome) {
    // Whole numbers are compared as such: a float does not hold all of them.
    let compare = |limit: f64| match value.as_i64() {
        Some(whole) if is_json_integer(limit) => whole.cmp(&(limit as i64)),
        _ => value.as_f64().unwrap_or_default().total_cmp(&limit),
    };
    if let Some(factor) = rules.multiple_of {
        let multiple = match value.as_i64() {
            Some(whole) if is_json_integer(factor) && factor >= 1.0 => whole % (factor as i64) == 0,
            _ => is_json_integer(value.as_f64().unwrap_or_default() / factor),
        };
        if !multiple {
            outcome.invalid(place, value.clone(), &format!("should be a multiple of {factor}"));
        }
    }
    if let Some(Bound { limit, exclusive }) = rules.minimum {
        let order = compare(limit);
        if order.is_lt() || exclusive && order.is_eq() {
            let or_equal = if exclusive { "" } else { " or equal to" };
            outcome.invalid(place, value.clone(), &format!("should be greater than{or_equal} {limit}"));
        }
    }
    if let Some(Bound { limit, exclusive }) = rules.maximum {
        let order = compare(limit);
        if order.is_gt() || exclusive && order.is_eq() {
            let or_equal = if exclusive { "" } else { " or equal to" };
            outcome.invalid(place, value.clone(), &format!("should be less than{or_equal} {limit}"));
        }
    }
}

fn check_enum(rules: &Rules, value: &Value, place: &Place<'_>, outcome: &mut Outcome) {
    if rules.one_of_values.is_empty() || rules.one_of_values.iter().any(|allowed| same(allowed, value)) {
        return;
    }
    let allowed: Vec<String> = rules
        .one_of_values
        .iter()
        .map(|allowed| format!("{:?}", allowed.as_str().map_or_else(|| allowed.to_string(), str::to_owned)))
        .collect();
    let detail = format!("supported values: {}", allowed.join(", "));
    outcome.push(Reason::NotSupported, place.path(), value.clone(), detail);
}

/// Equality, with `1` and `1.0` the same.
fn same(a: &Value, b: &Value) -> bool {
    a == b || a.is_number() && b.is_number() && a.as_f64() == b.as_f64()
}

fn too_many(found: usize, most: u64, place: &Place<'_>, outcome: &mut Outcome) {
    let items = if most == 1 { "item" } else { "items" };
    outcome.push(Reason::TooMany, place.path(), found.into(), format!("must have at most {most} {items}"));
}

fn check_array(
    schema: &Structural,
    rules: Option<&Rules>,
    items: &[Value],
    old: Option<&Value>,
    place: &Place<'_>,
    outcome: &mut Outcome,
) {
    if let Some(element) = schema.items.as_deref() {
        let old_items = old.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (index, item) in items.iter().enumerate() {
            let old = counterpart(&schema.list, item, old_items);
            if old != Some(item) {
                check(element, item, old, &place.index(index), outcome);
            }
        }
    }
    let Some(rules) = rules else { return };
    if let Some(least) = rules.min_items.filter(|&least| (items.len() as u64) < least) {
        outcome.invalid(place, items.len().into(), &format!("should have at least {least} items"));
    }
    if let Some(most) = rules.max_items.filter(|&most| items.len() as u64 > most) {
        too_many(items.len(), most, place, outcome);
    }
    if rules.unique_items {
        let mut seen = HashSet::new();
        if !items.iter().all(|item| seen.insert(item.to_string())) {
            outcome.invalid(place, "".into(), "shouldn't contain duplicates");
        }
    }
}

/// The element of the old list that an element of the new one continues: only lists of type map say which.
pub(super) fn counterpart<'a>(list: &ListType, item: &Value, old_items: &'a [Value]) -> Option<&'a Value> {
    let ListType::Map(keys) = list else { return None };
    old_items.iter().find(|old| keys.iter().all(|key| old.get(&**key) == item.get(&**key)))
}

fn check_object(
    schema: &Structural,
    rules: Option<&Rules>,
    members: &Map<String, Value>,
    old: Option<&Value>,
    place: &Place<'_>,
    outcome: &mut Outcome,
) {
    if let Some(rules) = rules {
        if let Some(least) = rules.min_properties.filter(|&least| (members.len() as u64) < least) {
            outcome.invalid(place, members.len().into(), &format!("should have at least {least} properties"));
        }
        if let Some(most) = rules.max_properties.filter(|&most| members.len() as u64 > most) {
            too_many(members.len(), most, place, outcome);
        }
    }
    for (name, member) in members {
        let node = match (schema.properties.get(name.as_str()), &schema.additional) {
            (Some(property), _) => property,
            (None, Additional::Schema(schema)) => schema,
            (None, Additional::Forbidden) => {
                let path = place.path();
                let detail = format!("{path}.{name} in body is a forbidden property");
                outcome.push(Reason::Invalid, path, name.as_str().into(), detail);
                continue;
            }
            (None, Additional::Anything | Additional::Unsaid) => continue,
        };
        let old = old.and_then(|old| old.get(name));
        // Unchanged since it was accepted: a stricter schema does not make the object unwritable.
        if old != Some(member) {
            check(node, member, old, &place.name(name), outcome);
        }
    }
    for name in rules.map(|rules| rules.required.as_slice()).unwrap_or_default() {
        if !members.contains_key(&**name) {
            outcome.push(Reason::Required, place.name(name).path(), Value::Null, String::new());
        }
    }
}

/// Complains about elements that stand twice in lists of type set or map.
fn check_lists(schema: &Structural, value: &Value, place: &Place<'_>, errors: &mut Errors) {
    if !schema.has_keyed_lists {
        return;
    }
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if let Some(schema) = schema.member(name) {
                    check_lists(schema, member, &place.name(name), errors);
                }
            }
        }
        Value::Array(items) => {
            check_keys(&schema.list, items, place, errors);
            if let Some(element) = schema.items.as_deref() {
                for (index, item) in items.iter().enumerate() {
                    check_lists(element, item, &place.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_keys(list: &ListType, items: &[Value], place: &Place<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    let mut complained = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let key = match list {
            ListType::Atomic => return,
            ListType::Set => item.clone(),
            ListType::Map(_) if !item.is_object() && !item.is_null() => {
                let detail = "must be an object for an array of list-type map".to_owned();
                let path = place.index(index).path();
                errors.push(FieldError { reason: Reason::Invalid, path, value: Some(item.clone()), detail });
                return;
            }
            ListType::Map(keys) => {
                let mut key = json!({});
                for name in keys {
                    if let Some(value) = item.get(&**name) {
                        key[&**name] = value.clone();
                    }
                }
                key
            }
        };
        let text = key.to_string();
        if !seen.insert(text.clone()) && complained.insert(text) {
            let path = place.index(index).path();
            errors.push(FieldError {
                reason: Reason::Duplicate,
                path,
                value: Some(key),
                detail: String::new(),
            });
        }
    }
}

#[cfg(test)]
mod tests;
