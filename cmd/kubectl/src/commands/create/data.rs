//! Config maps, secrets and other small objects.

use super::{HowFlags, pair};
use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::InconsistentKeys;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde_json::{Map, Value, json};
use std::path::Path;

/// What has nothing but a name.
#[derive(clap::Args)]
pub struct Named {
    name: String,
    #[command(flatten)]
    how: HowFlags,
}

impl Named {
    pub fn object(self, kind: &str) -> (Value, HowFlags) {
        (json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": self.name}}), self.how)
    }
}

/// Where keys and values come from.
#[derive(clap::Args)]
pub struct Sources {
    /// KEY=VALUE.
    #[arg(long)]
    from_literal: Vec<String>,
    /// A file, a folder, or KEY=FILE.
    #[arg(long)]
    from_file: Vec<String>,
    /// A file with lines KEY=VALUE.
    #[arg(long)]
    from_env_file: Vec<String>,
    /// Add a hash of the contents to the name.
    #[arg(long)]
    append_hash: bool,
}

impl Sources {
    fn entries(&self) -> Result<Vec<(String, Vec<u8>)>> {
        if !self.from_env_file.is_empty() && (!self.from_literal.is_empty() || !self.from_file.is_empty()) {
            bail!("from-env-file cannot be combined with from-file or from-literal");
        }
        let mut entries: Vec<(String, Vec<u8>)> = Vec::new();
        for literal in &self.from_literal {
            let (key, value) = literal
                .split_once('=')
                .filter(|(key, _)| !key.is_empty())
                .with_context(|| format!("invalid literal source {literal}, expected key=value"))?;
            let value = value.trim_matches(['"', '\'']);
            entries.push((key.to_owned(), value.as_bytes().to_vec()));
        }
        for source in &self.from_file {
            let (key, path) =
                source.split_once('=').map_or((None, source.as_str()), |(key, path)| (Some(key), path));
            entries.extend(files(key, Path::new(path))?);
        }
        for file in &self.from_env_file {
            let text = std::fs::read_to_string(file).with_context(|| format!("error reading {file}"))?;
            for line in
                text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with('#'))
            {
                let from_environment = || std::env::var(line).unwrap_or_default();
                let (key, value) = line
                    .split_once('=')
                    .map_or_else(|| (line, from_environment()), |(key, value)| (key, value.to_owned()));
                entries.push((key.to_owned(), value.into_bytes()));
            }
        }
        for (index, (key, _)) in entries.iter().enumerate() {
            if entries[..index].iter().any(|(other, _)| other == key) {
                bail!("cannot add key {key}, another key by that name already exists");
            }
        }
        Ok(entries)
    }
}

fn files(key: Option<&str>, path: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("error reading {}", path.display()));
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !path.is_dir() {
        return Ok(vec![(key.map_or_else(|| name(path), str::to_owned), read(path)?)]);
    }
    if key.is_some() {
        bail!("cannot give a key name for a directory path");
    }
    let mut paths: Vec<_> = std::fs::read_dir(path)?.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    paths.iter().map(|path| Ok((name(path), read(path)?))).collect()
}

fn with_hash(mut object: Value, append: bool) -> Value {
    if append {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        object["metadata"]["name"] = format!("{name}-{}", crate::kustomize::hash(&object)).into();
    }
    object
}

/// `create configmap`.
#[derive(clap::Args)]
pub struct ConfigMap {
    name: String,
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    how: HowFlags,
}

impl ConfigMap {
    pub fn object(self) -> Result<(Value, HowFlags)> {
        let (mut data, mut binary) = (Map::new(), Map::new());
        for (key, bytes) in self.sources.entries()? {
            match String::from_utf8(bytes) {
                Ok(text) => data.insert(key, text.into()),
                Err(error) => binary.insert(key, STANDARD.encode(error.as_bytes()).into()),
            };
        }
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self.name}});
        for (field, entries) in [("data", data), ("binaryData", binary)] {
            if !entries.is_empty() {
                object[field] = entries.into();
            }
        }
        Ok((with_hash(object, self.sources.append_hash), self.how))
    }
}

