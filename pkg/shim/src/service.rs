//! containerd's task service, versions 2 and 3: the same service by two names.
//!
//! ```text
//! containerd ── ttrpc ──> Service ── one Container each ──> keeper of its pod ──> processes
//!            <── events ──┘
//! ```

use crate::cgroups::Cgroups;
use crate::container::{self, Container, Wanted};
use crate::events::{Events, timestamp};
use crate::io::Paths;
use crate::keeper::{Exits, Keeper, lost, now_ns};
use crate::oci::Resources;
use crate::plan::{self, Decision};
use crate::process::{Process, Stage};
use crate::setup::RootMount;
use crate::state::{Folder, Record};
use async_trait::async_trait;
use containerd_shim_protos::api;
use containerd_shim_protos::cgroups::metrics;
use containerd_shim_protos::events::task as happened;
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::protobuf::well_known_types::empty::Empty;
use containerd_shim_protos::protobuf::{EnumOrUnknown, Message, MessageField};
use containerd_shim_protos::shim_async::Task;
use containerd_shim_protos::topics;
use containerd_shim_protos::ttrpc::r#async::TtrpcContext;
use containerd_shim_protos::ttrpc::error::get_rpc_status;
use containerd_shim_protos::ttrpc::{self, Code};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// The tasks of a node.
pub struct Service {
    cgroups: Cgroups,
    events: Events,
    folder: Folder,
    containers: Mutex<HashMap<String, Arc<Container>>>,
    keepers: Mutex<HashMap<String, (Arc<Keeper>, usize)>>,
    /// Something was deleted: there may be nothing left to do.
    pub deleted: Notify,
}

fn error(code: Code, text: impl ToString) -> ttrpc::Error {
    get_rpc_status(code, text)
}

impl Service {
    /// One without tasks.
    pub fn new(cgroups: Cgroups, events: Events, folder: Folder) -> Self {
        Service {
            cgroups,
            events,
            folder,
            containers: Mutex::default(),
            keepers: Mutex::default(),
            deleted: Notify::new(),
        }
    }

    /// Whether there is no task.
    pub fn is_idle(&self) -> bool {
        self.containers.lock().is_ok_and(|containers| containers.is_empty())
            && self.keepers.lock().is_ok_and(|keepers| keepers.is_empty())
    }

    fn container(&self, id: &str) -> ttrpc::Result<Arc<Container>> {
        let found = self.containers.lock().ok().and_then(|containers| containers.get(id).cloned());
        found.ok_or_else(|| error(Code::NOT_FOUND, format!("container {id} not found")))
    }

    fn process(&self, id: &str, exec: &str) -> ttrpc::Result<(Arc<Container>, Arc<Process>)> {
        let container = self.container(id)?;
        let missing = || error(Code::NOT_FOUND, format!("process {exec} of container {id} not found"));
        let process = container.process(exec).ok_or_else(missing)?;
        Ok((container, process))
    }

    /// The keeper of a pod, counted.
    fn keeper(&self, pod: &str) -> std::io::Result<Arc<Keeper>> {
        let poisoned = || std::io::Error::other("the list of keepers is lost");
        let mut keepers = self.keepers.lock().map_err(|_| poisoned())?;
        if let Some((keeper, users)) = keepers.get_mut(pod).filter(|(keeper, _)| !keeper.is_gone()) {
            *users += 1;
            return Ok(keeper.clone());
        }
        let keeper = Keeper::start(&self.folder.keeper(pod))?;
        keepers.insert(pod.to_owned(), (keeper.clone(), 1));
        Ok(keeper)
    }

    /// One container less; the last lets the keeper end.
    fn release(&self, pod: &str, keeper: &Arc<Keeper>) {
        let Ok(mut keepers) = self.keepers.lock() else { return };
        if let Some((known, users)) = keepers.get_mut(pod).filter(|(known, _)| Arc::ptr_eq(known, keeper)) {
            *users -= 1;
            if *users == 0 {
                known.quit();
                keepers.remove(pod);
            }
        }
    }

