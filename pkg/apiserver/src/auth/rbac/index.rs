//! Roles and bindings, laid out for the question that every request asks.

use super::{GROUP, Rule, aggregate_errors};
use crate::auth::{Attributes, Decision, Reason, User};
use api::object::{name, namespace};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// All roles and bindings.
#[derive(Debug, Default)]
pub struct Index {
    /// Of ClusterRoleBindings.
    cluster: Subjects,
    /// Of RoleBindings, by namespace.
    namespaces: HashMap<String, Subjects>,
    bindings: HashMap<BindingKey, Binding>,
    slots: Slots,
}

/// The role that a binding gives.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RoleRef {
    /// The namespace of a Role, empty for a ClusterRole.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl RoleRef {
    /// What the binding refers to; `None` where its kind is unknown.
    pub fn of(binding: &Value) -> Option<RoleRef> {
        let role = binding.get("roleRef")?;
        let text = |name: &str| role.get(name).and_then(Value::as_str).unwrap_or_default();
        let namespace = match text("kind") {
            "ClusterRole" => String::new(),
            "Role" => namespace(binding).to_owned(),
            _ => return None,
        };
        Some(RoleRef { namespace, name: text("name").to_owned() })
    }

    /// `Role` or `ClusterRole`.
    pub fn kind(&self) -> &'static str {
        if self.namespace.is_empty() { "ClusterRole" } else { "Role" }
    }

    fn not_found(&self) -> String {
        format!("{}.{GROUP} {:?} not found", self.kind().to_lowercase(), self.name)
    }
}

/// One subject's share in one binding. Its `Display` is upstream's way to describe it.
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    binding: BindingKey,
    role: RoleRef,
    /// `User "jane"`, `ServiceAccount "default/ns"`.
    subject: String,
    slot: usize,
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BindingKey { namespace, name } = &self.binding;
        match namespace.as_str() {
            "" => write!(f, "ClusterRoleBinding {name:?}")?,
            _ => write!(f, "RoleBinding {:?}", format!("{name}/{namespace}"))?,
        }
        write!(f, " of {} {:?} to {}", self.role.kind(), self.role.name, self.subject)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct BindingKey {
    /// Empty for ClusterRoleBindings.
    namespace: String,
    name: String,
}

/// What must be undone when a binding goes.
#[derive(Debug)]
struct Binding {
    slot: usize,
    role: RoleRef,
    subjects: Vec<Subject>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subject {
    User(String),
    Group(String),
}

#[derive(Debug, Default)]
struct Subjects {
    users: HashMap<String, Vec<Arc<Grant>>>,
    groups: HashMap<String, Vec<Arc<Grant>>>,
}

impl Index {
    /// Takes in a Role, ClusterRole, RoleBinding or ClusterRoleBinding, new or changed. Others are ignored.
    pub fn apply(&mut self, object: &Value) {
        match object.get("kind").and_then(Value::as_str) {
            Some("ClusterRole" | "Role") => {
                self.slots.set(&role_key(object), Some(Role::compile(Rule::all_of(object))));
            }
            Some("ClusterRoleBinding" | "RoleBinding") => {
                self.unbind(&binding_key(object));
                self.bind(object);
            }
            _ => {}
        }
    }

    /// Forgets such an object; only its kind, namespace and name count.
    pub fn delete(&mut self, object: &Value) {
        match object.get("kind").and_then(Value::as_str) {
            Some("ClusterRole" | "Role") => self.slots.set(&role_key(object), None),
            Some("ClusterRoleBinding" | "RoleBinding") => self.unbind(&binding_key(object)),
            _ => {}
        }
    }