/// `create secret`.
#[derive(clap::Subcommand)]
pub enum Secret {
    /// From files and literals.
    Generic(Generic),
    /// A certificate and its key.
    Tls(Tls),
    /// Credentials for a registry of images.
    DockerRegistry(DockerRegistry),
}

/// `create secret generic`.
#[derive(clap::Args)]
pub struct Generic {
    name: String,
    /// The secret's type.
    #[arg(long = "type", default_value = "")]
    kind: String,
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    how: HowFlags,
}

/// Whether a certificate and a key belong together; if not, in upstream's words.
fn check_pair(certificate: &[u8], key: &[u8]) -> Result<()> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(certificate).collect::<Result<_, _>>().unwrap_or_default();
    if chain.is_empty() {
        bail!("tls: failed to find any PEM data in certificate input");
    }
    let Ok(key) = PrivateKeyDer::from_pem_slice(key) else {
        bail!("tls: failed to find any PEM data in key input");
    };
    let key = any_supported_type(&key).context("tls: failed to parse private key")?;
    match CertifiedKey::new(chain, key).keys_match() {
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            bail!("tls: private key does not match public key")
        }
        _ => Ok(()),
    }
}

/// `create secret tls`.
#[derive(clap::Args)]
pub struct Tls {
    name: String,
    /// The file of the certificate.
    #[arg(long)]
    cert: String,
    /// The file of its key.
    #[arg(long)]
    key: String,
    /// Add a hash of the contents to the name.
    #[arg(long)]
    append_hash: bool,
    #[command(flatten)]
    how: HowFlags,
}

/// `create secret docker-registry`.
#[derive(clap::Args)]
pub struct DockerRegistry {
    name: String,
    #[arg(long, default_value = "https://index.docker.io/v1/")]
    docker_server: String,
    #[arg(long, default_value = "")]
    docker_username: String,
    #[arg(long, default_value = "")]
    docker_password: String,
    #[arg(long, default_value = "")]
    docker_email: String,
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    how: HowFlags,
}

impl Secret {
    pub fn object(self) -> Result<(Value, HowFlags)> {
        let secret = |name: &str, kind: &str, data: Vec<(String, Vec<u8>)>| {
            let data: Map<String, Value> =
                data.into_iter().map(|(key, bytes)| (key, STANDARD.encode(bytes).into())).collect();
            let mut object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
            if !kind.is_empty() {
                object["type"] = kind.into();
            }
            if !data.is_empty() {
                object["data"] = data.into();
            }
            object
        };
        match self {
            Secret::Generic(flags) => {
                let object = secret(&flags.name, &flags.kind, flags.sources.entries()?);
                Ok((with_hash(object, flags.sources.append_hash), flags.how))
            }
            Secret::Tls(flags) => {
                let read = |file: &str| std::fs::read(file).with_context(|| format!("read {file}"));
                let (certificate, key) = (read(&flags.cert)?, read(&flags.key)?);
                check_pair(&certificate, &key)?;
                let data = vec![("tls.crt".to_owned(), certificate), ("tls.key".to_owned(), key)];
                let object = secret(&flags.name, "kubernetes.io/tls", data);
                Ok((with_hash(object, flags.append_hash), flags.how))
            }
            Secret::DockerRegistry(flags) => {
                let mut data = flags.sources.entries()?;
                if data.is_empty() {
                    if flags.docker_username.is_empty() || flags.docker_password.is_empty() {
                        bail!(
                            "either --from-file or the combination of --docker-username, --docker-password and --docker-server is required"
                        );
                    }
                    let auth =
                        STANDARD.encode(format!("{}:{}", flags.docker_username, flags.docker_password));
                    // In upstream's order: who applies the same again changes nothing.
                    let fields = [
                        ("username", &flags.docker_username),
                        ("password", &flags.docker_password),
                        ("email", &flags.docker_email),
                        ("auth", &auth),
                    ];
                    let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
                    let entry: Vec<String> =
                        fields.map(|(field, value)| format!("\"{field}\":{}", json!(value))).collect();
                    let server = json!(flags.docker_server);
                    let config = format!("{{\"auths\":{{{server}:{{{}}}}}}}", entry.join(","));
                    data.push((".dockerconfigjson".to_owned(), config.into_bytes()));
                }
                let object = secret(&flags.name, "kubernetes.io/dockerconfigjson", data);
                Ok((with_hash(object, flags.sources.append_hash), flags.how))
            }
        }
    }
}

