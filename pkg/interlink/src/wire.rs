//! What goes over the wire between virtual node, API server and plugin, in both generations of the protocol.
//!
//! ```text
//!            arrays (the first)           objects (the newer)
//! node ──>   [Pod]                        {pod, configmaps, secrets, …}      API server
//! API  ──>   [{pod, container: […]}]      {pod, container: […], jobScript}   plugin
//!      <──   [{name, containers}]         [{name, UID, JID, containers, …}]
//! ```
//!
//! Only encoding and decoding. Who decodes takes what any known program sends: explicit nulls, absent fields, zeros that
//! mean nothing. Who encodes sends what any known program insists on.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, ContainerStatus, Pod, Secret, Taint};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

/// The header by which newer programs tell which requests belong together.
pub const SESSION: &str = "InterLink-Http-Session";

/// The generations of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// The first: arrays of pods, `/ping`, `/setKubeCFG`.
    Arrays,
    /// The newer: one object, `/pinglink`, `/updateCache`.
    Objects,
}

/// A body that is none of the protocol.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadBody(pub String);

/// Each pod of a batch, or what is wrong with it.
pub type Batch<T> = Vec<Result<T, BadBody>>;

/// A pod with what it uses of its cluster, as a newer virtual node sends it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Submission {
    /// The pod.
    pub pod: Pod,
    /// ConfigMaps that it uses.
    #[serde(default, deserialize_with = "nullable")]
    pub configmaps: Vec<ConfigMap>,
    /// Secrets that it uses.
    #[serde(default, deserialize_with = "nullable")]
    pub secrets: Vec<Secret>,
    /// Projected volumes: under the volume's name, contents by path.
    #[serde(default, rename = "projectedvolumesmaps", deserialize_with = "nullable")]
    pub projected: Vec<ConfigMap>,
    /// Who writes the job's script, if not the plugin.
    #[serde(default, rename = "jobscriptURL", deserialize_with = "nullable")]
    pub job_script_url: String,
}

/// A pod with what each of its containers uses, as a plugin gets it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct RetrievedPod {
    /// The pod.
    pub pod: Pod,
    /// What its containers use.
    #[serde(default, deserialize_with = "nullable")]
    pub container: Vec<RetrievedContainer>,
    /// The script of the job, if it was written elsewhere.
    #[serde(default, rename = "jobScript", deserialize_with = "nullable")]
    pub job_script: String,
}

/// What a container uses of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct RetrievedContainer {
    /// Its name.
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    /// ConfigMaps, of volumes and of the environment.
    #[serde(default, rename = "configMaps", deserialize_with = "nullable")]
    pub config_maps: Vec<ConfigMap>,
    /// Projected volumes.
    #[serde(default, rename = "projectedvolumemaps", deserialize_with = "nullable")]
    pub projected: Vec<ConfigMap>,
    /// Secrets, of volumes and of the environment.
    #[serde(default, deserialize_with = "nullable")]
    pub secrets: Vec<Secret>,
    /// Empty folders.
    #[serde(default, rename = "emptyDirs", deserialize_with = "nullable")]
    pub empty_dirs: Vec<String>,
}

/// The answer to a create: by what name the pod is known there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    /// The pod's uid.
    #[serde(default, rename = "PodUID", deserialize_with = "nullable")]
    pub uid: String,
    /// The job's id.
    #[serde(default, rename = "PodJID", deserialize_with = "text")]
    pub job: String,
}

/// How a pod is.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PodState {
    /// Its name.
    pub name: String,
    /// Its uid; the first generation does not tell it.
    #[serde(rename = "UID")]
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// The job's id.
    #[serde(rename = "JID")]
    pub job: String,
    /// Its containers.
    pub containers: Vec<ContainerStatus>,
    /// Its init containers.
    #[serde(rename = "initContainers")]
    pub init_containers: Vec<ContainerStatus>,
}

/// What a ping may tell of the node's size.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pong {
    /// Whatever it calls its state.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "text")]
    pub status: String,
    /// What there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Taints of the node, all but the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<Taint>>,
}

