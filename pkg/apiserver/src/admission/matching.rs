//! What webhooks and policies want to be asked about: operations on resources, in namespaces and of objects with labels.

use super::question::Question;
use crate::error::{ApiError, Result};
use crate::storage::in_version;
use api::selector::LabelSelector;
use api::{Kind, Value};
use serde_json::Map;
use std::sync::Arc;

/// What somebody wants to be asked about.
pub struct Matching {
    /// Any of these; `None` stands for everything.
    rules: Option<Vec<Rule>>,
    /// But none of these.
    excluded: Vec<Rule>,
    /// Whether other versions of what the rules name do not matter.
    is_exact: bool,
    /// In these namespaces.
    namespaces: LabelSelector,
    /// With these labels.
    objects: LabelSelector,
}

impl Matching {
    /// As a webhook says.
    pub fn of_webhook(hook: &Value) -> Matching {
        Matching::new(hook, Some(rules(hook, "rules")))
    }

    /// As the `matchConstraints` of a policy or the `matchResources` of a binding say.
    pub fn of_resources(resources: &Value) -> Matching {
        let rules = rules(resources, "resourceRules");
        Matching::new(resources, Some(rules).filter(|rules| !rules.is_empty()))
    }

    fn new(json: &Value, of: Option<Vec<Rule>>) -> Matching {
        // Selectors are validated when they are written.
        let selector =
            |name: &str| LabelSelector::from_json(&json[name]).unwrap_or_else(|_| LabelSelector::nothing());
        Matching {
            rules: of,
            excluded: rules(json, "excludeResourceRules"),
            is_exact: json["matchPolicy"] == "Exact",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// As which kind the object is meant, if it is.
    pub fn applies(
        &self,
        question: &Question<'_>,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Option<Arc<Kind>>> {
        let seen_as = match &self.rules {
            None => Some(question.kind.clone()),
            Some(rules) => self.named_by(rules, question),
        };
        let Some(seen_as) = seen_as else { return Ok(None) };
        let applies = self.selects_object(new, old)
            && self.named_by(&self.excluded, question).is_none()
            && self.selects_namespace(question, new)?;
        Ok(applies.then_some(seen_as))
    }

    /// As which kind rules name the object.
    fn named_by(&self, rules: &[Rule], question: &Question<'_>) -> Option<Arc<Kind>> {
        let matches = |rule: &Rule, kind: &Kind| rule.matches(&subject(question, kind));
        if rules.iter().any(|rule| matches(rule, question.kind)) {
            return Some(question.kind.clone());
        }
        if self.is_exact || rules.is_empty() {
            return None;
        }
        let others = equivalents(question);
        rules.iter().find_map(|rule| others.iter().find(|kind| matches(rule, kind)).cloned())
    }

    /// Whether the object has the labels that are wanted, or had them before.
    fn selects_object(&self, new: Option<&Value>, old: Option<&Value>) -> bool {
        self.objects.is_everything()
            || [new, old].into_iter().flatten().any(|object| selects(&self.objects, object))
    }

    /// What is in no namespace is selected whatever its selector says.
    fn selects_namespace(&self, question: &Question<'_>, new: Option<&Value>) -> Result<bool> {
        let namespace = question.namespace();
        if self.namespaces.is_everything() || (namespace.is_empty() && !question.is_namespace()) {
            return Ok(true);
        }
        if let Some(new) = new.filter(|_| question.is_namespace() && question.subresource.is_empty()) {
            return Ok(selects(&self.namespaces, new));
        }
        let server = question.server;
        let found = server.lookup("", "namespaces", "", namespace);
        let found = found.ok_or_else(|| ApiError::not_found(&server.kind("", "namespaces"), namespace))?;
        Ok(selects(&self.namespaces, &found))
    }
}

fn rules(json: &Value, name: &str) -> Vec<Rule> {
    list(json, name).map(Rule::new).collect()
}

fn subject<'a>(question: &'a Question<'_>, kind: &'a Kind) -> Subject<'a> {
    Subject {
        operation: question.operation.name(),
        group: &kind.group,
        version: &kind.version,
        resource: &kind.plural,
        subresource: question.subresource,
        name: question.name,
        is_namespaced: !question.is_namespace() && !question.namespace.is_empty(),
    }
}

/// Other versions, or names, of the same objects.
fn equivalents(question: &Question<'_>) -> Vec<Arc<Kind>> {
    let resources = question.server.registry.resources();
    let prefix = question.kind.prefix();
    let is_other = |kind: &&Arc<Kind>| !Arc::ptr_eq(kind, question.kind) && kind.prefix() == prefix;
    resources.kinds().iter().filter(is_other).cloned().collect()
}

