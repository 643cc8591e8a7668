//! Who owns which field: `metadata.managedFields`, and how writes other than apply change it.
//!
//! ```text
//! live ─┐                       other managers lose what changed or went away
//!       ├─ compare ─> changed ─┤
//! new ──┘            removed    the writer's `Update` entry gains what changed
//! ```
//!
//! Nothing here fails: an object whose entries cannot be read starts anew, as upstream's does.

use super::field_set::{BadFields, FieldSet};
use super::typed::{Comparison, compare};
use api::Schema;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// Update entries beyond this many are merged, the oldest first.
const MOST_UPDATE_ENTRIES: usize = 10;
/// The manager of merged entries.
const ANCIENT: &str = "ancient-changes";
/// What a manager without a name is called.
const UNKNOWN: &str = "unknown";
/// Longer names of managers are cut.
const MANAGER_BYTES: usize = 128;

/// Who writes, and how.
#[derive(Debug, Clone, Copy)]
pub struct WriteContext<'a> {
    /// The field manager: what the request names, or see [`manager_or_user_agent`].
    pub manager: &'a str,
    /// The version that the request speaks: `apps/v1`.
    pub api_version: &'a str,
    /// The subresource that is written to; empty for the object itself.
    pub subresource: &'a str,
    /// Fields that this resource's writes never change, as dotted paths: `status` for the object itself if it has
    /// that subresource, `spec` for the subresource.
    pub reset_fields: &'a [&'a str],
    /// The present time.
    pub now: Timestamp,
}

/// The name of the manager of a request: the one it names, or else the first part of its user agent.
pub fn manager_or_user_agent(manager: &str, user_agent: &str) -> String {
    if !manager.is_empty() {
        return manager.to_owned();
    }
    let mut name = String::new();
    for c in user_agent.split('/').next().unwrap_or_default().chars().filter(|c| !c.is_control()) {
        if name.len() + c.len_utf8() > MANAGER_BYTES {
            break;
        }
        name.push(c);
    }
    name
}

/// Records in `new` who owns its fields now, after a create (`live` is `None`), update or patch.
pub fn track_update(schema: &Schema, live: Option<&Value>, new: &mut Value, context: &WriteContext<'_>) {
    let given = take_encoded(new);
    let known = live.and_then(encoded);
    let is_create = live.is_none_or(|live| api::object::meta(live, "uid").unwrap_or_default().is_empty());
    let empty = Value::Object(Map::new());
    let comparison = filtered(compare(schema, live.unwrap_or(&empty), new), context);

    let same = given.as_ref() == known;
    let entries = match given {
        Some(given) if !same && context.subresource.is_empty() => {
            if is_reset(&given) {
                Vec::new()
            } else {
                let entries = decode_or_reset(given);
                if entries.is_empty() {
                    known.cloned().map(decode_or_reset).unwrap_or_default()
                } else {
                    entries
                }
            }
        }
        // Most writes that change nothing end here, without a look into the entries.
        given if comparison.is_empty() => {
            return put_encoded(new, if same { given } else { known.cloned() });
        }
        Some(given) if same => decode_or_reset(given),
        _ => known.cloned().map(decode_or_reset).unwrap_or_default(),
    };
    if entries.is_empty() && !is_create {
        // Nobody wanted to know who owns what until now; somebody who applies will start it.
        return;
    }
    let entries = update(entries, comparison, context);
    put(new, entries);
}

/// One entry of `managedFields`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
    pub(super) time: Option<String>,
    pub(super) fields: FieldSet,
}

/// How an entry's manager came to own its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn text(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

impl Entry {
    /// An entry of the writer's without fields.
    pub(super) fn new(manager: &str, operation: Operation, context: &WriteContext<'_>) -> Entry {
        Entry {
            manager: if manager.is_empty() { UNKNOWN.into() } else { manager.into() },
            operation,
            api_version: context.api_version.into(),
            subresource: context.subresource.into(),
            time: None,
            fields: FieldSet::default(),
        }
    }

    /// Whether both are the same manager's: whoever applies in another version is still the same.
    pub(super) fn same_as(&self, other: &Entry) -> bool {
        self.identity() == other.identity()
    }

