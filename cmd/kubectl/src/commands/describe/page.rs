//! A page of text with columns, and the parts that all kinds share.

use serde_json::Value;

/// Lines whose tabs become columns.
#[derive(Default)]
pub struct Page(String);

impl Page {
    /// Adds a line.
    pub fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    /// Adds a title and a value.
    pub fn field(&mut self, title: &str, value: &str) {
        self.line(&format!("{title}:\t{value}"));
    }

    /// Adds a map, one pair in a line.
    pub fn map(&mut self, title: &str, map: &Value, between: &str) {
        let mut pairs = map
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}{between}{}", shown(value)));
        self.field(title, &pairs.next().unwrap_or_else(|| "<none>".to_owned()));
        pairs.for_each(|pair| self.line(&format!("\t{pair}")));
    }

    /// Labels and annotations; what client-side apply notes is nobody's reading.
    pub fn labels_and_annotations(&mut self, object: &Value) {
        self.map("Labels", &object["metadata"]["labels"], "=");
        let mut annotations = object["metadata"]["annotations"].clone();
        annotations.as_object_mut().map(|map| map.remove(crate::commands::apply::LAST_APPLIED));
        self.map("Annotations", &annotations, ": ");
    }

    /// Who it belongs to.
    pub fn owner(&mut self, object: &Value) {
        let owners = object["metadata"]["ownerReferences"].as_array();
        if let Some(owner) = owners.into_iter().flatten().find(|owner| owner["controller"] == true) {
            self.field("Controlled By", &format!("{}/{}", shown(&owner["kind"]), shown(&owner["name"])));
        }
    }

    /// The page, set.
    pub fn text(&self) -> String {
        cli::elastic(&self.0)
    }
}

/// A value in a line.
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<none>".to_owned(),
        other => other.to_string(),
    }
}

/// A text, or nothing.
pub fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// A time as upstream shows it: `Mon, 02 Jan 2006 15:04:05 +0000`.
pub fn time(text: &str) -> String {
    let Ok(time) = text.parse::<jiff::Timestamp>() else { return "<unset>".to_owned() };
    time.to_zoned(jiff::tz::TimeZone::system()).strftime("%a, %d %b %Y %H:%M:%S %z").to_string()
}

/// Elements of a list.
pub fn items<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(path).and_then(Value::as_array).into_iter().flatten()
}
