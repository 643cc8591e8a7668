//! Sets of fields, kept in the form in which `managedFields` carries them (`FieldsV1`).
//!
//! ```text
//! {"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}}}}}
//!             = { .spec.containers[name="web"], .spec.containers[name="web"].image }
//! ```
//!
//! A node is in the set if it has nothing below it or says so with `.`; other nodes only lead to some that are.
//! Working on the wire form itself means that the sets of managers that a write does not concern are never
//! decoded or encoded, and that there is one representation of each set: equal sets are equal JSON.

use super::display;
use api::Schema;
use api::schema::Type;
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// What is below one node, by path element.
pub(super) type Node = Map<String, Value>;

/// Says that a node is in the set although others below it are, too.
const SELF: &str = ".";

static NOTHING: LazyLock<Node> = LazyLock::new(Node::new);

/// A set of fields of an object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldSet(Node);

/// `fieldsV1` that is no set of fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no path element")]
pub struct BadFields(String);

impl FieldSet {
    /// Reads the wire form, in whatever way it is written.
    pub fn decode(fields: Value) -> Result<FieldSet, BadFields> {
        let Value::Object(nodes) = fields else { return Err(BadFields(display::go_type(&fields).into())) };
        // What we have written ourselves is taken as it is.
        if is_canonical(&nodes) && !nodes.contains_key(SELF) {
            return Ok(FieldSet(nodes));
        }
        let mut set = decode_node(&nodes)?;
        set.remove(SELF);
        Ok(FieldSet(set))
    }

    /// The wire form.
    pub fn encode(self) -> Value {
        Value::Object(self.0)
    }

    /// A set from the tree that a walk over an object has built.
    pub(super) fn from_root(mut root: Node) -> FieldSet {
        root.remove(SELF);
        FieldSet(root)
    }

    /// The fields at these dotted paths (of named members only).
    pub fn of_paths<'a>(paths: impl IntoIterator<Item = &'a str>) -> FieldSet {
        let mut set = FieldSet::default();
        for path in paths {
            let mut parts = path.rsplit('.');
            let mut nodes = Node::new();
            if let Some(last) = parts.next() {
                nodes.insert(format!("f:{last}"), Value::Object(Node::new()));
            }
            for part in parts {
                nodes = Node::from_iter([(format!("f:{part}"), Value::Object(nodes))]);
            }
            set.add(&FieldSet(nodes));
        }
        set
    }

    /// Whether no field is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the fields of another set.
    pub fn add(&mut self, other: &FieldSet) {
        add_below(&mut self.0, &other.0);
    }

    /// Takes out the fields of another set.
    pub fn subtract(&mut self, other: &FieldSet) {
        subtract_below(&mut self.0, &other.0);
    }

    /// Takes out the fields of another set and all that is below them.
    pub fn subtract_trees(&mut self, other: &FieldSet) {
        subtract_trees_below(&mut self.0, &other.0);
    }

    /// The fields that are in both sets.
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        FieldSet(intersect_below(&self.0, &other.0))
    }

    /// Adds, for every field, the struct members that lead to it: whoever owns a field of a struct can lose or
    /// keep the struct with it.
    pub(super) fn with_structs(&self, schema: &Schema) -> FieldSet {
        let mut set = self.0.clone();
        name_structs(&mut set, Some(schema));
        FieldSet(set)
    }

    /// Turns ownership of parts of what the schema takes as one value into ownership of the whole: the schema may
    /// have changed since the set was written.
    pub(super) fn reconcile(&mut self, schema: &Schema) {
        reconcile_below(&mut self.0, schema);
    }

    /// The paths as people read them, members of one node before what is below them.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        collect_paths(&self.0, "", &mut paths);
        paths
    }

    /// Whether what a node leads to is in the set, and what is below it.
    pub(super) fn child<'a>(nodes: &'a Node, element: &str) -> Option<(bool, &'a Node)> {
        let node = below(nodes.get(element)?);
        Some((is_member(node), node))
    }

    /// The topmost nodes.
    pub(super) fn nodes(&self) -> &Node {
        &self.0
    }
}

/// Puts a node into the set, beside what is below it.
pub(super) fn mark(node: &mut Node) {
    if !node.is_empty() {
        node.insert(SELF.into(), Value::Object(Node::new()));
    }
}

fn is_member(node: &Node) -> bool {
    node.is_empty() || node.contains_key(SELF)
}

fn below(node: &Value) -> &Node {
    node.as_object().unwrap_or(&NOTHING)
}

fn children(nodes: &Node) -> impl Iterator<Item = (&String, &Node)> {
    nodes.iter().filter(|(element, _)| *element != SELF).map(|(element, node)| (element, below(node)))
}

/// The node, taken out to be changed; what it must be put back as is the caller's to say.
fn open(node: &mut Value) -> &mut Node {
    if !node.is_object() {
        *node = Value::Object(Node::new());
    }
    node.as_object_mut().expect("just made one")
}

