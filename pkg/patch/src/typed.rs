//! Objects seen through their schema, as server-side apply sees them: which fields there are ([`field_set`]), and
//! which differ ([`compare`]).
//!
//! ```text
//! struct, map      member by member   f:name         unless atomic
//! list-type map    item by keys       k:{"name":"a"}
//! list-type set    item by value      v:"a"
//! anything else    one value
//! ```
//!
//! What the schema does not describe is walked as deduced: maps by member, lists as one value.

use super::field_set::{FieldSet, Node, key_element, mark, value_element};
use api::Schema;
use api::schema::{ListType, Type};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// How a value is walked.
#[derive(Clone, Copy)]
pub(super) enum Shape<'a> {
    /// As one value.
    Leaf,
    /// Member by member.
    Members(Members<'a>),
    /// Item by item.
    Items(Items<'a>),
    /// As the value itself suggests.
    Deduced,
}

/// The members of a struct or map.
#[derive(Clone, Copy)]
pub(super) struct Members<'a> {
    ty: Option<&'a Type>,
}

/// The items of a list that is a map or set.
#[derive(Clone, Copy)]
pub(super) struct Items<'a> {
    list: &'a ListType,
    /// What each item is.
    pub(super) item: &'a Schema,
}

/// What a schema says about walking its values.
pub(super) fn shape(schema: &Schema) -> Shape<'_> {
    let target = schema.resolve();
    match &target.ty {
        Type::Any => Shape::Deduced,
        Type::Object { .. } if schema.is_atomic() => Shape::Leaf,
        ty @ Type::Object { .. } => Shape::Members(Members { ty: Some(ty) }),
        Type::Array(item) => {
            match if schema.list == ListType::Atomic { &target.list } else { &schema.list } {
                ListType::Atomic => Shape::Leaf,
                list => Shape::Items(Items { list, item }),
            }
        }
        _ => Shape::Leaf,
    }
}

/// Whether values of this schema are always taken as one.
pub(super) fn is_leaf(schema: &Schema) -> bool {
    matches!(shape(schema), Shape::Leaf)
}

impl<'a> Members<'a> {
    /// Members of which nothing is known.
    pub(super) const DEDUCED: Members<'static> = Members { ty: None };

    /// The schema of a member, if it is known.
    pub(super) fn get(self, name: &str) -> Option<&'a Schema> {
        match self.ty {
            Some(Type::Object { properties, additional }) => properties.get(name).or(additional.as_deref()),
            _ => None,
        }
    }

    /// Whether the schema names this member: it is a struct's, not a map's.
    pub(super) fn names(self, name: &str) -> bool {
        matches!(self.ty, Some(Type::Object { properties, .. }) if properties.contains_key(name))
    }
}

/// Why an item of a list has no place in a map or set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadItem {
    #[error("associative list with keys may not have a null element")]
    NullWithKeys,
    #[error("associative list with keys may not have non-map elements")]
    NotAMap,
    #[error(
        "associative list with keys has an element that omits all key fields [{0}] (and doesn't have default values for any key fields)"
    )]
    NoKeys(String),
    #[error("associative list without keys has an element that's a map type")]
    MapInSet,
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
}

impl Items<'_> {
    /// The path element of an item.
    pub(super) fn element(&self, item: &Value) -> Result<String, BadItem> {
        let ListType::Map(keys) = self.list else {
            return match item {
                Value::Object(_) => Err(BadItem::MapInSet),
                Value::Array(_) => Err(BadItem::ListInSet),
                Value::Null => Err(BadItem::NullInSet),
                _ => Ok(value_element(item)),
            };
        };
        let members = match item {
            Value::Object(members) => members,
            Value::Null => return Err(BadItem::NullWithKeys),
            _ => return Err(BadItem::NotAMap),
        };
        let mut given = keys
            .iter()
            .filter_map(|key| {
                let default = || self.item.property(key).and_then(|schema| schema.default.as_ref());
                Some((&**key, members.get(&**key).or_else(default)?))
            })
            .peekable();
        if given.peek().is_none() {
            let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(BadItem::NoKeys(keys.join(" ")));
        }
        Ok(key_element(given))
    }
}

/// The fields that an object has, as whoever applies it claims them.
pub(super) fn field_set(schema: &Schema, object: &Value) -> FieldSet {
    FieldSet::from_root(fields_of(Some(schema), object))
}

