//! What goes into the volumes that hold objects and facts: configMap, secret, projected, downwardAPI.

use super::atomic::{File, Files};
use super::token;
use crate::host::{FieldContext, Host, resource};
use crate::objects::{Data, Kind};
use crate::plan::containers_of;
use crate::wake::Wake;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Pod, Volume, VolumeProjection};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DEFAULT_MODE: i32 = 0o644;

/// The files of a volume.
pub(super) struct Payload {
    /// By path.
    pub files: Files,
    /// Not on disk.
    pub in_memory: bool,
    /// When they have to be made anew.
    pub refresh_at: Option<Timestamp>,
}

/// Why there is no payload.
pub(super) enum Missing {
    /// What it needs does not exist.
    Absent(String),
    /// Who knows does not answer.
    Away(String),
}

/// The folder of such volumes, as upstream names it.
pub(super) fn plugin(volume: &Volume) -> Option<&'static str> {
    if volume.config_map.is_some() {
        Some("kubernetes.io~configmap")
    } else if volume.secret.is_some() {
        Some("kubernetes.io~secret")
    } else if volume.projected.is_some() {
        Some("kubernetes.io~projected")
    } else if volume.downward_api.is_some() {
        Some("kubernetes.io~downward-api")
    } else {
        None
    }
}

struct Maker<'a> {
    host: &'a Host,
    pod: &'a Pod,
    wake: &'a Arc<Wake>,
    payload: Payload,
}

/// Works it out.
pub(super) async fn of(
    host: &Host,
    pod: &Pod,
    volume: &Volume,
    wake: &Arc<Wake>,
    dir: &Path,
) -> Result<Payload, Missing> {
    let payload = Payload { files: Files::new(), in_memory: false, refresh_at: None };
    let mut maker = Maker { host, pod, wake, payload };
    if let Some(source) = &volume.config_map {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        maker.object(Kind::ConfigMap, &source.name, source.items.as_ref(), source.optional, mode).await?;
    } else if let Some(source) = &volume.secret {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        let name = source.secret_name.as_deref().unwrap_or_default();
        maker.payload.in_memory = true;
        maker.object(Kind::Secret, name, source.items.as_ref(), source.optional, mode).await?;
    } else if let Some(source) = &volume.downward_api {
        maker.downward(source.items.as_ref(), source.default_mode.unwrap_or(DEFAULT_MODE))?;
    } else if let Some(source) = &volume.projected {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        for projection in source.sources.iter().flatten() {
            maker.projection(projection, mode, dir).await?;
        }
    }
    Ok(maker.payload)
}

