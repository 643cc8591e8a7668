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
        self.annotations("Annotations", &object["metadata"]["annotations"]);
    }

    /// Annotations; long ones stand on lines of their own, and are cut.
    pub fn annotations(&mut self, title: &str, annotations: &Value) {
        const LONGEST: usize = 140;
        let mut before = format!("{title}:\t");
        for (key, value) in annotations.as_object().into_iter().flatten() {
            if key == crate::commands::apply::LAST_APPLIED {
                continue;
            }
            let value = shown(value);
            let value = value.strip_suffix('\n').unwrap_or(&value);
            if key.len() + value.len() + 2 <= LONGEST && !value.contains('\n') {
                self.line(&format!("{before}{key}: {value}"));
            } else {
                self.line(&format!("{before}{key}:"));
                value
                    .split('\n')
                    .for_each(|line| self.line(&format!("\t  {}", shortened(line, LONGEST - 2))));
            }
            before = "\t".to_owned();
        }
        if before.len() > 1 {
            self.line(&format!("{before}<none>"));
        }
    }

    /// Name, namespace (where it has one), labels and annotations: how most pages begin.
    pub fn opening(&mut self, object: &Value) {
        self.name(object);
        self.labels_and_annotations(object);
    }

    /// Name and namespace, where it has one.
    pub fn name(&mut self, object: &Value) {
        self.field("Name", text(object, "/metadata/name"));
        if let Some(namespace) = object["metadata"]["namespace"].as_str() {
            self.field("Namespace", namespace);
        }
    }

    /// A title and a value, where there is one.
    pub fn given(&mut self, title: &str, value: Option<&Value>) {
        if let Some(value) = value.filter(|value| !value.is_null() && *value != "") {
            self.field(title, &shown(value));
        }
    }

    /// Lines below a title, or that there are none.
    pub fn list(&mut self, title: &str, values: impl IntoIterator<Item = String>) {
        let mut values = values.into_iter();
        self.field(title, &values.next().unwrap_or_else(|| "<none>".to_owned()));
        values.for_each(|value| self.line(&format!("\t{value}")));
    }

    /// Conditions of a workload.
    pub fn conditions(&mut self, object: &Value) {
        let mut conditions = items(object, "/status/conditions").peekable();
        if conditions.peek().is_some() {
            self.line("Conditions:\n  Type\tStatus\tReason\n  ----\t------\t------");
            for condition in conditions {
                let part = |field: &str| condition[field].as_str().unwrap_or_default();
                self.line(&format!("  {} \t{}\t{}", part("type"), part("status"), part("reason")));
            }
        }
    }

    /// Conditions with the time of their last change and their message.
    pub fn timed_conditions(&mut self, object: &Value) {
        self.line("Conditions:\n  Type\tStatus\tLastTransitionTime\tReason\tMessage");
        self.line("  ----\t------\t------------------\t------\t-------");
        for condition in items(object, "/status/conditions") {
            let part = |field: &str| condition[field].as_str().unwrap_or_default();
            let at = time(part("lastTransitionTime"));
            self.line(&format!(
                "  {}\t{}\t{at}\t{}\t{}",
                part("type"),
                part("status"),
                part("reason"),
                part("message")
            ));
        }
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

/// A list as Go shows it: `[a b]`.
pub fn bracketed(value: &Value) -> String {
    let words: Vec<String> = value.as_array().into_iter().flatten().map(shown).collect();
    format!("[{}]", words.join(" "))
}

/// A list in one line.
pub fn joined(value: &Value, between: &str) -> String {
    value.as_array().into_iter().flatten().map(shown).collect::<Vec<_>>().join(between)
}

/// What is said instead of nothing.
pub fn or<'a>(text: &'a str, instead: &'a str) -> &'a str {
    if text.is_empty() { instead } else { text }
}

fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
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
