//! `kubectl set`: image, env, resources, selector, serviceaccount and subject.

mod env;
mod subject;

use crate::change::{self, ChangeFlags, DryRun};
use crate::connection::{ClusterFlags, Connection};
use crate::select::ObjectFlags;
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

/// What can be set.
#[derive(clap::Subcommand)]
pub enum Command {
    /// The images of containers: kubectl set image deployment/web nginx=nginx:1.27
    Image(Flags),
    /// Environment variables: kubectl set env deployment/web LEVEL=debug OLD-
    Env(env::Flags),
    /// Limits and requests: kubectl set resources deployment web --limits=cpu=200m
    Resources(ResourcesFlags),
    /// The labels that a service selects: kubectl set selector service web app=web
    Selector(Flags),
    /// Who pods run as: kubectl set serviceaccount deployment web robot
    #[command(visible_alias = "sa")]
    Serviceaccount(Flags),
    /// Who a role is bound to: kubectl set subject rolebinding admins --user=ada
    Subject(subject::Flags),
}

/// What all of them are told.
#[derive(clap::Args)]
pub struct Flags {
    /// Kinds and names, then what to set.
    #[command(flatten)]
    objects: ObjectFlags,
    /// Change what files say, ask no server.
    #[arg(long)]
    local: bool,
    #[command(flatten)]
    change: ChangeFlags,
}

/// What `set resources` is told.
#[derive(clap::Args)]
pub struct ResourcesFlags {
    #[command(flatten)]
    flags: Flags,
    /// Which containers; * is all.
    #[arg(long, short, default_value = "*")]
    containers: String,
    /// The most they may use: cpu=200m,memory=512Mi; 0 removes.
    #[arg(long, default_value = "")]
    limits: String,
    /// What they need: cpu=100m,memory=256Mi; 0 removes.
    #[arg(long, default_value = "")]
    requests: String,
}

/// Sets.
pub async fn run(cluster: &ClusterFlags, command: Command) -> Result<()> {
    match command {
        Command::Image(mut flags) => {
            let images = pairs(&mut flags.objects.words)?;
            if images.is_empty() {
                bail!("at least one image update is required");
            }
            apply(cluster, &flags, "image updated", |object| set_images(object, &images)).await
        }
        Command::Env(flags) => env::run(cluster, flags).await,
        Command::Resources(ResourcesFlags { flags, containers, limits, requests }) => {
            let amounts = [("limits", amounts(&limits)?), ("requests", amounts(&requests)?)];
            if amounts.iter().all(|(_, amounts)| amounts.is_empty()) {
                bail!(
                    "you must specify an update to requests or limits (in the form of --requests/--limits)"
                );
            }
            let done = "resource requirements updated";
            apply(cluster, &flags, done, |object| set_resources(object, &containers, &amounts)).await
        }
        Command::Selector(mut flags) => {
            let labels: Map<String, Value> = pairs(&mut flags.objects.words)?
                .into_iter()
                .map(|(key, value)| (key, value.into()))
                .collect();
            apply(cluster, &flags, "selector updated", |object| {
                object["spec"]["selector"] = Value::Object(labels.clone());
                Ok(())
            })
            .await
        }
        Command::Serviceaccount(mut flags) => {
            let account = flags.objects.words.pop().context("serviceaccount is required")?;
            apply(cluster, &flags, "serviceaccount updated", |object| {
                let spec = pod_spec(object)?;
                spec["serviceAccountName"] = account.clone().into();
                spec["serviceAccount"] = account.clone().into();
                Ok(())
            })
            .await
        }
        Command::Subject(flags) => subject::run(cluster, flags).await,
    }
}

/// Makes the same change to all chosen objects. Of those that are so already nothing is said, as upstream.
async fn apply(
    cluster: &ClusterFlags,
    flags: &Flags,
    done: &str,
    edit: impl Fn(&mut Value) -> Result<()>,
) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let mut how = flags.change.clone();
    if flags.local {
        how.dry_run = DryRun::Client;
    }
    for (resource, object) in flags.objects.choose(&connection, flags.local).await? {
        let changed = change::change(&connection, &how, "kubectl-set", (&resource, &object), &edit).await?;
        if changed.is_different || flags.local || flags.change.output.is_some() {
            flags.change.show(&resource, &changed.object, done)?;
        }
    }
    Ok(())
}

/// Takes `KEY=VALUE` out of the words.
fn pairs(words: &mut Vec<String>) -> Result<Vec<(String, String)>> {
    let (pairs, rest): (Vec<String>, Vec<String>) =
        std::mem::take(words).into_iter().partition(|word| word.contains('='));
    *words = rest;
    pairs
        .iter()
        .flat_map(|pair| pair.split(','))
        .map(|pair| {
            let (key, value) = pair.split_once('=').with_context(|| format!("{pair:?} is not KEY=VALUE"))?;
            Ok((key.to_owned(), value.to_owned()))
        })
        .collect()
}

