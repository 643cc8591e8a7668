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
use super::managed_fields::{
    Entry, Operation, UNOWNED, WriteContext, decode_or_reset, encoded, filtered, put, rfc3339, take_away,
    update,
};
use super::typed::{Comparison, compare, field_set};
use super::typed_merge::{merge, remove, validate};
use api::Schema;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The annotation in which client-side `kubectl apply` keeps what it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The manager of `kubectl apply --server-side`, for which that annotation is kept up to date.
const KUBECTL: &str = "kubectl";
/// The manager of fields that were there before anybody applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// Annotations may take this much together.
const MOST_ANNOTATION_BYTES: usize = 256 * 1024;

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
    let (mut new, entries) = match attempt.run(entries.clone(), force) {
        Err(conflicts) if context.manager == KUBECTL => {
            let left = conflicts.without(&last_applied_fields(schema, live_value, context));
            if !left.0.is_empty() {
                return Err(left.into_error());
            }
            attempt.run(entries, true).map_err(Conflicts::into_error)?
        }
        result => result.map_err(Conflicts::into_error)?,
    };
    put(&mut new, entries);
    if context.manager == KUBECTL {
        refresh_last_applied(&mut new, config);
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
    let errors = validate(schema, config);
    if errors.is_empty() {
        return Ok(());
    }
    let (namespace, name) = (api::object::namespace(config), api::object::name(config));
    Err(ApplyError::Untyped {
        object: format!("{namespace}/{name}; {}, Kind={}", context.api_version, text("kind")),
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

    /// Removes from `merged` what the manager applied `last` time, does not apply now, and nobody else owns.
    fn prune(&self, merged: Value, last: &FieldSet, now: &FieldSet, others: &[Entry]) -> Value {
        let schema = self.schema;
        let last = last.with_structs(schema);
        let merged_fields = field_set(schema, &merged).with_structs(schema);

        // What is left without the last configuration, and what anybody owns, stays.
        let mut staying = field_set(schema, &remove(schema, &merged, &last));
        staying.add(now);
        for other in others {
            staying.add(&other.fields);
        }
        let mut leaving = merged_fields.clone();
        leaving.subtract(&staying.with_structs(schema));
        let pruned = remove(schema, &merged, &leaving);

        // Of the rest, only what the last configuration had goes: defaults beside it stay.
        let mut gone = merged_fields;
        gone.subtract(&field_set(schema, &pruned).with_structs(schema));
        remove(schema, &merged, &gone.intersection(&last))
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

fn last_applied(object: &Value) -> Option<&str> {
    let annotation = object.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str()?;
    (!annotation.is_empty()).then_some(annotation)
}

/// What client-side apply set and nobody has changed since: kubectl may take that over without a conflict.
fn last_applied_fields(schema: &Schema, live: &Value, context: &WriteContext<'_>) -> FieldSet {
    let config: Option<Value> = last_applied(live).and_then(|text| serde_json::from_str(text).ok());
    let Some(config) = config else { return FieldSet::default() };
    let same_version = config.get("apiVersion").is_some_and(|version| version == context.api_version);
    if !same_version || !validate(schema, &config).is_empty() {
        return FieldSet::default();
    }
    let mut fields = field_set(schema, &config);
    let comparison = compare(schema, &config, live);
    fields.subtract(&comparison.changed);
    fields.subtract(&comparison.removed);
    fields
}

/// Keeps the annotation true, so that client-side apply still works after server-side apply.
fn refresh_last_applied(object: &mut Value, config: &Value) {
    if last_applied(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(metadata) = config.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(LAST_APPLIED);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    let Some(annotations) = object["metadata"]["annotations"].as_object_mut() else { return };
    annotations.insert(LAST_APPLIED.into(), format!("{config}\n").into());
    let bytes: usize =
        annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > MOST_ANNOTATION_BYTES {
        annotations.remove(LAST_APPLIED);
    }
}

#[cfg(test)]
mod tests {
    use super::super::managed_fields::track_update;
    use super::super::tests::{DEPLOYMENT, context};
    use super::*;
    use serde_json::json;

    /// A configuration with this spec and these labels.
    fn config(spec: Value, labels: Value) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "labels": labels}, "spec": spec})
    }

    fn applied(live: Option<&Value>, config: &Value, manager: &str) -> Result<Value, ApplyError> {
        apply(&DEPLOYMENT, live, config, &context(manager, 0), false)
    }

    fn forced(live: &Value, config: &Value, manager: &str) -> Value {
        apply(&DEPLOYMENT, Some(live), config, &context(manager, 5), true).expect("forced")
    }

    /// The fields of a manager.
    fn owned(object: &Value, manager: &str) -> Vec<String> {
        let entries = encoded(object).cloned().map(decode_or_reset).unwrap_or_default();
        entries
            .iter()
            .filter(|entry| entry.manager == manager)
            .flat_map(|entry| entry.fields.paths())
            .collect()
    }

    fn containers(list: Value) -> Value {
        config(json!({"template": {"spec": {"containers": list}}}), json!({}))
    }

    #[test]
    fn creating_owns_what_the_configuration_says() {
        let config =
            config(json!({"replicas": 1, "selector": {"matchLabels": {"a": "b"}}}), json!({"a": "b"}));
        let live = applied(None, &config, "me").expect("applies");
        assert_eq!(owned(&live, "me"), [".metadata.labels.a", ".spec.replicas", ".spec.selector"]);
        assert_eq!(live["metadata"]["managedFields"][0]["operation"], "Apply");
        assert_eq!(live["spec"], config["spec"]);
    }

    #[test]
    fn one_conflict_reads_as_upstreams() {
        let live = applied(None, &config(json!({"replicas": 1}), json!({})), "one").expect("applies");
        let error =
            applied(Some(&live), &config(json!({"replicas": 2}), json!({})), "two").expect_err("a conflict");
        assert_eq!(error.to_string(), r#"Apply failed with 1 conflict: conflict with "one": .spec.replicas"#);
        let ApplyError::Conflict { causes, .. } = error else { panic!("a conflict") };
        let cause =
            ConflictCause { field: ".spec.replicas".into(), message: r#"conflict with "one""#.into() };
        assert_eq!(causes, [cause]);

        let mut updated = live.clone();
        updated["metadata"]["uid"] = json!("u");
        updated["spec"]["replicas"] = json!(3);
        track_update(&DEPLOYMENT, Some(&live), &mut updated, &context("hpa", 1));
        let error = applied(Some(&updated), &config(json!({"replicas": 1}), json!({})), "one")
            .expect_err("a conflict");
        assert_eq!(
            error.to_string(),
            r#"Apply failed with 1 conflict: conflict with "hpa" using apps/v1: .spec.replicas"#
        );
    }

    #[test]
    fn more_conflicts_are_listed_by_manager() {
        let first =
            config(json!({"template": {"spec": {"containers": [{"name": "a", "image": "x"}]}}}), json!({}));
        let live = applied(None, &first, "one").expect("applies");
        let live =
            applied(Some(&live), &config(json!({"replicas": 1}), json!({"l": "x"})), "two").expect("applies");
        let other = config(
            json!({"replicas": 2, "template": {"spec": {"containers": [{"name": "a", "image": "y"}]}}}),
            json!({"l": "y"}),
        );
        let error = applied(Some(&live), &other, "three").expect_err("conflicts");
        let expected = concat!(
            "Apply failed with 3 conflicts: conflicts with \"one\":\n",
            "- .spec.template.spec.containers[name=\"a\"].image\n",
            "conflicts with \"two\":\n- .metadata.labels.l\n- .spec.replicas"
        );
        assert_eq!(error.to_string(), expected);

        let live = forced(&live, &other, "three");
        assert_eq!(live["spec"]["replicas"], 2);
        assert_eq!(owned(&live, "two"), [""; 0]);
        let container = r#".spec.template.spec.containers[name="a"]"#;
        assert_eq!(owned(&live, "one"), [".metadata.labels", container, &format!("{container}.name")]);
    }

    #[test]
    fn the_same_value_is_shared_and_stays_until_the_last_owner_lets_go() {
        let both = config(json!({"replicas": 1, "paused": true}), json!({"l": "x"}));
        let live = applied(None, &both, "one").expect("applies");
        let live = applied(Some(&live), &both, "two").expect("applies");
        let less = config(json!({"replicas": 1}), json!({}));
        let live = applied(Some(&live), &less, "one").expect("applies");
        assert_eq!(live["spec"]["paused"], true, "two still owns it");
        let live = applied(Some(&live), &less, "two").expect("applies");
        assert_eq!(live["spec"], json!({"replicas": 1}));
        assert_eq!(live["metadata"].get("labels"), None);
    }

    #[test]
    fn defaults_and_fields_of_others_stay() {
        let mine = containers(json!([{"name": "a", "image": "x", "env": [{"name": "A", "value": "1"}]}]));
        let mut live = applied(None, &mine, "me").expect("applies");
        live["metadata"]["uid"] = json!("u");
        live["spec"]["replicas"] = json!(1);
        live["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = json!("Always");
        let mut changed = live.clone();
        changed["spec"]["template"]["spec"]["containers"][0]["env"]
            .as_array_mut()
            .expect("a list")
            .push(json!({"name": "B", "value": "2"}));
        track_update(&DEPLOYMENT, Some(&live), &mut changed, &context("injector", 1));

        let less = containers(json!([{"name": "a", "image": "x"}]));
        let new = applied(Some(&changed), &less, "me").expect("applies");
        assert_eq!(
            new["spec"]["template"]["spec"]["containers"],
            json!([{"name": "a", "image": "x", "imagePullPolicy": "Always", "env": [{"name": "B", "value": "2"}]}])
        );
        assert_eq!(new["spec"]["replicas"], 1);
    }

    #[test]
    fn an_element_goes_with_the_defaults_in_it() {
        let two = containers(json!([{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]));
        let mut live = applied(None, &two, "me").expect("applies");
        live["spec"]["template"]["spec"]["containers"][1]["imagePullPolicy"] = json!("Always");
        let new =
            applied(Some(&live), &containers(json!([{"name": "a", "image": "x"}])), "me").expect("applies");
        assert_eq!(new["spec"]["template"]["spec"]["containers"], json!([{"name": "a", "image": "x"}]));
    }

    #[test]
    fn new_elements_stand_where_the_configuration_has_them() {
        let check = |live: &[&str], config: &[&str], expected: &[&str]| {
            let list = |names: &[&str]| containers(names.iter().map(|name| json!({"name": name})).collect());
            let mut object = applied(None, &list(live), "one").expect("applies");
            object = applied(Some(&object), &list(config), "two").expect("applies");
            assert_eq!(
                object["spec"]["template"]["spec"]["containers"],
                list(expected)["spec"]["template"]["spec"]["containers"],
                "{live:?} with {config:?}"
            );
        };
        check(&["a", "b"], &["c"], &["a", "b", "c"]);
        check(&["a", "b"], &["c", "b"], &["a", "c", "b"]);
        check(&["a", "b", "c"], &["c", "a"], &["b", "c", "a"]);
        check(&["b", "a", "x"], &["a", "b", "c"], &["a", "x", "b", "c"]);
        check(&["a"], &["b", "a", "c"], &["b", "a", "c"]);
    }

    #[test]
    fn ports_are_told_apart_by_their_defaults() {
        let ports = |list: Value| containers(json!([{"name": "a", "ports": list}]));
        let live = applied(None, &ports(json!([{"containerPort": 53, "name": "t"}])), "me").expect("applies");
        let both =
            ports(json!([{"containerPort": 53, "name": "t"}, {"containerPort": 53, "protocol": "UDP"}]));
        let live = applied(Some(&live), &both, "me").expect("applies");
        let path = r#".spec.template.spec.containers[name="a"].ports[containerPort=53,protocol="TCP"].name"#;
        assert!(owned(&live, "me").iter().any(|owned| owned == path), "{:?}", owned(&live, "me"));
        let error = applied(
            None,
            &ports(json!([{"containerPort": 53}, {"containerPort": 53, "protocol": "TCP"}])),
            "me",
        );
        let error = error.expect_err("a duplicate").to_string();
        assert!(error.contains(r#"duplicate entries for key [containerPort=53,protocol="TCP"]"#), "{error}");
    }

    #[test]
    fn what_was_there_before_belongs_to_nobody_who_applies() {
        let live = config(json!({"replicas": 1, "paused": true}), json!({}));
        let error =
            applied(Some(&live), &config(json!({"replicas": 2}), json!({})), "me").expect_err("a conflict");
        assert_eq!(
            error.to_string(),
            r#"Apply failed with 1 conflict: conflict with "before-first-apply" using apps/v1: .spec.replicas"#
        );
        let new =
            applied(Some(&live), &config(json!({"replicas": 1}), json!({})), "me").expect("the same value");
        assert!(owned(&new, "before-first-apply").contains(&".spec.paused".to_owned()));
    }

    #[test]
    fn kubectl_takes_over_what_it_applied_on_the_client_side() {
        let last = config(json!({"replicas": 1}), json!({}));
        let mut live = config(json!({"replicas": 1, "paused": true}), json!({}));
        live["metadata"]["annotations"] = json!({LAST_APPLIED: last.to_string()});
        let next = config(json!({"replicas": 2}), json!({}));
        let new = applied(Some(&live), &next, "kubectl").expect("no conflict");
        assert_eq!(new["spec"], json!({"replicas": 2, "paused": true}));
        assert_eq!(new["metadata"]["annotations"][LAST_APPLIED], format!("{next}\n"));

        let paused = config(json!({"replicas": 2, "paused": false}), json!({}));
        let error = applied(Some(&live), &paused, "kubectl").expect_err("a conflict").to_string();
        assert!(error.ends_with(".spec.paused"), "{error}");
        assert!(applied(Some(&live), &next, "somebody").is_err());
    }

    #[test]
    fn reset_fields_are_neither_owned_nor_in_conflict() {
        let mut with_status = config(json!({"replicas": 1}), json!({}));
        with_status["status"] = json!({"replicas": 7});
        let live = applied(None, &with_status, "me").expect("applies");
        assert_eq!(owned(&live, "me"), [".metadata.labels", ".spec.replicas"]);
    }

    #[test]
    fn configurations_that_are_none_are_refused() {
        let check = |config: Value, expected: &str| {
            let error = applied(None, &config, "me").expect_err("refused");
            assert_eq!(error.to_string(), expected);
        };
        check(json!([]), "the applied configuration must be an object");
        check(
            json!({"apiVersion": "v1"}),
            "Incorrect version specified in apply patch. Specified patch version: v1, expected: apps/v1",
        );
        let mut managed = config(json!({}), json!({}));
        managed["metadata"]["managedFields"] = json!([]);
        check(managed, "metadata.managedFields must be nil");
        let failed = "failed to create typed patch object (/x; apps/v1, Kind=Deployment): ";
        check(
            config(json!({"replicaz": 1}), json!({})),
            &format!("{failed}.spec.replicaz: field not declared in schema"),
        );
        check(
            config(json!({"replicas": "1"}), json!([])),
            &format!(
                "{failed}errors:\n  .metadata.labels: expected map, got &{{[]}}\n  \
                 .spec.replicas: expected numeric (int or float), got string"
            ),
        );
        check(
            containers(json!([{"name": "a"}, {"name": "a"}])),
            &format!("{failed}.spec.template.spec.containers: duplicate entries for key [name=\"a\"]"),
        );
        check(
            containers(json!(["a"])),
            &format!(
                "{failed}.spec.template.spec.containers: element 0: \
                 associative list with keys may not have non-map elements"
            ),
        );
    }

    #[test]
    fn sets_lose_what_was_applied_only() {
        let with = |finalizers: Value| {
            let mut config = config(json!({}), json!({}));
            config["metadata"]["finalizers"] = finalizers;
            config
        };
        let live = applied(None, &with(json!(["a.io/x", "b.io/y"])), "one").expect("applies");
        let live = applied(Some(&live), &with(json!(["c.io/z"])), "two").expect("applies");
        let live = applied(Some(&live), &with(json!(["b.io/y"])), "one").expect("applies");
        assert_eq!(live["metadata"]["finalizers"], json!(["b.io/y", "c.io/z"]));
    }
}
