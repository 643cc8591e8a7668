//! Server-side apply: a configuration says what its manager wants and owns, nothing about the rest.
//!
//! ```text
//! live + configuration ── merge ──> merged ── prune ──> new
//!                                     │         └ what the manager applied before, no longer does,
//!                                     │           and nobody else owns
//!                                     └ fields of others with another value: conflicts, unless forced
//! ```
//!
//! Merging, pruning and ownership follow upstream's structured-merge-diff. Entries made in other versions of the
//! kind are taken as if their fields were this version's: names that moved between versions lose their owner.

use super::field_set::FieldSet;
use super::last_applied;
use super::managed_fields::{
    Entry, Operation, UNOWNED, WriteContext, decode_or_reset, encoded, filtered, put, rfc3339, take_away,
    update,
};
use super::typed::{Comparison, compare, field_set};
use super::typed_merge::{merge, remove, validate};
use api::Schema;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The manager of fields that were there before anybody applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Why a configuration was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The request makes no sense: 400.
    #[error("{0}")]
    BadRequest(String),
    /// The configuration does not have the shape that the schema says. Upstream answers 500 with this message.
    #[error("failed to create typed patch object ({object}): {reasons}")]
    Untyped {
        /// Namespace, name and kind.
        object: String,
        /// What is wrong where.
        reasons: String,
    },
    /// Others own fields that the configuration would change: 409, with a cause for each field.
    #[error("{message}")]
    Conflict {
        /// What people read.
        message: String,
        /// One for each field of each manager.
        causes: Vec<ConflictCause>,
    },
}

/// A field that somebody else owns: a `StatusCause` of the type `FieldManagerConflict`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictCause {
    /// The path, such as `.spec.template.spec.containers[name="web"].image`.
    pub field: String,
    /// Whose it is.
    pub message: String,
}

/// Applies a configuration to an object (`None`: there is none yet). The result carries its `managedFields`; it is
/// not defaulted, and where nothing changed it equals `live`.
pub fn apply(
    schema: &Schema,
    live: Option<&Value>,
    config: &Value,
    context: &WriteContext<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    check(schema, config, context)?;
    let empty = Value::Object(Map::new());
    let live_value = live.unwrap_or(&empty);
    let mut entries = encoded(live_value).cloned().map(decode_or_reset).unwrap_or_default();
    for entry in &mut entries {
        entry.fields.reconcile(schema);
    }
    if entries.is_empty() && live.is_some() {
        entries = before_first_apply(schema, live_value, context);
    }

    let attempt = Attempt { schema, live: live_value, config, context };
    let kubectls = (context.manager == last_applied::MANAGER).then(|| entries.clone());
    let (mut new, entries) = match (attempt.run(entries, force), kubectls) {
        (Err(conflicts), Some(entries)) => {
            let left = conflicts.without(&last_applied::unchanged_fields(schema, live_value, context));
            if !left.0.is_empty() {
                return Err(left.into_error());
            }
            attempt.run(entries, true).map_err(Conflicts::into_error)?
        }
        (result, _) => result.map_err(Conflicts::into_error)?,
    };
    put(&mut new, entries);
    if context.manager == last_applied::MANAGER {
        last_applied::refresh(&mut new, config);
    }
    Ok(new)
}

fn check(schema: &Schema, config: &Value, context: &WriteContext<'_>) -> Result<(), ApplyError> {
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    if !config.is_object() {
        return Err(ApplyError::BadRequest("the applied configuration must be an object".into()));
    }
    if text("apiVersion") != context.api_version {
        return Err(ApplyError::BadRequest(format!(
            "Incorrect version specified in apply patch. Specified patch version: {}, expected: {}",
            text("apiVersion"),
            context.api_version
        )));
    }
    if encoded(config).is_some() {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".into()));
    }
    check_fields(schema, config)
}

/// Refuses a configuration that is not of the schema, or has fields that the schema does not.
pub fn check_fields(schema: &Schema, config: &Value) -> Result<(), ApplyError> {
    let errors = validate(schema, config);
    if errors.is_empty() {
        return Ok(());
    }
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (api::object::namespace(config), api::object::name(config));
    Err(ApplyError::Untyped {
        object: format!("{namespace}/{name}; {}, Kind={}", text("apiVersion"), text("kind")),
        reasons: match errors.as_slice() {
            [only] => only.clone(),
            all => format!("errors:\n  {}", all.join("\n  ")),
        },
    })
}

