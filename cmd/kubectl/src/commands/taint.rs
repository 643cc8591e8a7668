//! `kubectl taint`.

use super::cordon::resource;
use crate::change::{self, ChangeFlags};
use crate::connection::{ClusterFlags, Connection};
use crate::select::{ObjectFlags, name_of};
use anyhow::{Result, bail};
use serde_json::{Value, json};

/// What `taint` is told.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  kubectl taint node n1 dedicated=gpu:NoSchedule\n  kubectl taint node n1 dedicated-"
)]
pub struct Flags {
    /// `node NAME`, then KEY=VALUE:EFFECT, KEY:EFFECT, KEY:EFFECT- or KEY-.
    #[command(flatten)]
    objects: ObjectFlags,
    /// Change taints that are there.
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    change: ChangeFlags,
}

#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Add {
        key: String,
        value: String,
        effect: String,
    },
    /// Of one effect, or of all.
    Remove {
        key: String,
        effect: Option<String>,
    },
}

/// Taints.
pub async fn run(cluster: &ClusterFlags, mut flags: Flags) -> Result<()> {
    let (wishes, words): (Vec<String>, Vec<String>) =
        flags.objects.words.into_iter().partition(|word| word.contains([':', '=']) || word.ends_with('-'));
    flags.objects.words = words;
    let wishes: Vec<Wish> = wishes.iter().map(|wish| parse(wish)).collect::<Result<_>>()?;
    if wishes.is_empty() {
        bail!("at least one taint update is required");
    }
    let connection = Connection::open(cluster).await?;
    for (kind, node) in flags.objects.choose(&connection, false).await? {
        if kind.kind != "Node" {
            bail!("invalid resource type {}, only node(s) is supported", kind.plural);
        }
        let changed =
            change::change(&connection, &flags.change, "kubectl-taint", (&resource(), &node), |node| {
                apply(node, &wishes, flags.overwrite)
            })
            .await?;
        let adds = wishes.iter().filter(|wish| matches!(wish, Wish::Add { .. })).count();
        let done = match adds {
            0 => "untainted",
            adds if adds == wishes.len() => "tainted",
            _ => "modified",
        };
        flags.change.show(&resource(), &changed.object, done)?;
    }
    Ok(())
}

fn parse(text: &str) -> Result<Wish> {
    let effect = |effect: &str| match effect {
        "NoSchedule" | "PreferNoSchedule" | "NoExecute" => Ok(effect.to_owned()),
        other => bail!("invalid taint effect: {other}, unsupported taint effect"),
    };
    if let Some(removed) = text.strip_suffix('-') {
        let (key, of) = removed.split_once(':').map_or((removed, None), |(key, of)| (key, Some(of)));
        let key = key.split('=').next().unwrap_or(key).to_owned();
        return Ok(Wish::Remove { key, effect: of.map(effect).transpose()? });
    }
    let Some((what, of)) = text.rsplit_once(':') else {
        bail!("invalid taint spec: {text}, a taint needs an effect: KEY=VALUE:EFFECT")
    };
    let (key, value) = what.split_once('=').unwrap_or((what, ""));
    Ok(Wish::Add { key: key.to_owned(), value: value.to_owned(), effect: effect(of)? })
}

fn apply(node: &mut Value, wishes: &[Wish], overwrite: bool) -> Result<()> {
    let name = name_of(node).to_owned();
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    for wish in wishes {
        match wish {
            Wish::Add { key, value, effect } => {
                let same = |taint: &Value| taint["key"] == **key && taint["effect"] == **effect;
                let there = taints.iter().position(same);
                if there.is_some() && !overwrite {
                    bail!(
                        "node {name} already has {key} taint(s) with same effect(s) and --overwrite is false"
                    );
                }
                let mut taint = json!({"key": key, "effect": effect});
                if !value.is_empty() {
                    taint["value"] = value.clone().into();
                }
                match there {
                    Some(index) => taints[index] = taint,
                    None => taints.push(taint),
                }
            }
            Wish::Remove { key, effect } => {
                let before = taints.len();
                taints.retain(|taint| {
                    taint["key"] != **key || effect.as_ref().is_some_and(|effect| taint["effect"] != **effect)
                });
                if taints.len() == before {
                    let of = effect.as_ref().map(|effect| format!(":{effect}")).unwrap_or_default();
                    bail!("taint \"{key}{of}\" not found");
                }
            }
        }
    }
    match (taints.is_empty(), node["spec"].as_object_mut()) {
        (true, Some(spec)) => drop(spec.remove("taints")),
        (true, None) => {}
        (false, _) => node["spec"]["taints"] = taints.into(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(node: Value, wishes: &[&str], overwrite: bool) -> Result<Value> {
        let wishes: Vec<Wish> = wishes.iter().map(|wish| parse(wish).expect(wish)).collect();
        let mut node = node;
        apply(&mut node, &wishes, overwrite).map(|()| node["spec"]["taints"].clone())
    }

    #[test]
    fn taints_are_known_by_key_and_effect() {
        let node = json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "value": "1", "effect": "NoSchedule"}]}});
        let taints = check(node.clone(), &["a=2:NoExecute"], false).expect("another effect");
        assert_eq!(taints.as_array().map(Vec::len), Some(2));
        let taints = check(node.clone(), &["a=2:NoSchedule"], true).expect("overwritten");
        assert_eq!(taints, json!([{"key": "a", "value": "2", "effect": "NoSchedule"}]));
        let error = check(node.clone(), &["a=2:NoSchedule"], false).expect_err("taken");
        assert_eq!(
            error.to_string(),
            "node n already has a taint(s) with same effect(s) and --overwrite is false"
        );
        assert_eq!(check(node.clone(), &["a-"], false).expect("removed"), Value::Null);
        assert_eq!(check(node.clone(), &["a:NoSchedule-"], false).expect("removed"), Value::Null);
        assert_eq!(check(node, &["b-"], false).expect_err("none").to_string(), "taint \"b\" not found");
        assert!(parse("a=b:Sometimes").is_err());
    }
}
