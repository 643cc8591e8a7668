//! Selectors: which objects a list, a watch or a controller is about.
//!
//! ```text
//! "app=web,tier in (a,b)" ──parse──> LabelSelector ──matches──> Labels of an object
//! {"matchLabels": …}    ──from_json──┘
//! "spec.nodeName=n1"      ──parse──> FieldSelector ──matches──> fields of an object
//! ```
//!
//! Grammar, matching and error texts are upstream's (`labels.Parse`, `fields.ParseSelector`,
//! `LabelSelectorAsSelector`). Everything here is pure, and matching allocates nothing. Which fields a kind lets
//! people select by is not known here: see [`FieldSelector::terms`].

mod field;
mod label;
mod parse;

pub use field::{FieldSelector, Term};
pub use label::{LabelSelector, Operator, Requirement, label_key_errors, label_value_errors};

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// A longer selector does not fit a request line, so nobody can have meant it.
pub const MOST_SELECTOR_BYTES: usize = 64 * 1024;

/// Why a selector was not understood. The text is upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub(crate) String);

impl SelectorError {
    fn too_long(len: usize) -> Self {
        SelectorError(format!("selector is {len} bytes long, more than {MOST_SELECTOR_BYTES}"))
    }
}

/// Something that has values under names: labels, or the fields of an object.
pub trait Lookup {
    /// The value under a name.
    fn look_up(&self, name: &str) -> Option<&str>;
}

impl Lookup for Map<String, Value> {
    fn look_up(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }
}

impl Lookup for BTreeMap<String, String> {
    fn look_up(&self, name: &str) -> Option<&str> {
        self.get(name).map(String::as_str)
    }
}

/// The labels of an object: sorted, unique, in two allocations however many there are.
///
/// ```
/// use api::selector::Labels;
/// let labels = Labels::from_iter([("tier", "db"), ("app", "web")]);
/// assert_eq!(labels.get("app"), Some("web"));
/// assert_eq!(labels.get("nope"), None);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Labels {
    /// All keys and values, one after the other.
    text: Box<str>,
    /// Where each key and its value end.
    ends: Box<[(u32, u32)]>,
}

impl Labels {
    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let index = self.find(key)?;
        let (from, to) = self.ends[index];
        Some(&self.text[from as usize..to as usize])
    }

    /// The labels in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ends
            .iter()
            .enumerate()
            .map(|(index, &(from, to))| (self.key(index), &self.text[from as usize..to as usize]))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn key(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1].1 };
        &self.text[start as usize..self.ends[index].0 as usize]
    }

    fn find(&self, key: &str) -> Option<usize> {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.key(middle).cmp(key) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

impl Lookup for Labels {
    fn look_up(&self, name: &str) -> Option<&str> {
        self.get(name)
    }
}

/// Of a key that stands twice the last value counts, as in JSON. What goes beyond 4 GiB of text is left out.
impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Self {
        let mut pairs: Vec<(K, V)> = labels.into_iter().collect();
        pairs.sort_by(|a, b| a.0.as_ref().cmp(b.0.as_ref()));
        let mut text = String::new();
        let mut ends = Vec::with_capacity(pairs.len());
        for (index, (key, value)) in pairs.iter().enumerate() {
            let overruled = pairs.get(index + 1).is_some_and(|next| next.0.as_ref() == key.as_ref());
            let room = u32::MAX as usize - text.len();
            if overruled || room < key.as_ref().len().saturating_add(value.as_ref().len()) {
                continue;
            }
            text.push_str(key.as_ref());
            let key_end = text.len() as u32;
            text.push_str(value.as_ref());
            ends.push((key_end, text.len() as u32));
        }
        Labels { text: text.into(), ends: ends.into() }
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn labels_behave_as_a_map(
            pairs in proptest::collection::vec(("[a-c]{0,2}", "[a-zä]{0,3}"), 0..12),
            probe in "[a-c]{0,2}",
        ) {
            let map: BTreeMap<String, String> = pairs.iter().cloned().collect();
            let labels: Labels = pairs.iter().map(|(k, v)| (k, v)).collect();
            prop_assert_eq!(labels.look_up(&probe), map.look_up(&probe));
            prop_assert_eq!(labels.len(), map.len());
            let listed: Vec<(&str, &str)> = labels.iter().collect();
            let expected: Vec<(&str, &str)> = map.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            prop_assert_eq!(listed, expected);
        }
    }
}
