//! How a run is read and written: one compare-and-swap for each transition, and records that belong to the run.

use super::keep::{fill, spill, trim};
use api::kinds::minik8s::workflow_step::RUN_LABEL;
use api::kinds::minik8s::{
    WorkflowRun, WorkflowRunStatus, WorkflowStep, WorkflowStepSpec, WorkflowValue, WorkflowValueSpec,
};
use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;

/// So many records are asked for at a time.
const AT_A_TIME: usize = 16;

/// A run, as it was read or written last.
pub struct Live {
    /// Its metadata and spec.
    pub run: WorkflowRun,
    /// Its status, with all values that the engine needs.
    pub status: WorkflowRunStatus,
    /// Steps that have a record.
    pub recorded: HashSet<i32>,
    /// Steps whose record is being written.
    pub recording: HashSet<i32>,
    /// Values that are stored.
    stored: HashSet<String>,
}

/// Why a transition was not written.
pub enum Unwritten {
    /// Somebody has written the run meanwhile.
    Conflict,
    /// There is no such run.
    Gone,
    /// It may be tried again.
    Trouble(String),
}

impl From<kube::Error> for Unwritten {
    fn from(error: kube::Error) -> Unwritten {
        match &error {
            kube::Error::Api(status) if status.code == 409 => Unwritten::Conflict,
            kube::Error::Api(status) if status.code == 404 => Unwritten::Gone,
            _ => Unwritten::Trouble(error.to_string()),
        }
    }
}

impl Live {
    /// The run's name.
    pub fn name(&self) -> &str {
        self.run.metadata.name.as_deref().unwrap_or_default()
    }
}

/// Reads and writes. Clones share it.
#[derive(Clone)]
pub struct Store {
    client: Client,
}

impl Store {
    /// Through this client.
    pub fn new(client: Client) -> Store {
        Store { client }
    }

    /// A run's API.
    pub fn runs(&self, namespace: &str) -> Api<WorkflowRun> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// A run as it is stored, with all values that the engine needs.
    pub async fn load(&self, run: WorkflowRun) -> Result<Live, Unwritten> {
        let mut run = run;
        let mut status = std::mem::take(&mut run.status);
        let (namespace, name) =
            (run.metadata.namespace.clone().unwrap_or_default(), run.metadata.name.clone());
        let name = name.unwrap_or_default();
        let joins = status.threads.iter().filter_map(|thread| thread.join.as_ref());
        let mut outputs: HashMap<i32, (Value, String)> = HashMap::new();
        let wanted: HashSet<i32> = joins
            .flat_map(|join| join.ended.iter().map(|[_, step]| *step))
            .filter(|step| *step > 0)
            .collect();
        let last = status.steps.iter().filter(|step| wanted.contains(&step.number));
        outputs.extend(last.map(|step| (step.number, (step.output.clone(), step.output_ref.clone()))));
        let missing: Vec<i32> = wanted.into_iter().filter(|step| !outputs.contains_key(step)).collect();
        let names = missing.iter().map(|step| step_name(&name, *step)).collect();
        for record in self.get_all::<WorkflowStep>(&namespace, names).await? {
            outputs.insert(record.spec.number, (record.spec.output, record.spec.output_ref));
        }
        let inputs = status.threads.iter().map(|thread| &thread.input_ref);
        let refs = inputs.chain(outputs.values().map(|(_, name)| name)).filter(|name| !name.is_empty());
        let refs: HashSet<String> = refs.cloned().collect();
        let found = self.get_all::<WorkflowValue>(&namespace, refs.iter().cloned().collect()).await?;
        let values: HashMap<String, Value> =
            found.into_iter().filter_map(|value| Some((value.metadata.name?, value.spec.value))).collect();
        let value = |name: &str| values.get(name).cloned();
        fill(&mut status, value, |step| match outputs.get(&step)? {
            (own, name) if name.is_empty() => Some(own.clone()),
            (_, name) => values.get(name).cloned(),
        });
        let is_recorded = |step: &&WorkflowStepSpec| step.number <= status.recorded;
        let recorded = status.steps.iter().filter(is_recorded).map(|step| step.number).collect();
        Ok(Live { run, status, recorded, recording: HashSet::new(), stored: refs })
    }

