//! Whoever leads a host somewhere may claim it, or it is resolved for nobody: cluster DNS and the nodes' files of names
//! believe only what is recorded here.

use crate::auth::{Attributes, Authorizer, User};
use crate::context::Context;
use crate::server::Server;
use api::domains::{GROUP, RECORD, RESOURCE, Record, VERB, covering};
use api::{Kind, Value, object};
use std::collections::HashMap;

/// How many hosts a warning names.
const NAMED: usize = 3;

/// Writes the record of an object that is to be stored; `is_main`: not only a part of it is changed. Others' changes of the
/// record are undone.
///
/// Who creates an object, changes what it asks for, or writes it without the record, stands for its hosts. Who changes labels,
/// finalizers or a status does not: a controller that may do everything would claim what it never looked at.
pub fn record(
    server: &Server,
    kind: &Kind,
    new: &mut Value,
    old: Option<&Value>,
    is_main: bool,
    context: &Context,
) {
    let Some(hosts) = kind.hosts else { return };
    let before = old.map(Record::of).unwrap_or_default();
    let is_named = new["metadata"]["annotations"].get(RECORD).is_some();
    let asks = is_main && (!is_named || old.is_none_or(|old| old["spec"] != new["spec"]));
    let hosts = hosts(new);
    let next = if asks && !hosts.is_empty() {
        let authorizer = server.auth.authorizer.read();
        let mut rights = Rights::new(&authorizer, &context.user);
        let next = before.next(hosts, Some(&mut |host: &str| rights.may_claim(host)), context.now);
        warn(&next, context);
        next
    } else {
        before.next(hosts, None, context.now)
    };
    put(new, next.text());
}

fn put(object: &mut Value, record: Option<String>) {
    let metadata = object::object_mut(object, "metadata");
    match record {
        Some(text) => {
            if !metadata.get("annotations").is_some_and(Value::is_object) {
                metadata.insert("annotations".into(), Value::Object(Default::default()));
            }
            metadata["annotations"][RECORD] = text.into();
        }
        None => {
            let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
            let is_last = annotations.is_some_and(|all| all.remove(RECORD).is_some() && all.is_empty());
            if is_last {
                metadata.remove("annotations");
            }
        }
    }
}

fn warn(record: &Record, context: &Context) {
    let mut unclaimed = record.unclaimed();
    let named: Vec<&str> = unclaimed.by_ref().take(NAMED).collect();
    let more = match unclaimed.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    if !named.is_empty() {
        context.warn(format!(
            "resolved for nobody: {}{more}; {:?} may not {VERB} {RESOURCE}.{GROUP} of these names",
            named.join(", "),
            context.user.name
        ));
    }
}

/// What somebody may claim. It is a right in the whole cluster: names are not a namespace's own.
struct Rights<'a> {
    authorizer: &'a Authorizer,
    user: &'a User,
    /// By the names that were asked about. The empty one is all of them.
    known: HashMap<String, bool>,
}

impl<'a> Rights<'a> {
    fn new(authorizer: &'a Authorizer, user: &'a User) -> Rights<'a> {
        Rights { authorizer, user, known: HashMap::new() }
    }

    fn may_claim(&mut self, host: &str) -> bool {
        self.is_allowed(String::new()) || covering(host).any(|name| self.is_allowed(name))
    }

    fn is_allowed(&mut self, name: String) -> bool {
        let (authorizer, user) = (self.authorizer, self.user);
        *self.known.entry(name).or_insert_with_key(|name| {
            let claim = Attributes::resource(user, VERB, GROUP, RESOURCE);
            authorizer.authorize(&Attributes { name, version: "*", ..claim }).allowed
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn authorizer(rules: Value, binding: &str) -> Authorizer {
        let mut authorizer = Authorizer::default();
        authorizer.rbac.apply(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "r"}, "rules": rules}));
        authorizer.rbac.apply(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": binding,
            "metadata": {"name": "b", "namespace": if binding == "RoleBinding" { "ns" } else { "" }}, "roleRef": {"kind": "ClusterRole", "name": "r"},
            "subjects": [{"kind": "User", "name": "jane"}]}));
        authorizer
    }

    #[test]
    fn names_are_claimed_by_right() {
        let jane = User { name: "jane".into(), ..User::default() };
        let check = |rules: Value, binding: &str, host: &str, expected: bool| {
            let authorizer = authorizer(rules.clone(), binding);
            let found = Rights::new(&authorizer, &jane).may_claim(host);
            assert_eq!(found, expected, "{rules} {binding} {host}");
        };
        let claim = |names: &[&str]| json!([{"apiGroups": ["minik8s.io"], "resources": ["domains"], "verbs": ["claim"], "resourceNames": names}]);
        let everywhere = "ClusterRoleBinding";
        for (names, host, expected) in [
            (&["example.com"][..], "example.com", true),
            (&["example.com"], "a.b.example.com", true),
            (&["example.com"], "*.example.com", true),
            (&["example.com"], "notexample.com", false),
            (&["example.com"], "com", false),
            (&["a.example.com"], "*.example.com", false),
            (&["*.example.com"], "a.example.com", true),
            (&["*.example.com"], "*.example.com", true),
            (&["*.example.com"], "example.com", false),
            (&[], "google.com", true),
        ] {
            check(claim(names), everywhere, host, expected);
        }
        let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        check(all.clone(), everywhere, "google.com", true);
        // The owner of a namespace, whatever they may do in it.
        check(all, "RoleBinding", "google.com", false);
        check(claim(&["example.com"]), "RoleBinding", "example.com", false);
        let dnses = json!([{"apiGroups": ["minik8s.io"], "resources": ["dnses"], "verbs": ["*"]}]);
        check(dnses, everywhere, "example.com", false);
    }
}
