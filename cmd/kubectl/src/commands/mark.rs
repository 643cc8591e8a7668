//! `kubectl label` and `kubectl annotate`.

use crate::change::{self, ChangeFlags};
use crate::connection::{ClusterFlags, Connection};
use crate::select::{ObjectFlags, name_of};
use anyhow::{Result, bail};
use serde_json::{Map, Value, json};

/// What is put on objects.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A label.
    Label,
    /// An annotation.
    Annotation,
}

/// What `label` and `annotate` are told.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  kubectl label node n1 disk=ssd\n  kubectl label pod web tier-     # removes it"
)]
pub struct Flags {
    /// Kinds and names, then KEY=VALUE or KEY-.
    #[command(flatten)]
    objects: ObjectFlags,
    /// Change values that are there.
    #[arg(long)]
    overwrite: bool,
    /// Show what is there.
    #[arg(long)]
    list: bool,
    /// Change what files say, ask no server.
    #[arg(long)]
    local: bool,
    /// Only if the object is still of this version.
    #[arg(long)]
    resource_version: Option<String>,
    #[command(flatten)]
    change: ChangeFlags,
}

impl Mark {
    fn field(self) -> &'static str {
        match self {
            Mark::Label => "labels",
            Mark::Annotation => "annotations",
        }
    }

    fn manager(self) -> &'static str {
        match self {
            Mark::Label => "kubectl-label",
            Mark::Annotation => "kubectl-annotate",
        }
    }

    /// What is said of an object that was marked.
    fn done(self, is_different: bool, changes: &Map<String, Value>) -> &'static str {
        match self {
            Mark::Annotation => "annotated",
            Mark::Label if !is_different => "not labeled",
            Mark::Label if changes.values().all(Value::is_null) => "unlabeled",
            Mark::Label => "labeled",
        }
    }
}

/// Marks.
pub async fn run(cluster: &ClusterFlags, mut flags: Flags, mark: Mark) -> Result<()> {
    let (changes, words): (Vec<String>, Vec<String>) =
        flags.objects.words.into_iter().partition(|word| word.contains('=') || word.ends_with('-'));
    flags.objects.words = words;
    if changes.is_empty() && !flags.list {
        bail!("at least one {} update is required", mark.field().trim_end_matches('s'));
    }
    let changes = parse(&changes)?;
    let connection = Connection::open(cluster).await?;
    let chosen = flags.objects.choose(&connection, flags.local).await?;
    let several = chosen.len() > 1;
    let mut dry = flags.change.clone();
    if flags.local {
        dry.dry_run = change::DryRun::Client;
    }
    for (resource, object) in chosen {
        if flags.list {
            list(&object, mark, several);
            continue;
        }
        let own = &object["metadata"][mark.field()];
        if !flags.overwrite {
            refuse_overwriting(own, &changes, mark)?;
        }
        for (key, _) in changes.iter().filter(|(key, value)| value.is_null() && own.get(key).is_none()) {
            println!("{} \"{key}\" not found.", mark.field().trim_end_matches('s'));
        }
        let changed = change::change(&connection, &dry, mark.manager(), (&resource, &object), |object| {
            apply(object, mark.field(), &changes);
            if let Some(version) = &flags.resource_version {
                object["metadata"]["resourceVersion"] = version.clone().into();
            }
            Ok(())
        })
        .await?;
        let done = mark.done(changed.is_different, &changes);
        flags.change.show(&resource, &changed.object, done)?;
    }
    Ok(())
}

/// `a=b` sets, `a-` removes.
fn parse(changes: &[String]) -> Result<Map<String, Value>> {
    let mut parsed = Map::new();
    for change in changes {
        let (key, value) = match change.split_once('=') {
            Some((key, value)) => (key, Value::from(value)),
            None => (change.trim_end_matches('-'), Value::Null),
        };
        if key.is_empty() {
            bail!("invalid label spec: {change}");
        }
        if parsed.get(key).is_some_and(|other| other.is_null() != value.is_null()) {
            bail!("cannot modify and remove the same label in one command: {key}");
        }
        parsed.insert(key.to_owned(), value);
    }
    Ok(parsed)
}

fn refuse_overwriting(own: &Value, changes: &Map<String, Value>, mark: Mark) -> Result<()> {
    let taken: Vec<String> = changes
        .iter()
        .filter(|(key, value)| value.is_string() && own.get(key.as_str()).is_some_and(|old| old != *value))
        .map(|(key, _)| format!("'{key}' already has a value ({})", own[key].as_str().unwrap_or_default()))
        .collect();
    match (taken.as_slice(), mark) {
        ([], _) => Ok(()),
        (taken, Mark::Label) => bail!("{}, and --overwrite is false", taken.join("; ")),
        (taken, Mark::Annotation) => {
            bail!("--overwrite is false but found the following declared annotation(s): {}", taken.join("; "))
        }
    }
}

fn apply(object: &mut Value, field: &str, changes: &Map<String, Value>) {
    if !object["metadata"][field].is_object() {
        object["metadata"][field] = json!({});
    }
    let Some(own) = object["metadata"][field].as_object_mut() else { return };
    for (key, value) in changes {
        match value {
            Value::Null => drop(own.remove(key)),
            value => drop(own.insert(key.clone(), value.clone())),
        }
    }
    if own.is_empty()
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove(field);
    }
}

fn list(object: &Value, mark: Mark, several: bool) {
    let indent = if several { " " } else { "" };
    if several {
        let kind = object["kind"].as_str().unwrap_or_default();
        let group = object["apiVersion"].as_str().unwrap_or_default().rsplit_once('/');
        let group = group.map(|(group, _)| group).unwrap_or_default();
        println!("Listing {} for {kind}.{group}/{}:", mark.field(), name_of(object));
    }
    for (key, value) in object["metadata"][mark.field()].as_object().into_iter().flatten() {
        println!("{indent}{key}={}", cli::plain(value.as_str().unwrap_or_default()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(words: &[&str]) -> Map<String, Value> {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).expect("understood")
    }

    #[test]
    fn a_dash_at_the_end_removes() {
        assert_eq!(Value::from(changes(&["a=b", "c-", "d=e=f"])), json!({"a": "b", "c": null, "d": "e=f"}));
        assert!(parse(&["a=b".to_owned(), "a-".to_owned()]).is_err());
    }

    #[test]
    fn what_is_there_is_changed_only_when_told() {
        let own = json!({"a": "b"});
        assert!(refuse_overwriting(&own, &changes(&["a=b", "c=d", "e-"]), Mark::Label).is_ok());
        let error = refuse_overwriting(&own, &changes(&["a=x"]), Mark::Label).expect_err("taken");
        assert_eq!(error.to_string(), "'a' already has a value (b), and --overwrite is false");
    }

    #[test]
    fn the_last_label_takes_the_field_along() {
        let mut object = json!({"metadata": {"labels": {"a": "b"}}});
        apply(&mut object, "labels", &changes(&["a-"]));
        assert_eq!(object, json!({"metadata": {}}));
    }
}
