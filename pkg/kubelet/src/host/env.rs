//! The environment of a container.

use super::expand::expand;
use super::fields::resource;
use super::{ContainerContext, FieldContext, Host};
use crate::objects::{Data, Kind};
use crate::wake::Wake;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, Pod};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The environment, in order.
pub(super) async fn of(
    host: &Host,
    context: &ContainerContext<'_>,
    wake: &Arc<Wake>,
) -> Result<Vec<(String, String)>, String> {
    let ContainerContext { pod, container, addresses, .. } = context;
    let mut env: Vec<(String, String)> = Vec::new();
    let services = host.service_env(pod).await?;
    for (name, value) in from_sources(host, pod, container, wake).await? {
        set(&mut env, name, value);
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (_, Some(source)) => value_from(host, pod, container, addresses, source, variable, wake).await?,
            (Some(value), None) => {
                Some(expand(value, |name| find(&env, name).or_else(|| services.get(name).cloned())))
            }
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            set(&mut env, variable.name.clone(), value);
        }
    }
    for (name, value) in services {
        if find(&env, &name).is_none() {
            env.push((name, value));
        }
    }
    Ok(env)
}

/// A command or arguments with `$(NAME)` filled in.
pub(super) fn expand_all(texts: Option<&Vec<String>>, env: &[(String, String)]) -> Vec<String> {
    texts.into_iter().flatten().map(|text| expand(text, |name| find(env, name))).collect()
}

/// A sub-path with `$(NAME)` filled in; names that nobody knows are errors.
pub(super) fn expand_strictly(text: &str, env: &[(String, String)]) -> Result<String, String> {
    let missing = std::cell::Cell::new(false);
    let expanded = expand(text, |name| {
        let value = find(env, name);
        missing.set(missing.get() || value.is_none());
        value
    });
    if missing.get() { Err(format!("missing value for \"{text}\"")) } else { Ok(expanded) }
}

fn find(env: &[(String, String)], name: &str) -> Option<String> {
    env.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

fn set(env: &mut Vec<(String, String)>, name: String, value: String) {
    match env.iter_mut().find(|(known, _)| *known == name) {
        Some(slot) => slot.1 = value,
        None => env.push((name, value)),
    }
}

async fn from_sources(
    host: &Host,
    pod: &Pod,
    container: &Container,
    wake: &Arc<Wake>,
) -> Result<Vec<(String, String)>, String> {
    let mut env = Vec::new();
    for source in container.env_from.iter().flatten() {
        let (kind, name, optional) = if let Some(source) = &source.config_map_ref {
            (Kind::ConfigMap, &source.name, source.optional)
        } else if let Some(source) = &source.secret_ref {
            (Kind::Secret, &source.name, source.optional)
        } else {
            continue;
        };
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let Some(data) = object(host, pod, kind, name, optional, wake).await? else { continue };
        for (key, value) in &data.data {
            env.push((format!("{prefix}{key}"), String::from_utf8_lossy(value).into_owned()));
        }
    }
    Ok(env)
}

async fn object(
    host: &Host,
    pod: &Pod,
    kind: Kind,
    name: &str,
    optional: Option<bool>,
    wake: &Arc<Wake>,
) -> Result<Option<Arc<Data>>, String> {
    match host.objects.get(pod, kind, name, wake).await? {
        Some(data) => Ok(Some(data)),
        None if optional == Some(true) => Ok(None),
        None => Err(format!("{} \"{name}\" not found", kind.lower())),
    }
}

#[allow(clippy::too_many_arguments)]
async fn value_from(
    host: &Host,
    pod: &Pod,
    container: &Container,
    addresses: &[String],
    source: &EnvVarSource,
    variable: &EnvVar,
    wake: &Arc<Wake>,
) -> Result<Option<String>, String> {
    if let Some(field) = &source.field_ref {
        let host_ips = host.addresses.read().clone();
        let is_host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
        let context = FieldContext {
            pod,
            pod_ips: if is_host { &host_ips } else { addresses },
            host_ips: &host_ips,
            node_name: &host.node_name,
        };
        return context.field(&field.field_path).map(Some);
    }
    if let Some(selector) = &source.resource_field_ref {
        let allocatable = host.allocatable.read().clone();
        return resource(selector, container, &allocatable).map(Some);
    }
    let (kind, name, key, optional) = if let Some(source) = &source.config_map_key_ref {
        (Kind::ConfigMap, &source.name, &source.key, source.optional)
    } else if let Some(source) = &source.secret_key_ref {
        (Kind::Secret, &source.name, &source.key, source.optional)
    } else {
        return Err(format!("the source of the variable {} is not supported", variable.name));
    };
    let Some(data) = object(host, pod, kind, name, optional, wake).await? else { return Ok(None) };
    match data.data.get(key) {
        Some(value) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
        None if optional == Some(true) => Ok(None),
        None => {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            Err(format!("couldn't find key {key} in {} {namespace}/{name}", kind.name()))
        }
    }
}

impl Host {
    async fn service_env(&self, pod: &Pod) -> Result<BTreeMap<String, String>, String> {
        let links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        if crate::plan::is_static(pod) && !self.services.is_ready() {
            // Static pods are what the apiserver itself may run as.
            return Ok(BTreeMap::new());
        }
        self.services.env(namespace, links).await
    }
}