impl Maker<'_> {
    async fn projection(&mut self, source: &VolumeProjection, mode: i32, dir: &Path) -> Result<(), Missing> {
        if let Some(source) = &source.config_map {
            self.object(Kind::ConfigMap, &source.name, source.items.as_ref(), source.optional, mode).await?;
        }
        if let Some(source) = &source.secret {
            self.payload.in_memory = true;
            self.object(Kind::Secret, &source.name, source.items.as_ref(), source.optional, mode).await?;
        }
        if let Some(source) = &source.downward_api {
            self.downward(source.items.as_ref(), mode)?;
        }
        if let Some(source) = &source.service_account_token {
            self.payload.in_memory = true;
            let made = token::of(self.host, self.pod, source, &dir.join(&source.path)).await;
            let token = made.map_err(Missing::Away)?;
            let earlier = self.payload.refresh_at.map_or(token.refresh_at, |at| at.min(token.refresh_at));
            self.payload.refresh_at = Some(earlier);
            let (owner, mode) = token_owner(self.pod, mode);
            let file = File { content: token.text.into_bytes(), mode, owner };
            self.payload.files.insert(source.path.clone().into(), file);
        }
        if source.cluster_trust_bundle.is_some() || source.pod_certificate.is_some() {
            return Err(Missing::Absent("this projected source is not supported".into()));
        }
        Ok(())
    }

    async fn object(
        &mut self,
        kind: Kind,
        name: &str,
        items: Option<&Vec<KeyToPath>>,
        optional: Option<bool>,
        mode: i32,
    ) -> Result<(), Missing> {
        let optional = optional == Some(true);
        match self.host.objects.get(self.pod, kind, name, self.wake).await {
            Ok(Some(data)) => self.take(kind, name, &data, items, optional, mode),
            Ok(None) if optional => Ok(()),
            Ok(None) => Err(Missing::Absent(format!("{} \"{name}\" not found", kind.lower()))),
            Err(why) => Err(Missing::Away(why)),
        }
    }

    fn take(
        &mut self,
        kind: Kind,
        name: &str,
        data: &Data,
        items: Option<&Vec<KeyToPath>>,
        optional: bool,
        mode: i32,
    ) -> Result<(), Missing> {
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            for (key, content) in &data.data {
                self.payload.files.insert(key.into(), file(content.clone(), mode));
            }
            return Ok(());
        };
        for item in items {
            match data.data.get(&item.key) {
                Some(content) => {
                    let file = file(content.clone(), item.mode.unwrap_or(mode));
                    self.payload.files.insert(PathBuf::from(&item.path), file);
                }
                None if optional => {}
                None => {
                    let lower = kind.lower();
                    return Err(Missing::Absent(match kind {
                        Kind::ConfigMap => {
                            format!("{lower} references non-existent config key: {}", item.key)
                        }
                        Kind::Secret => format!("references non-existent secret key: {} of {name}", item.key),
                    }));
                }
            }
        }
        Ok(())
    }

    fn downward(&mut self, items: Option<&Vec<DownwardAPIVolumeFile>>, mode: i32) -> Result<(), Missing> {
        let host_ips = self.host.addresses.read().clone();
        let context = FieldContext {
            pod: self.pod,
            pod_ips: &[],
            host_ips: &host_ips,
            node_name: &self.host.node_name,
        };
        let allocatable = self.host.allocatable.read().clone();
        for item in items.into_iter().flatten() {
            let content = if let Some(field) = &item.field_ref {
                context.field(&field.field_path).map_err(Missing::Absent)?
            } else if let Some(selector) = &item.resource_field_ref {
                let name = selector.container_name.as_deref().unwrap_or_default();
                let containers = containers_of(self.pod);
                let container = containers.iter().find(|(_, container)| container.name == name);
                let (_, container) =
                    container.ok_or_else(|| Missing::Absent(format!("no container is called \"{name}\"")))?;
                resource(selector, container, &allocatable).map_err(Missing::Absent)?
            } else {
                continue;
            };
            let file = file(content.into_bytes(), item.mode.unwrap_or(mode));
            self.payload.files.insert(PathBuf::from(&item.path), file);
        }
        Ok(())
    }
}

fn file(content: Vec<u8>, mode: i32) -> File {
    File { content, mode: u32::try_from(mode).unwrap_or(0o644) & 0o777, owner: None }
}

/// A token is for the one user that all containers run as, if there is one, and for the pod's group.
fn token_owner(pod: &Pod, mode: i32) -> (Option<u32>, u32) {
    let mode = u32::try_from(mode).unwrap_or(0o644) & 0o777;
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.clone()).unwrap_or_default();
    let mut users = containers_of(pod).into_iter().map(|(_, container)| {
        container.security_context.as_ref().and_then(|own| own.run_as_user).or(context.run_as_user)
    });
    let first = users.next().flatten().filter(|user| users.all(|other| other == Some(*user)));
    let owner = first.and_then(|user| u32::try_from(user).ok());
    (owner, if owner.is_some() || context.fs_group.is_some() { 0o600 } else { mode })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn volumes_that_nobody_makes_are_refused() {
        let plugin = |source: Value| plugin(&serde_json::from_value(source).unwrap());
        assert_eq!(plugin(json!({"name": "v", "secret": {}})), Some("kubernetes.io~secret"));
        // Hooks of a repository would run on the node, and a folder of the node may be one.
        for source in ["https://example.com/r.git", "/var/lib/kubelet/pods"] {
            assert_eq!(
                plugin(json!({"name": "v", "gitRepo": {"repository": source, "directory": ".git"}})),
                None
            );
        }
    }

    #[test]
    fn a_token_is_for_those_who_run() {
        let check = |whole: Value, containers: &[Value], expected: (Option<u32>, u32)| {
            let containers = containers.iter().map(|own| json!({"name": "c", "securityContext": own}));
            let containers: Vec<Value> = containers.collect();
            let spec = json!({"securityContext": whole, "containers": containers});
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            assert_eq!(token_owner(&pod, 0o644), expected, "{spec}");
        };
        check(json!({}), &[json!({})], (None, 0o644));
        check(json!({"runAsUser": 1000}), &[json!({}), json!({"runAsUser": 1000})], (Some(1000), 0o600));
        check(json!({"runAsUser": 1000}), &[json!({}), json!({"runAsUser": 7})], (None, 0o644));
        check(json!({"fsGroup": 2000}), &[json!({})], (None, 0o600));
        check(json!({"runAsUser": 1000, "fsGroup": 2000}), &[json!({})], (Some(1000), 0o600));
    }
}
