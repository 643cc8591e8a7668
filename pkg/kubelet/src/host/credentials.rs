//! What a pod brings to pull its images with: the Secrets it names.

use super::Host;
use crate::image_access::{PullSecret, SecretSource};
use crate::objects::Kind;
use crate::runtime::Credentials;
use crate::wake::Wake;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use std::sync::Arc;

/// Those for the registry of an image, in order.
pub(super) async fn of(host: &Host, pod: &Pod, reference: &str) -> Vec<PullSecret> {
    let secrets = pod.spec.as_ref().and_then(|spec| spec.image_pull_secrets.as_ref());
    let mut found = Vec::new();
    let nobody = Arc::new(Wake::default());
    for secret in secrets.into_iter().flatten() {
        let data = match host.objects.get(pod, Kind::Secret, &secret.name, &nobody).await {
            Ok(Some(data)) => data,
            Ok(None) => continue,
            Err(error) => {
                tracing::warn!(secret = secret.name, error, "image pull secret");
                continue;
            }
        };
        let listed = if let Some(config) = data.data.get(".dockerconfigjson") {
            in_config(&parse(config)["auths"], reference)
        } else if let Some(config) = data.data.get(".dockercfg") {
            in_config(&parse(config), reference)
        } else {
            continue;
        };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        found.extend(listed.into_iter().map(|credentials| PullSecret {
            source: SecretSource::new(namespace, &secret.name, &data.uid, &credentials),
            credentials,
        }));
    }
    found
}

fn parse(config: &[u8]) -> Value {
    serde_json::from_slice(config).unwrap_or_default()
}

/// The registry and path of an image, as Docker completes names.
fn place(reference: &str) -> String {
    let name = reference.split('@').next().unwrap_or_default();
    match name.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => name.to_owned(),
        Some(_) => format!("docker.io/{name}"),
        None => format!("docker.io/library/{name}"),
    }
}

fn in_config(auths: &Value, reference: &str) -> Vec<Credentials> {
    let image = place(reference);
    let mut found: Vec<(usize, Credentials)> = Vec::new();
    for (server, auth) in auths.as_object().into_iter().flatten() {
        let server = server.trim_start_matches("https://").trim_start_matches("http://");
        let server = server.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches("/v2");
        let server = if server == "index.docker.io" { "docker.io" } else { server };
        let matches = image == server || image.starts_with(&format!("{server}/"));
        if let (true, Some(credentials)) = (matches, credentials(auth)) {
            found.push((server.len(), credentials));
        }
    }
    // The longest path first: it is the most specific.
    found.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    found.into_iter().map(|(_, credentials)| credentials).collect()
}

fn credentials(auth: &Value) -> Option<Credentials> {
    if let (Some(username), Some(password)) = (auth["username"].as_str(), auth["password"].as_str()) {
        return Some(Credentials { username: username.into(), password: password.into() });
    }
    let decoded = BASE64_STANDARD.decode(auth["auth"].as_str()?.trim()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (username, password) = text.split_once(':')?;
    Some(Credentials { username: username.into(), password: password.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_registry_decides_and_the_longest_path_comes_first() {
        let auths = json!({
            "https://index.docker.io/v1/": {"auth": BASE64_STANDARD.encode("hub:h")},
            "registry.example:5000": {"username": "all", "password": "a"},
            "registry.example:5000/team": {"username": "team", "password": "t"},
        });
        let names = |reference: &str| -> Vec<String> {
            in_config(&auths, reference).into_iter().map(|found| found.username).collect()
        };
        assert_eq!(names("busybox"), ["hub"]);
        assert_eq!(names("registry.example:5000/team/app:1"), ["team", "all"]);
        assert_eq!(names("registry.example:5000/app"), ["all"]);
        assert!(names("other.example/app").is_empty());
    }
}
