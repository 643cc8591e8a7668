//! Event as events.k8s.io/v1 has it: another view of core's events, under which it is stored.
//!
//! ```text
//! regarding           <──> involvedObject        note             <──> message
//! reportingController <──> reportingComponent    deprecatedSource <──> source, and so on
//! ```

use crate::equality;
use crate::field::{Errors, Field, Reason};
use crate::kind::{Column, Kind, column, wide};
use crate::kinds::rules;
use crate::{names, object, printing};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};

/// How members are called: here, and in core.
const MEMBERS: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];
const MOST_BYTES: usize = 128;
const MOST_NOTE_BYTES: usize = 1024;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: columns(),
        create_on_update: true,
        validate_name: names::dns_subdomain_name,
        validate,
        validate_create,
        validate_update,
        convert: Some((from_stored, to_stored)),
        stored_members: &MEMBERS,
        stored_as: Some((String::new(), "events".into())),
        ..Kind::new::<Event>().short(&["ev"]).selectable(&[
            "reason",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reportingController",
            "type",
        ])
    }
}

/// Core's event to ours.
fn from_stored(mut event: Value) -> Value {
    rename(&mut event, MEMBERS.iter().map(|&(ours, core)| (core, ours)));
    event["apiVersion"] = json!("events.k8s.io/v1");
    event
}

/// Our event to core's.
fn to_stored(mut event: Value) -> Value {
    rename(&mut event, MEMBERS.iter().copied());
    event["apiVersion"] = json!("v1");
    event
}

fn rename<'a>(event: &mut Value, names: impl Iterator<Item = (&'a str, &'a str)>) {
    let Some(members) = event.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(value) = members.remove(from) {
            members.insert(to.into(), value);
        }
    }
}

/// As upstream does, complains in core's words.
fn validate(event: &Field<'_>, errors: &mut Errors) {
    let stored = to_stored(event.value().clone());
    let stored = Field::root(&stored);
    let involved = stored.get("involvedObject");
    let namespace = involved.get("namespace");
    let own = object::namespace(event.value());
    let fits = match (event.get("eventTime").exists(), namespace.text()) {
        (true, "") => matches!(own, "default" | "kube-system"),
        (false, "") => matches!(own, "" | "default"),
        (true, _) => true,
        (false, other) => other == own,
    };
    if !fits {
        namespace.invalid_value(namespace.text(), "does not match event.namespace", errors);
    }
    // Events without a time of their own are of the older kind, of which little is asked.
    if !event.get("eventTime").exists() {
        return;
    }
    let controller = event.get("reportingController");
    controller.required(errors);
    controller.conforms(names::is_qualified_name, errors);
    for name in ["reportingInstance", "action", "reason"] {
        let field = event.get(name);
        field.required(errors);
        if field.text().len() > MOST_BYTES {
            field.invalid_value("", format!("can have at most {MOST_BYTES} characters"), errors);
        }
    }
    let message = stored.get("message");
    if message.text().len() > MOST_NOTE_BYTES {
        message.invalid_value("", format!("can have at most {MOST_NOTE_BYTES} characters"), errors);
    }
}

/// Nobody writes an event of the older kind by this way.
fn validate_create(event: &Field<'_>, errors: &mut Errors) {
    let stored = to_stored(event.value().clone());
    let stored = Field::root(&stored);
    event.get("eventTime").required(errors);
    validate_series(event, errors);
    let ty = event.get("type");
    if !matches!(ty.text(), "Normal" | "Warning") {
        ty.invalid_value("", format!("has invalid value: {}", ty.text()), errors);
    }
    for name in ["firstTimestamp", "lastTimestamp"] {
        if stored.get(name).exists() {
            stored.get(name).invalid_value("", "needs to be unset", errors);
        }
    }
    if stored.get("count").int().unwrap_or(0) != 0 {
        stored.get("count").invalid_value("", "needs to be unset", errors);
    }
    let source = stored.get("source");
    if !source.get("component").text().is_empty() || !source.get("host").text().is_empty() {
        source.invalid_value("", "needs to be unset", errors);
    }
}

