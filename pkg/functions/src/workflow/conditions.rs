//! Choices: the first branch whose conditions all hold. Values of unlike types are never compared in silence.

use super::data::shown;
use super::engine::Failure;
use api::kinds::minik8s::{WorkflowCondition, WorkflowNode};
use serde_json::Value;
use std::borrow::Cow;
use std::cmp::Ordering;

/// The node after a Choice; empty at the end.
pub fn choose<'a>(node: &'a WorkflowNode, input: &Value) -> Result<&'a str, Failure> {
    for choice in &node.choices {
        if all(&choice.conditions, input)? {
            return Ok(&choice.next);
        }
    }
    match node.default.as_str() {
        "" => Err(Failure::new(
            "NoBranch",
            format!("no branch fits {}, and there is no `default`", shown(input)),
        )),
        default => Ok(default),
    }
}

fn all(conditions: &[WorkflowCondition], input: &Value) -> Result<bool, Failure> {
    for condition in conditions {
        if !holds(condition, input)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn holds(condition: &WorkflowCondition, input: &Value) -> Result<bool, Failure> {
    if let Some(inner) = &condition.not {
        return Ok(!holds(inner, input)?);
    }
    if !condition.all.is_empty() {
        return all(&condition.all, input);
    }
    for inner in &condition.any {
        if holds(inner, input)? {
            return Ok(true);
        }
    }
    if !condition.any.is_empty() {
        return Ok(false);
    }
    compare(condition, input)
}

fn compare(condition: &WorkflowCondition, input: &Value) -> Result<bool, Failure> {
    let (variable, operator, wanted) = (&condition.variable, condition.operator.as_str(), &condition.value);
    let pointer = match variable.starts_with('/') {
        true => Cow::Borrowed(variable.as_str()),
        false => Cow::Owned(format!("/{}", variable.replace('~', "~0").replace('/', "~1"))),
    };
    let found = input.pointer(&pointer);
    if operator == "exists" {
        return Ok(found.is_some() == wanted.as_bool().unwrap_or(true));
    }
    let found = found.ok_or_else(|| {
        Failure::new("NoSuchValue", format!("there is no {variable:?} in {}", shown(input)))
    })?;
    let unlike = || {
        let (found, wanted) = (shown(found), shown(wanted));
        Failure::new(
            "UnlikeTypes",
            format!("{variable:?} is {found}, which cannot be compared ({operator}) with {wanted}"),
        )
    };
    if operator == "matches" {
        let (Some(text), Some(expression)) = (found.as_str(), wanted.as_str()) else { return Err(unlike()) };
        let expression = regex::Regex::new(expression)
            .map_err(|error| Failure::new("BadCondition", format!("{expression:?}: {error}")))?;
        return Ok(expression.is_match(text));
    }
    if matches!(operator, "eq" | "ne") {
        // Whether something is null can be asked of everything.
        let is_alike = wanted.is_null() || std::mem::discriminant(found) == std::mem::discriminant(wanted);
        return if is_alike { Ok(same(found, wanted) == (operator == "eq")) } else { Err(unlike()) };
    }
    let order = match (found, wanted) {
        (Value::Number(_), Value::Number(_)) => numbers(found, wanted).ok_or_else(unlike)?,
        (Value::String(found), Value::String(wanted)) => found.cmp(wanted),
        _ => return Err(unlike()),
    };
    Ok(match operator {
        "gt" => order == Ordering::Greater,
        "lt" => order == Ordering::Less,
        "ge" => order != Ordering::Less,
        _ => order != Ordering::Greater,
    })
}

/// Equality of JSON: 1 and 1.0 are one number.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(_), Value::Number(_)) => numbers(one, other) == Some(Ordering::Equal),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_there =
                |(name, value): (&String, &Value)| other.get(name).is_some_and(|own| same(own, value));
            one.len() == other.len() && one.iter().all(is_there)
        }
        _ => one == other,
    }
}

fn numbers(one: &Value, other: &Value) -> Option<Ordering> {
    // Whole numbers are not rounded.
    let whole = |value: &Value| value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        _ => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn condition(value: Value) -> WorkflowCondition {
        serde_json::from_value(value).expect("a condition")
    }

    #[test]
    fn conditions_hold_or_not() {
        let input = json!({"n": 3, "s": "abc", "b": true, "o": {"x": [1, 2]}, "z": null, "a/b": 1});
        let check = |operator: &str, variable: &str, value: Value, expected: bool| {
            let given = condition(json!({"variable": variable, "operator": operator, "value": value}));
            assert_eq!(holds(&given, &input), Ok(expected), "{given:?}");
        };
        check("eq", "n", json!(3.0), true);
        check("ne", "n", json!(4), true);
        check("gt", "n", json!(2), true);
        check("lt", "n", json!(3), false);
        check("ge", "n", json!(3), true);
        check("le", "s", json!("abd"), true);
        check("eq", "/o/x/1", json!(2), true);
        check("eq", "o", json!({"x": [1.0, 2]}), true);
        check("eq", "a/b", json!(1), true);
        check("matches", "s", json!("^a.c$"), true);
        check("exists", "nothing", json!(false), true);
        check("exists", "z", json!(true), true);
        check("eq", "z", Value::Null, true);
        check("eq", "n", Value::Null, false);
        check("gt", "n", json!(9_007_199_254_740_993_i64), false);
        let given = condition(json!({"not": {"any": [
            {"variable": "n", "operator": "eq", "value": 4},
            {"all": [{"variable": "b", "operator": "eq", "value": true}, {"variable": "n", "operator": "gt", "value": 5}]}]}}));
        assert_eq!(holds(&given, &input), Ok(true));
    }

    #[test]
    fn what_cannot_be_compared_is_an_error_with_both_values() {
        let input = json!({"n": 3, "s": "3"});
        let check = |operator: &str, variable: &str, value: Value, reason: &str, parts: [&str; 2]| {
            let given = condition(json!({"variable": variable, "operator": operator, "value": value}));
            let failure = holds(&given, &input).expect_err("refused");
            assert_eq!(failure.class, reason);
            assert!(parts.iter().all(|part| failure.message.contains(part)), "{failure:?}");
        };
        check("eq", "s", json!(3), "UnlikeTypes", ["\"3\"", "with 3"]);
        check("gt", "n", json!("2"), "UnlikeTypes", ["is 3", "\"2\""]);
        check("matches", "n", json!("3"), "UnlikeTypes", ["is 3", "\"3\""]);
        check("gt", "missing", json!(2), "NoSuchValue", ["\"missing\"", "{\"n\":3"]);
        let node: WorkflowNode = serde_json::from_value(json!({"type": "Choice", "choices": [
            {"conditions": [{"variable": "n", "operator": "gt", "value": 5}], "next": "a"}]}))
        .expect("a node");
        let failure = choose(&node, &input).expect_err("no branch");
        assert_eq!(failure.message, "no branch fits {\"n\":3,\"s\":\"3\"}, and there is no `default`");
    }
}