/// What there is behind a plugin, as quantities.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// Processors.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "text")]
    pub cpu: String,
    /// Memory.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "text")]
    pub memory: String,
    /// Pods.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "text")]
    pub pods: String,
    /// Accelerators.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub accelerators: Vec<Accelerator>,
}

/// Accelerators of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accelerator {
    /// The resource's name, such as `nvidia.com/gpu`.
    #[serde(default, rename = "resourceType", deserialize_with = "text")]
    pub resource: String,
    /// How many.
    #[serde(default, deserialize_with = "text")]
    pub available: String,
}

/// Which container's log is asked for, and how much of it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct LogRequest {
    /// The pod's namespace.
    #[serde(default, deserialize_with = "nullable")]
    pub namespace: String,
    /// Its uid.
    #[serde(default, rename = "PodUID", deserialize_with = "nullable")]
    pub pod_uid: String,
    /// Its name.
    #[serde(default, deserialize_with = "nullable")]
    pub pod_name: String,
    /// The container.
    #[serde(default, deserialize_with = "nullable")]
    pub container_name: String,
    /// How much.
    #[serde(default, deserialize_with = "nullable")]
    pub opts: LogOptions,
}

/// How much of a log. In JSON of Go zero means that nothing was said.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct LogOptions {
    #[serde(deserialize_with = "nullable")]
    tail: i64,
    #[serde(deserialize_with = "nullable")]
    bytes: i64,
    #[serde(deserialize_with = "nullable")]
    limit_bytes: i64,
    /// With the time before each line.
    #[serde(deserialize_with = "nullable")]
    pub timestamps: bool,
    /// Go on as it grows.
    #[serde(deserialize_with = "nullable")]
    pub follow: bool,
    /// Of the container before this one.
    #[serde(deserialize_with = "nullable")]
    pub previous: bool,
    #[serde(deserialize_with = "nullable")]
    since_seconds: i64,
    #[serde(deserialize_with = "nullable")]
    since_time: String,
}

/// The part of a log that is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogRange {
    /// Lines from its end.
    pub tail: Option<u64>,
    /// Bytes at most.
    pub bytes: Option<u64>,
    /// Not older than so many seconds.
    pub since_seconds: Option<u64>,
    /// Not older than this.
    pub since_time: Option<Timestamp>,
}

impl LogOptions {
    /// With a range.
    pub fn of(range: LogRange) -> LogOptions {
        let number = |number: Option<u64>| number.and_then(|it| i64::try_from(it).ok()).unwrap_or(0);
        LogOptions {
            tail: number(range.tail),
            bytes: number(range.bytes),
            since_seconds: number(range.since_seconds),
            since_time: range.since_time.map(|time| time.to_string()).unwrap_or_default(),
            ..LogOptions::default()
        }
    }

    /// Which part it is.
    pub fn range(&self) -> Result<LogRange, BadBody> {
        let wrong = |what: &str| Err(BadBody(format!("Opts: {what}")));
        let bytes = if self.bytes == 0 { self.limit_bytes } else { self.bytes };
        if self.tail < 0 || bytes < 0 || self.since_seconds < 0 {
            return wrong("Tail, Bytes and SinceSeconds must not be negative");
        }
        let number = |number: i64| u64::try_from(number).ok().filter(|number| *number > 0);
        let (tail, bytes, since_seconds) = (number(self.tail), number(bytes), number(self.since_seconds));
        // The zero of Go's times.
        let is_said = !self.since_time.is_empty() && !self.since_time.starts_with("0001-01-01T");
        let since_time = match self.since_time.parse::<Timestamp>() {
            Ok(time) if is_said => Some(time),
            Err(_) if is_said => return wrong("SinceTime is not a time: write 2026-01-31T12:00:00Z"),
            _ => None,
        };
        if tail.is_some() && bytes.is_some() {
            return wrong("Tail and Bytes cannot be given together");
        }
        if since_seconds.is_some() && since_time.is_some() {
            return wrong("SinceSeconds and SinceTime cannot be given together");
        }
        Ok(LogRange { tail, bytes, since_seconds, since_time })
    }
}

