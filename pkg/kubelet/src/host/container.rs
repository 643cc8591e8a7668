//! What a container is made of.

use super::{ContainerContext, Host, dns, env, files, resources, security};
use crate::runtime::{ContainerSpec, Mount, Propagation};
use crate::wake::Wake;
use crate::worker::{labels, pod_ref};
use k8s_openapi::api::core::v1::{Pod, VolumeMount};
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
        let security = security::of(pod, container, image, &self.paths.root)?;
        let env = env::of(self, &context, wake).await?;
        let mut mounts = Vec::new();
        for mount in container.volume_mounts.iter().flatten() {
            mounts.push(self.volume_mount(pod, mount, &env).await?);
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
        pod: &Pod,
        mount: &VolumeMount,
        env: &[(String, String)],
    ) -> Result<Mount, String> {
        let (host_path, read_only_volume) = self.volumes.path(self, pod, &mount.name)?;
        let sub_path = match (&mount.sub_path_expr, &mount.sub_path) {
            (Some(expression), _) if !expression.is_empty() => Some(env::expand_strictly(expression, env)?),
            (_, Some(path)) if !path.is_empty() => Some(path.clone()),
            _ => None,
        };
        let read_only = mount.read_only == Some(true) || read_only_volume;
        let host_path = match sub_path {
            None => host_path,
            Some(path) => crate::volumes::sub_path(&host_path, &path, mount.read_only == Some(true))
                .map_err(|error| {
                    format!(
                        "failed to prepare subPath for volumeMount \"{}\" of container: {error}",
                        mount.name
                    )
                })?,
        };
        Ok(Mount {
            host_path,
            container_path: absolute(&mount.mount_path),
            read_only,
            propagation: match mount.mount_propagation.as_deref() {
                Some("HostToContainer") => Propagation::HostToContainer,
                Some("Bidirectional") => Propagation::Bidirectional,
                _ => Propagation::None,
            },
        })
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
            if std::fs::read_to_string(&file).ok().as_ref() != Some(&text) {
                std::fs::write(&file, text)?;
            }
            mounts.push(plain(file, path));
        }
        Ok(())
    }
}

fn plain(host_path: PathBuf, container_path: &str) -> Mount {
    Mount {
        host_path,
        container_path: absolute(container_path),
        read_only: false,
        propagation: Propagation::None,
    }
}

fn absolute(path: &str) -> PathBuf {
    Path::new("/").join(path)
}