    fn identity(&self) -> (&str, Operation, &str, &str) {
        let version = if self.operation == Operation::Update { self.api_version.as_str() } else { "" };
        (&self.manager, self.operation, version, &self.subresource)
    }

    fn seconds(&self) -> i64 {
        self.time.as_ref().and_then(|time| time.parse::<Timestamp>().ok()).map_or(0, Timestamp::as_second)
    }

    fn encode(self) -> Value {
        let mut entry = Map::new();
        entry.insert("manager".into(), self.manager.into());
        entry.insert("operation".into(), self.operation.text().into());
        entry.insert("apiVersion".into(), self.api_version.into());
        if let Some(time) = self.time {
            entry.insert("time".into(), time.into());
        }
        entry.insert("fieldsType".into(), "FieldsV1".into());
        entry.insert("fieldsV1".into(), self.fields.encode());
        if !self.subresource.is_empty() {
            entry.insert("subresource".into(), self.subresource.into());
        }
        Value::Object(entry)
    }
}

/// A `managedFields` that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadEntry {
    #[error("managedFields is not a list of objects")]
    NotAnObject,
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    ApiVersion,
    #[error("fieldsType must be FieldsV1")]
    FieldsType,
    #[error("read fieldsV1")]
    Fields(#[source] BadFields),
}

/// Reads entries; of two of the same manager, the last counts.
pub(super) fn decode(encoded: Value) -> Result<Vec<Entry>, BadEntry> {
    let Value::Array(list) = encoded else { return Err(BadEntry::NotAnObject) };
    let mut entries = list.into_iter().rev().map(decode_entry).collect::<Result<Vec<Entry>, _>>()?;
    let mut seen = HashSet::with_capacity(entries.len());
    let last: Vec<bool> = entries.iter().map(|entry| seen.insert(entry.identity())).collect();
    let mut last = last.into_iter();
    entries.retain(|_| last.next().unwrap_or(false));
    entries.reverse();
    Ok(entries)
}

fn decode_entry(entry: Value) -> Result<Entry, BadEntry> {
    let Value::Object(mut entry) = entry else { return Err(BadEntry::NotAnObject) };
    let fields = match entry.remove("fieldsV1") {
        None | Some(Value::Null) => FieldSet::default(),
        Some(fields) => FieldSet::decode(fields).map_err(BadEntry::Fields)?,
    };
    let text = |name: &str| entry.get(name).and_then(Value::as_str);
    let operation = match text("operation") {
        Some("Apply") => Operation::Apply,
        Some("Update") => Operation::Update,
        _ => return Err(BadEntry::Operation),
    };
    let api_version = text("apiVersion").filter(|version| !version.is_empty()).ok_or(BadEntry::ApiVersion)?;
    if text("fieldsType") != Some("FieldsV1") {
        return Err(BadEntry::FieldsType);
    }
    Ok(Entry {
        manager: text("manager").unwrap_or_default().into(),
        operation,
        api_version: api_version.into(),
        subresource: text("subresource").unwrap_or_default().into(),
        time: text("time").map(Into::into),
        fields,
    })
}

/// The entries of a stored object, none if they cannot be read.
pub(super) fn decode_or_reset(encoded: Value) -> Vec<Entry> {
    decode(encoded).unwrap_or_default()
}

/// `metadata.managedFields` as it stands.
pub(super) fn encoded(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields").filter(|fields| !fields.is_null())
}

fn take_encoded(object: &mut Value) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.remove("managedFields").filter(|fields| !fields.is_null())
}

fn put_encoded(object: &mut Value, encoded: Option<Value>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match encoded {
        Some(encoded) => metadata.insert("managedFields".into(), encoded),
        None => metadata.remove("managedFields"),
    };
}

/// Writes the entries into an object, in upstream's order.
pub(super) fn put(object: &mut Value, mut entries: Vec<Entry>) {
    entries.sort_by_cached_key(|entry| {
        (
            entry.operation,
            entry.seconds(),
            entry.manager.clone(),
            entry.api_version.clone(),
            entry.subresource.clone(),
        )
    });
    let list: Vec<Value> = entries.into_iter().map(Entry::encode).collect();
    put_encoded(object, (!list.is_empty()).then_some(Value::Array(list)));
}

