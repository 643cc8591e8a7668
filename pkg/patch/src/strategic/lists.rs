//! Lists that a strategic merge patch merges: by merge key, or as sets of scalars.
//!
//! The order of the result is upstream's: what the patch names stands in the patch's order, what only the object has
//! stands in the object's, and where the two meet the object's order decides.

use super::{ANY, DIRECTIVE, Error, merge_map};
use crate::display;
use api::Schema;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// How one list is merged.
pub(super) struct ListPatch<'a> {
    merge_key: Option<&'a str>,
    element: &'a Schema,
}

/// What identifies an element: its merge key's value, or itself.
type Key = String;

/// Puts a list that the patch does not touch into the wanted order.
pub(super) fn order_only(
    merge: &ListPatch<'_>,
    live: Vec<Value>,
    order: &[Value],
) -> Result<Vec<Value>, Error> {
    let live_keys = merge.keys(&live)?;
    merge.order(live, order, &live_keys)
}

/// Takes the scalars out of a list.
pub(super) fn delete_scalars(list: &mut Vec<Value>, deleted: &[Value]) -> Result<(), Error> {
    let deleted: HashSet<Key> = deleted.iter().map(scalar).collect::<Result<_, _>>()?;
    let mut keys = list.iter().map(scalar).collect::<Result<Vec<Key>, _>>()?.into_iter();
    list.retain(|_| keys.next().is_some_and(|key| !deleted.contains(&key)));
    Ok(())
}

impl<'a> ListPatch<'a> {
    /// As the schema of the list says.
    pub(super) fn new(list: Option<&'a Schema>) -> Self {
        ListPatch {
            merge_key: list.and_then(|list| list.merge_key.as_deref()),
            element: list.and_then(Schema::element).unwrap_or(&ANY),
        }
    }

    /// The keys of all elements, in order.
    pub(super) fn keys(&self, list: &[Value]) -> Result<Vec<Key>, Error> {
        list.iter().map(|element| self.key(element)).collect()
    }

    fn key(&self, element: &Value) -> Result<Key, Error> {
        let Some(merge_key) = self.merge_key else { return scalar(element) };
        let Value::Object(members) = element else {
            return Err(Error::wrong_type("map[string]interface {}", element));
        };
        scalar(members.get(merge_key).ok_or_else(|| Error::no_merge_key(members, merge_key))?)
    }

    /// Merges a patch's list into the object's.
    pub(super) fn merge(&self, live: Vec<Value>, patch: Vec<Value>) -> Result<Vec<Value>, Error> {
        self.merge_in_order(live, patch, None)
    }

    /// Merges a patch's list into the object's; the patch may say in which order the elements are to stand.
    pub(super) fn merge_in_order(
        &self,
        live: Vec<Value>,
        patch: Vec<Value>,
        order: Option<&[Value]>,
    ) -> Result<Vec<Value>, Error> {
        let maps = check_elements(&live, &patch)?;
        let count = live.len();
        let (live, patch) = match (maps, self.merge_key) {
            (true, None) => return Err(Error::NoDeclaredKey("struct")),
            (true, Some(_)) => self.directives(live, patch)?,
            (false, _) => (live, patch),
        };
        let deleted = count.saturating_sub(live.len());
        let (mut live_keys, patch_keys) = (self.keys(&live)?, self.keys(&patch)?);
        let merged = self.merge_elements(live, &live_keys, patch, &patch_keys)?;
        let Some(order) = order else { return self.arrange(merged, &patch_keys, &live_keys) };

        // As upstream has it, new elements take the places that deleted ones have left at the end of the list.
        let known: HashSet<&str> = live_keys.iter().map(String::as_str).collect();
        let mut seen = HashSet::new();
        let new = patch_keys.iter().filter(|key| !known.contains(key.as_str()) && seen.insert(key.as_str()));
        let new: Vec<Key> = new.take(deleted).cloned().collect();
        live_keys.extend(new);
        self.arrange(merged, &self.keys(order)?, &live_keys)
    }

    /// Carries out `$patch` in elements. Gives the object's list and what is left of the patch.
    fn directives(&self, mut live: Vec<Value>, patch: Vec<Value>) -> Result<(Vec<Value>, Vec<Value>), Error> {
        let mut replace = false;
        let mut deleted: HashSet<Key> = HashSet::new();
        let mut plain = Vec::with_capacity(patch.len());
        for element in patch {
            match element.get(DIRECTIVE) {
                None => plain.push(element),
                Some(directive) => match directive.as_str() {
                    Some("delete") => {
                        deleted.insert(self.key(&element)?);
                    }
                    Some("replace") => replace = true,
                    Some("merge") => return Err(Error::MergeDirective),
                    _ => {
                        let directive = display::go_value(directive);
                        let map = display::shortened(display::go_value(&element));
                        return Err(Error::UnknownDirective { directive, map });
                    }
                },
            }
        }
        if replace {
            return Ok((plain, Vec::new()));
        }
        if !deleted.is_empty() {
            // An element of the object without the merge key is not the one to delete.
            live.retain(|element| self.key(element).map_or(true, |key| !deleted.contains(&key)));
        }
        Ok((live, plain))
    }