    /// Writes a transition, and before it the values that it names.
    pub async fn commit(&self, live: &mut Live, mut status: WorkflowRunStatus) -> Result<(), Unwritten> {
        trim(&mut status, &live.recorded);
        let is_unrecorded = |step: &&WorkflowStepSpec| !live.recorded.contains(&step.number);
        let unrecorded = status.steps.iter().filter(is_unrecorded).map(|step| step.number);
        let open = status.threads.iter().map(|thread| thread.step).filter(|step| *step > 0);
        let first = unrecorded.chain(open).min().unwrap_or(status.step_count + 1);
        status.recorded = first - 1;
        let mut stored = status.clone();
        let mut values = spill(live.name(), &mut stored);
        values.retain(|name, _| !live.stored.contains(name));
        let names: Vec<String> = values.keys().cloned().collect();
        self.put_values(&live.run, values).await?;
        live.stored.extend(names);
        let run = WorkflowRun { status: stored, ..live.run.clone() };
        let runs = self.runs(run.metadata.namespace.as_deref().unwrap_or_default());
        let written = runs.replace_status(live.name(), &PostParams::default(), &run).await?;
        live.run = WorkflowRun { status: WorkflowRunStatus::default(), ..written };
        live.status = status;
        Ok(())
    }

    async fn put_values(&self, run: &WorkflowRun, values: BTreeMap<String, Value>) -> Result<(), Unwritten> {
        let putting = values.into_iter().map(|(name, value)| {
            let object = WorkflowValue {
                metadata: belonging(run, name),
                spec: WorkflowValueSpec { value },
                ..WorkflowValue::default()
            };
            async move { self.create(&object).await }
        });
        let mut putting = stream::iter(putting).buffer_unordered(AT_A_TIME);
        while let Some(put) = putting.next().await {
            put?;
        }
        Ok(())
    }

    /// Writes the record of a step.
    pub async fn put_step(&self, run: &WorkflowRun, step: WorkflowStepSpec) -> Result<(), Unwritten> {
        let name = step_name(run.metadata.name.as_deref().unwrap_or_default(), step.number);
        let object = WorkflowStep { metadata: belonging(run, name), spec: step, ..WorkflowStep::default() };
        self.create(&object).await
    }

    /// Writes down that all steps of a run that has ended have a record.
    pub async fn all_recorded(&self, live: &Live) -> Result<(), Unwritten> {
        let runs = self.runs(live.run.metadata.namespace.as_deref().unwrap_or_default());
        let patch = Patch::Merge(json!({"status": {"recorded": live.status.step_count}}));
        runs.patch_status(live.name(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Creates what may be there already, as it follows from what it is.
    async fn create<K>(&self, object: &K) -> Result<(), Unwritten>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Serialize
            + DeserializeOwned
            + Clone
            + Debug,
    {
        let namespace = object.meta().namespace.clone().unwrap_or_default();
        let objects: Api<K> = Api::namespaced(self.client.clone(), &namespace);
        let created = objects.create(&PostParams::default(), object).await;
        match created {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
            Err(error) => return Err(Unwritten::Trouble(error.to_string())),
        }
        let name = object.meta().name.clone().unwrap_or_default();
        let owner = |object: &K| {
            object.meta().owner_references.iter().flatten().next().map(|owner| owner.uid.clone())
        };
        match objects.get_opt(&name).await {
            Ok(Some(present)) if owner(&present) == owner(object) => Ok(()),
            Ok(_) => {
                // Of a run of the same name that was before, and goes with it.
                let _ = objects.delete(&name, &DeleteParams::default()).await;
                let created = objects.create(&PostParams::default(), object).await;
                created.map(drop).map_err(|error| Unwritten::Trouble(error.to_string()))
            }
            Err(error) => Err(Unwritten::Trouble(error.to_string())),
        }
    }

    async fn get_all<K>(&self, namespace: &str, names: Vec<String>) -> Result<Vec<K>, Unwritten>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned
            + Clone
            + Debug,
    {
        let objects: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let getting = names.into_iter().map(|name| {
            let objects = objects.clone();
            async move { objects.get(&name).await }
        });
        let got: Vec<_> = stream::iter(getting).buffer_unordered(AT_A_TIME).collect().await;
        got.into_iter().map(|got| got.map_err(|error| Unwritten::Trouble(error.to_string()))).collect()
    }
}

/// What belongs to a run and goes with it.
pub fn belonging(run: &WorkflowRun, name: String) -> ObjectMeta {
    let own = |text: &Option<String>| text.clone().unwrap_or_default();
    ObjectMeta {
        name: Some(name),
        namespace: run.metadata.namespace.clone(),
        labels: Some([(RUN_LABEL.to_owned(), label_value(&own(&run.metadata.name)))].into()),
        owner_references: Some(vec![OwnerReference {
            api_version: "minik8s.io/v1".to_owned(),
            kind: "WorkflowRun".to_owned(),
            name: own(&run.metadata.name),
            uid: own(&run.metadata.uid),
            controller: Some(true),
            ..OwnerReference::default()
        }]),
        ..ObjectMeta::default()
    }
}

/// A run's name as a label has room for it.
pub fn label_value(name: &str) -> String {
    name.chars().take(63).collect::<String>().trim_end_matches(['-', '.']).to_owned()
}

/// The name of a step's record.
pub fn step_name(run: &str, step: i32) -> String {
    format!("{run}-{step}")
}