    /// Whether some rule of some role bound to the user allows that.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        // Built once: most requests have no subresource and need none.
        let combined = match attributes.subresource {
            "" => None,
            subresource => Some(format!("{}/{subresource}", attributes.resource)),
        };
        let resource = combined.as_deref().unwrap_or(attributes.resource);
        let granted = self
            .grants(attributes.user, attributes.namespace)
            .find(|grant| self.slots.role(grant.slot).is_some_and(|role| role.allows(resource, attributes)));
        match granted {
            Some(grant) => Decision { allowed: true, reason: Reason::Granted(Arc::clone(grant)) },
            None => {
                let missing = self.missing_roles(attributes.user, attributes.namespace);
                Decision::no_opinion(match missing.is_empty() {
                    true => String::new(),
                    false => format!("RBAC: {}", aggregate_errors(&missing)),
                })
            }
        }
    }

    /// All rules that apply to the user in a namespace (empty: in the cluster), and what could not be resolved.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let roles = self.grants(user, namespace).filter_map(|grant| self.slots.role(grant.slot));
        let rules = roles.flat_map(|role| role.rules.iter().cloned()).collect();
        (rules, self.missing_roles(user, namespace))
    }

    /// The rules of a role, `None` where there is no such role.
    pub fn role_rules(&self, role: &RoleRef) -> Option<&[Rule]> {
        let slot = self.slots.by_role.get(role)?;
        self.slots.role(*slot).map(|role| &role.rules[..])
    }

    fn grants<'a>(&'a self, user: &'a User, namespace: &str) -> impl Iterator<Item = &'a Arc<Grant>> {
        let local = if namespace.is_empty() { None } else { self.namespaces.get(namespace) };
        [Some(&self.cluster), local].into_iter().flatten().flat_map(|subjects| {
            let own = subjects.users.get(&user.name).into_iter();
            own.chain(user.groups.iter().filter_map(|group| subjects.groups.get(group))).flatten()
        })
    }

    fn missing_roles(&self, user: &User, namespace: &str) -> Vec<String> {
        let missing = |grant: &&Arc<Grant>| self.slots.role(grant.slot).is_none();
        self.grants(user, namespace).filter(missing).map(|grant| grant.role.not_found()).collect()
    }

    fn bind(&mut self, object: &Value) {
        let key = binding_key(object);
        let Some(role) = RoleRef::of(object) else { return };
        let slot = self.slots.bind(&role);
        let mut subjects = Vec::new();
        for subject in object.get("subjects").and_then(Value::as_array).into_iter().flatten() {
            let Some((found, description)) = read_subject(subject, &key.namespace) else { continue };
            if subjects.contains(&found) {
                continue;
            }
            let (binding, role) = (key.clone(), role.clone());
            let grant = Arc::new(Grant { binding, role, subject: description, slot });
            self.subjects(&key.namespace).list(&found).push(grant);
            subjects.push(found);
        }
        self.bindings.insert(key, Binding { slot, role, subjects });
    }

    fn unbind(&mut self, key: &BindingKey) {
        let Some(binding) = self.bindings.remove(key) else { return };
        let subjects = self.subjects(&key.namespace);
        for subject in &binding.subjects {
            subjects.remove(subject, key);
        }
        if subjects.users.is_empty() && subjects.groups.is_empty() {
            self.namespaces.remove(&key.namespace);
        }
        self.slots.unbind(binding.slot, &binding.role);
    }

    fn subjects(&mut self, namespace: &str) -> &mut Subjects {
        match namespace {
            "" => &mut self.cluster,
            _ => self.namespaces.entry(namespace.to_owned()).or_default(),
        }
    }
}

impl Subjects {
    fn list(&mut self, subject: &Subject) -> &mut Vec<Arc<Grant>> {
        match subject {
            Subject::User(name) => self.users.entry(name.clone()).or_default(),
            Subject::Group(name) => self.groups.entry(name.clone()).or_default(),
        }
    }

    fn remove(&mut self, subject: &Subject, key: &BindingKey) {
        let (map, name) = match subject {
            Subject::User(name) => (&mut self.users, name),
            Subject::Group(name) => (&mut self.groups, name),
        };
        if let Some(grants) = map.get_mut(name) {
            grants.retain(|grant| grant.binding != *key);
            if grants.is_empty() {
                map.remove(name);
            }
        }
    }
}

