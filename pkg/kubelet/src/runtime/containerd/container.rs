//! Containers: their file system, process, and what they write.

use super::super::{
    ContainerId, ContainerSpec, ContainerView, DiskUsage, Error, PodRef, Resources, SandboxId,
};
use super::Engine;
use super::connection::{Lenient, failed};
use super::propagation;
use super::record::{self, ContainerRecord, Exit, RECORD, SandboxRecord, created_at};
use super::sandbox::{refused, set_spec};
use crate::pod_logs;
use crate::runtime::images::ImageConfig;
use crate::runtime::spec::{self, Accounts, Sandbox};
use containerd_client::services::v1 as api;
use containerd_client::services::v1::snapshots::{
    MountsRequest, PrepareSnapshotRequest, RemoveSnapshotRequest, UsageRequest, UsageResponse,
};
use containerd_client::tonic::Code;
use containerd_client::types::Mount;
use containerd_client::types::v1::Status;
use jiff::Timestamp;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// By this containerd knows what the bytes of limits are.
const RESOURCES_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources";
/// Says that a snapshot is a container's, for those that a crash left without one.
pub(super) const SNAPSHOT_LABEL: &str = "containerd.io/gc.root";
/// A shell's "cannot be started".
const NOT_STARTED: i32 = 128;

/// Where a container's streams are.
pub(super) struct Streams {
    pub(super) stdin: Option<PathBuf>,
    pub(super) stdout: PathBuf,
    pub(super) stderr: Option<PathBuf>,
}

impl Engine {
    /// Makes and starts a container, or takes up the one that is there.
    pub(super) async fn start_container(
        &self,
        pod: &PodRef,
        sandbox: &SandboxId,
        spec: &ContainerSpec,
    ) -> Result<ContainerView, Error> {
        let id = ContainerId::of(sandbox, &spec.name, spec.attempt).0;
        let (pause, pause_task, image, existing) = tokio::try_join!(
            self.container(&sandbox.0),
            self.task(&sandbox.0),
            self.images.config(&spec.image),
            self.container(&id),
        )?;
        let missing = || Error::NotFound(format!("sandbox {}", sandbox.0));
        let sandbox_record: SandboxRecord = pause.as_ref().and_then(record::read).ok_or_else(missing)?;
        let container = match existing {
            Some(container) => container,
            None => {
                let running =
                    pause_task.filter(|task| task.status() == Status::Running).ok_or_else(missing)?;
                let folder = self.sandbox_folder(sandbox);
                let shm =
                    if sandbox_record.spec.host_ipc { PathBuf::from("/dev/shm") } else { folder.join("shm") };
                let joined = Sandbox {
                    id: &sandbox.0,
                    spec: &sandbox_record.spec,
                    pid: running.pid,
                    shm: &shm,
                    hostname_file: &folder.join("hostname"),
                };
                let runtime = pause.and_then(|pause| pause.runtime);
                let made = self.make(pod, &id, &joined, spec, &image, runtime).await?;
                if self.container(&sandbox.0).await?.is_none() {
                    // Who removed it meanwhile has not seen this one.
                    self.remove_container(&id).await?;
                    return Err(missing());
                }
                made
            }
        };
        let record: ContainerRecord = record::read(&container)
            .ok_or_else(|| Error::Container(format!("{id} is not a container of ours")))?;
        if record::exit(&container).is_none()
            && let Err(error) = self.start(&id, &record).await
        {
            // What the runtime refuses it refuses again; what could not be asked may be asked again.
            if matches!(error, Error::Container(_)) {
                self.fail(&id, &error).await?;
            }
            return Err(error);
        }
        let task = self.task(&id).await?;
        let state = self.state(&container, &record, task.as_ref()).await?;
        Ok(record.view(&id, created_at(&container), state))
    }

