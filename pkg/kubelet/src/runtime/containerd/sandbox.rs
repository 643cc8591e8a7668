//! Sandboxes: the pause container, the pod's control group, and what its containers share.

use super::super::{Error, PodRef, Resources, SandboxId, SandboxSpec, SandboxView};
use super::Engine;
use super::connection::{Lenient, failed};
use super::record::{self, KIND_LABEL, RECORD, SANDBOX_LABEL, SandboxRecord, UID_LABEL};
use super::view::sandbox_view;
use crate::runtime::spec;
use containerd_client::services::v1 as api;
use containerd_client::types::Mount;
use containerd_client::types::v1::Status;
use futures::future::try_join_all;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use oci_spec::runtime::Spec;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// By this containerd knows what the bytes of a specification are.
const SPEC_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";
pub(super) const RUNC: &str = "io.containerd.runc.v2";
/// By this the shim knows what the bytes of its options are, and this is the one that says where runc's state is.
const RUNC_OPTIONS: &str = "containerd.runc.v1.Options";
const RUNC_OPTIONS_ROOT: u8 = 7;
/// A process that is killed is gone after so many looks.
const KILLED_WITHIN: u32 = 50;
const AGAIN: Duration = Duration::from_millis(10);
/// As large as upstream's.
const SHM_OPTIONS: &str = "mode=1777,size=67108864";

impl Engine {
    /// Makes and starts a sandbox, or takes up the one that is there.
    pub(super) async fn start_sandbox(&self, pod: &PodRef, spec: &SandboxSpec) -> Result<SandboxView, Error> {
        let id = SandboxId::of(pod, spec.attempt);
        let runtime = self.runtime(&spec.handler)?;
        let cgroup = format!("{}/{}", spec.cgroup_parent.trim_end_matches('/'), id.0);
        let oci = spec::pause(self.node, &id.0, spec, &cgroup)?;
        let record = SandboxRecord { pod: pod.clone(), spec: spec.clone() };
        let mut container = api::Container {
            id: id.0.clone(),
            labels: record::labels("sandbox", pod, &id),
            runtime: Some(runtime),
            ..Default::default()
        };
        set_spec(&mut container, &oci);
        record::attach(&mut container, &record);
        // The record first: by it all the rest is found again, and removed.
        let (container, is_new) = self.create(container).await?;
        self.prepare_sandbox(&id, spec).await?;
        let task = if is_new { None } else { self.task(&id.0).await? };
        let view = |task: Option<&_>| sandbox_view(&container, record.clone(), task);
        match task {
            Some(task) if task.status() != Status::Created => return Ok(view(Some(&task))),
            Some(_) => {}
            None => self.create_pause(&id).await?,
        }
        let mut tasks = self.connection.tasks();
        let request = api::StartRequest { container_id: id.0.clone(), ..Default::default() };
        let started = tasks.start(request).await;
        let pid =
            started.map_err(|status| refused("failed to start sandbox container task", &id.0, &status))?;
        Ok(SandboxView { pid: Some(pid.into_inner().pid), ..view(None) })
    }