/// The nodes below a value; empty for a leaf.
fn fields_of(schema: Option<&Schema>, value: &Value) -> Node {
    match (schema.map_or(Shape::Deduced, shape), value) {
        (Shape::Members(members), Value::Object(object)) => fields_of_members(members, object),
        (Shape::Deduced, Value::Object(object)) => fields_of_members(Members::DEDUCED, object),
        (Shape::Items(items), Value::Array(list)) => fields_of_items(items, list),
        _ => Node::new(),
    }
}

fn fields_of_members(members: Members<'_>, object: &Map<String, Value>) -> Node {
    let mut nodes = Node::new();
    for (name, value) in object {
        let schema = members.get(name);
        let mut node = fields_of(schema, value);
        if !members.names(name) {
            mark(&mut node);
        }
        // An empty list that is a map or set holds no field, and is none itself.
        let nothing = node.is_empty() && members.names(name) && is_empty_list(value);
        if !(nothing && matches!(schema.map(shape), Some(Shape::Items(_)))) {
            nodes.insert(format!("f:{name}"), Value::Object(node));
        }
    }
    nodes
}

fn fields_of_items(items: Items<'_>, list: &[Value]) -> Node {
    let mut nodes = Node::new();
    for item in list {
        let Ok(element) = items.element(item) else { continue };
        let mut node = fields_of(Some(items.item), item);
        mark(&mut node);
        // Of items with the same key, only their being there can be owned.
        nodes
            .entry(element)
            .and_modify(|repeated| *repeated = Value::Object(Node::new()))
            .or_insert(Value::Object(node));
    }
    nodes
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// What differs between two states of an object.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Fields that were added or have another value.
    pub(super) changed: FieldSet,
    /// Fields that are no more.
    pub(super) removed: FieldSet,
}

impl Comparison {
    /// Whether nothing differs.
    pub(super) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}

/// Compares two states of an object.
pub(super) fn compare(schema: &Schema, old: &Value, new: &Value) -> Comparison {
    let difference = compare_values(Some(schema), Some(old), Some(new));
    Comparison {
        changed: FieldSet::from_root(difference.changed.unwrap_or_default()),
        removed: FieldSet::from_root(difference.removed.unwrap_or_default()),
    }
}

/// Where a value differs: nodes of the two sets, `None` where they are not.
#[derive(Default)]
struct Difference {
    changed: Option<Node>,
    removed: Option<Node>,
}

impl Difference {
    fn add(&mut self, element: impl FnOnce() -> String, below: Difference) {
        match (below.changed, below.removed) {
            (None, None) => {}
            (Some(changed), None) => insert(&mut self.changed, element(), changed),
            (None, Some(removed)) => insert(&mut self.removed, element(), removed),
            (Some(changed), Some(removed)) => {
                let element = element();
                insert(&mut self.changed, element.clone(), changed);
                insert(&mut self.removed, element, removed);
            }
        }
    }

    /// The value as a whole was added or removed, with all that is below it.
    fn mark_whole(mut self, old: bool, new: bool) -> Difference {
        if !old {
            mark(self.changed.get_or_insert_default());
        } else if !new {
            mark(self.removed.get_or_insert_default());
        }
        self
    }
}

fn insert(nodes: &mut Option<Node>, element: String, node: Node) {
    nodes.get_or_insert_default().insert(element, Value::Object(node));
}

fn compare_values(schema: Option<&Schema>, old: Option<&Value>, new: Option<&Value>) -> Difference {
    match schema.map_or(Shape::Deduced, shape) {
        Shape::Leaf => compare_leaves(old, new),
        Shape::Members(members) => compare_members(members, old, new),
        Shape::Items(items) => compare_items(items, old, new),
        Shape::Deduced => {
            let is_map = |value: Option<&Value>| value.is_some_and(Value::is_object);
            let is_other =
                |value: Option<&Value>| value.is_some_and(|value| !value.is_object() && !value.is_null());
            let mut difference = Difference::default();
            if is_map(old) || is_map(new) {
                difference = compare_members(Members::DEDUCED, old, new);
            }
            if is_other(old) || is_other(new) || !(is_map(old) || is_map(new)) {
                let leaf = compare_leaves(old, new);
                merge_marks(&mut difference.changed, leaf.changed);
                merge_marks(&mut difference.removed, leaf.removed);
            }
            difference
        }
    }
}