    async fn create_container(&self, request: api::CreateTaskRequest) -> Result<Arc<Container>, String> {
        let bundle = PathBuf::from(&request.bundle);
        let setup = match container::decide(&bundle, &self.cgroups).map_err(|error| error.to_string())? {
            Decision::Setup(setup) => setup,
            Decision::HandToRunc(reason) => return Err(format!("this is runc's: {reason}")),
        };
        let id = request.id.clone();
        let pod = container::pod_of(&setup, &id);
        let since_ns = now_ns();
        let keeper = self.keeper(&pod).map_err(|error| format!("start the pod's keeper: {error}"))?;
        let mount =
            |mount: api::Mount| RootMount { kind: mount.type_, source: mount.source, options: mount.options };
        let wanted = Wanted {
            id: id.clone(),
            bundle,
            rootfs: request.rootfs.into_iter().map(mount).collect(),
            paths: Paths {
                stdin: request.stdin,
                stdout: request.stdout,
                stderr: request.stderr,
                terminal: request.terminal,
            },
        };
        let (mut container, exits) =
            match Container::create(wanted, &setup, keeper.clone(), &self.cgroups).await {
                Ok(made) => made,
                Err(error) => {
                    self.release(&pod, &keeper);
                    return Err(error);
                }
            };
        container.pod = pod.clone();
        let pid = container.first.pid();
        let record =
            Record { pid, since_ns, group: container.group.clone(), keeper: self.folder.keeper(&pod) };
        if let Err(error) = self.folder.write(&id, &record) {
            let (cgroups, group) = (self.cgroups.clone(), container.group.clone());
            let _ = tokio::task::spawn_blocking(move || cgroups.end(&group)).await;
            self.release(&pod, &keeper);
            return Err(format!("write down the container: {error}"));
        }
        let container = Arc::new(container);
        let process = container.first.clone();
        tokio::spawn(tell_end(
            self.events.clone(),
            self.cgroups.clone(),
            container.clone(),
            String::new(),
            process,
            exits,
        ));
        if let Ok(mut containers) = self.containers.lock() {
            containers.insert(id, container.clone());
        }
        Ok(container)
    }

    async fn delete_container(&self, container: &Arc<Container>) {
        let (cgroups, group) = (self.cgroups.clone(), container.group.clone());
        if !cgroups.remove(&group) {
            let _ = tokio::task::spawn_blocking(move || cgroups.end(&group)).await;
        }
        let was_there = self.containers.lock().ok().and_then(|mut all| all.remove(&container.id)).is_some();
        if was_there {
            self.folder.forget(&container.id);
            self.release(&container.pod, &container.keeper);
        }
        self.deleted.notify_one();
    }
}

/// Tells containerd of an end, after its start.
async fn tell_end(
    events: Events,
    cgroups: Cgroups,
    container: Arc<Container>,
    exec: String,
    process: Arc<Process>,
    mut exits: Exits,
) {
    let ended = exits.wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
    let exit = ended.unwrap_or_else(lost);
    let _started = process.starting.lock().await;
    if exec.is_empty() && !container.has_own_pids {
        // The kernel ends only those whose own first process it was.
        cgroups.kill(&container.group);
    }
    process.ended(exit);
    let kills = cgroups.entry("memory", &container.group, "memory.oom_control", "oom_kill");
    if kills.is_some_and(|kills| kills > 0) && container.first_out_of_memory() {
        let event = happened::TaskOOM { container_id: container.id.clone(), ..Default::default() };
        events.tell(topics::TASK_OOM_EVENT_TOPIC, "TaskOOM", &event);
    }
    let event = happened::TaskExit {
        container_id: container.id.clone(),
        id: if exec.is_empty() { container.id.clone() } else { exec },
        pid: process.pid(),
        exit_status: exit.code,
        exited_at: MessageField::some(timestamp(exit.at_ns)),
        ..Default::default()
    };
    events.tell(topics::TASK_EXIT_EVENT_TOPIC, "TaskExit", &event);
}

#[async_trait]
impl Task for Service {
    async fn create(
        &self,
        _: &TtrpcContext,
        request: api::CreateTaskRequest,
    ) -> ttrpc::Result<api::CreateTaskResponse> {
        if !request.checkpoint.is_empty() {
            return Err(error(Code::UNIMPLEMENTED, "containers are not restored from checkpoints"));
        }
        if let Ok(existing) = self.container(&request.id) {
            match existing.first.stage() {
                Stage::Stopped(_) => self.delete_container(&existing).await,
                _ => return Err(error(Code::ALREADY_EXISTS, format!("task {} already exists", request.id))),
            }
        }
        let rootfs = request.rootfs.clone();
        let container = self.create_container(request).await.map_err(|text| {
            let text = format!("OCI runtime create failed: unable to start container process: {text}");
            error(Code::UNKNOWN, text)
        })?;
        let paths = &container.first.paths;
        let event = happened::TaskCreate {
            container_id: container.id.clone(),
            bundle: container.bundle.display().to_string(),
            rootfs: rootfs.into_iter().map(mount_of_event).collect(),
            io: MessageField::some(happened::TaskIO {
                stdin: paths.stdin.clone(),
                stdout: paths.stdout.clone(),
                stderr: paths.stderr.clone(),
                terminal: paths.terminal,
                ..Default::default()
            }),
            pid: container.first.pid(),
            ..Default::default()
        };
        self.events.tell(topics::TASK_CREATE_EVENT_TOPIC, "TaskCreate", &event);
        Ok(api::CreateTaskResponse { pid: container.first.pid(), ..Default::default() })
    }

