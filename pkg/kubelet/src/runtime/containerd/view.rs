//! What is there.

use super::super::{ContainerState, Error, PodRef, PodView, SandboxId, SandboxView, Usage};
use super::Engine;
use super::connection::{Lenient, failed};
use super::record::{self, ContainerRecord, KIND_LABEL, SandboxRecord, UID_LABEL, created_at, is_sandbox};
use containerd_client::services::v1 as api;
use containerd_client::types::v1::{Process, Status};
use futures::future::try_join_all;
use jiff::Timestamp;
use std::collections::{BTreeMap, HashMap};

impl Engine {
    /// All pods of ours.
    pub(super) async fn pods(&self) -> Result<Vec<PodView>, Error> {
        let mut client = self.connection.tasks();
        let ours = self.containers(format!("labels.\"{KIND_LABEL}\""));
        let tasks = async {
            client
                .list(api::ListTasksRequest::default())
                .await
                .map_err(failed("list the tasks of containerd"))
        };
        let (containers, tasks) = tokio::try_join!(ours, tasks)?;
        let mut tasks: HashMap<String, Process> =
            tasks.into_inner().tasks.into_iter().map(|task| (task.id.clone(), task)).collect();
        let mut pods: BTreeMap<PodRef, PodView> = BTreeMap::new();
        for container in containers {
            let task = tasks.remove(&container.id);
            self.add(&mut pods, container, task).await?;
        }
        Ok(pods.into_values().map(sorted).collect())
    }

    /// One pod.
    pub(super) async fn pod(&self, pod: &PodRef) -> Result<PodView, Error> {
        let containers = self.containers(format!("labels.\"{UID_LABEL}\"==\"{}\"", pod.uid)).await?;
        let tasks = containers.iter().map(|container| async {
            // Of those that are known to have ended nothing more can be learned.
            if record::exit(container).is_some() { Ok(None) } else { self.task(&container.id).await }
        });
        let tasks = try_join_all(tasks).await?;
        let silent = containers.iter().zip(&tasks).find(|(container, task)| {
            is_sandbox(container) && task.as_ref().is_some_and(|task| task.status() == Status::Unknown)
        });
        if let Some((sandbox, _)) = silent {
            // Whoever took it for dead would end all that runs in it.
            let doing = format!("look at sandbox {}: its shim does not answer", sandbox.id);
            return Err(Error::Unavailable { doing, source: "containerd cannot tell how it is".into() });
        }
        let mut pods = BTreeMap::new();
        for (container, task) in containers.into_iter().zip(tasks) {
            self.add(&mut pods, container, task).await?;
        }
        let blank = || PodView { pod: pod.clone(), sandboxes: Vec::new(), containers: Vec::new() };
        Ok(pods.remove(pod).map_or_else(blank, sorted))
    }

    /// What the running containers of a pod use.
    pub(super) async fn usage(&self, pod: &PodRef, now: Timestamp) -> Result<BTreeMap<String, Usage>, Error> {
        let containers = self.containers(format!("labels.\"{UID_LABEL}\"==\"{}\"", pod.uid)).await?;
        let running = containers.iter().filter(|container| record::exit(container).is_none());
        let records = running.filter_map(record::read::<ContainerRecord>);
        Ok(records
            .filter_map(|record| Some((record.name, self.cgroups.usage(&record.cgroup, now)?)))
            .collect())
    }

    /// Containers of containerd, of whatever kind.
    pub(super) async fn containers(&self, filter: String) -> Result<Vec<api::Container>, Error> {
        let mut client = self.connection.containers();
        let request = api::ListContainersRequest { filters: vec![filter] };
        Ok(client
            .list(request)
            .await
            .map_err(failed("list the containers of containerd"))?
            .into_inner()
            .containers)
    }

    /// One container of containerd.
    pub(super) async fn container(&self, id: &str) -> Result<Option<api::Container>, Error> {
        let mut client = self.connection.containers();
        let found = client.get(api::GetContainerRequest { id: id.to_owned() }).await;
        Ok(found
            .if_found()
            .map_err(failed(format!("look at container {id}")))?
            .and_then(|found| found.container))
    }

    /// What a container does now.
    pub(super) async fn state(
        &self,
        container: &api::Container,
        record: &ContainerRecord,
        task: Option<&Process>,
    ) -> Result<ContainerState, Error> {
        if let Some(exit) = record::exit(container) {
            return Ok(exit.into());
        }
        let started_at = self.started_at(&container.id);
        if let Some(task) = task.filter(|task| is_running(task.status(), started_at.is_some())) {
            let started_at = started_at.unwrap_or_else(|| created_at(container));
            return Ok(ContainerState::Running { started_at, pid: task.pid });
        }
        let Some(exit) = self.exit_of(&container.id, record, task) else {
            return Ok(ContainerState::Created);
        };
        if task.is_none() {
            // Its end may have been written down between our looking at the container and at its task.
            let again = self.container(&container.id).await?;
            return Ok(again.as_ref().and_then(record::exit).unwrap_or(exit).into());
        }
        Ok(exit.into())
    }

    async fn add(
        &self,
        pods: &mut BTreeMap<PodRef, PodView>,
        container: api::Container,
        task: Option<Process>,
    ) -> Result<(), Error> {
        let blank =
            |pod: &PodRef| PodView { pod: pod.clone(), sandboxes: Vec::new(), containers: Vec::new() };
        if is_sandbox(&container) {
            let Some(record) = record::read::<SandboxRecord>(&container) else { return Ok(()) };
            let pod = pods.entry(record.pod.clone()).or_insert_with(|| blank(&record.pod));
            pod.sandboxes.push(sandbox_view(&container, record, task.as_ref()));
        } else if let Some(record) = record::read::<ContainerRecord>(&container) {
            let state = self.state(&container, &record, task.as_ref()).await?;
            let pod = pods.entry(record.pod.clone()).or_insert_with(|| blank(&record.pod));
            pod.containers.push(record.view(&container.id, created_at(&container), state));
        }
        Ok(())
    }
}

pub(super) fn sandbox_view(
    container: &api::Container,
    record: SandboxRecord,
    task: Option<&Process>,
) -> SandboxView {
    let running = task.filter(|task| task.status() == Status::Running);
    SandboxView {
        id: SandboxId(container.id.clone()),
        spec: record.spec,
        pid: running.map(|task| task.pid),
        created_at: created_at(container),
    }
}

fn sorted(mut pod: PodView) -> PodView {
    pod.sandboxes.sort_by_key(|sandbox| (sandbox.spec.attempt, sandbox.created_at));
    pod.containers
        .sort_by(|a, b| (&a.name, a.attempt, a.created_at).cmp(&(&b.name, b.attempt, b.created_at)));
    pod
}

/// Whether a task runs. One that containerd cannot tell about, because its shim is being started or does not answer,
/// does what it last did.
fn is_running(status: Status, was_started: bool) -> bool {
    match status {
        Status::Unknown => was_started,
        Status::Created | Status::Stopped => false,
        Status::Running | Status::Paused | Status::Pausing => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_containerd_cannot_tell_about_does_what_it_last_did() {
        assert!(!is_running(Status::Unknown, false));
        assert!(is_running(Status::Unknown, true));
        assert!(is_running(Status::Running, false), "its start is written down only after it");
        assert!(!is_running(Status::Stopped, true));
    }
}
