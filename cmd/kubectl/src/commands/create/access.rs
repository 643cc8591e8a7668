//! Roles, bindings and tokens.

use super::{HowFlags, pair};
use crate::connection::Connection;
use crate::resources::Catalogue;
use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::{Value, json};

/// `create role` and `create clusterrole`.
#[derive(clap::Args)]
pub struct Role {
    name: String,
    /// What may be done, with commas between.
    #[arg(long, value_delimiter = ',')]
    verb: Vec<String>,
    /// With what, with commas between: pods, deployments.apps, pods/log.
    #[arg(long, value_delimiter = ',')]
    resource: Vec<String>,
    /// Only with objects of these names.
    #[arg(long, value_delimiter = ',')]
    resource_name: Vec<String>,
    /// With paths that are no objects'.
    #[arg(long, value_delimiter = ',')]
    non_resource_url: Vec<String>,
    /// KEY=VALUE: be the sum of roles with these labels.
    #[arg(long, value_delimiter = ',')]
    aggregation_rule: Vec<String>,
    #[command(flatten)]
    how: HowFlags,
}

impl Role {
    pub async fn object(self, connection: &Connection, kind: &str) -> Result<(Value, HowFlags)> {
        let mut object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": self.name}});
        if !self.aggregation_rule.is_empty() {
            let mut labels = json!({});
            for text in &self.aggregation_rule {
                let (key, value) = pair(text)?;
                labels[key] = value.into();
            }
            object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
            object["rules"] = Value::Null;
            return Ok((object, self.how));
        }
        if self.verb.is_empty() {
            bail!("at least one verb must be specified");
        }
        if !self.non_resource_url.is_empty() {
            object["rules"] = json!([{"verbs": self.verb, "nonResourceURLs": self.non_resource_url}]);
            return Ok((object, self.how));
        }
        if self.resource.is_empty() {
            bail!("at least one resource must be specified");
        }
        let words: Vec<String> =
            self.resource.iter().map(|word| word.split('/').next().unwrap_or(word).to_owned()).collect();
        let catalogue = Catalogue::for_words(connection, &words).await?;
        let mut rules: Vec<Value> = Vec::new();
        for word in &self.resource {
            let (group, resource) = resolve(&catalogue, word)?;
            match rules.iter_mut().find(|rule| rule["apiGroups"][0] == group) {
                Some(rule) => rule["resources"]
                    .as_array_mut()
                    .into_iter()
                    .for_each(|own| own.push(resource.clone().into())),
                None => {
                    let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": self.verb});
                    if !self.resource_name.is_empty() {
                        rule["resourceNames"] = self.resource_name.clone().into();
                    }
                    rules.push(rule);
                }
            }
        }
        object["rules"] = rules.into();
        Ok((object, self.how))
    }
}

/// The group and the name of a resource in rules.
fn resolve(catalogue: &Catalogue, word: &str) -> Result<(String, String)> {
    if word == "*" || word == "*.*" {
        return Ok(("*".into(), "*".into()));
    }
    if let Some(group) = word.strip_prefix("*.") {
        return Ok((group.to_owned(), "*".into()));
    }
    let (word, subresource) = word.split_once('/').map_or((word, None), |(word, sub)| (word, Some(sub)));
    let resource = catalogue.find(word)?;
    let name =
        subresource.map_or_else(|| resource.plural.clone(), |sub| format!("{}/{sub}", resource.plural));
    Ok((resource.group.clone(), name))
}

/// `create rolebinding` and `create clusterrolebinding`.
#[derive(clap::Args)]
pub struct Binding {
    name: String,
    /// The role.
    #[arg(long)]
    role: Option<String>,
    /// The cluster role.
    #[arg(long)]
    clusterrole: Option<String>,
    /// Users.
    #[arg(long = "user")]
    users: Vec<String>,
    /// Groups.
    #[arg(long)]
    group: Vec<String>,
    /// Service accounts, as NAMESPACE:NAME.
    #[arg(long)]
    serviceaccount: Vec<String>,
    #[command(flatten)]
    how: HowFlags,
}

impl Binding {
    pub fn object(self, kind: &str) -> Result<(Value, HowFlags)> {
        const GROUP: &str = "rbac.authorization.k8s.io";
        let role = match (self.role, self.clusterrole) {
            (Some(role), None) if kind == "RoleBinding" => {
                json!({"apiGroup": GROUP, "kind": "Role", "name": role})
            }
            (None, Some(role)) => json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": role}),
            _ => bail!("exactly one of clusterrole or role must be specified"),
        };
        let mut subjects: Vec<Value> = Vec::new();
        for (kind, names) in [("User", &self.users), ("Group", &self.group)] {
            subjects.extend(names.iter().map(|name| json!({"apiGroup": GROUP, "kind": kind, "name": name})));
        }
        for account in &self.serviceaccount {
            let (namespace, name) = account
                .split_once(':')
                .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
                .context("serviceaccount must be <namespace>:<name>")?;
            subjects.push(json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}));
        }
        let mut object = json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": self.name}, "roleRef": role});
        if !subjects.is_empty() {
            object["subjects"] = subjects.into();
        }
        Ok((object, self.how))
    }
}

/// `create token`.
#[derive(clap::Args)]
pub struct Token {
    /// The service account.
    name: String,
    /// Who the token is for; may be given several times.
    #[arg(long)]
    audience: Vec<String>,
    /// How long it lasts, such as 10m or 1h.
    #[arg(long)]
    duration: Option<String>,
    /// Pod, Secret or Node that the token ends with.
    #[arg(long)]
    bound_object_kind: Option<String>,
    /// Its name.
    #[arg(long)]
    bound_object_name: Option<String>,
    /// Its uid.
    #[arg(long)]
    bound_object_uid: Option<String>,
    /// yaml or json: show the whole request.
    #[arg(long, short)]
    output: Option<String>,
}

impl Token {
    pub async fn run(self, connection: &Connection) -> Result<()> {
        let mut request =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        if !self.audience.is_empty() {
            request["spec"]["audiences"] = self.audience.into();
        }
        if let Some(text) = &self.duration {
            request["spec"]["expirationSeconds"] = crate::duration::parse(text)?.as_secs().into();
        }
        if let Some(kind) = self.bound_object_kind {
            let mut bound = json!({"apiVersion": "v1", "kind": kind, "name": self.bound_object_name});
            if let Some(uid) = self.bound_object_uid {
                bound["uid"] = uid.into();
            }
            request["spec"]["boundObjectRef"] = bound;
        }
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", connection.namespace, self.name);
        let answer = connection.send(Method::POST, &path, Some(&request)).await?;
        match crate::output::Output::parse(self.output.as_deref())? {
            crate::output::Output::Table => {
                println!("{}", answer["status"]["token"].as_str().unwrap_or_default())
            }
            output => print!("{}", output.show(&answer)?),
        }
        Ok(())
    }
}
