//! The functions of templates.

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::cmp::Ordering;

/// All of them.
pub const NAMES: [&str; 18] = [
    "and",
    "or",
    "not",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "len",
    "index",
    "slice",
    "print",
    "printf",
    "println",
    "exists",
    "base64decode",
    "html",
];

pub fn call(name: &str, arguments: &[Value]) -> Result<Value> {
    let first = || arguments.first().with_context(|| format!("wrong number of args for {name}"));
    let compared = |wanted: fn(Ordering) -> bool| -> Result<Value> {
        let [left, right] = arguments else { bail!("wrong number of args for {name}") };
        Ok(wanted(order(left, right)?).into())
    };
    Ok(match name {
        "and" => {
            arguments.iter().find(|value| !is_true(value)).or(arguments.last()).cloned().unwrap_or_default()
        }
        "or" => {
            arguments.iter().find(|value| is_true(value)).or(arguments.last()).cloned().unwrap_or_default()
        }
        "not" => (!is_true(first()?)).into(),
        "eq" => arguments.iter().skip(1).any(|other| same(&arguments[0], other)).into(),
        "ne" => (!same(first()?, arguments.get(1).context("wrong number of args for ne")?)).into(),
        "lt" => compared(Ordering::is_lt)?,
        "le" => compared(Ordering::is_le)?,
        "gt" => compared(Ordering::is_gt)?,
        "ge" => compared(Ordering::is_ge)?,
        "len" => match first()? {
            Value::String(text) => text.len(),
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            other => bail!("len of {}", shown(other)),
        }
        .into(),
        "index" => index(first()?, &arguments[1..])?,
        "slice" => slice(arguments)?,
        "print" => arguments.iter().map(shown).collect::<String>().into(),
        "println" => (arguments.iter().map(shown).collect::<Vec<_>>().join(" ") + "\n").into(),
        "printf" => printf(arguments)?.into(),
        "exists" => exists(first()?, &arguments[1..]).into(),
        "base64decode" => {
            let bytes = STANDARD.decode(first()?.as_str().unwrap_or_default()).context("base64decode")?;
            String::from_utf8_lossy(&bytes).into_owned().into()
        }
        "html" => arguments
            .iter()
            .map(shown)
            .collect::<String>()
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .into(),
        other => bail!("function \"{other}\" not defined"),
    })
}

/// Whether a value counts as true: not empty, not zero.
pub fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// A value as Go prints it.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}:{}", shown(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

fn same(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

fn order(left: &Value, right: &Value) -> Result<Ordering> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Ok(left.cmp(right)),
        _ => {
            let numbers = left.as_f64().zip(right.as_f64());
            numbers
                .and_then(|(left, right)| left.partial_cmp(&right))
                .context("incompatible types for comparison")
        }
    }
}

fn index(value: &Value, keys: &[Value]) -> Result<Value> {
    let mut at = value;
    for key in keys {
        at = match (at, key) {
            (Value::Array(items), Value::Number(index)) => {
                let index = index.as_u64().and_then(|index| usize::try_from(index).ok());
                index
                    .and_then(|index| items.get(index))
                    .with_context(|| format!("index out of range: {key}"))?
            }
            (Value::Object(fields), Value::String(name)) => fields.get(name).unwrap_or(&Value::Null),
            (other, _) => bail!("can't index {} by {key}", shown(other)),
        };
    }
    Ok(at.clone())
}

fn slice(arguments: &[Value]) -> Result<Value> {
    let bound = |at: usize, or: usize| {
        arguments.get(at).and_then(Value::as_u64).and_then(|bound| usize::try_from(bound).ok()).unwrap_or(or)
    };
    match arguments.first() {
        Some(Value::String(text)) => {
            Ok(text.get(bound(1, 0)..bound(2, text.len())).context("index out of range")?.into())
        }
        Some(Value::Array(items)) => {
            Ok(items.get(bound(1, 0)..bound(2, items.len())).context("index out of range")?.to_vec().into())
        }
        _ => bail!("slice of what is no list"),
    }
}

fn exists(value: &Value, keys: &[Value]) -> bool {
    let found = keys.iter().try_fold(value, |at, key| match key {
        Value::String(name) => at.get(name),
        Value::Number(index) => at.get(usize::try_from(index.as_u64()?).ok()?),
        _ => None,
    });
    found.is_some()
}

/// `%s %d %v %q %t %x %f %%`, with a width and a precision.
fn printf(arguments: &[Value]) -> Result<String> {
    let Some((Value::String(format), mut rest)) = arguments.split_first() else {
        bail!("printf needs a format")
    };
    let mut text = String::new();
    let mut letters = format.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        let mut flags = String::new();
        while let Some(flag) =
            letters.next_if(|letter| matches!(letter, '-' | '+' | ' ' | '0'..='9' | '.' | '#'))
        {
            flags.push(flag);
        }
        let Some(verb) = letters.next() else { break };
        if verb == '%' {
            text.push('%');
            continue;
        }
        let Some((value, others)) = rest.split_first() else {
            text.push_str(&format!("%!{verb}(MISSING)"));
            continue;
        };
        rest = others;
        let is_left = flags.starts_with('-');
        let numbers = flags.trim_start_matches(['-', '+', ' ', '#']);
        let (width, precision) =
            numbers.split_once('.').map_or((numbers, None), |(width, digits)| (width, Some(digits)));
        let precision: Option<usize> = precision.map(|digits| digits.parse().unwrap_or(0));
        let value = match verb {
            'q' => serde_json::to_string(&shown(value))?,
            'x' => value.as_i64().map_or_else(
                || shown(value).bytes().map(|byte| format!("{byte:02x}")).collect(),
                |number| format!("{number:x}"),
            ),
            'f' => format!("{:.*}", precision.unwrap_or(6), value.as_f64().unwrap_or_default()),
            's' if precision.is_some() => shown(value).chars().take(precision.unwrap_or_default()).collect(),
            's' | 'v' | 'd' | 't' | 'g' => shown(value),
            other => format!("%!{other}({})", shown(value)),
        };
        let padding =
            width.trim_start_matches('0').parse::<usize>().unwrap_or(0).saturating_sub(value.chars().count());
        let pad = if width.starts_with('0') && !is_left { "0" } else { " " };
        match is_left {
            true => text.push_str(&format!("{value}{}", " ".repeat(padding))),
            false => text.push_str(&format!("{}{value}", pad.repeat(padding))),
        }
    }
    Ok(text)
}
