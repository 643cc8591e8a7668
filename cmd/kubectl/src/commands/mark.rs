//! `kubectl label` and `kubectl annotate`.

use crate::connection::{ClusterFlags, Connection};
use crate::select::{self, SelectFlags, name_of, path_of};
use anyhow::{Result, bail};
use http::Method;
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
    #[arg(required = true)]
    words: Vec<String>,
    /// Only objects with these labels.
    #[arg(long, short = 'l')]
    selector: Option<String>,
    /// All of the kind in the namespace.
    #[arg(long)]
    all: bool,
    /// Change values that are there.
    #[arg(long)]
    overwrite: bool,
}

/// Marks.
pub async fn run(cluster: &ClusterFlags, flags: Flags, mark: Mark) -> Result<()> {
    let (changes, words): (Vec<String>, Vec<String>) =
        flags.words.into_iter().partition(|word| word.contains('=') || word.ends_with('-'));
    if changes.is_empty() {
        bail!("at least one KEY=VALUE or KEY- is required");
    }
    if words.len() < 2
        && !words.iter().any(|word| word.contains('/'))
        && flags.selector.is_none()
        && !flags.all
    {
        bail!("one or more resources must be specified as <resource> <name> or <resource>/<name>");
    }
    let changes = parse(&changes);
    let (field, done) = match mark {
        Mark::Label => ("labels", "labeled"),
        Mark::Annotation => ("annotations", "annotated"),
    };
    let connection = Connection::open(cluster).await?;
    let select = SelectFlags { words, selector: flags.selector, ..SelectFlags::default() };
    for (resource, object) in select::objects(&connection, &select).await? {
        let own = &object["metadata"][field];
        if let Some((key, _)) = changes.iter().find(|(key, value)| {
            !flags.overwrite && value.is_string() && own.get(key.as_str()).is_some_and(|old| old != *value)
        }) {
            bail!(
                "'{key}' already has a value ({}), and --overwrite is false",
                own[key].as_str().unwrap_or_default()
            );
        }
        let patch = json!({"metadata": {field: changes}}).to_string();
        let path = format!("{}?fieldManager=kubectl-label", path_of(&resource, &object));
        let after = connection
            .send_as(Method::PATCH, &path, "application/merge-patch+json", Some(patch), "application/json")
            .await?;
        let same = after["metadata"]["resourceVersion"] == object["metadata"]["resourceVersion"];
        let what = if same { format!("not {done}") } else { done.to_owned() };
        println!("{} {what}", resource.named(name_of(&object)));
    }
    Ok(())
}

/// `a=b` sets, `a-` removes.
fn parse(changes: &[String]) -> Map<String, Value> {
    let one = |change: &String| match change.split_once('=') {
        Some((key, value)) => (key.to_owned(), Value::from(value)),
        None => (change.trim_end_matches('-').to_owned(), Value::Null),
    };
    changes.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dash_at_the_end_removes() {
        let changes = parse(&["a=b".to_owned(), "c-".to_owned(), "d=e=f".to_owned()]);
        assert_eq!(Value::from(changes), json!({"a": "b", "c": null, "d": "e=f"}));
    }
}
