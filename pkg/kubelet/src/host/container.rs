//! What a container is made of.

use super::{ContainerContext, Host, dns, env, files, resources, security};
use crate::beneath::read_own;
use crate::runtime::{ContainerSpec, HandlerFeatures, Mount, Propagation};
use crate::volumes::prepare_sub_path;
use crate::wake::Wake;
use crate::worker::{labels, pod_ref};
use k8s_openapi::api::core::v1::{Pod, VolumeMount};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Host {
    /// Works it out. An error: it cannot be made like this.
    pub(crate) async fn container_spec(
        &self,
        context: ContainerContext<'_>,
        wake: &Arc<Wake>,
    ) -> Result<ContainerSpec, String> {
        let ContainerContext { pod, container, attempt, image, .. } = &context;
        let pod_ref = pod_ref(pod);
        let name = &container.name;
        let security = security::of(pod, container, image, &self.paths.root, &self.app_armor)?;
        let env = env::of(self, &context, wake).await?;
        let mut mounts = Vec::new();
        for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
            mounts.push(self.volume_mount(&context, index, mount, &env).await?);
        }
        let message_file = files::make_container_files(&self.paths, &pod_ref, name, *attempt)
            .map_err(|error| format!("make the container's files: {error}"))?;
        let message_path = container.termination_message_path.as_deref().unwrap_or("/dev/termination-log");
        self.own_files(pod, &context.addresses, &mut mounts)
            .map_err(|error| format!("write the pod's files: {error}"))?;
        mounts.push(plain(message_file, message_path));
        let capacity = self.capacity.read().clone();
        Ok(ContainerSpec {
            command: env::expand_all(container.command.as_ref(), &env),
            args: env::expand_all(container.args.as_ref(), &env),
            working_dir: container.working_dir.clone().unwrap_or_default(),
            env,
            mounts,
            devices: Vec::new(),
            security,
            resources: resources::of_container(pod, container, &capacity),
            tty: container.tty == Some(true),
            stdin: container.stdin == Some(true),
            stdin_once: container.stdin_once == Some(true),
            log_path: self.paths.log(&pod_ref, name, *attempt),
            labels: [
                (labels::POD_NAME, pod_ref.name.clone()),
                (labels::POD_NAMESPACE, pod_ref.namespace.clone()),
                (labels::POD_UID, pod_ref.uid.clone()),
                (labels::CONTAINER_NAME, name.clone()),
            ]
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
            annotations: [
                (labels::RESTART_COUNT, attempt.to_string()),
                (labels::MESSAGE_PATH, message_path.to_owned()),
                (labels::MESSAGE_POLICY, container.termination_message_policy.clone().unwrap_or_default()),
            ]
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
            ..ContainerSpec::default()
        })
    }

    async fn volume_mount(
        &self,
        context: &ContainerContext<'_>,
        index: usize,
        mount: &VolumeMount,
        env: &[(String, String)],
    ) -> Result<Mount, String> {
        let ContainerContext { pod, container, features, .. } = context;
        let (host_path, read_only_volume) = self.volumes.path(self, pod, &mount.name)?;
        let sub_path = match (&mount.sub_path_expr, &mount.sub_path) {
            (Some(expression), _) if !expression.is_empty() => Some(env::expand_strictly(expression, env)?),
            (_, Some(path)) if !path.is_empty() => Some(path.clone()),
            _ => None,
        };
        let propagation = match mount.mount_propagation.as_deref() {
            Some("HostToContainer") => Propagation::HostToContainer,
            Some("Bidirectional") => Propagation::Bidirectional,
            _ => Propagation::None,
        };
        let recursive_read_only = is_recursive_read_only(mount, *features)?;
        let host_path = match sub_path {
            None => host_path,
            Some(path) => {
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                let place = self.paths.sub_path(uid, &mount.name, &container.name, index);
                self.mount_sub_path(host_path, path, place.clone(), propagation).await.map_err(|error| {
                    // What is there, and what is wrong with it, is the node's business.
                    let (volume, container) = (&mount.name, &container.name);
                    tracing::warn!(pod = pod.metadata.name, container, volume, %error, "prepare a subPath");
                    format!(
                        "failed to prepare subPath for volumeMount \"{volume}\" of container \"{container}\""
                    )
                })?;
                place
            }
        };
        Ok(Mount {
            host_path,
            container_path: absolute(&mount.mount_path),
            read_only: mount.read_only == Some(true) || read_only_volume,
            recursive_read_only,
            propagation,
        })
    }

    async fn mount_sub_path(
        &self,
        volume: PathBuf,
        path: String,
        place: PathBuf,
        propagation: Propagation,
    ) -> std::io::Result<()> {
        let prepare = move || prepare_sub_path(&volume, &path, &place, propagation);
        tokio::task::spawn_blocking(prepare).await.map_err(std::io::Error::other)?
    }

    /// `/etc/hosts`, `/etc/hostname` and `/etc/resolv.conf`, shared by the containers of a pod.
    fn own_files(&self, pod: &Pod, addresses: &[String], mounts: &mut Vec<Mount>) -> std::io::Result<()> {
        let Some(spec) = &pod.spec else { return Ok(()) };
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let dir = self.paths.pod(uid);
        let is_host = spec.host_network == Some(true);
        let aliases = spec.host_aliases.clone().unwrap_or_default();
        let (name, domain) = dns::host_name(pod, &self.dns.domain);
        let hosts = if is_host {
            dns::node_hosts(&std::fs::read_to_string("/etc/hosts").unwrap_or_default(), &aliases)
        } else {
            dns::hosts(addresses, &name, domain.as_deref(), &aliases)
        };
        let node = dns::Resolver::parse(&std::fs::read_to_string(&self.dns.resolv_conf).unwrap_or_default());
        let mut wanted = vec![
            ("/etc/hosts", "etc-hosts", hosts),
            ("/etc/resolv.conf", "resolv.conf", dns::resolver(pod, &self.dns, &node).text()),
        ];
        if !is_host {
            let name = dns::kernel_name(pod, &self.dns.domain).unwrap_or(name);
            wanted.push(("/etc/hostname", "hostname", format!("{name}\n")));
        }
        for (path, file, text) in wanted {
            if mounts.iter().any(|mount| mount.container_path == Path::new(path)) {
                continue;
            }
            let file = dir.join(file);
            // Containers that run have this very file mounted, so it is written in place.
            if !holds(&file, &text) {
                std::fs::write(&file, text)?;
            }
            mounts.push(plain(file, path));
        }
        Ok(())
    }
}

