//! `kubectl set subject`.

use super::Flags as CommonFlags;
use crate::connection::ClusterFlags;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// What `set subject` is told.
#[derive(clap::Args)]
#[group(skip)]
pub struct Flags {
    #[command(flatten)]
    common: CommonFlags,
    /// Users to add.
    #[arg(long = "user")]
    users: Vec<String>,
    /// Groups to add.
    #[arg(long = "group")]
    groups: Vec<String>,
    /// Service accounts to add, as NAMESPACE:NAME.
    #[arg(long = "serviceaccount")]
    accounts: Vec<String>,
}

/// Adds subjects.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let subjects = subjects(&flags.users, &flags.groups, &flags.accounts)?;
    if subjects.is_empty() {
        bail!("you must specify at least one value of user, group or serviceaccount");
    }
    super::apply(cluster, &flags.common, "subjects updated", |object| {
        if !matches!(object["kind"].as_str(), Some("RoleBinding" | "ClusterRoleBinding")) {
            bail!("setting subjects is only supported for RoleBinding/ClusterRoleBinding");
        }
        let mut own = object["subjects"].as_array().cloned().unwrap_or_default();
        for subject in &subjects {
            if !own.iter().any(|own| {
                own["kind"] == subject["kind"]
                    && own["name"] == subject["name"]
                    && own.get("namespace") == subject.get("namespace")
            }) {
                own.push(subject.clone());
            }
        }
        object["subjects"] = own.into();
        Ok(())
    })
    .await
}

/// The subjects that flags name, as role bindings write them.
pub fn subjects(users: &[String], groups: &[String], accounts: &[String]) -> Result<Vec<Value>> {
    let group = "rbac.authorization.k8s.io";
    let mut subjects: Vec<Value> =
        users.iter().map(|name| json!({"kind": "User", "apiGroup": group, "name": name})).collect();
    subjects.extend(groups.iter().map(|name| json!({"kind": "Group", "apiGroup": group, "name": name})));
    for account in accounts {
        let (namespace, name) =
            account.split_once(':').context("serviceaccount must be <namespace>:<name>")?;
        subjects.push(json!({"kind": "ServiceAccount", "namespace": namespace, "name": name}));
    }
    Ok(subjects)
}