    /// The elements of both lists, each once: merged where both have them.
    fn merge_elements(
        &self,
        live: Vec<Value>,
        live_keys: &[Key],
        patch: Vec<Value>,
        patch_keys: &[Key],
    ) -> Result<Vec<Value>, Error> {
        let mut places: HashMap<&str, usize> = HashMap::with_capacity(live.len() + patch.len());
        let mut merged: Vec<Value> = Vec::with_capacity(live.len() + patch.len());
        for (element, key) in live.into_iter().zip(live_keys) {
            let repeated = places.contains_key(key.as_str());
            if !repeated {
                places.insert(key, merged.len());
            }
            // Sets of scalars lose their repetitions; keyed elements are validation's business.
            if !repeated || self.merge_key.is_some() {
                merged.push(element);
            }
        }
        for (element, key) in patch.into_iter().zip(patch_keys) {
            match places.get(key.as_str()) {
                None => {
                    places.insert(key, merged.len());
                    merged.push(element);
                }
                Some(&place) => {
                    if let (Value::Object(live), Value::Object(patch)) = (&mut merged[place], element) {
                        let whole = merge_map(std::mem::take(live), patch, self.element)?;
                        *live = whole;
                    }
                }
            }
        }
        Ok(merged)
    }

    /// Puts elements into the order that a patch wants: those it names in its order, the others as the object had
    /// them.
    pub(super) fn order(
        &self,
        list: Vec<Value>,
        order: &[Value],
        live_keys: &[Key],
    ) -> Result<Vec<Value>, Error> {
        let order = self.keys(order)?;
        self.arrange(list, &order, live_keys)
    }

    fn arrange(&self, list: Vec<Value>, order: &[Key], live_keys: &[Key]) -> Result<Vec<Value>, Error> {
        let (wanted, known) = (first_places(order), first_places(live_keys));
        let mut named: Vec<(Option<usize>, usize, Value)> = Vec::new();
        let mut others: Vec<(Option<usize>, Value)> = Vec::new();
        for element in list {
            let key = self.key(&element)?;
            let place = known.get(key.as_str()).copied();
            match wanted.get(key.as_str()) {
                Some(&rank) => named.push((place, rank, element)),
                None => others.push((place, element)),
            }
        }
        named.sort_by_key(|(_, rank, _)| *rank);
        others.sort_by_key(|(place, _)| *place);
        Ok(interleave(others, named.into_iter().map(|(place, _, element)| (place, element)).collect()))
    }

    /// Whether the elements of the patch stand in the order that it gives itself.
    pub(super) fn check_order(&self, patch: &[Value], order: &[Value]) -> Result<(), Error> {
        if patch.is_empty() || order.is_empty() {
            return Ok(());
        }
        let mut wanted = order.iter();
        for element in patch.iter().filter(|element| element.get(DIRECTIVE).is_none()) {
            let key = self.key(element)?;
            loop {
                let Some(next) = wanted.next() else {
                    let show =
                        |list: &[Value]| display::shortened(display::go_value(&Value::from(list.to_vec())));
                    return Err(Error::OrderMismatch { patch: show(patch), order: show(order) });
                };
                if self.key(next)? == key {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Puts each of `others` before the first of `named` that the object had after it; the order within each is kept.
fn interleave(others: Vec<(Option<usize>, Value)>, named: Vec<(Option<usize>, Value)>) -> Vec<Value> {
    let mut all = Vec::with_capacity(others.len() + named.len());
    let mut others = others.into_iter().peekable();
    for (named_place, named) in named {
        while let Some((_, other)) =
            others.next_if(|(place, _)| matches!((place, named_place), (Some(a), Some(b)) if *a < b))
        {
            all.push(other);
        }
        all.push(named);
    }
    all.extend(others.map(|(_, other)| other));
    all
}

/// Where each key stands first.
fn first_places(keys: &[Key]) -> HashMap<&str, usize> {
    let mut places = HashMap::with_capacity(keys.len());
    for (place, key) in keys.iter().enumerate() {
        places.entry(key.as_str()).or_insert(place);
    }
    places
}

/// A scalar as a key; `1` and `"1"` are not the same.
fn scalar(value: &Value) -> Result<Key, Error> {
    match value {
        Value::Array(_) => Err(Error::ListOfLists),
        Value::Object(_) => Err(Error::KeyNotScalar(display::shortened(display::go_value(value)))),
        _ => Ok(value.to_string()),
    }
}

/// Whether the elements of two lists are maps; they must be of one kind.
fn check_elements(live: &[Value], patch: &[Value]) -> Result<bool, Error> {
    let mut kinds = live.iter().chain(patch).map(std::mem::discriminant);
    if live.iter().chain(patch).any(Value::is_array) {
        return Err(Error::ListOfLists);
    }
    let first = kinds.next();
    if !kinds.all(|kind| Some(kind) == first) {
        return Err(Error::MixedElements);
    }
    Ok(live.first().or(patch.first()).is_some_and(Value::is_object))
}
