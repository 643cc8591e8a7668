//! A Function as what runs it needs it: which revision, what is loaded, how many calls, for how long.

use crate::runtimes::{self, PORT, Runtime};
use crate::scale::Bounds;
use api::kinds::minik8s::Function;
use client::Key;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A Function, and what follows from it.
#[derive(Debug, Clone)]
pub struct Definition {
    /// As it is in the API.
    pub function: Arc<Function>,
    /// Where it is.
    pub key: Key,
    /// Whose calls and pods are counted together: the function's latest revision, or another one that has a share.
    pub desk: Key,
    /// Which source, image and pods: changes with whatever needs other pods.
    pub revision: String,
}

/// What decides what a pod of a function is, with who the function is.
const PARTS: [&str; 7] = ["runtime", "code", "files", "handler", "image", "port", "template"];

/// What a function's pods run.
#[derive(Debug, PartialEq, Eq)]
pub enum Program {
    /// A source, by a runtime.
    Source(&'static Runtime),
    /// A server of its own, on this port.
    Image(u16),
}

impl Definition {
    /// What follows from it.
    pub fn new(function: Arc<Function>) -> Definition {
        let key = Key::of(function.as_ref());
        let revision = revision(&function);
        Definition { function, desk: key.clone(), key, revision }
    }

    /// An earlier revision of it, whose parts these are; nothing, if they are not.
    pub fn earlier(&self, revision: &str, parts: &Value) -> Option<Definition> {
        let mut function = serde_json::to_value(self.function.as_ref()).ok()?;
        for name in PARTS {
            function["spec"][name] = parts[name].clone();
        }
        let function: Map<String, Value> = function.as_object()?.clone();
        let mut function: Function = serde_json::from_value(without_null(function.into())).ok()?;
        // Nothing of it stays when nobody calls.
        function.spec.min_replicas = 0;
        let earlier = Definition::new(Arc::new(function));
        let desk = Key::new(self.key.namespace.clone(), format!("{}@{revision}", self.key.name));
        (earlier.revision == revision).then_some(Definition { desk, ..earlier })
    }

    /// What its revision is made of.
    pub fn parts(&self) -> Value {
        let spec = serde_json::to_value(&self.function.spec).unwrap_or_default();
        let parts = PARTS.iter().filter_map(|name| Some(((*name).to_owned(), spec.get(*name)?.clone())));
        Value::Object(parts.collect())
    }

    /// What its pods run; why there can be none, where its runtime is not known.
    pub fn program(&self) -> Result<Program, String> {
        let spec = &self.function.spec;
        if !spec.image.is_empty() {
            return Ok(Program::Image(spec.port.and_then(|port| u16::try_from(port).ok()).unwrap_or(PORT)));
        }
        runtimes::find(&spec.runtime)
            .map(Program::Source)
            .ok_or_else(|| format!("there is no runtime {:?}; there are {}", spec.runtime, runtimes::names()))
    }

    /// What a runtime is given before the first call.
    pub fn source(&self, runtime: &Runtime) -> Value {
        let spec = &self.function.spec;
        let files = match spec.files.is_empty() {
            true => json!({ runtime.file: spec.code }),
            false => json!(spec.files),
        };
        let main = if spec.files.is_empty() { "function" } else { "main" };
        let (module, function) = spec.handler.rsplit_once('.').unwrap_or((main, &spec.handler));
        json!({"revision": self.revision, "files": files, "module": module, "function": function})
    }

    /// What scaling is held by.
    pub fn bounds(&self) -> Bounds {
        let spec = &self.function.spec;
        Bounds {
            concurrency: size(spec.concurrency).max(1),
            min: size(spec.min_replicas),
            max: spec.max_replicas.map_or(usize::MAX, size),
            idle: seconds(spec.idle_seconds),
        }
    }

    /// How long a call may take.
    pub fn timeout(&self) -> Duration {
        seconds(self.function.spec.timeout_seconds)
    }