fn merge_marks(nodes: &mut Option<Node>, leaf: Option<Node>) {
    if leaf.is_some() {
        mark(nodes.get_or_insert_default());
    }
}

fn compare_leaves(old: Option<&Value>, new: Option<&Value>) -> Difference {
    let differ = match (old, new) {
        (Some(old), Some(new)) => old != new && !(is_blank(old) && is_blank(new)),
        (old, new) => old.is_some() || new.is_some(),
    };
    let node = differ.then(Node::new);
    if new.is_some() {
        Difference { changed: node, removed: None }
    } else {
        Difference { changed: None, removed: node }
    }
}

fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn compare_members(members: Members<'_>, old: Option<&Value>, new: Option<&Value>) -> Difference {
    let (old_members, new_members) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
    if old_members.is_none_or(Map::is_empty) && new_members.is_none_or(Map::is_empty) {
        return compare_leaves(old, new);
    }
    let mut difference = Difference::default();
    for (name, new_value) in new_members.into_iter().flatten() {
        let schema = members.get(name);
        let old_value = old_members.and_then(|members| members.get(name)).or_else(|| embedded(schema, old));
        let below = compare_values(schema, old_value, Some(new_value));
        difference.add(|| format!("f:{name}"), below);
    }
    for (name, old_value) in old_members.into_iter().flatten() {
        if new_members.is_none_or(|members| !members.contains_key(name)) {
            let schema = members.get(name);
            let below = compare_values(schema, Some(old_value), embedded(schema, new));
            difference.add(|| format!("f:{name}"), below);
        }
    }
    difference.mark_whole(old.is_some(), new.is_some())
}

/// What stands for a missing member: something blank, if upstream embeds it and its parent is there.
fn embedded(schema: Option<&Schema>, parent: Option<&Value>) -> Option<&'static Value> {
    static BLANK: Value = Value::Null;
    (parent.is_some() && schema.is_some_and(|schema| schema.embedded)).then_some(&BLANK)
}

fn compare_items(items: Items<'_>, old: Option<&Value>, new: Option<&Value>) -> Difference {
    let is_empty = |value: Option<&Value>| value.and_then(Value::as_array).is_none_or(Vec::is_empty);
    if is_empty(old) && is_empty(new) {
        return compare_leaves(old, new);
    }
    let mut difference = Difference::default();
    if old != new {
        let (old_items, new_items) = (by_element(items, old), by_element(items, new));
        let none = Vec::new();
        for (element, new_items) in &new_items {
            let below = compare_same_key(items, old_items.get(element).unwrap_or(&none), new_items);
            difference.add(|| element.clone(), below);
        }
        for (element, old_items) in old_items.iter().filter(|(element, _)| !new_items.contains_key(*element))
        {
            difference.add(|| element.clone(), compare_same_key(items, old_items, &none));
        }
    }
    difference.mark_whole(old.is_some(), new.is_some())
}

/// The items of a list by path element; more than one where keys repeat, as validation lets some lists do.
fn by_element<'a>(items: Items<'_>, list: Option<&'a Value>) -> HashMap<String, Vec<&'a Value>> {
    let list = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut by_element: HashMap<String, Vec<&Value>> = HashMap::with_capacity(list.len());
    for item in list {
        // An item that has no key cannot be owned.
        if let Ok(element) = items.element(item) {
            by_element.entry(element).or_default().push(item);
        }
    }
    by_element
}