/// `create quota`.
#[derive(clap::Args)]
pub struct Quota {
    name: String,
    /// RESOURCE=QUANTITY, with commas between.
    #[arg(long, value_delimiter = ',')]
    hard: Vec<String>,
    /// What it is about, with commas between: Terminating, BestEffort, …
    #[arg(long, value_delimiter = ',')]
    scopes: Vec<String>,
    #[command(flatten)]
    how: HowFlags,
}

impl Quota {
    pub fn object(self) -> Result<(Value, HowFlags)> {
        let mut spec = json!({});
        for text in &self.hard {
            let (resource, quantity) = pair(text)?;
            spec["hard"][resource] = quantity.into();
        }
        if !self.scopes.is_empty() {
            spec["scopes"] = self.scopes.into();
        }
        let object = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": self.name}, "spec": spec});
        Ok((object, self.how))
    }
}

/// `create priorityclass`.
#[derive(clap::Args)]
pub struct PriorityClass {
    name: String,
    /// The priority.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    value: i64,
    /// The class of pods that name none.
    #[arg(long)]
    global_default: bool,
    /// When to use it.
    #[arg(long, default_value = "")]
    description: String,
    /// PreemptLowerPriority or Never.
    #[arg(long, default_value = "PreemptLowerPriority")]
    preemption_policy: String,
    #[command(flatten)]
    how: HowFlags,
}

impl PriorityClass {
    pub fn object(self) -> (Value, HowFlags) {
        let mut object = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": self.name}, "value": self.value, "preemptionPolicy": self.preemption_policy});
        if self.global_default {
            object["globalDefault"] = true.into();
        }
        if !self.description.is_empty() {
            object["description"] = self.description.into();
        }
        (object, self.how)
    }
}

/// `create poddisruptionbudget`.
#[derive(clap::Args)]
pub struct DisruptionBudget {
    name: String,
    /// The pods it is about.
    #[arg(long)]
    selector: String,
    /// How many must be there, as a number or in percent.
    #[arg(long)]
    min_available: Option<String>,
    /// How many may be away, as a number or in percent.
    #[arg(long)]
    max_unavailable: Option<String>,
    #[command(flatten)]
    how: HowFlags,
}

impl DisruptionBudget {
    pub fn object(self) -> Result<(Value, HowFlags)> {
        let number = |text: String| text.parse::<i64>().map_or_else(|_| text.clone().into(), Value::from);
        let mut spec = json!({"selector": selector(&self.selector)?});
        match (self.min_available, self.max_unavailable) {
            (Some(least), None) => spec["minAvailable"] = number(least),
            (None, Some(most)) => spec["maxUnavailable"] = number(most),
            _ => bail!("one of min-available or max-unavailable must be specified"),
        }
        let object = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": self.name}, "spec": spec});
        Ok((object, self.how))
    }
}

/// `app=a,tier in (b,c)` as an object's selector.
fn selector(text: &str) -> Result<Value> {
    let parsed = api::selector::LabelSelector::parse(text)?;
    let mut labels = Map::new();
    for part in text.split(',') {
        if let Some((key, value)) = part.split_once('=').filter(|(key, _)| !key.ends_with('!')) {
            labels.insert(key.trim().to_owned(), value.trim_start_matches('=').trim().into());
        }
    }
    if labels.len() != parsed.requirements().len() {
        bail!("--selector {text:?}: only KEY=VALUE is supported here");
    }
    Ok(json!({ "matchLabels": labels }))
}