    /// How long a call may wait for a pod.
    pub fn patience(&self) -> Duration {
        seconds(self.function.spec.limits.queue_seconds)
    }

    /// How many calls may wait.
    pub fn queue_length(&self) -> usize {
        size(self.function.spec.limits.queue_length)
    }

    /// The largest body of a call, and of an answer.
    pub fn most_bytes(&self) -> (usize, usize) {
        let limits = &self.function.spec.limits;
        let most = |bytes: i64| usize::try_from(bytes).unwrap_or(usize::MAX);
        (most(limits.request_bytes), most(limits.response_bytes))
    }
}

fn size(number: i32) -> usize {
    usize::try_from(number).unwrap_or(0)
}

fn seconds(number: i32) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0).max(1))
}

/// A hash of all that decides what a pod of the function is.
fn revision(function: &Function) -> String {
    let spec = &function.spec;
    let uid = &function.metadata.uid;
    let parts =
        json!([uid, spec.runtime, spec.code, spec.files, spec.handler, spec.image, spec.port, spec.template]);
    let digest = ring::digest::digest(&ring::digest::SHA256, parts.to_string().as_bytes());
    hex(&digest.as_ref()[..5])
}

fn without_null(mut function: Value) -> Value {
    if let Some(spec) = function["spec"].as_object_mut() {
        spec.retain(|_, value| !value.is_null());
    }
    function
}

/// Bytes as text.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(spec: Value) -> Definition {
        let function = json!({"metadata": {"namespace": "a", "name": "f"}, "spec": spec});
        Definition::new(Arc::new(serde_json::from_value(function).expect("a function")))
    }

    #[test]
    fn what_needs_no_other_pods_is_no_other_revision() {
        let code = |code: &str, idle: i32| definition(json!({"code": code, "idleSeconds": idle})).revision;
        assert_eq!(code("a", 1), code("a", 2));
        assert_ne!(code("a", 1), code("b", 1));
    }

    #[test]
    fn an_earlier_revision_is_what_it_was() {
        let first = definition(json!({"code": "a", "handler": "main", "minReplicas": 2}));
        let second = definition(json!({"image": "web", "port": 80, "timeoutSeconds": 7}));
        let earlier = second.earlier(&first.revision, &first.parts()).expect("it is what it was");
        assert_eq!((earlier.revision.as_str(), &earlier.key), (first.revision.as_str(), &second.key));
        assert_eq!((earlier.timeout().as_secs(), earlier.bounds().min), (7, 0), "limits are as they are now");
        assert!(earlier.desk != second.desk && second.desk == second.key);
        assert!(second.earlier(&first.revision, &second.parts()).is_none());
    }

    #[test]
    fn a_handler_is_in_the_main_file_unless_it_says_where() {
        let check = |spec: Value, expected: [&str; 3]| {
            let definition = definition(spec);
            let source = definition.source(&runtimes::RUNTIMES[0]);
            let file = source["files"].as_object().and_then(|files| files.keys().next()).cloned();
            let found = [file.unwrap_or_default(), text(&source, "module"), text(&source, "function")];
            assert_eq!(found, expected);
        };
        fn text(value: &Value, name: &str) -> String {
            value[name].as_str().unwrap_or_default().to_owned()
        }
        check(json!({"code": "x", "handler": "main"}), ["function.py", "function", "main"]);
        check(json!({"files": {"main.py": ""}, "handler": "main"}), ["main.py", "main", "main"]);
        check(json!({"files": {"a/b.py": ""}, "handler": "a.b.f"}), ["a/b.py", "a.b", "f"]);
    }

    #[test]
    fn a_runtime_that_nobody_knows_is_said() {
        let unknown = definition(json!({"code": "x", "runtime": "cobol"})).program();
        assert_eq!(unknown, Err("there is no runtime \"cobol\"; there are python, nodejs".to_owned()));
        assert_eq!(definition(json!({"image": "web", "port": 80})).program(), Ok(Program::Image(80)));
    }
}