fn is_canonical(nodes: &Node) -> bool {
    nodes.iter().all(|(element, node)| {
        let Value::Object(node) = node else { return false };
        let known = match element.get(..2) {
            _ if element == SELF => return node.is_empty() && nodes.len() > 1,
            Some("f:") => true,
            Some("k:" | "v:") => canonical(element).is_ok_and(|canonical| canonical == *element),
            Some("i:") => element[2..].parse::<i64>().is_ok(),
            _ => false,
        };
        known && is_canonical(node)
    })
}

fn decode_node(nodes: &Node) -> Result<Node, BadFields> {
    let mut decoded = Node::new();
    for (element, node) in nodes {
        let element = match element.get(..2) {
            _ if element == SELF => {
                decoded.insert(SELF.into(), Value::Object(Node::new()));
                continue;
            }
            Some("f:") => element.clone(),
            Some("k:" | "v:") => canonical(element)?,
            Some("i:") if element[2..].parse::<i64>().is_ok() => element.clone(),
            Some("i:") => return Err(BadFields(element.clone())),
            // A later version may know what this is; upstream drops it, too.
            Some(unknown) if unknown.ends_with(':') => continue,
            _ => return Err(BadFields(element.clone())),
        };
        let mut node = decode_node(below(node))?;
        if node.len() == 1 {
            node.remove(SELF);
        }
        decoded.insert(element, Value::Object(node));
    }
    Ok(decoded)
}

/// `k:` and `v:` elements hold JSON, which can be written in many ways.
fn canonical(element: &str) -> Result<String, BadFields> {
    let (prefix, json) = element.split_at(2);
    let value: Value = serde_json::from_str(json).map_err(|_| BadFields(element.to_owned()))?;
    let keys = value.as_object().map(|keys| {
        let mut sorted: Vec<_> = keys.iter().collect();
        sorted.sort_unstable_by_key(|(name, _)| *name);
        key_element(sorted.into_iter().map(|(name, value)| (name.as_str(), value)))
    });
    match (prefix, keys) {
        ("k:", Some(key)) => Ok(key),
        ("v:", None) => Ok(value_element(&value)),
        _ => Err(BadFields(element.to_owned())),
    }
}

/// The element of a keyed list's item; the keys come sorted.
pub(super) fn key_element<'a>(keys: impl Iterator<Item = (&'a str, &'a Value)>) -> String {
    let mut element = String::from("k:{");
    for (index, (name, value)) in keys.enumerate() {
        if index > 0 {
            element.push(',');
        }
        element.push_str(&display::quoted(name));
        element.push(':');
        element.push_str(&value.to_string());
    }
    element.push('}');
    element
}

/// The element of a set's item.
pub(super) fn value_element(value: &Value) -> String {
    format!("v:{value}")
}

fn add_below(to: &mut Node, from: &Node) {
    for (element, added) in children(from) {
        match to.get_mut(element) {
            None => {
                to.insert(element.clone(), Value::Object(added.clone()));
            }
            Some(node) => {
                let node = open(node);
                let member = is_member(node) || is_member(added);
                node.remove(SELF);
                add_below(node, added);
                if member {
                    mark(node);
                }
            }
        }
    }
}

fn subtract_below(from: &mut Node, taken: &Node) {
    for (element, taken) in children(taken) {
        let Some(node) = from.get_mut(element) else { continue };
        let node = open(node);
        let member = is_member(node) && !is_member(taken);
        node.remove(SELF);
        subtract_below(node, taken);
        if member {
            mark(node);
        } else if node.is_empty() {
            from.remove(element);
        }
    }
}

fn subtract_trees_below(from: &mut Node, taken: &Node) {
    for (element, taken) in children(taken) {
        if is_member(taken) {
            from.remove(element);
            continue;
        }
        let Some(node) = from.get_mut(element) else { continue };
        let node = open(node);
        let member = is_member(node);
        node.remove(SELF);
        subtract_trees_below(node, taken);
        if member {
            mark(node);
        } else if node.is_empty() {
            from.remove(element);
        }
    }
}

fn intersect_below(one: &Node, other: &Node) -> Node {
    let mut both = Node::new();
    for (element, node) in children(one) {
        let Some((member, other)) = FieldSet::child(other, element) else { continue };
        let mut common = intersect_below(node, other);
        let member = member && is_member(node);
        if member {
            mark(&mut common);
        }
        if member || !common.is_empty() {
            both.insert(element.clone(), Value::Object(common));
        }
    }
    both
}

fn name_structs(nodes: &mut Node, schema: Option<&Schema>) {
    let ty = schema.map(|schema| &schema.resolve().ty);
    for (element, node) in nodes.iter_mut().filter(|(element, _)| *element != SELF) {
        let node = open(node);
        let (below, named) = match (ty, element.strip_prefix("f:")) {
            (Some(Type::Object { properties, additional }), Some(name)) => match properties.get(name) {
                Some(member) => (Some(member), true),
                None => (additional.as_deref(), false),
            },
            (Some(Type::Array(item)), None) => (Some(&**item), false),
            _ => (None, false),
        };
        name_structs(node, below);
        if named {
            mark(node);
        }
    }
}