/// An object of one version in another. What is sent to a part of an object is the same in all.
pub fn converted(from: &Kind, to: &Kind, object: Value) -> Value {
    if object["kind"] != *from.kind || from.api_version() == to.api_version() {
        return object;
    }
    let stored = match from.convert {
        Some((_, to_stored)) => to_stored(object),
        None => object,
    };
    in_version(to, stored)
}

/// Whether the labels of an object are those of a selector. What has no metadata has none that match.
fn selects(selector: &LabelSelector, object: &Value) -> bool {
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
    /// Of what name.
    pub name: &'a str,
    /// Whether it is in a namespace. A namespace is not.
    pub is_namespaced: bool,
}

/// Operations on resources; `*` stands for all of them.
pub struct Rule {
    /// Only on objects of these names, if there are any.
    names: Vec<String>,
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

impl Rule {
    /// As a configuration or policy has it.
    pub fn new(rule: &Value) -> Rule {
        let texts =
            |name: &str| list(rule, name).filter_map(|item| item.as_str().map(str::to_owned)).collect();
        Rule {
            names: texts("resourceNames"),
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            scope: rule["scope"].as_str().unwrap_or_default().to_owned(),
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
            && (self.names.is_empty() || self.names.iter().any(|name| name == subject.name))
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_are_about_operations_on_resources() {
        let rule = |operations: &[&str], group: &str, version: &str, resources: &[&str], scope: &str| {
            Rule::new(&json!({"operations": operations, "apiGroups": [group], "apiVersions": [version],
                "resources": resources, "scope": scope}))
        };
        let create_pod = ("CREATE", "", "v1", "pods", "", true);
        let cases = [
            (rule(&["CREATE"], "", "v1", &["pods"], "*"), create_pod, true),
            (rule(&["UPDATE"], "", "v1", &["pods"], "*"), create_pod, false),
            (rule(&["*"], "*", "*", &["*"], "*"), create_pod, true),
            (rule(&["*"], "apps", "*", &["*"], "*"), create_pod, false),
            (rule(&["*"], "", "v2", &["*"], "*"), create_pod, false),
            (rule(&["CREATE"], "", "v1", &["configmaps", "pods"], "Namespaced"), create_pod, true),
            (rule(&["CREATE"], "", "v1", &["pods"], "Cluster"), create_pod, false),
            (
                rule(&["CREATE"], "", "v1", &["namespaces"], "Cluster"),
                ("CREATE", "", "v1", "namespaces", "", false),
                true,
            ),
            (
                rule(&["CREATE"], "", "v1", &["namespaces"], "Namespaced"),
                ("CREATE", "", "v1", "namespaces", "", false),
                false,
            ),
            (
                rule(&["UPDATE"], "", "v1", &["pods"], "*"),
                ("UPDATE", "", "v1", "pods", "status", true),
                false,
            ),
            (
                rule(&["UPDATE"], "", "v1", &["pods/status"], "*"),
                ("UPDATE", "", "v1", "pods", "status", true),
                true,
            ),
            (
                rule(&["UPDATE"], "", "v1", &["pods/*"], "*"),
                ("UPDATE", "", "v1", "pods", "status", true),
                true,
            ),
            (
                rule(&["UPDATE"], "", "v1", &["*/status"], "*"),
                ("UPDATE", "", "v1", "pods", "status", true),
                true,
            ),
            (rule(&["UPDATE"], "", "v1", &["*/*"], "*"), ("UPDATE", "", "v1", "pods", "", true), true),
            (
                rule(&["CONNECT"], "", "v1", &["pods/attach"], "*"),
                ("CONNECT", "", "v1", "pods", "attach", true),
                true,
            ),
            (
                rule(&["CONNECT"], "", "v1", &["pods/attach"], "*"),
                ("CONNECT", "", "v1", "pods", "exec", true),
                false,
            ),
        ];
        for (index, (rule, (operation, group, version, resource, subresource, is_namespaced), expected)) in
            cases.into_iter().enumerate()
        {
            let subject =
                Subject { operation, group, version, resource, subresource, name: "x", is_namespaced };
            assert_eq!(rule.matches(&subject), expected, "case {index}");
        }
    }

    #[test]
    fn rules_may_name_objects() {
        let rule = Rule::new(&json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
            "resources": ["*"], "scope": "*", "resourceNames": ["a", "b"]}));
        for (name, expected) in [("a", true), ("b", true), ("c", false), ("", false)] {
            let (operation, group, version, resource, subresource) = ("UPDATE", "", "v1", "pods", "");
            let subject =
                Subject { operation, group, version, resource, subresource, name, is_namespaced: true };
            assert_eq!(rule.matches(&subject), expected, "{name}");
        }
    }
}
