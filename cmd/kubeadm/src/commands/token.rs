//! `kubeadm token`: by what machines join.

use super::admin_client;
use crate::cluster::Cluster;
use crate::objects;
use crate::phases::init::join_command;
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::DeleteParams;
use pki::BootstrapToken;

/// What can be done with tokens.
#[derive(Subcommand)]
pub enum Command {
    /// Make a token.
    Create {
        /// The token; a new one is made if none is given.
        token: Option<BootstrapToken>,
        /// How long it is good; 0 is for ever.
        #[arg(long, default_value = "24h", value_parser = lifetime)]
        ttl: SignedDuration,
        /// What it is for.
        #[arg(long, default_value = "")]
        description: String,
        /// Print the whole line by which a machine joins.
        #[arg(long)]
        print_join_command: bool,
    },
    /// Show the tokens that there are.
    List,
    /// End tokens.
    Delete {
        /// Tokens, or their ids.
        #[arg(required = true)]
        tokens: Vec<String>,
    },
    /// Print a token without making it known to the cluster.
    Generate,
}

/// How long a token is good: `24h`, `1h30m`, or `0` without a unit, which is for ever.
pub fn lifetime(text: &str) -> Result<SignedDuration> {
    if text == "0" {
        return Ok(SignedDuration::ZERO);
    }
    let lifetime: SignedDuration = text.parse()?;
    if lifetime.is_negative() {
        bail!("it must not be negative");
    }
    Ok(lifetime)
}

/// Does it.
pub async fn run(command: Command) -> Result<()> {
    match command {
        Command::Create { token, ttl, description, print_join_command } => {
            create(token, ttl, &description, print_join_command).await
        }
        Command::List => list().await,
        Command::Delete { tokens } => delete(&tokens).await,
        Command::Generate => {
            println!("{}", BootstrapToken::generate()?);
            Ok(())
        }
    }
}

async fn create(
    token: Option<BootstrapToken>,
    ttl: SignedDuration,
    description: &str,
    print_join_command: bool,
) -> Result<()> {
    let client = admin_client().await?;
    let token = token.map_or_else(BootstrapToken::generate, Ok)?;
    let expires = (!ttl.is_zero()).then(|| Timestamp::now() + ttl);
    objects::apply(&client, &[objects::token(&token, description, expires)]).await?;
    if !print_join_command {
        println!("{token}");
        return Ok(());
    }
    let api: Api<ConfigMap> = Api::namespaced(client, "kube-system");
    let config = api.get("kubeadm-config").await.context("read the cluster's configuration")?;
    let text = config.data.and_then(|mut data| data.remove("ClusterConfiguration"));
    let cluster = Cluster::from_yaml(&text.context("kubeadm-config is empty")?)?;
    let path = crate::layout::pki().join("ca.crt");
    let ca = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    println!("{}", join_command(&cluster.endpoint, &token, &ca)?);
    Ok(())
}

async fn list() -> Result<()> {
    let header = ["TOKEN", "TTL", "EXPIRES", "USAGES", "DESCRIPTION", "EXTRA GROUPS"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let now = Timestamp::now();
    rows.extend(objects::tokens(&admin_client().await?).await?.iter().filter_map(|secret| row(secret, now)));
    print!("{}", cli::table(&rows));
    Ok(())
}

fn row(secret: &Secret, now: Timestamp) -> Option<Vec<String>> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| data.get(key).map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned());
    let or_none = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or("<none>".to_owned());
    let expires = text("expiration");
    let left = match expires.as_deref().map(str::parse::<Timestamp>) {
        None => "<forever>".to_owned(),
        Some(Err(_)) => "<invalid>".to_owned(),
        Some(Ok(at)) if at <= now => "<expired>".to_owned(),
        Some(Ok(at)) => format!("{}h", at.duration_since(now).as_hours() + 1),
    };
    let usages =
        [("authentication", "usage-bootstrap-authentication"), ("signing", "usage-bootstrap-signing")];
    let usages: Vec<&str> = usages
        .into_iter()
        .filter(|(_, key)| text(key).as_deref() == Some("true"))
        .map(|(usage, _)| usage)
        .collect();
    Some(vec![
        format!("{}.{}", text("token-id")?, text("token-secret")?),
        left,
        expires.unwrap_or_else(|| "<never>".to_owned()),
        usages.join(","),
        or_none(text("description")),
        or_none(text("auth-extra-groups")),
    ])
}

async fn delete(tokens: &[String]) -> Result<()> {
    let api: Api<Secret> = Api::namespaced(admin_client().await?, "kube-system");
    for token in tokens {
        let id = token.split('.').next().unwrap_or_default();
        let deleted = api.delete(&format!("bootstrap-token-{id}"), &DeleteParams::default()).await;
        deleted.with_context(|| format!("delete the token {id}"))?;
        println!("bootstrap token {id:?} deleted");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_may_be_nothing_which_is_for_ever() {
        assert_eq!(lifetime("0").expect("upstream's word"), SignedDuration::ZERO);
        assert_eq!(lifetime("1h30m").expect("a duration"), SignedDuration::from_mins(90));
        assert!(lifetime("-1h").is_err() && lifetime("soon").is_err());
    }
}