fn reconcile_below(nodes: &mut Node, schema: &Schema) {
    let ty = &schema.resolve().ty;
    for (element, node) in nodes.iter_mut().filter(|(element, _)| *element != SELF) {
        let below = match (ty, element.strip_prefix("f:")) {
            (Type::Object { properties, additional }, Some(name)) => {
                properties.get(name).or(additional.as_deref())
            }
            (Type::Array(item), None) => Some(&**item),
            _ => None,
        };
        let Some(below) = below else { continue };
        let node = open(node);
        if super::typed::is_leaf(below) {
            node.clear();
        } else {
            reconcile_below(node, below);
        }
    }
}

fn collect_paths(nodes: &Node, prefix: &str, paths: &mut Vec<String>) {
    let path = |element: &str| format!("{prefix}{}", display::path_element(element));
    for (element, node) in children(nodes) {
        if is_member(node) {
            paths.push(path(element));
        }
    }
    for (element, node) in children(nodes) {
        if !node.is_empty() {
            collect_paths(node, &path(element), paths);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(fields: Value) -> FieldSet {
        FieldSet::decode(fields).expect("a set")
    }

    #[test]
    fn sets_are_read_however_they_are_written() {
        let check = |written: Value, canonical: Value| assert_eq!(set(written).encode(), canonical);
        check(json!({"f:a": {".": {}}}), json!({"f:a": {}}));
        check(json!({"f:a": {".": {}, "f:b": {}}}), json!({"f:a": {".": {}, "f:b": {}}}));
        check(json!({r#"k:{ "b":1, "a":"x" }"#: {}}), json!({r#"k:{"a":"x","b":1}"#: {}}));
        check(json!({r#"v:"a\u0026b""#: {}}), json!({r#"v:"a&b""#: {}}));
        check(json!({"z:future": {}, "i:3": {}}), json!({"i:3": {}}));
        check(json!({"f:a": {"z:future": {}}}), json!({"f:a": {}}));
        check(json!({"f:a": {"f:b": 7}}), json!({"f:a": {"f:b": {}}}));
        for bad in
            [json!([]), json!({"a": {}}), json!({"k:[1]": {}}), json!({"i:x": {}}), json!({"v:{}": {}})]
        {
            assert!(FieldSet::decode(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn set_operations() {
        let check = |one: Value, op: fn(&mut FieldSet, &FieldSet), other: Value, expected: Value| {
            let mut result = set(one.clone());
            op(&mut result, &set(other.clone()));
            assert_eq!(result.encode(), expected, "{one} and {other}");
        };
        let intersect: fn(&mut FieldSet, &FieldSet) = |one, other| *one = one.intersection(other);
        let whole = json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}});
        let child = json!({"f:a": {"f:b": {}}});
        let parent = json!({"f:a": {}});
        check(parent.clone(), FieldSet::add, child.clone(), json!({"f:a": {".": {}, "f:b": {}}}));
        check(child.clone(), FieldSet::add, parent.clone(), json!({"f:a": {".": {}, "f:b": {}}}));
        check(whole.clone(), FieldSet::subtract, child.clone(), json!({"f:a": {}, "f:c": {}}));
        check(whole.clone(), FieldSet::subtract, parent.clone(), json!({"f:a": {"f:b": {}}, "f:c": {}}));
        check(whole.clone(), FieldSet::subtract, whole.clone(), json!({}));
        check(whole.clone(), FieldSet::subtract_trees, parent.clone(), json!({"f:c": {}}));
        check(whole.clone(), FieldSet::subtract_trees, child.clone(), json!({"f:a": {}, "f:c": {}}));
        check(whole.clone(), intersect, child.clone(), child.clone());
        check(whole.clone(), intersect, parent.clone(), parent.clone());
        check(parent, intersect, child, json!({}));
        check(json!({}), FieldSet::add, whole.clone(), whole);
    }

    #[test]
    fn paths_read_as_upstreams() {
        let set = set(json!({"f:spec": {"f:containers": {
            r#"k:{"name":"a"}"#: {".": {}, "f:image": {}},
            r#"k:{"containerPort":80,"protocol":"TCP"}"#: {}}},
            "f:metadata": {"f:finalizers": {r#"v:"x""#: {}}}}));
        assert_eq!(
            set.paths(),
            [
                r#".metadata.finalizers[="x"]"#,
                r#".spec.containers[containerPort=80,protocol="TCP"]"#,
                r#".spec.containers[name="a"]"#,
                r#".spec.containers[name="a"].image"#,
            ]
        );
        assert_eq!(FieldSet::of_paths(["status", "metadata.name"]).paths(), [".status", ".metadata.name"]);
    }
}