impl LogRequest {
    /// As it is sent: the limit under both of its names, since programs differ.
    pub fn encode(&self) -> Value {
        let opts = &self.opts;
        let limit = if opts.bytes == 0 { opts.limit_bytes } else { opts.bytes };
        let since = Some(&opts.since_time).filter(|time| !time.is_empty());
        json!({
            "Namespace": self.namespace, "PodUID": self.pod_uid, "PodName": self.pod_name,
            "ContainerName": self.container_name,
            "Opts": {
                "Tail": opts.tail, "Bytes": limit, "LimitBytes": limit, "Timestamps": opts.timestamps,
                "Follow": opts.follow, "Previous": opts.previous, "SinceSeconds": opts.since_seconds,
                "SinceTime": since,
            },
        })
    }

    /// From a body.
    pub fn decode(body: &[u8]) -> Result<LogRequest, BadBody> {
        let request: LogRequest =
            serde_json::from_slice(body).map_err(|error| not("a request for a log", &error))?;
        request.opts.range()?;
        if request.pod_uid.is_empty() || request.container_name.is_empty() {
            return Err(BadBody("PodUID and ContainerName must be set".into()));
        }
        Ok(request)
    }
}

impl Submission {
    /// As a newer API server wants it.
    pub fn encode(&self) -> Value {
        json!({
            "pod": pod(&self.pod), "configmaps": self.configmaps.iter().map(with_data).collect::<Vec<_>>(),
            "secrets": self.secrets.iter().map(with_data).collect::<Vec<_>>(),
            "projectedvolumesmaps": self.projected.iter().map(with_data).collect::<Vec<_>>(),
            "jobscriptURL": self.job_script_url,
        })
    }

    /// What a virtual node of either generation sends.
    pub fn decode(body: &[u8]) -> Result<(Generation, Batch<Submission>), BadBody> {
        batch(body, "a pod to create", |value| match value.get("pod") {
            Some(_) => serde_json::from_value(value),
            None => Ok(Submission { pod: serde_json::from_value(value)?, ..Submission::default() }),
        })
    }
}

impl RetrievedPod {
    /// As a plugin of that generation wants it.
    pub fn encode(&self, generation: Generation) -> Value {
        let containers: Vec<Value> = self.container.iter().map(RetrievedContainer::encode).collect();
        let mut one = json!({"pod": pod(&self.pod), "container": containers});
        match generation {
            Generation::Arrays => Value::Array(vec![one]),
            Generation::Objects => {
                if !self.job_script.is_empty() {
                    one["jobScript"] = json!(self.job_script);
                }
                one
            }
        }
    }

    /// What an API server of either generation sends.
    pub fn decode(body: &[u8]) -> Result<(Generation, Batch<RetrievedPod>), BadBody> {
        batch(body, "a pod to create", serde_json::from_value)
    }
}

impl RetrievedContainer {
    fn encode(&self) -> Value {
        json!({
            "name": self.name,
            "configMaps": self.config_maps.iter().map(with_data).collect::<Vec<_>>(),
            "projectedvolumemaps": self.projected.iter().map(with_data).collect::<Vec<_>>(),
            "secrets": self.secrets.iter().map(with_data).collect::<Vec<_>>(),
            "emptyDirs": self.empty_dirs,
        })
    }
}

/// Pods whose status is asked for, or that are to be deleted: one, or an array.
pub fn decode_pods(body: &[u8]) -> Result<(Generation, Batch<Pod>), BadBody> {
    if body.trim_ascii().is_empty() {
        return Ok((Generation::Arrays, Vec::new()));
    }
    batch(body, "a pod", serde_json::from_value)
}

/// A pod as it is sent to whoever runs it: without what only its cluster needs.
pub fn pod(pod: &Pod) -> Value {
    let mut value = serde_json::to_value(pod).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.remove("status");
        if let Some(metadata) = fields.entry("metadata").or_insert_with(|| json!({})).as_object_mut() {
            metadata.remove("managedFields");
        }
    }
    insist(&mut value);
    value
}

