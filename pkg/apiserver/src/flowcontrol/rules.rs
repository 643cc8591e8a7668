//! The rules of a FlowSchema: which requests it is about. Compiled once for each state of the schema, and asked with every
//! request: nothing is allocated here.

use crate::auth::{Attributes, User};
use serde_json::Value;

/// Which requests a schema is about.
#[derive(Debug, Default)]
pub struct Rules(Vec<Rule>);

/// What tells the flows of a schema apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distinguisher {
    /// Nothing: all its requests are one flow.
    None,
    /// Each user's requests are a flow.
    ByUser,
    /// The requests about each namespace are a flow.
    ByNamespace,
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug)]
enum Subject {
    Anybody,
    User(String),
    /// All service accounts of a namespace: what their names begin with.
    Accounts(String),
    Group(String),
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Names,
    groups: Names,
    resources: Names,
    namespaces: Names,
    is_cluster: bool,
}

#[derive(Debug)]
struct PathRule {
    verbs: Names,
    paths: Names,
}

/// A list in which `*`, alone, stands for everything.
#[derive(Debug)]
enum Names {
    All,
    Some(Vec<String>),
}

impl Rules {
    /// Those of a schema's spec. What cannot be understood matches nothing.
    pub fn of(spec: &Value) -> Rules {
        Rules(items(&spec["rules"]).map(Rule::of).collect())
    }

    /// Whether a request is one of them.
    pub fn match_request(&self, request: &Attributes<'_>) -> bool {
        self.0.iter().any(|rule| rule.matches(request))
    }
}

impl Distinguisher {
    /// That of a schema's spec.
    pub fn of(spec: &Value) -> Distinguisher {
        match spec["distinguisherMethod"]["type"].as_str() {
            Some("ByUser") => Distinguisher::ByUser,
            Some("ByNamespace") => Distinguisher::ByNamespace,
            _ => Distinguisher::None,
        }
    }

    /// What the flow of a request is called within its schema.
    pub fn flow<'a>(self, request: &Attributes<'a>) -> &'a str {
        match self {
            Distinguisher::None => "",
            Distinguisher::ByUser => &request.user.name,
            Distinguisher::ByNamespace => request.namespace,
        }
    }
}

impl Rule {
    fn of(rule: &Value) -> Rule {
        Rule {
            subjects: items(&rule["subjects"]).filter_map(Subject::of).collect(),
            resources: items(&rule["resourceRules"]).map(ResourceRule::of).collect(),
            paths: items(&rule["nonResourceRules"]).map(PathRule::of).collect(),
        }
    }

    fn matches(&self, request: &Attributes<'_>) -> bool {
        self.subjects.iter().any(|subject| subject.is(request.user))
            && match request.is_resource {
                true => self.resources.iter().any(|rule| rule.matches(request)),
                false => self.paths.iter().any(|rule| rule.matches(request)),
            }
    }
}

impl Subject {
    fn of(subject: &Value) -> Option<Subject> {
        let text = |member: &str, name: &str| subject[member][name].as_str();
        Some(match subject["kind"].as_str()? {
            "User" => match text("user", "name")? {
                "*" => Subject::Anybody,
                name => Subject::User(name.to_owned()),
            },
            "Group" => match text("group", "name")? {
                "*" => Subject::Anybody,
                name => Subject::Group(name.to_owned()),
            },
            "ServiceAccount" => {
                let namespace = text("serviceAccount", "namespace")?;
                match text("serviceAccount", "name")? {
                    "*" => Subject::Accounts(User::service_account_name(namespace, "")),
                    name => Subject::User(User::service_account_name(namespace, name)),
                }
            }
            _ => return None,
        })
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Subject::Anybody => true,
            Subject::User(name) => user.name == *name,
            Subject::Accounts(prefix) => user.name.starts_with(prefix),
            Subject::Group(name) => user.is_in(name),
        }
    }
}

impl ResourceRule {
    fn of(rule: &Value) -> ResourceRule {
        ResourceRule {
            verbs: Names::of(&rule["verbs"]),
            groups: Names::of(&rule["apiGroups"]),
            resources: Names::of(&rule["resources"]),
            namespaces: Names::of(&rule["namespaces"]),
            is_cluster: rule["clusterScope"] == true,
        }
    }

    fn matches(&self, request: &Attributes<'_>) -> bool {
        let is_resource = |name: &str| match name.split_once('/') {
            Some((resource, sub)) => resource == request.resource && sub == request.subresource,
            None => name == request.resource && request.subresource.is_empty(),
        };
        self.verbs.have(|verb| verb == request.verb)
            && self.resources.have(is_resource)
            && self.groups.have(|group| group == request.group)
            && match request.namespace {
                "" => self.is_cluster,
                namespace => self.namespaces.have(|name| name == namespace),
            }
    }
}

impl PathRule {
    fn of(rule: &Value) -> PathRule {
        PathRule { verbs: Names::of(&rule["verbs"]), paths: Names::of(&rule["nonResourceURLs"]) }
    }

    fn matches(&self, request: &Attributes<'_>) -> bool {
        self.verbs.have(|verb| verb == request.verb) && self.paths.have(|path| covers(path, request.path))
    }
}