    /// Its file system and its entry in containerd.
    async fn make(
        &self,
        pod: &PodRef,
        id: &str,
        sandbox: &Sandbox<'_>,
        spec: &ContainerSpec,
        image: &Arc<ImageConfig>,
        runtime: Option<api::container::Runtime>,
    ) -> Result<api::Container, Error> {
        spec::verify_non_root(pod, &spec.name, &spec.security, &image.user)?;
        propagation::check(&spec.mounts)?;
        for mount in spec.mounts.iter().filter(|mount| !mount.host_path.exists()) {
            std::fs::create_dir_all(&mount.host_path).map_err(|error| {
                Error::Container(format!("failed to create host path {}: {error}", mount.host_path.display()))
            })?;
        }
        // One of an earlier container with this id would say that this one has run.
        self.forget_start(id)?;
        let rootfs = self.root(id, image).await?;
        let built = async {
            let accounts = Accounts::read(&layers(&rootfs));
            let user = spec::resolve_user(&spec.security, &image.user, &accounts)?;
            let cgroup = format!("{}/{id}", sandbox.spec.cgroup_parent.trim_end_matches('/'));
            let oci = spec::container(self.node, sandbox, spec, image, &user, &cgroup)?;
            let sandbox_id = SandboxId(sandbox.id.to_owned());
            let record = ContainerRecord::new(pod, &sandbox_id, spec, image.stop_signal(), cgroup, &user);
            let mut container = api::Container {
                id: id.to_owned(),
                labels: record::labels("container", pod, &sandbox_id),
                image: spec.image_ref.clone(),
                runtime,
                snapshotter: self.config.snapshotter.clone(),
                snapshot_key: id.to_owned(),
                ..Default::default()
            };
            container.labels.insert("io.kubernetes.container.name".to_owned(), spec.name.clone());
            set_spec(&mut container, &oci);
            record::attach(&mut container, &record);
            self.create(container).await
        };
        match built.await {
            Ok((container, _)) => Ok(container),
            Err(error) => {
                self.remove_root(id).await?;
                Err(error)
            }
        }
    }

    /// Creates and starts its process, whatever of that has been done already.
    async fn start(&self, id: &str, record: &ContainerRecord) -> Result<(), Error> {
        let status = self.task(id).await?.map(|task| task.status());
        if !matches!(status, None | Some(Status::Created))
            || (status.is_none() && self.started_at(id).is_some())
        {
            return Ok(());
        }
        let mut tasks = self.connection.tasks();
        if status.is_none() {
            let mut snapshots = self.connection.snapshots();
            let (streams, mounts) = tokio::try_join!(self.open_log(id, record), async {
                let request =
                    MountsRequest { snapshotter: self.config.snapshotter.clone(), key: id.to_owned() };
                snapshots.mounts(request).await.map_err(failed(format!("mount the root of {id}")))
            })?;
            let text =
                |path: Option<&PathBuf>| path.map(|path| path.display().to_string()).unwrap_or_default();
            let request = api::CreateTaskRequest {
                container_id: id.to_owned(),
                rootfs: mounts.into_inner().mounts,
                stdin: text(streams.stdin.as_ref()),
                stdout: text(Some(&streams.stdout)),
                stderr: text(streams.stderr.as_ref()),
                terminal: record.tty,
                ..Default::default()
            };
            let created = tasks.create(request).await.if_new();
            created.map_err(|status| refused("failed to create containerd task", id, &status))?;
        }
        // Before it starts: one that ends at once has started, too.
        let started = self.started_file(id);
        std::fs::write(&started, Timestamp::now().to_string()).map_err(|source| Error::Unavailable {
            doing: format!("write {}", started.display()),
            source: source.into(),
        })?;
        let request = api::StartRequest { container_id: id.to_owned(), ..Default::default() };
        match tasks.start(request).await {
            Err(status) => {
                // It has not started after all; a leftover would say that it ran and vanished.
                let _ = std::fs::remove_file(started);
                Err(refused("failed to start containerd task", id, &status))
            }
            Ok(_) => Ok(()),
        }
    }

    /// Writes down that a container could not be started.
    async fn fail(&self, id: &str, error: &Error) -> Result<(), Error> {
        let exit = Exit {
            started_at: None,
            finished_at: Timestamp::now(),
            code: NOT_STARTED,
            out_of_memory: false,
            message: Some(error.to_string()),
        };
        self.write_exit(id, &exit).await?;
        self.kill(id).await?;
        self.close_log(id).await
    }

