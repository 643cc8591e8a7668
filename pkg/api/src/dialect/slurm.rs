//! The seed's jobs, which run on SLURM: a Job of Kubernetes whose pod waits for a node that submits it.
//!
//! ```text
//! {partition, threadNum, taskPerNode, cpu_per_task, gpu-num, file, codePath}
//!     ──> annotations slurm.minik8s.io/* of the pod, what sbatch is told
//!     ──> nodeSelector and toleration minik8s.io/provider=slurm, so that only such a node takes it
//!     ──> command: slurm.minik8s.io/run codePath, which the site compiles and runs;  cpu and nvidia.com/gpu as requests
//! ```
//!
//! The source itself is on the user's machine: who translates reads it there, and adds it as [`CODE`].

use super::DialectError;
use serde_json::{Map, Value, json};

/// Where a job's result goes: the `file` of the seed.
pub const RESULT: &str = "slurm.minik8s.io/output";
/// Where a job's source is on the machine of the user who applies it: the `codePath` of the seed.
pub const CODE_PATH: &str = "slurm.minik8s.io/code-path";
/// The source itself, as text.
pub const CODE: &str = "slurm.minik8s.io/code";
/// A source is no longer than this: all annotations of an object together have 256 KiB.
pub const MAX_CODE_BYTES: usize = 192 * 1024;
/// The command of a container that runs a source: the site says how, by the ending of its name.
pub const RUN: &str = "slurm.minik8s.io/run";
/// What nodes are labelled and tainted with that submit to SLURM.
const PROVIDER: &str = "minik8s.io/provider";
/// What nodes are tainted with that are no machines, as interLink's are.
const VIRTUAL: &str = "virtual-node.interlink/no-schedule";
/// The image of pods that run as programs of the SLURM nodes themselves.
pub const NO_IMAGE: &str = "minik8s.io/none";

/// Fields of the seed that are numbers, and what sbatch calls them.
const NUMBERS: [(&str, &str); 4] = [
    ("threadNum", "nodes"),
    ("taskPerNode", "ntasks-per-node"),
    ("cpu_per_task", "cpus-per-task"),
    ("gpu-num", "gpus"),
];
const TEXTS: [(&str, &str); 3] = [("partition", "partition"), ("file", "output"), ("codePath", "code-path")];

/// Translates a job of the seed; a job of Kubernetes stays.
pub fn job(value: &mut Value, notes: &mut Vec<String>) -> Result<(), DialectError> {
    let Some(spec) = value["spec"].as_object_mut() else { return Ok(()) };
    let is_seeds = |field: &&str| spec.contains_key(*field);
    if !NUMBERS.iter().chain(&TEXTS).map(|(field, _)| *field).any(|field| is_seeds(&field)) {
        return Ok(());
    }
    let mut annotations = Map::new();
    let mut numbers = Map::new();
    for (field, name) in NUMBERS {
        let Some(given) = spec.remove(field) else { continue };
        let number = given.as_i64().or_else(|| given.as_str()?.parse().ok()).filter(|number| *number >= 0);
        let number = number.ok_or_else(|| wrong(field, format!("{given}: expected a number")))?;
        annotations.insert(format!("slurm.minik8s.io/{name}"), number.to_string().into());
        numbers.insert(name.to_owned(), number.into());
    }
    for (field, name) in TEXTS {
        let Some(given) = spec.remove(field) else { continue };
        let text = given.as_str().ok_or_else(|| wrong(field, format!("{given}: expected text")))?;
        annotations.insert(format!("slurm.minik8s.io/{name}"), text.into());
    }
    let Some(code) = annotations.get(CODE_PATH).and_then(Value::as_str).map(str::to_owned) else {
        return Err(wrong("codePath", "is missing: the program that the job runs".into()));
    };
    if let Some(other) = spec.keys().next() {
        return Err(wrong(other, "is not a field of jobs that run on SLURM".into()));
    }
    let mut requests = Map::new();
    let count = |name: &str| numbers.get(name).and_then(Value::as_i64).filter(|count| *count > 0);
    requests.extend(count("cpus-per-task").map(|count| ("cpu".to_owned(), count.to_string().into())));
    requests.extend(count("gpus").map(|count| ("nvidia.com/gpu".to_owned(), count.to_string().into())));
    let name = super::map_name(value["metadata"]["name"].as_str().unwrap_or("job"));
    value["spec"] = json!({
        "backoffLimit": 0,
        "template": {
            "metadata": {"annotations": annotations},
            "spec": {
                "restartPolicy": "Never",
                "nodeSelector": {PROVIDER: "slurm"},
                "tolerations": [
                    {"key": PROVIDER, "operator": "Equal", "value": "slurm"},
                    {"key": VIRTUAL, "operator": "Exists"},
                    // A site that does not answer for a while has lost no job.
                    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
                    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
                ],
                "containers": [{
                    "name": name, "image": NO_IMAGE, "command": [RUN, code],
                    "resources": {"requests": requests, "limits": requests},
                }],
            },
        },
    });
    for key in [RESULT, "slurm.minik8s.io/partition"] {
        if let Some(text) = value["spec"]["template"]["metadata"]["annotations"].get(key).cloned() {
            value["metadata"]["annotations"][key] = text;
        }
    }
    notes.push("a job for SLURM: its pod runs on a node that submits to SLURM (minik8s.io/provider=slurm), and stays Pending until there is one".into());
    Ok(())
}

fn wrong(field: &str, what: String) -> DialectError {
    DialectError { path: format!("spec.{field}"), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeds() -> Value {
        json!({"kind": "Job", "metadata": {"name": "gpujob"}, "spec": {
            "partition": "dgx2", "threadNum": 1, "taskPerNode": 1, "cpu_per_task": 6, "gpu-num": 1,
            "file": "result", "codePath": "/root/add.cu"}})
    }

    #[test]
    fn a_job_for_slurm_waits_for_its_node() {
        let (mut value, mut notes) = (seeds(), Vec::new());
        job(&mut value, &mut notes).expect("understood");
        let pod = &value["spec"]["template"];
        assert_eq!(pod["metadata"]["annotations"]["slurm.minik8s.io/partition"], "dgx2");
        assert_eq!(pod["metadata"]["annotations"]["slurm.minik8s.io/cpus-per-task"], "6");
        assert_eq!(pod["spec"]["nodeSelector"], json!({"minik8s.io/provider": "slurm"}));
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["command"], json!([RUN, "/root/add.cu"]));
        assert_eq!(container["resources"]["limits"], json!({"cpu": "6", "nvidia.com/gpu": "1"}));
        assert_eq!(value["metadata"]["annotations"][RESULT], "result");
        assert!(notes[0].contains("stays Pending"));
        // Translated again, it stays as it is.
        let again = value.clone();
        job(&mut value, &mut notes).expect("understood");
        assert_eq!((value, notes.len()), (again, 1));
    }

    #[test]
    fn what_sbatch_could_not_be_told_is_refused() {
        let refused = |field: &str, given: Value| {
            let mut value = seeds();
            value["spec"][field] = given;
            job(&mut value, &mut Vec::new()).expect_err("refused").to_string()
        };
        assert_eq!(refused("threadNum", json!("many")), "spec.threadNum: \"many\": expected a number");
        assert_eq!(
            refused("parallelism", json!(2)),
            "spec.parallelism: is not a field of jobs that run on SLURM"
        );
    }
}