/// Gives what is there already to a manager of its own, so that applying does not take it over silently.
fn before_first_apply(schema: &Schema, live: &Value, context: &WriteContext<'_>) -> Vec<Entry> {
    let comparison = filtered(compare(schema, &Value::Object(Map::new()), live), context);
    update(Vec::new(), comparison, &WriteContext { manager: BEFORE_FIRST_APPLY, ..*context })
}

struct Attempt<'a> {
    schema: &'a Schema,
    live: &'a Value,
    config: &'a Value,
    context: &'a WriteContext<'a>,
}

impl Attempt<'_> {
    fn run(&self, mut entries: Vec<Entry>, force: bool) -> Result<(Value, Vec<Entry>), Conflicts> {
        let Attempt { schema, live, config, context } = *self;
        let mut entry = Entry::new(context.manager, Operation::Apply, context);
        entry.fields = field_set(schema, config);
        entry.fields.subtract_trees(&FieldSet::of_paths(context.reset_fields.iter().copied()));
        let last = entries.iter().position(|known| known.same_as(&entry)).map(|index| entries.remove(index));

        let merged = merge(schema, live, config);
        let new = match &last {
            Some(last) if !last.fields.is_empty() => {
                self.prune(merged, &last.fields, &entry.fields, &entries)
            }
            _ => merged,
        };
        let comparison = filtered(compare(schema, live, &new), context);
        if !force {
            Conflicts::find(&entries, &comparison)?;
        }
        take_away(&mut entries, &comparison);

        entry.fields.subtract(&UNOWNED);
        let unchanged =
            last.as_ref().is_some_and(|last| last.fields == entry.fields) && comparison.is_empty();
        entry.time = match last {
            Some(last) if unchanged => last.time,
            _ => Some(rfc3339(context.now)),
        };
        if !entry.fields.is_empty() {
            entries.push(entry);
        }
        Ok((new, entries))
    }

    /// Removes from `merged` what the manager applied `last` time, does not apply now, and nobody else owns. Defaults
    /// beside it stay, defaults within it go with it.
    fn prune(&self, merged: Value, last: &FieldSet, now: &FieldSet, others: &[Entry]) -> Value {
        let mut gone = last.clone();
        gone.subtract(now);
        if gone.is_empty() {
            return merged;
        }
        let mut owned = now.clone();
        for other in others {
            owned.add(&other.fields);
        }
        let mut gone = last.with_structs(self.schema);
        gone.subtract(&owned.with_structs(self.schema));
        remove(self.schema, &merged, &gone)
    }
}

/// Fields of other managers that would change, by manager.
struct Conflicts(BTreeMap<(String, String), FieldSet>);

impl Conflicts {
    fn find(entries: &[Entry], comparison: &Comparison) -> Result<(), Conflicts> {
        let mut conflicts = BTreeMap::new();
        for entry in entries {
            let fields = entry.fields.intersection(&comparison.changed);
            if !fields.is_empty() {
                let shown = shown(entry);
                conflicts.insert((entry.manager.clone(), shown), fields);
            }
        }
        if conflicts.is_empty() { Ok(()) } else { Err(Conflicts(conflicts)) }
    }

    fn without(mut self, allowed: &FieldSet) -> Conflicts {
        self.0.retain(|_, fields| {
            fields.subtract(allowed);
            !fields.is_empty()
        });
        self
    }

    fn into_error(self) -> ApplyError {
        let mut causes = Vec::new();
        let mut lines = Vec::new();
        for ((_, manager), fields) in &self.0 {
            lines.push(format!("conflicts with {manager}:"));
            for field in fields.paths() {
                lines.push(format!("- {field}"));
                causes.push(ConflictCause { field, message: format!("conflict with {manager}") });
            }
        }
        let message = match causes.as_slice() {
            [only] => format!("Apply failed with 1 conflict: {}: {}", only.message, only.field),
            all => format!("Apply failed with {} conflicts: {}", all.len(), lines.join("\n")),
        };
        ApplyError::Conflict { message, causes }
    }
}

/// A manager as conflicts name it.
fn shown(entry: &Entry) -> String {
    let mut shown = format!("{:?}", entry.manager);
    if !entry.subresource.is_empty() {
        shown.push_str(&format!(" with subresource {:?}", entry.subresource));
    }
    if entry.operation == Operation::Update {
        shown.push_str(&format!(" using {}", entry.api_version));
    }
    shown
}

#[cfg(test)]
mod tests;