/// Whether a file holds this text. Containers may have written to it, as much as they liked.
fn holds(file: &Path, text: &str) -> bool {
    let read = read_own(file).and_then(|file| {
        let mut found = Vec::new();
        file.take(text.len() as u64 + 1).read_to_end(&mut found).map(|_| found)
    });
    read.is_ok_and(|found| found == text.as_bytes())
}

fn plain(host_path: PathBuf, container_path: &str) -> Mount {
    Mount { host_path, container_path: absolute(container_path), ..Mount::default() }
}

/// Whether what is mounted below a mount cannot be written to either. An error: that is asked for and cannot be.
pub(crate) fn is_recursive_read_only(mount: &VolumeMount, features: HandlerFeatures) -> Result<bool, String> {
    let mode = match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => return Ok(false),
        Some(mode) => mode,
    };
    let requested = format!("volume \"{}\" requested recursive read-only mode, but it is", mount.name);
    if mount.read_only != Some(true) {
        return Err(format!("{requested} not read-only"));
    }
    if let Some(propagation) = mount.mount_propagation.as_ref().filter(|propagation| *propagation != "None") {
        return Err(format!("{requested} not compatible with propagation \"{propagation}\""));
    }
    match (mode, features.recursive_read_only_mounts) {
        ("Enabled", false) => Err(format!("{requested} not supported by the runtime")),
        ("Enabled" | "IfPossible", supported) => Ok(supported),
        (other, _) => Err(format!("unknown recursive read-only mode \"{other}\"")),
    }
}

fn absolute(path: &str) -> PathBuf {
    Path::new("/").join(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn recursive_read_only_is_given_or_refused() {
        let check = |fields: Value, supported: bool, expected: Result<bool, &str>| {
            let mut mount = json!({"name": "v", "mountPath": "/v", "readOnly": true});
            mount.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let features =
                HandlerFeatures { recursive_read_only_mounts: supported, ..HandlerFeatures::default() };
            let found = is_recursive_read_only(&serde_json::from_value(mount).unwrap(), features);
            let expected = expected.map_err(|why| {
                format!("volume \"v\" requested recursive read-only mode, but it is not {why}")
            });
            assert_eq!(found, expected, "{fields}");
        };
        let mode = |mode: &str| json!({"recursiveReadOnly": mode});
        check(json!({}), true, Ok(false));
        check(mode("Disabled"), true, Ok(false));
        check(mode("IfPossible"), true, Ok(true));
        check(mode("IfPossible"), false, Ok(false));
        check(mode("Enabled"), true, Ok(true));
        check(mode("Enabled"), false, Err("supported by the runtime"));
        check(json!({"recursiveReadOnly": "Enabled", "readOnly": false}), true, Err("read-only"));
        let both = json!({"recursiveReadOnly": "Enabled", "mountPropagation": "HostToContainer"});
        check(both, true, Err("compatible with propagation \"HostToContainer\""));
    }

    #[test]
    fn a_file_that_a_container_has_grown_is_not_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hosts");
        assert!(!holds(&file, "text"));
        std::fs::write(&file, "text").unwrap();
        assert!(holds(&file, "text") && !holds(&file, "tex") && !holds(&file, "texts"));
        // Larger than memory, without a byte on the disk.
        std::fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
        assert!(!holds(&file, "text"));
    }
}