fn validate_series(event: &Field<'_>, errors: &mut Errors) {
    let series = event.get("series");
    if !series.exists() {
        return;
    }
    if series.get("count").int().unwrap_or(0) < 2 {
        let (reason, shown) = (Reason::Invalid, Some("".into()));
        rules::complain_at("series.count", reason, shown, "should be at least 2", errors);
    }
    series.get("lastObservedTime").required(errors);
}

/// Only the series grows.
fn validate_update(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    if !equality::same(new.get("series").value(), old.get("series").value()) {
        validate_series(new, errors);
    }
    let (new, old) = (to_stored(new.value().clone()), to_stored(old.value().clone()));
    let (new, old) = (Field::root(&new), Field::root(&old));
    for name in [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "type",
        "action",
        "related",
        "reportingInstance",
    ] {
        new.get(name).immutable(&old.get(name), errors);
    }
    let controller = new.get("reportingComponent");
    new.get("reportingController")
        .with_value(controller.value())
        .immutable(&old.get("reportingComponent"), errors);
    // Clients may keep less of a time than they were given.
    let micros = |event: &Field<'_>| {
        event.get("eventTime").text().parse::<Timestamp>().ok().map(Timestamp::as_microsecond)
    };
    let (time, before) = (new.get("eventTime"), old.get("eventTime"));
    if micros(&new) != micros(&old) && !equality::same(time.value(), before.value()) {
        time.invalid("field is immutable", errors);
    }
}

fn columns() -> Vec<Column> {
    vec![
        column("Last Seen", "string", |event, now| last_seen(event, now).into()),
        column("Type", "string", |event, _| printing::text(event, "type").into()),
        column("Reason", "string", |event, _| printing::text(event, "reason").into()),
        column("Object", "string", |event, _| object_cell(event).into()),
        wide("Subobject", "string", |event, _| printing::text(event, "regarding.fieldPath").into()),
        wide("Source", "string", |event, _| source_cell(event).into()),
        column("Message", "string", |event, _| printing::text(event, "note").trim().into()),
        wide("First Seen", "string", |event, now| first_seen(event, now).into()),
        wide("Count", "string", |event, _| count_cell(event).into()),
        Column { priority: 1, ..printing::name_column() },
    ]
}

fn first_seen(event: &Value, now: Timestamp) -> String {
    let time = printing::at(event, "deprecatedFirstTimestamp").or_else(|| printing::at(event, "eventTime"));
    printing::since(time.and_then(Value::as_str), now)
}

fn last_seen(event: &Value, now: Timestamp) -> String {
    if printing::at(event, "series").is_some() {
        return printing::since(event["series"]["lastObservedTime"].as_str(), now);
    }
    match printing::at(event, "deprecatedLastTimestamp") {
        Some(time) => printing::since(time.as_str(), now),
        None => first_seen(event, now),
    }
}

fn count_cell(event: &Value) -> i64 {
    match (printing::at(event, "series"), printing::int(event, "deprecatedCount")) {
        (Some(series), _) => printing::int(series, "count"),
        (None, 0) => 1,
        (None, count) => count,
    }
}

fn object_cell(event: &Value) -> String {
    let kind = printing::text(event, "regarding.kind").to_lowercase();
    match printing::text(event, "regarding.name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn source_cell(event: &Value) -> String {
    let either = |old: &str, new: &str| match printing::text(event, old) {
        "" => printing::text(event, new).to_owned(),
        text => text.to_owned(),
    };
    let component = either("deprecatedSource.component", "reportingController");
    match either("deprecatedSource.host", "reportingInstance") {
        none if none.is_empty() => component,
        instance => format!("{component}, {instance}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_through_core_loses_nothing() {
        let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
            "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c", "reportingInstance": "i",
            "action": "a", "reason": "r", "regarding": {"kind": "Pod", "name": "p"}, "note": "n",
            "type": "Normal", "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"},
            "deprecatedSource": {"component": "x"}, "deprecatedCount": 3,
            "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z"});
        let stored = to_stored(event.clone());
        assert_eq!(stored["involvedObject"]["name"], "p");
        assert_eq!(stored["message"], "n");
        assert_eq!(stored["reportingComponent"], "c");
        assert_eq!(stored["apiVersion"], "v1");
        assert_eq!(from_stored(stored), event);
    }
}