    /// The FIFOs that a container writes to, with the logger at their other end.
    pub(super) async fn open_log(&self, id: &str, record: &ContainerRecord) -> Result<Streams, Error> {
        let folder = self.io_folder(id);
        let streams = Streams {
            stdin: record.stdin.then(|| folder.join("stdin")),
            stdout: folder.join("stdout"),
            // A terminal has one stream.
            stderr: (!record.tty).then(|| folder.join("stderr")),
        };
        let make = || {
            std::fs::create_dir_all(&folder)?;
            pod_logs::make_folder(&record.log_path)?;
            for fifo in
                [streams.stdin.as_ref(), Some(&streams.stdout), streams.stderr.as_ref()].into_iter().flatten()
            {
                make_fifo(fifo)?;
            }
            Ok(())
        };
        make().map_err(|source: std::io::Error| Error::Unavailable {
            doing: format!("prepare the streams of {id}: {source}"),
            source: source.into(),
        })?;
        let text = |path: Option<&PathBuf>| path.map(|path| path.display().to_string()).unwrap_or_default();
        let log = record.log_path.display().to_string();
        let (stdin, stdout, stderr) =
            (text(streams.stdin.as_ref()), text(Some(&streams.stdout)), text(streams.stderr.as_ref()));
        self.logger.ask(&["add", id, &log, &stdout, &stderr, &stdin]).await?;
        Ok(streams)
    }