    async fn start(&self, _: &TtrpcContext, request: api::StartRequest) -> ttrpc::Result<api::StartResponse> {
        let (container, process) = self.process(&request.id, &request.exec_id)?;
        let exec = request.exec_id;
        let _starting = process.starting.lock().await;
        let failed = |text: String| {
            let text = if exec.is_empty() {
                format!("OCI runtime start failed: unable to start container process: {text}")
            } else {
                format!("OCI runtime exec failed: exec failed: unable to start container process: {text}")
            };
            error(Code::UNKNOWN, text)
        };
        if !exec.is_empty() {
            if process.stage() != Stage::Created || process.pid() != 0 {
                return Err(error(Code::FAILED_PRECONDITION, "it was started already"));
            }
            match container.prepare(&process, &self.cgroups).await {
                Ok(exits) => drop(tokio::spawn(tell_end(
                    self.events.clone(),
                    self.cgroups.clone(),
                    container.clone(),
                    exec.clone(),
                    process.clone(),
                    exits,
                ))),
                Err(text) => {
                    process.ended(lost());
                    return Err(failed(text));
                }
            }
        }
        let pid = process.start().await.map_err(failed)?;
        if exec.is_empty() {
            let event = happened::TaskStart { container_id: container.id.clone(), pid, ..Default::default() };
            self.events.tell(topics::TASK_START_EVENT_TOPIC, "TaskStart", &event);
        } else {
            let event = happened::TaskExecStarted {
                container_id: container.id.clone(),
                exec_id: exec.clone(),
                pid,
                ..Default::default()
            };
            self.events.tell(topics::TASK_EXEC_STARTED_EVENT_TOPIC, "TaskExecStarted", &event);
        }
        Ok(api::StartResponse { pid, ..Default::default() })
    }

    async fn delete(
        &self,
        _: &TtrpcContext,
        request: api::DeleteRequest,
    ) -> ttrpc::Result<api::DeleteResponse> {
        let (container, process) = self.process(&request.id, &request.exec_id)?;
        let exit = match process.stage() {
            Stage::Stopped(exit) => exit,
            Stage::Created if !request.exec_id.is_empty() && process.pid() == 0 => lost(),
            stage => {
                let text = format!("task {} must be stopped before deletion: {stage:?}", request.id);
                return Err(error(Code::FAILED_PRECONDITION, text));
            }
        };
        let event = happened::TaskDelete {
            container_id: container.id.clone(),
            pid: process.pid(),
            exit_status: exit.code,
            exited_at: MessageField::some(timestamp(exit.at_ns)),
            id: request.exec_id.clone(),
            ..Default::default()
        };
        if request.exec_id.is_empty() {
            self.delete_container(&container).await;
            self.events.tell(topics::TASK_DELETE_EVENT_TOPIC, "TaskDelete", &event);
        } else {
            container.forget(&request.exec_id);
        }
        Ok(api::DeleteResponse {
            pid: process.pid(),
            exit_status: exit.code,
            exited_at: MessageField::some(timestamp(exit.at_ns)),
            ..Default::default()
        })
    }

    async fn exec(&self, _: &TtrpcContext, request: api::ExecProcessRequest) -> ttrpc::Result<Empty> {
        let container = self.container(&request.id)?;
        let text = request.spec.map(|spec| spec.value.clone()).unwrap_or_default();
        let program = plan::process(&text).map_err(|reason| {
            error(
                Code::UNIMPLEMENTED,
                format!("cannot execute this in a container that runc did not make: {reason}"),
            )
        })?;
        let paths = Paths {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            terminal: request.terminal,
        };
        if !container.add(&request.exec_id, Process::new(paths, Some(program))) {
            return Err(error(Code::ALREADY_EXISTS, format!("id {}", request.exec_id)));
        }
        let event = happened::TaskExecAdded {
            container_id: request.id,
            exec_id: request.exec_id,
            ..Default::default()
        };
        self.events.tell(topics::TASK_EXEC_ADDED_EVENT_TOPIC, "TaskExecAdded", &event);
        Ok(Empty::default())
    }