/// Compares the items that have one key. Where it repeats, only their being there can be owned.
fn compare_same_key(items: Items<'_>, old: &[&Value], new: &[&Value]) -> Difference {
    let single = |old: &[&Value], new: &[&Value]| {
        compare_values(Some(items.item), old.first().copied(), new.first().copied())
    };
    match (old.len() > 1, new.len() > 1) {
        (false, false) => single(old, new),
        (true, true) => Difference { changed: (old != new).then(Node::new), removed: None },
        (true, false) => Difference { removed: Some(Node::new()), ..single(&[], new) },
        (false, true) => Difference { changed: Some(Node::new()), ..single(old, &[]) },
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::DEPLOYMENT;
    use super::*;
    use serde_json::json;

    /// The paths that differ between two specs, changed and removed.
    fn compared(old: Value, new: Value) -> (Vec<String>, Vec<String>) {
        let Comparison { changed, removed } =
            compare(&DEPLOYMENT, &json!({"spec": old}), &json!({"spec": new}));
        (changed.paths(), removed.paths())
    }

    #[track_caller]
    fn check(old: Value, new: Value, changed: &[&str], removed: &[&str]) {
        let (was_changed, was_removed) = compared(old.clone(), new.clone());
        assert_eq!((was_changed, was_removed), (owned(changed), owned(removed)), "{old} to {new}");
    }

    fn owned(paths: &[&str]) -> Vec<String> {
        paths.iter().map(|path| format!(".spec{path}")).collect()
    }

    fn containers(list: Value) -> Value {
        json!({"template": {"spec": {"containers": list}}})
    }

    #[test]
    fn structs_differ_member_by_member_and_atoms_as_one() {
        check(json!({"replicas": 1}), json!({"replicas": 2, "paused": true}), &[".paused", ".replicas"], &[]);
        check(json!({"replicas": 1}), json!({}), &[], &[".replicas"]);
        let selector = |labels: Value| json!({"selector": {"matchLabels": labels}});
        check(selector(json!({"a": "1"})), selector(json!({"a": "2"})), &[".selector"], &[]);
    }

    #[test]
    fn pointers_are_fields_and_embedded_structs_are_not() {
        let strategy = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}});
        let fields = [".strategy.rollingUpdate", ".strategy.type", ".strategy.rollingUpdate.maxSurge"];
        check(json!({}), strategy.clone(), &fields, &[]);
        check(strategy, json!({}), &[], &fields);
        check(json!({}), json!({"strategy": {}}), &[], &[]);
    }

    #[test]
    fn items_differ_by_key() {
        let a = r#".template.spec.containers[name="a"]"#;
        let b = r#".template.spec.containers[name="b"]"#;
        check(
            containers(json!([{"name": "a", "image": "x"}])),
            containers(json!([{"name": "b"}, {"name": "a", "image": "y"}])),
            &[b, &format!("{a}.image"), &format!("{b}.name")],
            &[],
        );
        check(
            containers(json!([{"name": "a"}, {"name": "b"}])),
            containers(json!([{"name": "b"}, {"name": "a"}])),
            &[],
            &[],
        );
        check(containers(json!([{"name": "a"}])), containers(json!([])), &[], &[a, &format!("{a}.name")]);
    }

    #[test]
    fn repeated_keys_are_owned_as_a_whole() {
        let env = |list: Value| containers(json!([{"name": "a", "env": list}]));
        let path = r#".template.spec.containers[name="a"].env[name="A"]"#;
        let twice = || env(json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]));
        check(twice(), twice(), &[], &[]);
        check(twice(), env(json!([{"name": "A", "value": "1"}, {"name": "A", "value": "3"}])), &[path], &[]);
        let members = [path.to_owned(), format!("{path}.name"), format!("{path}.value")];
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        check(twice(), env(json!([{"name": "A", "value": "1"}])), &members, &[path]);
        check(env(json!([{"name": "A", "value": "1"}])), twice(), &[path], &members);
    }

    #[test]
    fn what_no_schema_describes_is_deduced() {
        let schema = Schema::from_json(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}));
        let object = |spec: Value| json!({"spec": spec});
        let Comparison { changed, removed } = compare(
            &schema,
            &object(json!({"a": {"b": 1}, "c": [1], "d": {"e": 1}, "f": 1})),
            &object(json!({"a": {"b": 2}, "c": [2], "d": 1, "f": {"g": 1}})),
        );
        assert_eq!(changed.paths(), [".spec.c", ".spec.d", ".spec.f", ".spec.a.b", ".spec.f.g"]);
        assert_eq!(removed.paths(), [".spec.d.e"]);
        let fields = field_set(&schema, &object(json!({"a": {"b": [1]}})));
        assert_eq!(fields.paths(), [".spec.a", ".spec.a.b"]);
    }

    #[test]
    fn custom_resources_have_everybodys_metadata() {
        let schema = Schema::from_json(&json!({"type": "object"}));
        let object = json!({"metadata": {"finalizers": ["x"], "ownerReferences": [{"uid": "u", "name": "n"}]}, "spec": {}});
        assert_eq!(
            field_set(&schema, &object).paths(),
            [".spec", r#".metadata.finalizers[="x"]"#, r#".metadata.ownerReferences[uid="u"]"#]
        );
    }
}