    /// Changes the limits of all that is in a sandbox, and writes more onto it.
    pub(super) async fn update_sandbox(
        &self,
        sandbox: &SandboxId,
        resources: &Resources,
        annotations: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let missing = || Error::NotFound(format!("sandbox {}", sandbox.0));
        let found = self.container(&sandbox.0).await?;
        let mut record: SandboxRecord = found.as_ref().and_then(record::read).ok_or_else(missing)?;
        let (cgroups, group) = (self.cgroups.clone(), record.spec.cgroup_parent.clone());
        record.spec.resources = resources.clone();
        record.spec.annotations.extend(annotations.clone());
        let resources = resources.clone();
        let apply = move || cgroups.apply(&group, &resources);
        let done = tokio::task::spawn_blocking(apply)
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)));
        done.map_err(|source| Error::Container(format!("failed to set pod cgroup config: {source}")))?;
        self.write(&sandbox.0, RECORD, &record).await
    }

    /// Kills a sandbox and all in it, and leaves nothing of it.
    pub(super) async fn remove_sandbox(&self, sandbox: &SandboxId) -> Result<(), Error> {
        let members = self.members(sandbox).await?;
        let pause = members.iter().find(|container| container.id == sandbox.0);
        let record = pause.and_then(record::read::<SandboxRecord>);
        let others = members.iter().filter(|container| container.id != sandbox.0);
        try_join_all(others.map(|container| self.remove_container(&container.id))).await?;
        if !self.kill(&sandbox.0).await? {
            self.end_lost_shim(&sandbox.0).await;
        }
        self.unshare(sandbox).await?;
        if let Some(record) = &record {
            self.remove_cgroup(sandbox, record).await?;
        }
        let mut client = self.connection.containers();
        let deleted = client.delete(api::DeleteContainerRequest { id: sandbox.0.clone() }).await.if_found();
        deleted.map(drop).map_err(failed(format!("delete sandbox {}", sandbox.0)))?;
        // One may have been made since we looked. From now on none is: who makes one looks for its sandbox again.
        let late = self.members(sandbox).await?;
        try_join_all(late.iter().map(|container| self.remove_container(&container.id))).await?;
        Ok(())
    }

    /// The containers of a sandbox, itself among them.
    async fn members(&self, sandbox: &SandboxId) -> Result<Vec<api::Container>, Error> {
        self.containers(format!("labels.\"{SANDBOX_LABEL}\"==\"{}\"", sandbox.0)).await
    }

    /// Removes the pod's control group, unless another sandbox of the pod uses it.
    async fn remove_cgroup(&self, sandbox: &SandboxId, record: &SandboxRecord) -> Result<(), Error> {
        let filter =
            format!("labels.\"{UID_LABEL}\"==\"{}\",labels.\"{KIND_LABEL}\"==sandbox", record.pod.uid);
        let mut group = record.spec.cgroup_parent.trim_end_matches('/').to_owned();
        if self.containers(filter).await?.iter().any(|other| other.id != sandbox.0) {
            group = format!("{group}/{}", sandbox.0);
        }
        if group.trim_matches('/').is_empty() {
            return Ok(());
        }
        let mut removed = self.cgroups.remove(&group);
        for _ in 0..KILLED_WITHIN {
            if removed.is_ok() {
                break;
            }
            // All tasks are gone; whoever is still there was started for somebody who died before it became a task.
            self.cgroups.kill(&group);
            tokio::time::sleep(AGAIN).await;
            removed = self.cgroups.remove(&group);
        }
        removed.map_err(|source| Error::Unavailable {
            doing: format!("remove control group {group}: {source}"),
            source: source.into(),
        })
    }

    /// Creates a container of containerd, or finds the one that is there.
    pub(super) async fn create(&self, container: api::Container) -> Result<(api::Container, bool), Error> {
        let mut client = self.connection.containers();
        let id = container.id.clone();
        let request = api::CreateContainerRequest { container: Some(container) };
        let created =
            client.create(request).await.if_new().map_err(failed(format!("create container {id}")))?;
        if let Some(container) = created.and_then(|created| created.container) {
            return Ok((container, true));
        }
        let found = self.container(&id).await?;
        Ok((found.ok_or_else(|| Error::NotFound(format!("container {id}")))?, false))
    }

    async fn create_pause(&self, id: &SandboxId) -> Result<(), Error> {
        let rootfs = Mount {
            r#type: "bind".to_owned(),
            source: self.config.root_dir.join("pause").display().to_string(),
            options: vec!["rbind".to_owned(), "ro".to_owned()],
            ..Default::default()
        };
        let mut tasks = self.connection.tasks();
        let request =
            api::CreateTaskRequest { container_id: id.0.clone(), rootfs: vec![rootfs], ..Default::default() };
        let created = tasks.create(request).await.if_new();
        created.map(drop).map_err(|status| refused("failed to create sandbox container task", &id.0, &status))
    }

    /// The pod's control group, and what its containers share.
    async fn prepare_sandbox(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<(), Error> {
        let folder = self.sandbox_folder(id);
        let (cgroups, spec) = (self.cgroups.clone(), spec.clone());
        let prepare = move || -> std::io::Result<()> {
            cgroups.apply(&spec.cgroup_parent, &spec.resources)?;
            std::fs::create_dir_all(folder.join("shm"))?;
            std::fs::write(folder.join("hostname"), format!("{}\n", spec.hostname))?;
            if !spec.host_ipc && !is_mounted(&folder.join("shm"))? {
                let flags = MsFlags::MS_NOEXEC | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
                mount(Some("shm"), &folder.join("shm"), Some("tmpfs"), flags, Some(SHM_OPTIONS))?;
            }
            Ok(())
        };
        let done = tokio::task::spawn_blocking(prepare)
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)));
        done.map_err(|source| Error::Unavailable {
            doing: format!("prepare sandbox {}: {source}", id.0),
            source: source.into(),
        })
    }

    /// Gives back what [`Engine::prepare_sandbox`] made, but for the control group.
    pub(super) async fn unshare(&self, id: &SandboxId) -> Result<(), Error> {
        let folder = self.sandbox_folder(id);
        let unshare = move || -> std::io::Result<()> {
            match umount2(&folder.join("shm"), MntFlags::MNT_DETACH) {
                // Not mounted, or not there.
                Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) | Ok(()) => {}
                Err(error) => return Err(error.into()),
            }
            match std::fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        };
        let done = tokio::task::spawn_blocking(unshare)
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)));
        done.map_err(|source| Error::Unavailable {
            doing: format!("clean up after sandbox {}: {source}", id.0),
            source: source.into(),
        })
    }

    pub(super) fn sandbox_folder(&self, id: &SandboxId) -> PathBuf {
        self.config.state_dir.join("sandboxes").join(&id.0)
    }

    /// The runtime of a handler, as containerd knows it.
    fn runtime(&self, handler: &str) -> Result<api::container::Runtime, Error> {
        let handlers = &self.config.handlers;
        let handler = if handler.is_empty() { self.config.usual_handler.as_str() } else { handler };
        let name = match handlers.get(handler) {
            Some(name) => name.clone(),
            None if handler == self.config.usual_handler => RUNC.to_owned(),
            None => {
                let text = format!("failed to get sandbox runtime: no runtime for {handler:?} is configured");
                return Err(Error::Container(text));
            }
        };
        let mut runtime = api::container::Runtime { name, ..Default::default() };
        if runtime.name == RUNC || handler == super::SHIM {
            // What our shim does not do it hands to runc, with these options. runc's own state is ours alone: two nodes on one machine may have a static pod of the same id.
            let options = runtime.options.get_or_insert_default();
            options.type_url = RUNC_OPTIONS.to_owned();
            options.value =
                text_field(RUNC_OPTIONS_ROOT, &self.config.state_dir.join("runc").display().to_string());
        }
        Ok(runtime)
    }
}