    async fn state(&self, _: &TtrpcContext, request: api::StateRequest) -> ttrpc::Result<api::StateResponse> {
        let (container, process) = self.process(&request.id, &request.exec_id)?;
        let is_paused = container.is_paused.lock().is_ok_and(|paused| *paused);
        let (status, exit) = match process.stage() {
            Stage::Created => (api::Status::CREATED, None),
            Stage::Running if is_paused => (api::Status::PAUSED, None),
            Stage::Running => (api::Status::RUNNING, None),
            Stage::Stopped(exit) => (api::Status::STOPPED, Some(exit)),
        };
        Ok(api::StateResponse {
            id: request.id,
            bundle: container.bundle.display().to_string(),
            pid: process.pid(),
            status: EnumOrUnknown::new(status),
            stdin: process.paths.stdin.clone(),
            stdout: process.paths.stdout.clone(),
            stderr: process.paths.stderr.clone(),
            terminal: process.paths.terminal,
            exit_status: exit.map_or(0, |exit| exit.code),
            exited_at: exit.map_or_else(MessageField::none, |exit| MessageField::some(timestamp(exit.at_ns))),
            exec_id: request.exec_id,
            ..Default::default()
        })
    }

    async fn wait(&self, _: &TtrpcContext, request: api::WaitRequest) -> ttrpc::Result<api::WaitResponse> {
        let (_, process) = self.process(&request.id, &request.exec_id)?;
        let exit = process.wait().await;
        Ok(api::WaitResponse {
            exit_status: exit.code,
            exited_at: MessageField::some(timestamp(exit.at_ns)),
            ..Default::default()
        })
    }

    async fn kill(&self, _: &TtrpcContext, request: api::KillRequest) -> ttrpc::Result<Empty> {
        let (container, process) = self.process(&request.id, &request.exec_id)?;
        let refused =
            |text: std::io::Error| error(Code::UNKNOWN, format!("send signal {}: {text}", request.signal));
        let is_there = process.signal(request.signal).map_err(refused)?;
        if request.all && request.exec_id.is_empty() {
            for pid in self.cgroups.processes(&container.group) {
                let signal = nix::sys::signal::Signal::try_from(request.signal as i32).ok();
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
            }
        } else if !is_there {
            return Err(error(Code::NOT_FOUND, "process already finished"));
        }
        Ok(Empty::default())
    }

    async fn pids(&self, _: &TtrpcContext, request: api::PidsRequest) -> ttrpc::Result<api::PidsResponse> {
        let container = self.container(&request.id)?;
        let pids = self.cgroups.processes(&container.group).into_iter();
        let info = |pid| api::ProcessInfo { pid: pid as u32, ..Default::default() };
        Ok(api::PidsResponse { processes: pids.map(info).collect(), ..Default::default() })
    }

    async fn pause(&self, _: &TtrpcContext, request: api::PauseRequest) -> ttrpc::Result<Empty> {
        self.freeze(&request.id, true).await?;
        let event = happened::TaskPaused { container_id: request.id, ..Default::default() };
        self.events.tell(topics::TASK_PAUSED_EVENT_TOPIC, "TaskPaused", &event);
        Ok(Empty::default())
    }

    async fn resume(&self, _: &TtrpcContext, request: api::ResumeRequest) -> ttrpc::Result<Empty> {
        self.freeze(&request.id, false).await?;
        let event = happened::TaskResumed { container_id: request.id, ..Default::default() };
        self.events.tell(topics::TASK_RESUMED_EVENT_TOPIC, "TaskResumed", &event);
        Ok(Empty::default())
    }

    async fn checkpoint(&self, _: &TtrpcContext, _: api::CheckpointTaskRequest) -> ttrpc::Result<Empty> {
        Err(error(Code::UNIMPLEMENTED, "checkpoints are not supported; use the runtime class runc"))
    }

    async fn resize_pty(&self, _: &TtrpcContext, request: api::ResizePtyRequest) -> ttrpc::Result<Empty> {
        let (_, process) = self.process(&request.id, &request.exec_id)?;
        let side = |length: u32| u16::try_from(length).unwrap_or(u16::MAX);
        let resized = process.held.resize(side(request.width), side(request.height));
        resized.map_err(|text| error(Code::FAILED_PRECONDITION, format!("resize the terminal: {text}")))?;
        Ok(Empty::default())
    }