/// As much of a pod as is needed to ask for its status.
pub fn brief(pod: &Pod) -> Value {
    let meta = &pod.metadata;
    let names = |containers: Vec<&k8s_openapi::api::core::v1::Container>| -> Vec<Value> {
        containers.iter().map(|it| json!({"name": it.name, "image": it.image})).collect()
    };
    let spec = pod.spec.as_ref();
    let mut value = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid,
            "annotations": meta.annotations, "labels": meta.labels},
        "spec": {
            "containers": names(spec.iter().flat_map(|spec| &spec.containers).collect()),
            "initContainers": names(spec.iter().flat_map(|spec| spec.init_containers.iter().flatten()).collect()),
        },
    });
    insist(&mut value);
    value
}

/// Fields that known plugins refuse a pod without.
fn insist(pod: &mut Value) {
    for list in ["containers", "initContainers"] {
        let containers = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for fields in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            for (field, nothing) in [("image", json!("")), ("command", json!([]))] {
                let value = fields.entry(field).or_insert(Value::Null);
                if value.is_null() {
                    *value = nothing;
                }
            }
        }
    }
}

/// A ConfigMap or Secret whose `data` is there, if only as null.
fn with_data(object: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.entry("data").or_insert(Value::Null);
    }
    value
}

/// The statuses that a plugin or an API server answers with. What is not one is left out and told of.
pub fn decode_states(body: &[u8]) -> Result<Batch<PodState>, BadBody> {
    // Go writes an empty list as null.
    let all: Option<Vec<Value>> =
        serde_json::from_slice(body).map_err(|error| not("a list of statuses", &error))?;
    Ok(all.unwrap_or_default().into_iter().map(state).collect())
}

fn state(value: Value) -> Result<PodState, BadBody> {
    #[derive(Deserialize)]
    struct Raw {
        #[serde(default, deserialize_with = "nullable")]
        name: String,
        #[serde(default, rename = "UID", deserialize_with = "nullable")]
        uid: String,
        #[serde(default, deserialize_with = "nullable")]
        namespace: String,
        #[serde(default, rename = "JID", deserialize_with = "text")]
        job: String,
        #[serde(default, deserialize_with = "nullable")]
        containers: Vec<Value>,
        #[serde(default, rename = "initContainers", deserialize_with = "nullable")]
        init_containers: Vec<Value>,
    }
    let raw: Raw = serde_json::from_value(value).map_err(|error| not("a pod's status", &error))?;
    let containers = |list: Vec<Value>| list.into_iter().map(container).collect::<Result<Vec<_>, _>>();
    Ok(PodState {
        name: raw.name,
        uid: raw.uid,
        namespace: raw.namespace,
        job: raw.job,
        containers: containers(raw.containers)?,
        init_containers: containers(raw.init_containers)?,
    })
}

/// A container's status; of one whose times cannot be read the rest.
fn container(value: Value) -> Result<ContainerStatus, BadBody> {
    let mut value = value;
    strip(&mut value);
    if let Ok(read) = serde_json::from_value(value.clone()) {
        return Ok(read);
    }
    for state in ["state", "lastState"] {
        for kind in ["running", "terminated"] {
            if let Some(fields) =
                value.pointer_mut(&format!("/{state}/{kind}")).and_then(Value::as_object_mut)
            {
                fields.remove("startedAt");
                fields.remove("finishedAt");
            }
        }
    }
    serde_json::from_value(value).map_err(|error| not("a container's status", &error))
}

/// Takes nulls away: they say nothing.
fn strip(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(strip);
    }
}

/// Statuses, as they are answered with. Nothing is left out that a client may look for.
pub fn encode_states(states: &[PodState]) -> Value {
    json!(states)
}

/// What a ping was answered with, if that says something of the node.
pub fn decode_pong(body: &[u8]) -> Option<Pong> {
    let value: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let says = |key: &str| value.get(key).is_some_and(|value| !value.is_null());
    if !says("resources") && !says("taints") {
        return None;
    }
    serde_json::from_value(Value::Object(value)).ok()
}