/// The part of an object that says what its pods are.
pub fn pod_spec(object: &mut Value) -> Result<&mut Value> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let spec = match kind.as_str() {
        "Pod" => object.pointer_mut("/spec"),
        "CronJob" => object.pointer_mut("/spec/jobTemplate/spec/template/spec"),
        _ => object.pointer_mut("/spec/template/spec"),
    };
    spec.with_context(|| format!("the object is not a pod or does not have a pod template: {kind}"))
}

/// The containers that a name or a pattern (`*`, `web-*`) means, those that run first included.
fn containers<'a>(spec: &'a mut Value, pattern: &str) -> Vec<&'a mut Value> {
    let Some(fields) = spec.as_object_mut() else { return Vec::new() };
    fields
        .iter_mut()
        .filter(|(name, _)| matches!(name.as_str(), "containers" | "initContainers"))
        .filter_map(|(_, list)| list.as_array_mut())
        .flatten()
        .filter(|container| matches(pattern, container["name"].as_str().unwrap_or_default()))
        .collect()
}

/// Whether a name fits a pattern in which `*` is any text.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|left| {
            (0..=left.len()).any(|at| left.is_char_boundary(at) && matches(rest, &left[at..]))
        }),
    }
}

fn set_images(object: &mut Value, images: &[(String, String)]) -> Result<()> {
    let spec = pod_spec(object)?;
    for (name, image) in images {
        let found = containers(spec, name);
        if found.is_empty() {
            bail!("unable to find container named \"{name}\"");
        }
        for container in found {
            container["image"] = image.clone().into();
        }
    }
    Ok(())
}

/// `cpu=200m,memory=512Mi`.
fn amounts(text: &str) -> Result<Vec<(String, String)>> {
    text.split(',')
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (name, amount) = part
                .split_once('=')
                .with_context(|| format!("invalid argument syntax {part:?}, expected <resource>=<value>"))?;
            amount.parse::<api::Quantity>().with_context(|| format!("{part:?} is not an amount"))?;
            Ok((name.to_owned(), amount.to_owned()))
        })
        .collect()
}

fn set_resources(object: &mut Value, pattern: &str, amounts: &[(&str, Vec<(String, String)>)]) -> Result<()> {
    let spec = pod_spec(object)?;
    let found = containers(spec, pattern);
    if found.is_empty() {
        bail!("unable to find container named {pattern}");
    }
    for container in found {
        for (field, amounts) in amounts {
            for (name, amount) in amounts {
                if amount == "0" {
                    if let Some(own) = container["resources"][field].as_object_mut() {
                        own.remove(name);
                    }
                    continue;
                }
                if !container["resources"][field].is_object() {
                    container["resources"][field] = json!({});
                }
                container["resources"][field][name] = amount.clone().into();
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> Value {
        json!({"kind": "Deployment", "spec": {"template": {"spec": {
            "initContainers": [{"name": "init", "image": "a"}],
            "containers": [{"name": "web", "image": "b"}, {"name": "side", "image": "c"}],
        }}}})
    }

    fn images(object: &Value) -> Vec<&str> {
        let spec = &object["spec"]["template"]["spec"];
        let all = ["initContainers", "containers"].map(|field| spec[field].as_array().expect("a list"));
        all.into_iter().flatten().filter_map(|container| container["image"].as_str()).collect()
    }

    #[test]
    fn images_are_set_by_name_or_pattern() {
        let check = |name: &str, expected: &[&str]| {
            let mut object = deployment();
            set_images(&mut object, &[(name.to_owned(), "new".to_owned())]).expect(name);
            assert_eq!(images(&object), expected, "{name}");
        };
        check("web", &["a", "new", "c"]);
        check("*", &["new", "new", "new"]);
        check("i*", &["new", "b", "c"]);
        let error = set_images(&mut deployment(), &[("db".to_owned(), "x".to_owned())]).expect_err("none");
        assert_eq!(error.to_string(), "unable to find container named \"db\"");
    }

    #[test]
    fn zero_takes_a_limit_away() {
        let mut object = json!({"kind": "Pod", "spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}});
        let limits = amounts("cpu=0,memory=2Gi").expect("amounts");
        set_resources(&mut object, "*", &[("limits", limits), ("requests", Vec::new())]).expect("set");
        assert_eq!(object["spec"]["containers"][0]["resources"], json!({"limits": {"memory": "2Gi"}}));
        assert!(amounts("cpu=lots").is_err());
    }

    #[test]
    fn only_what_has_pods_can_be_set() {
        let mut service = json!({"kind": "Service", "spec": {}});
        assert!(pod_spec(&mut service).is_err());
    }
}