    pub(super) async fn close_log(&self, id: &str) -> Result<(), Error> {
        let folder = self.io_folder(id);
        if !folder.exists() {
            return Ok(());
        }
        self.logger.ask(&["remove", id]).await?;
        match std::fs::remove_dir_all(&folder) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(Error::Unavailable {
                doing: format!("remove {}", folder.display()),
                source: source.into(),
            }),
            _ => Ok(()),
        }
    }

    pub(super) fn io_folder(&self, id: &str) -> PathBuf {
        self.config.state_dir.join("io").join(id)
    }

    /// Asks it to end, and kills it when the grace is over.
    pub(super) async fn stop_container(&self, container: &ContainerId, grace: Duration) -> Result<(), Error> {
        let id = &container.0;
        let Some(found) = self.container(id).await? else { return Ok(()) };
        let record = record::read::<ContainerRecord>(&found);
        let stop_signal = record.map_or(Signal::SIGTERM as i32, |record| record.stop_signal);
        if grace > Duration::ZERO {
            self.signal(id, stop_signal, false).await?;
            if let Ok(ended) = tokio::time::timeout(grace, self.ended(id)).await {
                return ended;
            }
        }
        self.signal(id, Signal::SIGKILL as i32, true).await?;
        self.ended(id).await
    }

    /// Forgets a container. One that runs is killed.
    pub(super) async fn remove_container(&self, id: &str) -> Result<(), Error> {
        self.kill(id).await?;
        self.close_log(id).await?;
        self.remove_root(id).await?;
        let mut client = self.connection.containers();
        let deleted = client.delete(api::DeleteContainerRequest { id: id.to_owned() }).await.if_found();
        deleted.map_err(failed(format!("delete container {id}")))?;
        // Last: without it, a container that is half removed would seem never to have started.
        self.forget_start(id)
    }

    pub(super) fn forget_start(&self, id: &str) -> Result<(), Error> {
        match std::fs::remove_file(self.started_file(id)) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::Unavailable { doing: format!("forget container {id}"), source: source.into() })
            }
            _ => Ok(()),
        }
    }

    /// Changes its limits.
    pub(super) async fn update_container(
        &self,
        container: &ContainerId,
        resources: &Resources,
    ) -> Result<(), Error> {
        let id = &container.0;
        let mut request = api::UpdateTaskRequest { container_id: id.clone(), ..Default::default() };
        let any = request.resources.get_or_insert_default();
        any.type_url = RESOURCES_TYPE.to_owned();
        any.value =
            serde_json::to_vec(&spec::resources(self.node, resources)).expect("limits are plain data");
        let mut client = self.connection.tasks();
        let updated = client.update(request).await.if_found();
        let updated = updated.map_err(|status| refused("failed to update resources", id, &status))?;
        updated.map(drop).ok_or_else(|| Error::NotFound(format!("running container {id}")))
    }

    /// Writes more onto it.
    pub(super) async fn annotate_container(
        &self,
        container: &ContainerId,
        annotations: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let id = &container.0;
        let missing = || Error::NotFound(format!("container {id}"));
        let found = self.container(id).await?;
        let mut record: ContainerRecord = found.as_ref().and_then(record::read).ok_or_else(missing)?;
        record.annotations.extend(annotations.clone());
        self.write(id, RECORD, &record).await
    }

    /// A file system of its own above the image's.
    async fn root(&self, id: &str, image: &ImageConfig) -> Result<Vec<Mount>, Error> {
        let mut snapshots = self.connection.snapshots();
        let snapshotter = self.config.snapshotter.clone();
        let prepare = PrepareSnapshotRequest {
            snapshotter: snapshotter.clone(),
            key: id.to_owned(),
            parent: image.chain_ids().pop().unwrap_or_default(),
            // Not to be collected before the container names it.
            labels: HashMap::from([(SNAPSHOT_LABEL.to_owned(), Timestamp::now().to_string())]),
        };
        let mut prepared = snapshots.prepare(prepare.clone()).await;
        if prepared.as_ref().is_err_and(|status| status.code() == Code::NotFound) {
            self.images.unpack(image).await?;
            prepared = snapshots.prepare(prepare).await;
        }
        let doing = || failed(format!("failed to create containerd container: create the root of {id}"));
        match prepared.if_new().map_err(doing())? {
            Some(prepared) => Ok(prepared.mounts),
            None => {
                let request = MountsRequest { snapshotter, key: id.to_owned() };
                Ok(snapshots.mounts(request).await.map_err(doing())?.into_inner().mounts)
            }
        }
    }

    /// What it has written to its own file system.
    pub(super) async fn disk_usage(&self, container: &ContainerId) -> Result<DiskUsage, Error> {
        let mut snapshots = self.connection.snapshots();
        let request = UsageRequest { snapshotter: self.config.snapshotter.clone(), key: container.0.clone() };
        let usage = snapshots.usage(request).await.if_found();
        let usage = usage.map_err(failed(format!("measure the root of {}", container.0)))?;
        let positive = |number: i64| u64::try_from(number).unwrap_or(0);
        let found =
            |usage: UsageResponse| DiskUsage { bytes: positive(usage.size), inodes: positive(usage.inodes) };
        Ok(usage.map(found).unwrap_or_default())
    }

    pub(super) async fn remove_root(&self, id: &str) -> Result<(), Error> {
        let mut snapshots = self.connection.snapshots();
        let request =
            RemoveSnapshotRequest { snapshotter: self.config.snapshotter.clone(), key: id.to_owned() };
        let removed = snapshots.remove(request).await.if_found();
        removed.map(drop).map_err(failed(format!("remove the root of {id}")))
    }
}

/// Makes a FIFO, or finds it there.
pub(super) fn make_fifo(path: &Path) -> std::io::Result<()> {
    match nix::unistd::mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR) {
        Err(nix::errno::Errno::EEXIST) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The folders of a file system that is not mounted yet, topmost first.
fn layers(mounts: &[Mount]) -> Vec<PathBuf> {
    let mut layers = Vec::new();
    for mount in mounts {
        match mount.r#type.as_str() {
            "overlay" => {
                let option = |name: &str| mount.options.iter().find_map(|option| option.strip_prefix(name));
                layers.extend(option("upperdir=").map(PathBuf::from));
                layers.extend(
                    option("lowerdir=").into_iter().flat_map(|list| list.split(':')).map(PathBuf::from),
                );
            }
            _ => layers.push(PathBuf::from(&mount.source)),
        }
    }
    layers
}
