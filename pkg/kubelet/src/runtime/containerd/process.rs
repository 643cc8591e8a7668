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
use nix::unistd::Pid;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a container returns of which nobody knows how it ended.
const UNKNOWN: i32 = 255;
/// What containerd says of a shim that ends while it is asked, and how often it is asked again.
const SHIM_ENDS: &str = "ttrpc: closed";
const TRIES: u32 = 10;
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

    /// Sends a signal; one that has ended needs none. `all`: to all processes of the container.
    pub(super) async fn signal(&self, id: &str, signal: i32, all: bool) -> Result<(), Error> {
        match self.task(id).await? {
            Some(task) if task.status() != Status::Stopped => self.signal_task(&task, signal, all).await,
            _ => Ok(()),
        }
    }

    async fn signal_task(&self, task: &Process, signal: i32, all: bool) -> Result<(), Error> {
        let id = &task.id;
        if task.status() == Status::Running && signal_directly(Path::new("/proc"), task, signal, all) {
            return Ok(());
        }
        let mut client = self.connection.tasks();
        let signal =
            u32::try_from(signal).map_err(|_| Error::Container(format!("no signal has number {signal}")))?;
        let request = api::KillRequest { container_id: id.clone(), signal, all, ..Default::default() };
        match client.kill(request).await.if_found() {
            Err(status) if status.code() == Code::FailedPrecondition => Ok(()),
            other => other.map(drop).map_err(failed(format!("send a signal to {id}"))),
        }
    }

    /// Waits until the process of a container has ended, whatever happens to containerd meanwhile.
    pub(super) async fn ended(&self, id: &str) -> Result<(), Error> {
        loop {
            let mut client = self.connection.tasks();
            let request = api::WaitRequest { container_id: id.to_owned(), ..Default::default() };
            if client.wait(request).await.is_ok() {
                return Ok(());
            }
            match self.task(id).await {
                Ok(None) => return Ok(()),
                Ok(Some(task)) if task.status() == Status::Stopped => return Ok(()),
                Ok(Some(_)) | Err(_) => tokio::time::sleep(PATIENCE).await,
            }
        }
    }

    /// Kills a container with all its processes, waits for that, and deletes its task. Says whether there was one.
    pub(super) async fn kill(&self, id: &str) -> Result<bool, Error> {
        loop {
            match self.task(id).await? {
                // Whoever asked for it may have died before it was made: the shim is there all the same, and goes with
                // the task.
                None => return self.delete_task(id).await.map(|_| false),
                Some(task) if task.status() == Status::Stopped => self.note_exit(id, &task).await?,
                Some(task) => {
                    self.signal_task(&task, Signal::SIGKILL as i32, true).await?;
                    self.ended(id).await?;
                    continue;
                }
            }
            if self.delete_task(id).await? {
                return Ok(true);
            }
        }
    }

    /// Writes down how a container ended whose task is about to be deleted: without either, nobody could tell any more.
    ///
    /// No lock is taken: one may be held by an event stream that nobody polls now. What is known of the end is read first,
    /// and then looked whether it has been written down: so nothing is written that knew less.
    async fn note_exit(&self, id: &str, task: &Process) -> Result<(), Error> {
        let unwritten = async || {
            let found = self.container(id).await?;
            Ok::<_, Error>(found.filter(|found| record::exit(found).is_none()))
        };
        let Some(container) = unwritten().await? else { return Ok(()) };
        let Some(record) = record::read::<ContainerRecord>(&container) else { return Ok(()) };
        match self.exit_of(id, &record, Some(task)) {
            Some(exit) if unwritten().await?.is_some() => self.write_exit(id, &exit).await,
            _ => Ok(()),
        }
    }

    /// Deletes the task of a container that has ended; false if it has not.
    pub(super) async fn delete_task(&self, id: &str) -> Result<bool, Error> {
        let mut client = self.connection.tasks();
        let mut tries = 0..TRIES;
        loop {
            let request = api::DeleteTaskRequest { container_id: id.to_owned() };
            match client.delete(request).await.if_found() {
                Ok(_) => return Ok(true),
                Err(status) if status.code() == Code::FailedPrecondition => return Ok(false),
                // Its shim ends at this moment: somebody else has deleted the last task there.
                Err(status) if status.message().contains(SHIM_ENDS) && tries.next().is_some() => {
                    tokio::time::sleep(PATIENCE).await;
                }
                Err(status) => return Err(failed(format!("delete the task of {id}"))(status)),
            }
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
        self.write(id, EXIT, exit).await
    }

    /// Writes something onto a container; what else is on it stays.
    pub(super) async fn write<T: Serialize>(&self, id: &str, key: &str, record: &T) -> Result<(), Error> {
        let mut container = api::Container { id: id.to_owned(), ..Default::default() };
        attach_as(&mut container, key, record);
        let mut request = api::UpdateContainerRequest { container: Some(container), ..Default::default() };
        request.update_mask.get_or_insert_default().paths = vec![format!("extensions.{key}")];
        let mut client = self.connection.containers();
        let updated = client.update(request).await.if_found();
        updated.map(drop).map_err(failed(format!("write {key} onto {id}")))
    }

    /// Writes down how a container ended, if it has, and gives back its mounts and control group.
    pub(super) async fn settle(&self, container: &api::Container) -> Result<(), Error> {
        let Some(record) = record::read::<ContainerRecord>(container) else { return Ok(()) };
        let first = container.id.chars().next().and_then(|digit| digit.to_digit(16)).unwrap_or(0);
        let settling = self.settling[first as usize].lock().await;
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

/// Sends a signal without the shim, which would start a whole runc for it. False where that is not certain to do the
/// same: the process must be in the container's control group, and, if all are meant, the first of its PID namespace,
/// with which all the others end.
fn signal_directly(proc: &Path, task: &Process, signal: i32, all: bool) -> bool {
    let pid = i32::try_from(task.pid).ok().filter(|pid| *pid > 1);
    let (Some(pid), Ok(signal)) = (pid, Signal::try_from(signal)) else { return false };
    let read =
        |file: &str| std::fs::read_to_string(proc.join(pid.to_string()).join(file)).unwrap_or_default();
    if all {
        let status = read("status");
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        if signal != Signal::SIGKILL || numbers.and_then(|all| all.split_whitespace().last()) != Some("1") {
            return false;
        }
    }
    // Numbers are given out in turn: this one is not another's in the moment between the look and the signal.
    read("cgroup").contains(&task.id) && nix::sys::signal::kill(Pid::from_raw(pid), signal).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_that_is_certainly_the_containers_is_signalled_directly() {
        let mut sleeps = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep runs");
        let proc = tempfile::tempdir().expect("a folder");
        let of_it = proc.path().join(sleeps.id().to_string());
        std::fs::create_dir(&of_it).expect("a folder");
        let task = Process { id: "abc".into(), pid: sleeps.id(), ..Process::default() };
        let tell = |status: &str, cgroup: &str| {
            std::fs::write(of_it.join("status"), format!("Pid:\t7\nNSpid:\t{status}\n")).expect("written");
            std::fs::write(of_it.join("cgroup"), format!("1:cpu:/pods/{cgroup}\n")).expect("written");
        };
        tell("7\t1", "other");
        assert!(!signal_directly(proc.path(), &task, Signal::SIGKILL as i32, false), "another's");
        tell("7", "abc");
        assert!(!signal_directly(proc.path(), &task, Signal::SIGKILL as i32, true), "there may be others");
        let nobody = Process { pid: 0, ..task.clone() };
        assert!(!signal_directly(proc.path(), &nobody, Signal::SIGKILL as i32, false));
        assert!(signal_directly(proc.path(), &task, Signal::SIGCONT as i32, false));
        tell("7\t1", "abc");
        assert!(signal_directly(proc.path(), &task, Signal::SIGKILL as i32, true));
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&sleeps.wait().expect("ended")), Some(9));
    }
}
