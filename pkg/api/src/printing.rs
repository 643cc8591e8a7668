//! What the cells of `kubectl get` are made of.
//!
//! Functions here are [`Cell::Fn`](crate::kind::Cell)s or help to write them. They read an object and the time they
//! are given; they never fail: what is missing reads `<none>` or `<unknown>`, as upstream writes it.

use crate::kind::{Column, column};
use crate::object;
use jiff::Timestamp;
use serde_json::Value;

/// Where there is nothing to show.
pub const NONE: &str = "<none>";
/// Where a value ought to be known and is not.
pub const UNKNOWN: &str = "<unknown>";

/// The first column of every table.
pub fn name_column() -> Column {
    Column { format: "name", ..column("Name", "string", |object, _| object::name(object).into()) }
}

/// How long ago the object was made.
pub fn age_column() -> Column {
    column("Age", "string", age)
}

/// The cell of [`age_column`].
pub fn age(object: &Value, now: Timestamp) -> Value {
    since(object::meta(object, "creationTimestamp"), now).into()
}

/// How long ago a time was, `<unknown>` if there is none.
pub fn since(time: Option<&str>, now: Timestamp) -> String {
    match time.and_then(|time| time.parse::<Timestamp>().ok()) {
        Some(time) => human_duration(now.duration_since(time).as_secs()),
        None => UNKNOWN.into(),
    }
}

/// A duration with two or three significant figures: `5s`, `3m12s`, `5h`, `2d3h`, `400d`.
pub fn human_duration(seconds: i64) -> String {
    // Clocks differ a little: just ahead of us still counts as now.
    match seconds {
        ..-1 => return "<invalid>".into(),
        -1 => return "0s".into(),
        0..120 => return format!("{seconds}s"),
        _ => {}
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    if minutes < 10 {
        pair(minutes, 'm', seconds % 60, 's')
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        pair(hours, 'h', minutes % 60, 'm')
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 24 * 8 {
        pair(days, 'd', hours % 24, 'h')
    } else if days < 365 * 2 {
        format!("{days}d")
    } else if days < 365 * 8 {
        pair(days / 365, 'y', days % 365, 'd')
    } else {
        format!("{}y", days / 365)
    }
}

/// The text at a dotted path, empty where there is none.
pub fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// The integer at a dotted path, zero where there is none.
pub fn int(object: &Value, path: &str) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or_default()
}

/// The value at a dotted path.
pub fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, name| value.get(name)).filter(|value| !value.is_null())
}

/// The elements of the list at a dotted path.
pub fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The text, or `<none>` if it is empty.
pub fn or_none(text: &str) -> &str {
    if text.is_empty() { NONE } else { text }
}

/// Labels as `a=b,c=d`, `<none>` if there are none.
pub fn labels(map: Option<&Value>) -> String {
    joined(equalities(map))
}

/// A label selector (`matchLabels`, `matchExpressions`) in the form that `kubectl -l` takes.
pub fn label_selector(selector: Option<&Value>) -> String {
    let mut requirements = equalities(selector.and_then(|selector| selector.get("matchLabels")));
    for expression in selector.map(|selector| items(selector, "matchExpressions")).unwrap_or_default() {
        let key = text(expression, "key");
        let mut values: Vec<&str> = items(expression, "values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let requirement = match text(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        requirements.push((key, requirement));
    }
    joined(requirements)
}

/// Names and images of a pod template's containers, each joined by commas: two wide columns of workloads.
pub fn container_names_and_images(spec: Option<&Value>) -> (String, String) {
    let joined = |name: &str| {
        let containers = spec.map(|spec| items(spec, "containers")).unwrap_or_default();
        containers.iter().map(|container| text(container, name)).collect::<Vec<_>>().join(",")
    };
    (joined("name"), joined("image"))
}

fn equalities(map: Option<&Value>) -> Vec<(&str, String)> {
    let members = map.and_then(Value::as_object).into_iter().flatten();
    members
        .map(|(key, value)| (key.as_str(), format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect()
}

/// By key, whatever order they came in.
fn joined(mut requirements: Vec<(&str, String)>) -> String {
    requirements.sort_by_key(|(key, _)| *key);
    let requirements: Vec<String> = requirements.into_iter().map(|(_, requirement)| requirement).collect();
    or_none(&requirements.join(",")).into()
}

fn pair(large: i64, large_unit: char, small: i64, small_unit: char) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_read_as_upstreams() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 3600;
        const DAY: i64 = 24 * HOUR;
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (3 * MINUTE + 12, "3m12s"),
            (10 * MINUTE + 5, "10m"),
            (179 * MINUTE, "179m"),
            (3 * HOUR, "3h"),
            (7 * HOUR + 5 * MINUTE, "7h5m"),
            (47 * HOUR, "47h"),
            (51 * HOUR, "2d3h"),
            (8 * DAY, "8d"),
            (729 * DAY, "729d"),
            (731 * DAY, "2y1d"),
            (365 * 9 * DAY, "9y"),
        ] {
            assert_eq!(human_duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn selectors_read_as_on_the_command_line() {
        let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["y", "x"]}, {"key": "d", "operator": "DoesNotExist"}]});
        assert_eq!(label_selector(Some(&selector)), "a=b,c in (x,y),!d");
        assert_eq!(labels(None), NONE);
    }
}