fn batch<T>(
    body: &[u8],
    what: &str,
    one: impl Fn(Value) -> Result<T, serde_json::Error>,
) -> Result<(Generation, Batch<T>), BadBody> {
    let value: Value = serde_json::from_slice(body).map_err(|error| not(what, &error))?;
    let read = |value: Value| one(value).map_err(|error| not(what, &error));
    match value {
        Value::Array(all) => Ok((Generation::Arrays, all.into_iter().map(read).collect())),
        Value::Object(_) => Ok((Generation::Objects, vec![Ok(read(value)?)])),
        _ => Err(BadBody(format!("the body is not {what}: an object or an array is expected"))),
    }
}

fn not(what: &str, error: &serde_json::Error) -> BadBody {
    BadBody(format!("the body is not {what}: {error}"))
}

/// Null is as good as absent.
fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// Text, or a number as text.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u1", "managedFields": [{"manager": "x"}]},
            "spec": {
                "containers": [{"name": "c"}, {"name": "d", "image": "i", "command": ["x"]}],
                "volumes": [{"name": "v", "configMap": {"name": "m", "items": [{"key": "k", "path": "p"}]}}],
            },
            "status": {"phase": "Pending"},
        }))
        .unwrap()
    }

    #[test]
    fn what_known_plugins_insist_on_is_always_sent() {
        let given = RetrievedPod {
            pod: sample(),
            container: vec![RetrievedContainer {
                name: "c".into(),
                config_maps: vec![ConfigMap::default()],
                ..RetrievedContainer::default()
            }],
            job_script: String::new(),
        };
        let sent = given.encode(Generation::Objects);
        assert_eq!(sent["pod"]["spec"]["containers"][0]["image"], "");
        assert_eq!(sent["pod"]["spec"]["containers"][0]["command"], json!([]));
        assert_eq!(sent["pod"]["spec"]["containers"][1]["command"], json!(["x"]));
        assert_eq!(sent["pod"]["spec"]["volumes"][0]["configMap"]["items"][0]["key"], "k");
        assert!(sent["container"][0]["configMaps"][0].as_object().unwrap().contains_key("data"));
        assert_eq!(sent["pod"].get("status"), None);
        assert_eq!(sent["pod"]["metadata"].get("managedFields"), None);
        assert_eq!(given.encode(Generation::Arrays)[0]["pod"]["metadata"]["uid"], "u1");
        let asked = LogRequest::default().encode();
        assert_eq!(asked["Opts"]["Previous"], false);
        let limit = LogOptions::of(LogRange { bytes: Some(7), ..LogRange::default() });
        let asked = LogRequest { opts: limit, ..LogRequest::default() }.encode();
        assert_eq!((&asked["Opts"]["Bytes"], &asked["Opts"]["LimitBytes"]), (&json!(7), &json!(7)));
        assert_eq!(
            brief(&sample())["spec"]["containers"][0],
            json!({"name": "c", "image": "", "command": []})
        );
    }

    #[test]
    fn both_generations_are_understood() {
        let pod = pod(&sample());
        let check = |body: Value, generation, count: usize| {
            let (found, all) = Submission::decode(body.to_string().as_bytes()).unwrap();
            assert_eq!((found, all.len()), (generation, count), "{body}");
            assert!(all.iter().flatten().all(|one| one.pod.metadata.uid.as_deref() == Some("u1")));
        };
        check(json!([pod, pod]), Generation::Arrays, 2);
        check(json!({"pod": pod, "configmaps": null, "jobscriptURL": null}), Generation::Objects, 1);
        check(pod.clone(), Generation::Objects, 1);
        let given = json!([{"pod": pod, "container": null}, {"pod": {"metadata": []}}, {"pod": pod}]);
        let (_, all) = RetrievedPod::decode(given.to_string().as_bytes()).unwrap();
        assert_eq!(all.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
        for bad in ["", "1", "\"x\"", "{", "null"] {
            assert!(RetrievedPod::decode(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(decode_pods(b" ").unwrap().1.is_empty());
    }

    #[test]
    fn statuses_with_explicit_nulls_are_read() {
        let body = json!([
            {"name": "p", "UID": "u1", "namespace": "ns", "containers": [{"name": "c", "state":
                {"terminated": {"exitCode": 3, "reason": null}, "running": null, "waiting": null}}]},
            {"name": "q", "namespace": "ns", "UID": null, "JID": 17, "initContainers": null, "containers":
                [{"name": "c", "state": {"running": {"startedAt": "a while ago"}}}]},
            {"name": 5},
        ]);
        let read = decode_states(body.to_string().as_bytes()).unwrap();
        let first = read[0].as_ref().unwrap();
        let state = first.containers[0].state.clone().unwrap();
        assert_eq!(state.terminated.unwrap().exit_code, 3);
        assert!(state.running.is_none() && state.waiting.is_none());
        let second = read[1].as_ref().unwrap();
        assert_eq!((second.uid.as_str(), second.job.as_str()), ("", "17"));
        assert!(second.containers[0].state.clone().unwrap().running.unwrap().started_at.is_none());
        assert!(read[2].is_err());
        assert!(decode_states(b"null").unwrap().is_empty());
        assert!(decode_states(b"oops").is_err());
        let again = decode_states(encode_states(std::slice::from_ref(first)).to_string().as_bytes()).unwrap();
        assert_eq!(again[0].as_ref().unwrap(), first);
    }

    #[test]
    fn only_a_ping_that_says_something_counts() {
        for nothing in ["", "OK", "[]", "null", "{}", r#"{"status": "ok", "resources": null}"#] {
            assert_eq!(decode_pong(nothing.as_bytes()), None, "{nothing}");
        }
        let said = json!({"resources": {"cpu": 4, "memory": "1Gi", "accelerators":
            [{"resourceType": "nvidia.com/gpu", "available": 2}]}, "taints": [{"key": "k", "effect": "NoSchedule"}]});
        let pong = decode_pong(said.to_string().as_bytes()).unwrap();
        let resources = pong.resources.unwrap();
        assert_eq!((resources.cpu.as_str(), resources.pods.as_str()), ("4", ""));
        assert_eq!(resources.accelerators[0].available, "2");
        assert_eq!(pong.taints.unwrap()[0].key, "k");
    }

    #[test]
    fn a_log_is_asked_for_in_ways_that_make_sense() {
        let check = |opts: Value, expected: Result<LogRange, &str>| {
            let body = json!({"PodUID": "u", "ContainerName": "c", "Opts": opts}).to_string();
            let found = LogRequest::decode(body.as_bytes()).map(|it| it.opts.range().unwrap());
            let found = found.map_err(|error| error.0);
            match expected {
                Ok(range) => assert_eq!(found.unwrap(), range, "{opts}"),
                Err(why) => assert!(found.unwrap_err().contains(why), "{opts}"),
            }
        };
        let none = LogRange::default();
        check(json!(null), Ok(none));
        check(json!({"Tail": null, "SinceTime": null, "Previous": null}), Ok(none));
        check(
            json!({"Tail": 0, "Bytes": 0, "SinceSeconds": 0, "SinceTime": "0001-01-01T00:00:00Z"}),
            Ok(none),
        );
        check(json!({"Tail": 5, "Follow": true}), Ok(LogRange { tail: Some(5), ..none }));
        check(json!({"LimitBytes": 5}), Ok(LogRange { bytes: Some(5), ..none }));
        check(json!({"Tail": 5, "Bytes": 5}), Err("Tail and Bytes"));
        check(json!({"Tail": 5, "LimitBytes": 5}), Err("Tail and Bytes"));
        check(
            json!({"SinceSeconds": 5, "SinceTime": "2026-01-01T00:00:00Z"}),
            Err("SinceSeconds and SinceTime"),
        );
        check(json!({"Tail": -1}), Err("negative"));
        check(json!({"SinceTime": "yesterday"}), Err("not a time"));
    }
}