/// Roles by number, so that grants need not look them up by name. A slot lives while there is a role in it or a
/// binding that refers to it.
#[derive(Debug, Default)]
struct Slots {
    by_role: HashMap<RoleRef, usize>,
    slots: Vec<Slot>,
    free: Vec<usize>,
}

#[derive(Debug, Default)]
struct Slot {
    role: Option<Role>,
    bindings: usize,
}

impl Slots {
    fn role(&self, slot: usize) -> Option<&Role> {
        self.slots[slot].role.as_ref()
    }

    fn set(&mut self, key: &RoleRef, role: Option<Role>) {
        if role.is_none() && !self.by_role.contains_key(key) {
            return;
        }
        let slot = self.slot(key);
        self.slots[slot].role = role;
        self.release(slot, key);
    }

    fn bind(&mut self, key: &RoleRef) -> usize {
        let slot = self.slot(key);
        self.slots[slot].bindings += 1;
        slot
    }

    fn unbind(&mut self, slot: usize, key: &RoleRef) {
        self.slots[slot].bindings -= 1;
        self.release(slot, key);
    }

    fn slot(&mut self, key: &RoleRef) -> usize {
        if let Some(&slot) = self.by_role.get(key) {
            return slot;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        self.by_role.insert(key.clone(), slot);
        slot
    }

    fn release(&mut self, slot: usize, key: &RoleRef) {
        if self.slots[slot].role.is_none() && self.slots[slot].bindings == 0 {
            self.by_role.remove(key);
            self.free.push(slot);
        }
    }
}

/// A role's rules, and where to look for those about a resource.
#[derive(Debug)]
struct Role {
    rules: Vec<Rule>,
    /// Rules that name the resource (or `resource/subresource`).
    by_resource: HashMap<String, Vec<usize>>,
    /// Rules about `*`, `*/subresource` or paths.
    others: Vec<usize>,
}

impl Role {
    fn compile(rules: Vec<Rule>) -> Role {
        let mut by_resource: HashMap<String, Vec<usize>> = HashMap::new();
        let mut others = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            for resource in &rule.resources {
                let list = by_resource.entry(resource.clone()).or_default();
                if list.last() != Some(&index) {
                    list.push(index);
                }
            }
            if !rule.non_resource_urls.is_empty()
                || rule.resources.iter().any(|resource| resource == "*" || resource.starts_with("*/"))
            {
                others.push(index);
            }
        }
        Role { rules, by_resource, others }
    }

    /// Whether some rule allows that. `resource` is resource and subresource together.
    fn allows(&self, resource: &str, attributes: &Attributes<'_>) -> bool {
        let named = match attributes.is_resource {
            true => self.by_resource.get(resource).map(Vec::as_slice).unwrap_or_default(),
            false => &[],
        };
        named.iter().any(|&index| self.rules[index].allows_but_resource(attributes))
            || self.others.iter().any(|&index| self.rules[index].allows(attributes))
    }
}

fn role_key(object: &Value) -> RoleRef {
    RoleRef { namespace: namespace(object).to_owned(), name: name(object).to_owned() }
}

fn binding_key(object: &Value) -> BindingKey {
    BindingKey { namespace: namespace(object).to_owned(), name: name(object).to_owned() }
}

/// Whom a binding names, and how to describe them. A service account is the user it authenticates as.
fn read_subject(subject: &Value, binding_namespace: &str) -> Option<(Subject, String)> {
    let text = |name: &str| subject.get(name).and_then(Value::as_str).unwrap_or_default();
    let name = text("name");
    match text("kind") {
        "User" => Some((Subject::User(name.to_owned()), format!("User {name:?}"))),
        "Group" => Some((Subject::Group(name.to_owned()), format!("Group {name:?}"))),
        "ServiceAccount" => {
            let namespace = match text("namespace") {
                "" => binding_namespace,
                namespace => namespace,
            };
            let user = User::service_account_name(namespace, name);
            let description = format!("ServiceAccount {:?}", format!("{name}/{namespace}"));
            (!namespace.is_empty()).then_some((Subject::User(user), description))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