/// Whether a path of a rule is that of a request, or one above it.
fn covers(rule: &str, path: &str) -> bool {
    let above = rule.strip_suffix('*').unwrap_or(rule);
    let above = above.strip_suffix('/').unwrap_or(above);
    rule == path || path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

impl Names {
    fn of(list: &Value) -> Names {
        let names: Vec<String> = items(list).filter_map(Value::as_str).map(str::to_owned).collect();
        if names == ["*"] { Names::All } else { Names::Some(names) }
    }

    fn have(&self, mut is: impl FnMut(&str) -> bool) -> bool {
        match self {
            Names::All => true,
            Names::Some(names) => names.iter().any(|name| is(name)),
        }
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A request in a few words: `user verb group/resource namespace` or `user verb /path`.
    fn matches(rules: &Rules, request: &str) -> bool {
        let words: Vec<&str> = request.split(' ').collect();
        let (name, groups) = words[0].split_once('@').unwrap_or((words[0], ""));
        let groups = groups.split(',').map(str::to_owned).collect();
        let user = User { name: name.to_owned(), groups, ..User::default() };
        if words[2].starts_with('/') {
            return rules.match_request(&Attributes::non_resource(&user, words[1], words[2]));
        }
        let (group, resource) = words[2].split_once(':').unwrap_or(("", words[2]));
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let namespace = words.get(3).copied().unwrap_or_default();
        let attributes = Attributes::resource(&user, words[1], group, resource);
        rules.match_request(&Attributes { subresource, namespace, ..attributes })
    }

    fn check(rules: Value, expected: &[(&str, bool)]) {
        let rules = Rules::of(&json!({ "rules": rules }));
        for (request, expected) in expected {
            assert_eq!(matches(&rules, request), *expected, "{request}");
        }
    }

    fn anything(subjects: Value) -> Value {
        json!([{"subjects": subjects, "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}])
    }

    #[test]
    fn subjects_are_users_groups_and_accounts() {
        let user = |name: &str| anything(json!([{"kind": "User", "user": {"name": name}}]));
        check(user("jane"), &[("jane get /x", true), ("janet get /x", false), ("joe@jane get /x", false)]);
        check(user("*"), &[("anybody get /x", true)]);
        let group = |name: &str| anything(json!([{"kind": "Group", "group": {"name": name}}]));
        check(group("dev"), &[("jane@ops,dev get /x", true), ("dev@ops get /x", false)]);
        check(group("*"), &[("nobody get /x", true)]);
        let account = |namespace: &str, name: &str| {
            anything(
                json!([{"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}}]),
            )
        };
        let requests = ["a:b", "a:c", "ab:b", "a"].map(|name| format!("system:serviceaccount:{name} get /x"));
        let expect = |rules: Value, expected: [bool; 4]| {
            let expected: Vec<_> = requests.iter().map(String::as_str).zip(expected).collect();
            check(rules, &expected);
        };
        expect(account("a", "b"), [true, false, false, false]);
        expect(account("a", "*"), [true, true, false, false]);
        check(anything(json!([{"kind": "Robot"}, {"kind": "User"}])), &[(" get /x", false)]);
    }

    #[test]
    fn resources_are_matched_in_all_their_parts() {
        let rule = |verbs: &[&str], group: &str, resource: &str, namespaces: &[&str], is_cluster: bool| {
            json!([{"subjects": [{"kind": "Group", "group": {"name": "*"}}], "resourceRules": [{"verbs": verbs,
                "apiGroups": [group], "resources": [resource], "namespaces": namespaces, "clusterScope": is_cluster}]}])
        };
        check(
            rule(&["get", "list"], "apps", "deployments", &["a"], false),
            &[
                ("u get apps:deployments a", true),
                ("u list apps:deployments a", true),
                ("u watch apps:deployments a", false),
                ("u get deployments a", false),
                ("u get apps:deployments b", false),
                ("u get apps:deployments", false),
                ("u get apps:deployments/scale a", false),
                ("u get /apis/apps", false),
            ],
        );
        check(
            rule(&["*"], "", "nodes/status", &["*"], true),
            &[("u patch nodes/status", true), ("u patch nodes", false), ("u patch nodes/status a", true)],
        );
        check(rule(&["*"], "*", "*", &[], true), &[("u x y:z/s", true), ("u x y:z a", false)]);
        check(rule(&["*"], "*", "*", &["*"], false), &[("u x y:z", false), ("u x y:z a", true)]);
    }

    #[test]
    fn paths_cover_what_is_below_them() {
        let rule = |path: &str| {
            json!([{"subjects": [{"kind": "User", "user": {"name": "*"}}],
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": [path]}]}])
        };
        check(
            rule("/healthz"),
            &[
                ("u get /healthz", true),
                ("u get /healthz/etcd", true),
                ("u get /healthzz", false),
                ("u head /healthz", false),
                ("u get healthz", false),
            ],
        );
        check(rule("/apis/*"), &[("u get /apis/apps", true), ("u get /apis", false), ("u get /api", false)]);
        check(rule("*"), &[("u get /anything", true), ("u get pods a", false)]);
        check(rule("/"), &[("u get /", true)]);
    }
}
