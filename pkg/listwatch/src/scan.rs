//! Labels and selectable fields out of an object's JSON, without decoding the rest of it.
//!
//! The paths that matter form a small tree. The scan walks down where the tree has a branch and skips everything
//! else without building it.

use crate::object::Fields;
use crate::resource::SelectableField;
use api::selector::Labels;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Knows the paths that matter to a resource.
pub(crate) struct Scanner {
    root: Node,
    /// What each field is where no path leads to a value.
    absent: Vec<&'static str>,
}

#[derive(Default)]
struct Node {
    children: Vec<(Box<str>, Node)>,
    /// The labels are here.
    labels: bool,
    /// The fields whose value is here, and the rank of this place among theirs.
    slots: Vec<(usize, usize)>,
}

/// What was found so far: for each field the best rank, and the value there.
struct Found {
    labels: Vec<(String, String)>,
    fields: Vec<Option<(usize, String)>>,
}

impl Scanner {
    pub(crate) fn new(fields: &[SelectableField]) -> Self {
        let mut root = Node::default();
        root.descend("metadata.labels").labels = true;
        for (index, field) in fields.iter().enumerate() {
            for (rank, path) in field.paths.iter().enumerate() {
                root.descend(path).slots.push((index, rank));
            }
        }
        Scanner { root, absent: fields.iter().map(|field| field.absent).collect() }
    }

    pub(crate) fn scan(&self, json: &[u8]) -> Result<(Labels, Fields), serde_json::Error> {
        let mut found = Found { labels: Vec::new(), fields: vec![None; self.absent.len()] };
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        Visit { node: &self.root, found: &mut found }.deserialize(&mut deserializer)?;
        deserializer.end()?;
        let values = found.fields.iter().zip(&self.absent).map(|(value, absent)| match value {
            Some((_, value)) => value.as_str(),
            None => absent,
        });
        Ok((found.labels.into_iter().collect(), values.collect()))
    }
}

impl Node {
    fn descend(&mut self, path: &str) -> &mut Node {
        path.split('.').fold(self, |node, name| {
            let index = node.children.iter().position(|(child, _)| &**child == name).unwrap_or_else(|| {
                node.children.push((name.into(), Node::default()));
                node.children.len() - 1
            });
            &mut node.children[index].1
        })
    }
}

struct Visit<'a> {
    node: &'a Node,
    found: &'a mut Found,
}

impl Visit<'_> {
    fn take(self, value: impl fmt::Display) {
        for &(field, rank) in &self.node.slots {
            let slot = &mut self.found.fields[field];
            if slot.as_ref().is_none_or(|(best, _)| rank < *best) {
                *slot = Some((rank, value.to_string()));
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for Visit<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Visit<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if self.node.labels {
            while let Some(key) = map.next_key::<String>()? {
                if let Some(value) = map.next_value_seed(Text)? {
                    self.found.labels.push((key, value));
                }
            }
            return Ok(());
        }
        while let Some(child) = map.next_key_seed(Child(self.node))? {
            match child {
                Some(node) => map.next_value_seed(Visit { node, found: self.found })?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        // An empty string is no value: the next path may have one.
        if !value.is_empty() {
            self.take(value);
        }
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.take(value);
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.take(value);
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.take(value);
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.take(value);
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A member's name, compared with the branches where it stands.
struct Child<'a>(&'a Node);

impl<'de, 'a> DeserializeSeed<'de> for Child<'a> {
    type Value = Option<&'a Node>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Child<'a> {
    type Value = Option<&'a Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.children.iter().find(|(child, _)| &**child == name).map(|(_, node)| node))
    }
}

/// A string, or nothing where something else stands.
struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Some(value.to_owned()))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn scanner() -> Scanner {
        Scanner::new(&[
            SelectableField::from("spec.nodeName"),
            SelectableField::from("spec.unschedulable").absent("false"),
            SelectableField::from("source").at(&["source.component", "reportingComponent"]),
            SelectableField::from("type"),
        ])
    }

    #[test]
    fn labels_and_fields_are_found() {
        let check = |json: Value, labels: &[(&str, &str)], fields: [&str; 4]| {
            let (found, values) = scanner().scan(json.to_string().as_bytes()).unwrap();
            assert_eq!(found, labels.iter().copied().collect(), "{json}");
            assert_eq!(std::array::from_fn::<_, 4, _>(|index| values.get(index)), fields, "{json}");
        };
        check(json!({}), &[], ["", "false", "", ""]);
        check(
            json!({"metadata": {"labels": {"b": "2", "a\"": "1"}, "annotations": {"x": {"labels": {"c": "3"}}}},
                "spec": {"nodeName": "n1", "unschedulable": true, "x": [{"nodeName": "no"}]}, "type": 7}),
            &[("a\"", "1"), ("b", "2")],
            ["n1", "true", "", "7"],
        );
        check(json!({"reportingComponent": "r", "source": {"component": "c"}}), &[], ["", "false", "c", ""]);
        check(json!({"reportingComponent": "r", "source": {"component": ""}}), &[], ["", "false", "r", ""]);
        check(
            json!({"metadata": {"labels": {"a": 1, "b": null, "c": "x", "d": {}, "e": []}}, "spec": "s", "type": null}),
            &[("c", "x")],
            ["", "false", "", ""],
        );
        check(json!({"metadata": null, "spec": [{"nodeName": "n"}]}), &[], ["", "false", "", ""]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_scanned_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = scanner().scan(&bytes);
        }
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for bad in ["", "{", "{} x", r#"{"spec":{"nodeName":}}"#, r#"{"a":01}"#] {
            assert!(scanner().scan(bad.as_bytes()).is_err(), "{bad}");
        }
        let deep = format!("{}{}", r#"{"spec":"#.repeat(10_000), "1");
        assert!(scanner().scan(deep.as_bytes()).is_err());
    }
}
