//! Processes of containers, as containerd's tasks are for us: state, signals, ends.

use super::super::Error;
use super::Engine;
use super::connection::{Lenient, failed};
use super::record::{self, ContainerRecord, EXIT, Exit, attach_as, timestamp};
use containerd_client::services::v1 as api;
use containerd_client::tonic::Code;
use containerd_client::types::v1::{Process, Status};
use jiff::Timestamp;
use nix::sys::signal::Signal;
use std::path::PathBuf;
use std::time::Duration;

/// What a container returns of which nobody knows how it ended.
const UNKNOWN: i32 = 255;
/// containerd may be starting again while somebody waits.
const PATIENCE: Duration = Duration::from_millis(50);

impl Engine {
    /// The task of a container; nothing if it has none.
    pub(super) async fn task(&self, id: &str) -> Result<Option<Process>, Error> {
        let mut client = self.connection.tasks();
        let request = api::GetRequest { container_id: id.to_owned(), ..Default::default() };
        let found =
            client.get(request).await.if_found().map_err(failed(format!("look at the task of {id}")))?;
        Ok(found.and_then(|found| found.process))
    }

    /// Sends a signal; one that has ended needs none.
    pub(super) async fn signal(&self, id: &str, signal: i32, all: bool) -> Result<(), Error> {
        let mut client = self.connection.tasks();
        let signal =
            u32::try_from(signal).map_err(|_| Error::Container(format!("no signal has number {signal}")))?;
        let request = api::KillRequest { container_id: id.to_owned(), signal, all, ..Default::default() };
        match client.kill(request).await.if_found() {
            Err(status) if status.code() == Code::FailedPrecondition => Ok(()),
            other => other.map(drop).map_err(failed(format!("send a signal to {id}"))),
        }
    }

    /// Waits until the process of a container has ended, whatever happens to containerd meanwhile.
    pub(super) async fn ended(&self, id: &str) -> Result<(), Error> {
        loop {
            let mut client = self.connection.tasks();
            match self.task(id).await {
                Ok(None) => return Ok(()),
                Ok(Some(task)) if task.status() == Status::Stopped => return Ok(()),
                Ok(Some(_)) => {
                    let request = api::WaitRequest { container_id: id.to_owned(), ..Default::default() };
                    if client.wait(request).await.is_ok() {
                        return Ok(());
                    }
                }
                Err(_) => tokio::time::sleep(PATIENCE).await,
            }
        }
    }

    /// Kills a container with all its processes, waits for that, and deletes its task.
    pub(super) async fn kill(&self, id: &str) -> Result<(), Error> {
        loop {
            match self.task(id).await? {
                // Whoever asked for it may have died before it was made: the shim is there all the same, and goes with
                // the task.
                None => return self.delete_task(id).await.map(drop),
                Some(task) if task.status() == Status::Stopped => {}
                Some(_) => {
                    self.signal(id, Signal::SIGKILL as i32, true).await?;
                    self.ended(id).await?;
                }
            }
            if self.delete_task(id).await? {
                return Ok(());
            }
        }
    }

    /// Deletes the task of a container that has ended; false if it has not.
    pub(super) async fn delete_task(&self, id: &str) -> Result<bool, Error> {
        let mut client = self.connection.tasks();
        let request = api::DeleteTaskRequest { container_id: id.to_owned() };
        match client.delete(request).await.if_found() {
            Ok(_) => Ok(true),
            Err(status) if status.code() == Code::FailedPrecondition => Ok(false),
            Err(status) => Err(failed(format!("delete the task of {id}"))(status)),
        }
    }

    /// How a container has ended, by its task; nothing while it runs. `None` for a task that vanished.
    pub(super) fn exit_of(&self, id: &str, record: &ContainerRecord, task: Option<&Process>) -> Option<Exit> {
        let started_at = self.started_at(id);
        match task {
            Some(task) if task.status() == Status::Stopped => {
                let at = task.exited_at.as_ref().map(|at| timestamp(at.seconds, at.nanos));
                Some(Exit {
                    started_at,
                    finished_at: at.unwrap_or(Timestamp::UNIX_EPOCH),
                    code: i32::try_from(task.exit_status).unwrap_or(UNKNOWN),
                    out_of_memory: self.cgroups.was_out_of_memory(&record.cgroup),
                    message: None,
                })
            }
            Some(_) => None,
            // It was started and is gone: with the machine, or with its shim while nobody looked.
            None => started_at.map(|at| Exit {
                started_at,
                finished_at: at,
                code: UNKNOWN,
                out_of_memory: false,
                message: None,
            }),
        }
    }

    /// Writes down how a container ended, where it survives its task, containerd and the machine.
    pub(super) async fn write_exit(&self, id: &str, exit: &Exit) -> Result<(), Error> {
        let mut container = api::Container { id: id.to_owned(), ..Default::default() };
        attach_as(&mut container, EXIT, exit);
        let mut request = api::UpdateContainerRequest { container: Some(container), ..Default::default() };
        request.update_mask.get_or_insert_default().paths = vec![format!("extensions.{EXIT}")];
        let mut client = self.connection.containers();
        let updated = client.update(request).await.if_found();
        updated.map(drop).map_err(failed(format!("write down the end of {id}")))
    }

    /// Writes down how a container ended, if it has, and gives back its mounts and control group.
    pub(super) async fn settle(&self, container: &api::Container) -> Result<(), Error> {
        let Some(record) = record::read::<ContainerRecord>(container) else { return Ok(()) };
        let settling = self.settling.lock().await;
        // Several events may tell of one end, and what the first of them wrote down must stay: by the second, the control
        // group that knows why may be gone.
        let now = self.container(&container.id).await?;
        if now.is_some_and(|container| record::exit(&container).is_none()) {
            let task = self.task(&container.id).await?;
            let Some(exit) = self.exit_of(&container.id, &record, task.as_ref()) else { return Ok(()) };
            self.write_exit(&container.id, &exit).await?;
        }
        drop(settling);
        self.delete_task(&container.id).await.map(drop)
    }

    /// The file that says since when a container runs.
    pub(super) fn started_file(&self, id: &str) -> PathBuf {
        self.config.root_dir.join("containers").join(id)
    }

    pub(super) fn started_at(&self, id: &str) -> Option<Timestamp> {
        std::fs::read_to_string(self.started_file(id)).ok()?.trim().parse().ok()
    }
}