    async fn close_io(&self, _: &TtrpcContext, request: api::CloseIORequest) -> ttrpc::Result<Empty> {
        let (_, process) = self.process(&request.id, &request.exec_id)?;
        if request.stdin {
            process.held.close_stdin();
        }
        Ok(Empty::default())
    }

    async fn update(&self, _: &TtrpcContext, request: api::UpdateTaskRequest) -> ttrpc::Result<Empty> {
        let container = self.container(&request.id)?;
        let text = request.resources.map(|resources| resources.value.clone()).unwrap_or_default();
        let resources = plan::update(&text).map_err(|reason| error(Code::INVALID_ARGUMENT, reason))?;
        let resources = Resources { devices: Vec::new(), ..resources };
        let updated = self.cgroups.apply(&container.group, &resources);
        updated.map_err(|text| error(Code::UNKNOWN, format!("failed to update the container: {text}")))?;
        Ok(Empty::default())
    }

    async fn stats(&self, _: &TtrpcContext, request: api::StatsRequest) -> ttrpc::Result<api::StatsResponse> {
        let container = self.container(&request.id)?;
        let stats = figures(&self.cgroups, &container.group);
        let value = stats.write_to_bytes().map_err(|text| error(Code::UNKNOWN, text))?;
        let any = Any { type_url: "io.containerd.cgroups.v1.Metrics".to_owned(), value, ..Any::default() };
        Ok(api::StatsResponse { stats: MessageField::some(any), ..Default::default() })
    }

    async fn connect(
        &self,
        _: &TtrpcContext,
        request: api::ConnectRequest,
    ) -> ttrpc::Result<api::ConnectResponse> {
        let task_pid = self.container(&request.id).map_or(0, |container| container.first.pid());
        Ok(api::ConnectResponse { shim_pid: std::process::id(), task_pid, ..Default::default() })
    }

    /// One container's shim is no longer needed. It ends by itself when it has nothing to do.
    async fn shutdown(&self, _: &TtrpcContext, _: api::ShutdownRequest) -> ttrpc::Result<Empty> {
        self.deleted.notify_one();
        Ok(Empty::default())
    }
}

impl Service {
    async fn freeze(&self, id: &str, stops: bool) -> ttrpc::Result<()> {
        let container = self.container(id)?;
        let (cgroups, group) = (self.cgroups.clone(), container.group.clone());
        let frozen = tokio::task::spawn_blocking(move || cgroups.freeze(&group, stops)).await;
        let frozen = frozen.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        frozen.map_err(|text| error(Code::UNKNOWN, text))?;
        if let Ok(mut is_paused) = container.is_paused.lock() {
            *is_paused = stops;
        }
        Ok(())
    }
}

fn mount_of_event(mount: api::Mount) -> containerd_shim_protos::types::mount::Mount {
    containerd_shim_protos::types::mount::Mount {
        type_: mount.type_,
        source: mount.source,
        target: mount.target,
        options: mount.options,
        ..Default::default()
    }
}

fn figures(cgroups: &Cgroups, group: &str) -> metrics::Metrics {
    let number = |controller: &str, file: &str| cgroups.number(controller, group, file).unwrap_or_default();
    let memory = |key: &str| cgroups.entry("memory", group, "memory.stat", key).unwrap_or_default();
    let entry = |prefix: &str| metrics::MemoryEntry {
        limit: number("memory", &format!("memory.{prefix}limit_in_bytes")),
        usage: number("memory", &format!("memory.{prefix}usage_in_bytes")),
        max: number("memory", &format!("memory.{prefix}max_usage_in_bytes")),
        failcnt: number("memory", &format!("memory.{prefix}failcnt")),
        ..Default::default()
    };
    let usage = metrics::CPUUsage { total: number("cpuacct", "cpuacct.usage"), ..Default::default() };
    metrics::Metrics {
        pids: MessageField::some(metrics::PidsStat {
            current: number("pids", "pids.current"),
            limit: number("pids", "pids.max"),
            ..Default::default()
        }),
        cpu: MessageField::some(metrics::CPUStat { usage: MessageField::some(usage), ..Default::default() }),
        memory: MessageField::some(metrics::MemoryStat {
            cache: memory("cache"),
            rss: memory("rss"),
            total_cache: memory("total_cache"),
            total_rss: memory("total_rss"),
            total_inactive_file: memory("total_inactive_file"),
            usage: MessageField::some(entry("")),
            swap: MessageField::some(entry("memsw.")),
            ..Default::default()
        }),
        ..Default::default()
    }
}
