//! One rule of a role: what it allows, and whether others cover it.

use crate::auth::Attributes;
use serde_json::{Map, Value, json};
use std::fmt;

const ALL: &str = "*";

/// A `PolicyRule`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    /// What may be done; `*` is everything.
    pub verbs: Vec<String>,
    /// In which API groups; `*` is all.
    pub api_groups: Vec<String>,
    /// With which resources: `pods`, `pods/log`, `*/scale`, `*`.
    pub resources: Vec<String>,
    /// Only with objects of these names; empty is any.
    pub resource_names: Vec<String>,
    /// With which paths that are no resources; a `*` at the end is any continuation.
    pub non_resource_urls: Vec<String>,
}

impl Rule {
    /// Reads a rule; what is not a list of strings counts as empty.
    pub fn from_json(rule: &Value) -> Rule {
        let list = |name: &str| -> Vec<String> {
            let items = rule.get(name).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Rule {
            verbs: list("verbs"),
            api_groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            non_resource_urls: list("nonResourceURLs"),
        }
    }

    /// The rules of a Role or ClusterRole.
    pub fn all_of(role: &Value) -> Vec<Rule> {
        let rules = role.get("rules").and_then(Value::as_array).into_iter().flatten();
        rules.map(Rule::from_json).collect()
    }

    /// The rule as the API has it.
    pub fn to_json(&self) -> Value {
        let mut rule = self.without_urls();
        if !self.non_resource_urls.is_empty() {
            rule["nonResourceURLs"] = json!(self.non_resource_urls);
        }
        rule
    }

    /// The part about resources, as the API has it.
    pub(crate) fn without_urls(&self) -> Value {
        let mut rule = Map::new();
        rule.insert("verbs".to_owned(), json!(self.verbs));
        for (name, list) in [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
        ] {
            if !list.is_empty() {
                rule.insert(name.to_owned(), json!(list));
            }
        }
        Value::Object(rule)
    }

    /// Whether the rule allows that.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if attributes.is_resource {
            self.allows_but_resource(attributes)
                && self.resources.iter().any(|resource| resource_matches(resource, attributes))
        } else {
            has_or_all(&self.verbs, attributes.verb)
                && self.non_resource_urls.iter().any(|url| url_covers(url, attributes.path))
        }
    }

    /// Whether the rule allows that, once it is known to be about the resource.
    pub(super) fn allows_but_resource(&self, attributes: &Attributes<'_>) -> bool {
        has_or_all(&self.verbs, attributes.verb)
            && has_or_all(&self.api_groups, attributes.group)
            && (self.resource_names.is_empty() || has(&self.resource_names, attributes.name))
    }

    /// Equivalent rules of one verb and one resource (and name) or path each.
    pub(super) fn break_down(&self) -> Vec<Rule> {
        let one = |text: &String| vec![text.clone()];
        let names: Vec<Vec<String>> = match &self.resource_names[..] {
            [] => vec![Vec::new()],
            names => names.iter().map(one).collect(),
        };
        let mut parts = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    for name in &names {
                        parts.push(Rule {
                            verbs: one(verb),
                            api_groups: one(group),
                            resources: one(resource),
                            resource_names: name.clone(),
                            non_resource_urls: Vec::new(),
                        });
                    }
                }
            }
        }
        for url in &self.non_resource_urls {
            for verb in &self.verbs {
                parts.push(Rule { verbs: one(verb), non_resource_urls: one(url), ..Rule::default() });
            }
        }
        parts
    }

    /// Whether this rule allows all that a part of [`Rule::break_down`] allows.
    fn covers_part(&self, part: &Rule) -> bool {
        let names = self.resource_names.is_empty()
            || !part.resource_names.is_empty() && has_all(&self.resource_names, &part.resource_names);
        let resource = |resource: &String| {
            has_or_all(&self.resources, resource)
                || resource.split_once('/').is_some_and(|(_, sub)| has(&self.resources, &format!("*/{sub}")))
        };
        (has(&self.verbs, ALL) || has_all(&self.verbs, &part.verbs))
            && (has(&self.api_groups, ALL) || has_all(&self.api_groups, &part.api_groups))
            && part.resources.iter().all(resource)
            && names
            && part
                .non_resource_urls
                .iter()
                .all(|url| self.non_resource_urls.iter().any(|own| url_covers(own, url)))
    }
}

/// As escalation messages show it: `{APIGroups:["apps"], Resources:["deployments"], Verbs:["get" "list"]}`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ]
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(name, list)| format!("{name}:{}", quoted(list)))
        .collect();
        write!(f, "{{{}}}", parts.join(", "))
    }
}

/// Whether the owner's rules allow all that the others allow.
pub fn covers(owner: &[Rule], others: &[Rule]) -> bool {
    uncovered(owner, others).is_empty()
}

/// What the others allow and the owner's rules do not, broken down.
pub fn uncovered(owner: &[Rule], others: &[Rule]) -> Vec<Rule> {
    others
        .iter()
        .flat_map(Rule::break_down)
        .filter(|part| !owner.iter().any(|rule| rule.covers_part(part)))
        .collect()
}

/// A list as Go prints it: `["a" "b"]`.
pub(super) fn quoted(list: &[String]) -> String {
    let items: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", items.join(" "))
}

fn resource_matches(rule: &str, attributes: &Attributes<'_>) -> bool {
    if rule == ALL {
        return true;
    }
    if attributes.subresource.is_empty() {
        return rule == attributes.resource;
    }
    let of = |resource: &str| {
        rule.strip_prefix(resource).and_then(|rest| rest.strip_prefix('/')) == Some(attributes.subresource)
    };
    of(ALL) || of(attributes.resource)
}

fn url_covers(rule: &str, path: &str) -> bool {
    rule == path || rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*'))
}

fn has_or_all(list: &[String], item: &str) -> bool {
    list.iter().any(|own| own == ALL || own == item)
}

fn has(list: &[String], item: &str) -> bool {
    list.iter().any(|own| own == item)
}

fn has_all(list: &[String], items: &[String]) -> bool {
    items.iter().all(|item| has(list, item))
}