/// A message with one field of text, as protobuf has it.
fn text_field(number: u8, text: &str) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = text.len();
    while length >= 0x80 {
        bytes.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// Puts a specification onto a container.
pub(super) fn set_spec(container: &mut api::Container, spec: &Spec) {
    let any = container.spec.get_or_insert_default();
    any.type_url = SPEC_TYPE.to_owned();
    any.value = serde_json::to_vec(spec).expect("specifications are plain data");
}

/// What the runtime says why it did not; or that it cannot be asked.
pub(super) fn refused(doing: &str, id: &str, status: &containerd_client::tonic::Status) -> Error {
    use containerd_client::tonic::Code;
    if matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded) {
        return failed(format!("{doing} of {id}"))(status.clone());
    }
    Error::Container(format!("{doing}: {}", status.message()))
}

fn is_mounted(folder: &std::path::Path) -> std::io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let parent = folder.parent().unwrap_or(folder);
    Ok(std::fs::metadata(folder)?.dev() != std::fs::metadata(parent)?.dev())
}

#[cfg(test)]
mod tests {
    use super::text_field;

    #[test]
    fn text_is_encoded_as_protobuf_has_it() {
        assert_eq!(text_field(7, "ab"), [0x3a, 2, b'a', b'b']);
        assert_eq!(text_field(7, &"x".repeat(300))[..4], [0x3a, 0xac, 0x02, b'x']);
    }
}
