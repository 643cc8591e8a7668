//! One webhook as its configuration says, and what it wants to be asked about.

use super::call::Client;
use super::review::Version;
use api::expression::{Expression, MATCH_VARIABLES};
use api::selector::LabelSelector;
use api::{Value, object};
use serde_json::Map;
use std::time::Duration;

/// A webhook, ready to be asked.
pub struct Hook {
    /// Its name.
    pub name: String,
    /// The name of the configuration that it stands in.
    pub configuration: String,
    /// What it wants to hear of.
    pub rules: Vec<Rule>,
    /// Whether other versions of what its rules name do not concern it.
    pub is_exact: bool,
    /// Of objects in these namespaces.
    pub namespaces: LabelSelector,
    /// Of objects with these labels.
    pub objects: LabelSelector,
    /// Where all of these hold.
    pub conditions: Vec<Condition>,
    /// Whether a write goes on when it cannot be asked.
    pub ignores_failure: bool,
    /// Whether it is asked again about what others have changed.
    pub is_reinvoked: bool,
    /// Whether it does nothing beside answering when nothing is to be written.
    pub takes_dry_runs: bool,
    /// How long its answer may take.
    pub timeout: Duration,
    /// The version of the question that it understands.
    pub review_version: Option<Version>,
    /// Where it is.
    pub client: Client,
}

/// A condition that must hold, or why it cannot be evaluated.
pub struct Condition {
    name: String,
    expression: Result<Expression, String>,
}

impl Hook {
    /// The webhooks of a configuration.
    pub fn all(configuration: &Value) -> Vec<Hook> {
        list(configuration, "webhooks").map(|hook| Hook::new(object::name(configuration), hook)).collect()
    }

    fn new(configuration: &str, hook: &Value) -> Hook {
        let is = |name: &str, value: &str| hook[name] == value;
        // Selectors are validated when they are written.
        let selector =
            |name: &str| LabelSelector::from_json(&hook[name]).unwrap_or_else(|_| LabelSelector::nothing());
        let condition = |condition: &Value| Condition {
            name: text(condition, "name"),
            expression: Expression::compile(&text(condition, "expression"), MATCH_VARIABLES),
        };
        Hook {
            name: text(hook, "name"),
            configuration: configuration.to_owned(),
            rules: list(hook, "rules").map(Rule::new).collect(),
            is_exact: is("matchPolicy", "Exact"),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            conditions: list(hook, "matchConditions").map(condition).collect(),
            ignores_failure: is("failurePolicy", "Ignore"),
            is_reinvoked: is("reinvocationPolicy", "IfNeeded"),
            takes_dry_runs: is("sideEffects", "None") || is("sideEffects", "NoneOnDryRun"),
            timeout: Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(10)),
            review_version: list(hook, "admissionReviewVersions")
                .find_map(|version| Version::named(version.as_str()?)),
            client: Client::new(&hook["clientConfig"]),
        }
    }

    /// Whether the object has the labels that it wants, or had them before.
    pub fn selects_object(&self, new: Option<&Value>, old: Option<&Value>) -> bool {
        self.objects.is_everything()
            || [new, old].into_iter().flatten().any(|object| selects(&self.objects, object))
    }

    /// Whether all conditions hold. One that does not is enough, whatever is wrong with others; what is wrong with them
    /// counts as no where failures are ignored.
    pub fn holds(&self, new: Option<&Value>, old: Option<&Value>, request: &Value) -> Result<bool, String> {
        let values = [
            ("object", new.unwrap_or(&Value::Null)),
            ("oldObject", old.unwrap_or(&Value::Null)),
            ("request", request),
        ];
        let mut wrong = Vec::new();
        for condition in &self.conditions {
            match condition.expression.as_ref().map_err(Clone::clone).and_then(|it| it.holds(&values)) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(why) => wrong.push(format!("expression '{}' resulted in error: {why}", condition.name)),
            }
        }
        match wrong.len() {
            0 => Ok(true),
            _ if self.ignores_failure => Ok(false),
            _ => Err(wrong.join(", ")),
        }
    }
}

/// Whether the labels of an object are those of a selector. What has no metadata has none that match.
pub fn selects(selector: &LabelSelector, object: &Value) -> bool {
    let Some(metadata) = object.get("metadata").and_then(Value::as_object) else { return false };
    match metadata.get("labels").and_then(Value::as_object) {
        Some(labels) => selector.matches(labels),
        None => selector.matches(&Map::new()),
    }
}

/// What is done, as rules see it.
pub struct Subject<'a> {
    /// CREATE, UPDATE, DELETE or CONNECT.
    pub operation: &'a str,
    /// The group of the resource.
    pub group: &'a str,
    /// Its version.
    pub version: &'a str,
    /// Its plural.
    pub resource: &'a str,
    /// The part that is meant, or nothing.
    pub subresource: &'a str,
    /// Whether it is in a namespace. A namespace is not.
    pub is_namespaced: bool,
}

/// Operations on resources; `*` stands for all of them.
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

impl Rule {
    /// As a configuration has it.
    pub fn new(rule: &Value) -> Rule {
        let texts =
            |name: &str| list(rule, name).filter_map(|item| item.as_str().map(str::to_owned)).collect();
        Rule {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            scope: text(rule, "scope"),
        }
    }

    /// Whether it is about this.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        let is_one = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let is_in_scope = match self.scope.as_str() {
            "Namespaced" => subject.is_namespaced,
            "Cluster" => !subject.is_namespaced,
            _ => true,
        };
        is_in_scope
            && is_one(&self.operations, subject.operation)
            && is_one(&self.groups, subject.group)
            && is_one(&self.versions, subject.version)
            && self.resources.iter().any(|item| {
                let (resource, part) = item.split_once('/').unwrap_or((item, ""));
                (resource == "*" || resource == subject.resource)
                    && (part == "*" || part == subject.subresource)
            })
    }
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}
