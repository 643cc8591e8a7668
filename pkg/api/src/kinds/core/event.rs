//! Event (core/v1): what happened to an object, for people to read.

use crate::field::{Errors, Field};
use crate::kind::{Column, Kind, column, wide};
use crate::names;
use crate::object;
use crate::printing::{at, int, since, text};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use serde_json::Value;

const MOST_CHARACTERS: usize = 128;
const MOST_MESSAGE_CHARACTERS: usize = 1024;

pub(crate) fn kind() -> Kind {
    Kind {
        create_on_update: true,
        validate,
        columns: columns(),
        ..Kind::new::<Event>().short(&["ev"]).selectable(&[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ])
    }
}

/// The columns of events, as core/v1 writes them.
fn columns() -> Vec<Column> {
    vec![
        column("Last Seen", "string", |event, now| last_seen(event, now).into()),
        column("Type", "string", |event, _| text(event, "type").into()),
        column("Reason", "string", |event, _| text(event, "reason").into()),
        column("Object", "string", |event, _| target(event).into()),
        wide("Subobject", "string", |event, _| text(event, "involvedObject.fieldPath").into()),
        wide("Source", "string", |event, _| source(event).into()),
        column("Message", "string", |event, _| text(event, "message").trim().into()),
        wide("First Seen", "string", |event, now| first_seen(event, now).into()),
        wide("Count", "string", |event, _| count(event).into()),
        Column { format: "name", ..wide("Name", "string", |event, _| object::name(event).into()) },
    ]
}

fn validate(event: &Field<'_>, errors: &mut Errors) {
    let (metadata, involved) = (event.get("metadata"), event.get("involvedObject"));
    let (namespace, of_object) = (metadata.get("namespace"), involved.get("namespace"));
    let mismatch = if event.get("eventTime").exists() {
        of_object.text().is_empty() && !matches!(namespace.text(), "default" | "kube-system")
    } else if of_object.text().is_empty() {
        !matches!(namespace.text(), "" | "default")
    } else {
        namespace.text() != of_object.text()
    };
    if mismatch {
        of_object.invalid_value(of_object.text(), "does not match event.namespace", errors);
    }
    if event.get("eventTime").exists() {
        validate_new_form(event, errors);
    }
    for fault in names::is_dns1123_subdomain(namespace.text()) {
        event.get("namespace").invalid_value(namespace.text(), fault, errors);
    }
}

/// Events with a time of their own come from clients that know what else belongs to one.
fn validate_new_form(event: &Field<'_>, errors: &mut Errors) {
    let reporter = event.get("reportingComponent");
    reporter.required(errors);
    reporter.conforms(names::is_qualified_name, errors);
    for name in ["reportingInstance", "action", "reason"] {
        let member = event.get(name);
        member.required(errors);
        if member.text().len() > MOST_CHARACTERS {
            member.invalid_value("", format!("can have at most {MOST_CHARACTERS} characters"), errors);
        }
    }
    let message = event.get("message");
    if message.text().len() > MOST_MESSAGE_CHARACTERS {
        message.invalid_value("", format!("can have at most {MOST_MESSAGE_CHARACTERS} characters"), errors);
    }
}

fn time<'a>(event: &'a Value, path: &str) -> Option<&'a str> {
    at(event, path).and_then(Value::as_str)
}

fn first_seen(event: &Value, now: Timestamp) -> String {
    since(time(event, "firstTimestamp").or_else(|| time(event, "eventTime")), now)
}

fn last_seen(event: &Value, now: Timestamp) -> String {
    if at(event, "series").is_some() {
        return since(time(event, "series.lastObservedTime"), now);
    }
    match time(event, "lastTimestamp") {
        Some(last) => since(Some(last), now),
        None => first_seen(event, now),
    }
}

fn count(event: &Value) -> i64 {
    if at(event, "series").is_some() { int(event, "series.count") } else { int(event, "count").max(1) }
}

fn target(event: &Value) -> String {
    let kind = text(event, "involvedObject.kind").to_lowercase();
    let name = text(event, "involvedObject.name");
    if name.is_empty() { kind } else { format!("{kind}/{name}") }
}

fn source(event: &Value) -> String {
    let first = |a: &str, b: &str| -> String {
        let (a, b) = (text(event, a), text(event, b));
        if a.is_empty() { b } else { a }.to_owned()
    };
    let component = first("source.component", "reportingComponent");
    let instance = first("source.host", "reportingInstance");
    if instance.is_empty() { component } else { format!("{component}, {instance}") }
}