/// Whether the writer asks to forget who owned what: `[]` or `[{}]`.
fn is_reset(given: &Value) -> bool {
    match given.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => *only == json!({}),
        _ => false,
    }
}

/// What this resource's writes can change.
pub(super) fn filtered(mut comparison: Comparison, context: &WriteContext<'_>) -> Comparison {
    let reset = FieldSet::of_paths(context.reset_fields.iter().copied());
    for set in [&mut comparison.changed, &mut comparison.removed] {
        set.subtract_trees(&reset);
        set.subtract(&UNOWNED);
    }
    comparison
}

/// Fields that no manager owns.
pub(super) static UNOWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of_paths([
        "apiVersion",
        "kind",
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.uid",
        "metadata.clusterName",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.resourceVersion",
    ])
});

/// The entries after a write by other means than apply.
pub(super) fn update(
    mut entries: Vec<Entry>,
    comparison: Comparison,
    context: &WriteContext<'_>,
) -> Vec<Entry> {
    take_away(&mut entries, &comparison);
    if !comparison.changed.is_empty() {
        let mut entry = Entry::new(context.manager, Operation::Update, context);
        entry.fields = comparison.changed;
        entry.time = Some(rfc3339(context.now));
        match entries.iter_mut().find(|known| known.same_as(&entry)) {
            Some(known) => {
                known.fields.add(&entry.fields);
                known.time = entry.time;
            }
            None => entries.push(entry),
        }
    }
    cap(entries)
}

/// Takes from every manager what somebody else has changed or removed.
pub(super) fn take_away(entries: &mut Vec<Entry>, comparison: &Comparison) {
    entries.retain_mut(|entry| {
        entry.fields.subtract(&comparison.changed);
        entry.fields.subtract(&comparison.removed);
        !entry.fields.is_empty()
    });
}

/// The time as `managedFields` has it: whole seconds.
pub(super) fn rfc3339(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Merges the oldest update entries of each version until there are few enough.
fn cap(entries: Vec<Entry>) -> Vec<Entry> {
    let (mut kept, mut updates): (Vec<Entry>, Vec<Entry>) =
        entries.into_iter().partition(|entry| entry.operation == Operation::Apply);
    let mut count = updates.len();
    if count > MOST_UPDATE_ENTRIES {
        updates
            .sort_by_cached_key(|entry| (entry.seconds(), entry.manager.clone(), entry.api_version.clone()));
    }
    let mut buckets: HashMap<String, Entry> = HashMap::new();
    let mut rest = updates.into_iter();
    while count > MOST_UPDATE_ENTRIES {
        let Some(entry) = rest.next() else { break };
        match buckets.get_mut(&entry.api_version) {
            None => {
                buckets.insert(entry.api_version.clone(), entry);
            }
            Some(bucket) => {
                bucket.manager = ANCIENT.into();
                bucket.subresource = String::new();
                bucket.fields.add(&entry.fields);
                bucket.time = entry.time;
                count -= 1;
            }
        }
    }
    kept.extend(buckets.into_values());
    kept.extend(rest);
    merge_ancient(kept)
}

/// An older bucket may stand among the newer entries: its time is that of the last entry merged into it.
fn merge_ancient(entries: Vec<Entry>) -> Vec<Entry> {
    let (ancient, mut merged): (Vec<Entry>, Vec<Entry>) = entries
        .into_iter()
        .partition(|entry| entry.manager == ANCIENT && entry.operation == Operation::Update);
    let mut by_version: HashMap<String, Entry> = HashMap::new();
    for entry in ancient {
        match by_version.get_mut(&entry.api_version) {
            Some(known) if known.subresource == entry.subresource => {
                known.fields.add(&entry.fields);
                known.time = known.time.take().max(entry.time);
            }
            Some(_) => merged.push(entry),
            None => {
                by_version.insert(entry.api_version.clone(), entry);
            }
        }
    }
    merged.extend(by_version.into_values());
    merged
}

#[cfg(test)]
mod tests;
