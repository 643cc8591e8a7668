//! `kubectl rollout undo`.

use super::history::{Revision, revisions};
use super::template;
use crate::change::{self, ChangeFlags, DryRun};
use crate::connection::Connection;
use crate::select::{ObjectFlags, name_of};
use anyhow::{Context, Result, bail};
use serde_json::Value;

/// What `rollout undo` is told.
#[derive(clap::Args)]
pub struct Flags {
    #[command(flatten)]
    objects: ObjectFlags,
    /// The revision to go back to; 0 is the one before the present one.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    to_revision: i64,
    #[command(flatten)]
    change: ChangeFlags,
}

/// Goes back.
pub async fn run(connection: &Connection, flags: Flags) -> Result<()> {
    for (resource, object) in flags.objects.choose(connection, false).await? {
        let (kind, name) = (resource.kind.to_lowercase(), name_of(&object));
        if object["spec"]["paused"] == true {
            bail!(
                "you cannot rollback a paused {kind}; resume it first with 'kubectl rollout resume {kind}/{name}' and try again"
            );
        }
        let revisions = revisions(connection, &resource, &object).await?;
        let target = chosen(&revisions, flags.to_revision)
            .with_context(|| missing(&revisions, flags.to_revision, &kind, name))?;
        if flags.change.dry_run == DryRun::Client && flags.change.output.is_none() && kind == "function" {
            print!("{}\n{}", resource.named(name), template::function(&target.template));
            continue;
        }
        if flags.change.dry_run == DryRun::Client && flags.change.output.is_none() {
            println!("{} Pod Template:", resource.named(name));
            let text = template::describe(&target.template, target.cause.as_deref());
            print!("{}", text.split_once('\n').map_or("", |(_, rest)| rest));
            continue;
        }
        let changed =
            change::change(connection, &flags.change, "kubectl-rollout", (&resource, &object), |object| {
                put_back(&resource.kind, object, &target.template);
                Ok(())
            })
            .await?;
        let done = if changed.is_different {
            "rolled back".to_owned()
        } else {
            format!("skipped rollback (current template already matches revision {})", target.number)
        };
        flags.change.show(&resource, &changed.object, &done)?;
    }
    Ok(())
}

/// What a Function's revisions are made of; the rest of it stays as it is.
const PARTS: [&str; 7] = ["runtime", "code", "files", "handler", "image", "port", "template"];

fn put_back(kind: &str, object: &mut Value, template: &Value) {
    if kind != "Function" {
        object["spec"]["template"] = template.clone();
        return;
    }
    let Some(spec) = object["spec"].as_object_mut() else { return };
    for name in PARTS {
        match template.get(name) {
            Some(part) => drop(spec.insert(name.to_owned(), part.clone())),
            None => drop(spec.remove(name)),
        }
    }
}

fn chosen(revisions: &[Revision], wanted: i64) -> Option<&Revision> {
    if wanted == 0 {
        // The last one is what runs now.
        return revisions.len().checked_sub(2).and_then(|index| revisions.get(index));
    }
    revisions.iter().find(|revision| revision.number == wanted)
}

fn missing(revisions: &[Revision], wanted: i64, kind: &str, name: &str) -> String {
    match wanted {
        0 if revisions.len() < 2 => format!("no rollout history found for {kind} \"{name}\""),
        _ => format!("unable to find specified revision {wanted} in history"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_function_gets_its_source_back_and_keeps_the_rest() {
        let mut function = json!({"spec": {"image": "web", "port": 80, "concurrency": 5}});
        put_back("Function", &mut function, &json!({"runtime": "python", "code": "x", "handler": "main"}));
        let spec = json!({"runtime": "python", "code": "x", "handler": "main", "concurrency": 5});
        assert_eq!(function, json!({"spec": spec}));
    }

    #[test]
    fn without_a_number_the_one_before_is_meant() {
        let revision = |number| Revision { number, cause: None, template: Value::Null, source: Value::Null };
        let all = [revision(1), revision(4), revision(7)];
        assert_eq!(chosen(&all, 0).map(|revision| revision.number), Some(4));
        assert_eq!(chosen(&all, 1).map(|revision| revision.number), Some(1));
        assert_eq!(chosen(&all, 2), None);
        assert_eq!(chosen(&all[..1], 0), None);
        assert_eq!(missing(&all, 2, "deployment", "web"), "unable to find specified revision 2 in history");
    }
}
