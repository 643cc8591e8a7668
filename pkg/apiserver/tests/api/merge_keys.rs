//! Every list that is merged by a key, found in the schemas of all kinds: upstream's `kubectl apply` of an object with
//! one element less removes exactly that one.
//!
//! All lists of all kinds go through kubectl together: one apply with everything, one with an element less in each
//! list, and a look at what is left. Lists in `status` likewise, through the subresource.

use crate::kinds::{is_followed, smallest};
use api::kind::Verbs;
use api::schema::{PatchStrategy, Schema, Type};
use api::{Kind, kinds};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use testing::TestServer;

/// Parts of objects that nobody may change in this way, here or upstream.
const FIXED: &[(&str, &str)] = &[
    ("Job", "spec.template"),
    ("Node", "spec.podCIDRs"),
    // All but `schedulingGates` and the metadata.
    ("Pod", "spec.containers"),
    ("Pod", "spec.hostAliases"),
    ("Pod", "spec.imagePullSecrets"),
    ("Pod", "spec.initContainers"),
    ("Pod", "spec.resourceClaims"),
    ("Pod", "spec.topologySpreadConstraints"),
    ("Pod", "spec.volumes"),
    // Only of a claim that has been given its devices.
    ("ResourceClaim", "status.reservedFor"),
    ("ResourceClaimTemplate", "spec"),
];
/// Comes and goes through its own subresource, and never goes again.
const EPHEMERAL: &str = "ephemeralContainers";

/// Elements for a list, and which of them is to go.
fn elements(member: &str, key: &str) -> (Value, usize) {
    let named = |names: &[&str]| Value::from(names.iter().map(|name| json!({key: name})).collect::<Vec<_>>());
    let three = match (member, key) {
        ("finalizers", "") => json!(["example.com/a", "example.com/b", "example.com/c"]),
        ("ownerReferences", "uid") => owners(),
        ("containers" | "initContainers", "name") => {
            let name = |n: u8| format!("{}{n}", &member[..1]);
            json!([1, 2, 3].map(|n| json!({"name": name(n), "image": "busybox"})))
        }
        ("env", "name") => json!([{"name": "A", "value": "a"}, {"name": "B", "value": "b"},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        ("ports", "containerPort" | "port") => {
            json!([1, 2, 3].map(|port| json!({"name": format!("p{port}"), key: port})))
        }
        ("volumeMounts", "mountPath") => {
            json!(["/a", "/b", "/c"].map(|path| json!({"name": "a", "mountPath": path})))
        }
        ("volumeDevices", "devicePath") => {
            json!(["d", "e", "f"].map(|name| json!({"name": name, "devicePath": format!("/dev/{name}")})))
        }
        ("hostAliases", "ip") => {
            json!(["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|ip| json!({"ip": ip, "hostnames": ["h"]})))
        }
        ("imagePullSecrets" | "secrets", "name") => named(&["a", "b", "c"]),
        ("schedulingGates", "name") => named(&["example.com/a", "example.com/b", "example.com/c"]),
        ("topologySpreadConstraints", "topologyKey") => json!(["a", "b", "c"].map(
            |key| json!({"topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1})
        )),
        ("resourceClaims", "name") => {
            json!(["a", "b", "c"].map(|name| json!({"name": name, "resourceClaimName": name})))
        }
        // Those that mounts and devices need stay.
        ("volumes", "name") => {
            let claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
            let (empty, map) = (json!({"name": "a", "emptyDir": {}}), json!({"name": "b", "configMap": {"name": "b"}}));
            json!([empty, map, claim("d"), claim("e"), claim("f")])
        }
        ("webhooks", "name") => json!(["a.b.c", "d.e.f", "g.h.i"].map(|name| json!({
            "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://h"},
        }))),
        ("matchConditions" | "variables", "name") => {
            json!(["a", "b", "c"].map(|name| json!({"name": name, "expression": "object == null"})))
        }
        ("drivers", "name") => {
            json!(["a.example.com", "b.example.com", "c.example.com"].map(|name| json!({"name": name, "nodeID": name})))
        }
        ("conditions", "type") => json!(["A", "B", "C"].map(|name| json!({
            "type": name, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z",
        }))),
        ("addresses", "type") => json!([{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "ExternalIP", "address": "10.0.0.2"}]),
        // One of each family.
        ("podIPs" | "hostIPs", "ip") => return (named(&["10.0.0.1", "fd00::1"]), 1),
        ("resourceClaimStatuses", "name") => {
            json!(["a", "b", "c"].map(|name| json!({"name": name, "resourceClaimName": name})))
        }
        _ => panic!("no elements for the list {member} with the key {key:?}"),
    };
    (three, 1)
}

fn owners() -> Value {
    json!(
        ["a", "b", "c"]
            .map(|name| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name}))
    )
}

/// What is made of one kind.
#[derive(Default)]
struct Filled {
    /// Paths of the lists that were filled.
    lists: BTreeSet<String>,
    /// The same object with an element less in each list.
    less: Value,
}

/// Fills every list that is merged, wherever structs lead to it; `value` gets the whole lists, and what comes back the
/// shorter ones. `None` where there is no such list.
fn fill(
    kind: &str,
    schema: &Schema,
    path: &str,
    value: &mut Value,
    lists: &mut BTreeSet<String>,
) -> Option<Value> {
    let Type::Object { properties, .. } = &schema.resolve().ty else { return None };
    let mut less = value.clone();
    let mut found = false;
    for (name, member) in properties.iter() {
        let path = format!("{path}.{name}").trim_start_matches('.').to_owned();
        if FIXED.contains(&(kind, &path)) || name == EPHEMERAL {
            continue;
        }
        let merged = matches!(member.patch, PatchStrategy::Merge | PatchStrategy::MergeRetainKeys);
        let (whole, shorter) = match &member.resolve().ty {
            Type::Array(element) if merged => {
                let (mut whole, gone) = elements(name, member.merge_key.as_deref().unwrap_or_default());
                let items = whole.as_array_mut().unwrap();
                let mut shorter = Vec::new();
                for (index, item) in items.iter_mut().enumerate().filter(|(index, _)| *index != gone) {
                    let inner = fill(kind, element, &format!("{path}[{index}]"), item, lists);
                    shorter.push(inner.unwrap_or_else(|| item.clone()));
                }
                lists.insert(path);
                (whole, Value::from(shorter))
            }
            Type::Object { .. } => {
                // Of what is optional, only what the examples have: most sources of a volume exclude each other.
                let inner = value.get(name).cloned();
                let Some(mut inner) = inner.or_else(|| (name == "metadata").then(|| json!({}))) else {
                    continue;
                };
                let Some(shorter) = fill(kind, member, &path, &mut inner, lists) else { continue };
                (inner, shorter)
            }
            _ => continue,
        };
        found = true;
        value[name] = whole;
        less[name] = shorter;
    }
    found.then_some(less)
}

/// The part of an object that a path leads to; `[n]` in it is the place of an element.
fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split(['.', '[']).fold(object, |value, step| match step.strip_suffix(']') {
        Some(index) => &value[index.parse::<usize>().unwrap()],
        None => &value[step],
    })
}

/// What the elements of a list are told apart by.
fn keys(list: &Value) -> Vec<String> {
    let key = |item: &Value| match item {
        Value::Object(members) => {
            let of = |name: &&str| members.get(*name);
            let names = [
                "uid",
                "containerPort",
                "port",
                "mountPath",
                "devicePath",
                "ip",
                "topologyKey",
                "type",
                "name",
            ];
            names.iter().find_map(of).map_or_else(|| item.to_string(), Value::to_string)
        }
        other => other.to_string(),
    };
    list.as_array().into_iter().flatten().map(key).collect()
}

struct Kubectl {
    program: std::path::PathBuf,
    server: TestServer,
}

impl Kubectl {
    /// Applies objects.
    async fn apply(&self, what: &str, objects: &[&Value], flags: &[&str]) {
        let file = self.server.data_dir().join(format!("{what}.json"));
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        std::fs::write(&file, list.to_string()).unwrap();
        let arguments = [&["apply", "-f", path_text(&file)], flags].concat();
        self.run(what, &arguments).await;
    }

    async fn run(&self, what: &str, arguments: &[&str]) {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("KUBECONFIG", self.server.data_dir().join("admin.kubeconfig"));
        command.env("HOME", self.server.data_dir());
        let output = tokio::task::spawn_blocking(move || command.output().expect("kubectl starts"));
        let output = output.await.expect("kubectl ends");
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// The smallest good object of a kind, with its name.
fn example(kind: &Kind) -> Value {
    let id = format!("{} {}", kind.api_version(), kind.kind);
    let (_, mut object) =
        smallest().into_iter().find(|(name, _)| *name == id).unwrap_or_else(|| panic!("no {id}"));
    object["kind"] = kind.kind.as_str().into();
    object["apiVersion"] = kind.api_version().into();
    if object["metadata"].get("name").is_none() {
        object["metadata"] = json!({"name": "x"});
    }
    if kind.namespaced() {
        object["metadata"]["namespace"] = "default".into();
    }
    object
}

/// The kinds that can be kept as themselves: the other versions and names of a kind are the same objects.
fn kept() -> impl Iterator<Item = &'static Kind> {
    let twice = |kind: &Kind| {
        kind.kind == "HorizontalPodAutoscaler" && kind.version == "v1" || kind.group == "events.k8s.io"
    };
    kinds::all().iter().map(|kind| &**kind).filter(move |kind| kind.verbs == Verbs::All && !twice(kind))
}

/// Without what only the status may have.
fn without_status(schema: &Schema) -> Schema {
    let mut schema = schema.resolve().clone();
    if let Type::Object { properties, .. } = &mut schema.ty {
        let others = properties.iter().filter(|(name, _)| *name != "status");
        *properties = others.map(|(name, member)| (name.into(), member.clone())).collect();
    }
    schema
}

/// What kubectl insists on beside the lists.
fn required_numbers(schema: &Schema) -> Value {
    let Type::Object { properties, .. } = &schema.resolve().ty else { return json!({}) };
    let is_number = |member: &Schema| member.required && matches!(member.resolve().ty, Type::Integer { .. });
    let numbers = properties.iter().filter(|(_, member)| is_number(member));
    Value::Object(numbers.map(|(name, _)| (name.to_string(), 0.into())).collect())
}

/// Where a list is after the second element of each list on the way has gone.
fn moved_up(path: &str) -> String {
    let mut steps = path.split('[').map(|step| match step.split_once(']') {
        Some((index, rest)) => format!("{}]{rest}", index.parse::<usize>().unwrap().saturating_sub(1)),
        None => step.to_owned(),
    });
    let first = steps.next().unwrap_or_default();
    steps.fold(first, |path, step| format!("{path}[{step}"))
}

async fn check_left(kubectl: &Kubectl, all: &[(&Kind, Value, Filled)]) {
    let http = kubectl.server.http();
    let mut wrong = Vec::new();
    for (kind, _, filled) in all {
        let name = api::object::name(&filled.less);
        let now = http.get(&format!("{}/{name}", crate::kinds::collection(kind))).await.expect(200);
        for list in &filled.lists {
            let place = moved_up(list);
            let (mut left, wanted) = (keys(at(&now, &place)), keys(at(&filled.less, &place)));
            // What the server itself puts in stays, whatever others apply.
            left.retain(|key| !key.contains("-protection"));
            if left != wanted {
                wrong.push(format!("{} {list}: {left:?}, not {wanted:?}", kind.kind));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apply_with_one_element_less_removes_exactly_that_one() {
    let Some(program) = testing::kubectl() else {
        println!(
            "skipped: an_apply_with_one_element_less_removes_exactly_that_one: no kubectl 1.30 or newer is installed"
        );
        return;
    };
    let kubectl = Kubectl { program, server: TestServer::start().await };
    let mut all = Vec::new();
    for kind in kept() {
        let mut whole = example(kind);
        let mut lists = BTreeSet::new();
        let less = fill(&kind.kind, &without_status(kind.schema()), "", &mut whole, &mut lists);
        all.push((kind, whole, Filled { lists, less: less.expect("metadata has lists") }));
    }
    // It would have something to say about the others.
    all.sort_by_key(|(kind, ..)| kind.kind == "LimitRange");
    let lists: usize = all.iter().map(|(.., filled)| filled.lists.len()).sum();
    assert!(lists > 250, "only {lists} lists");
    kubectl.apply("whole", &all.iter().map(|(_, whole, _)| whole).collect::<Vec<_>>(), &[]).await;
    kubectl.apply("less", &all.iter().map(|(.., filled)| &filled.less).collect::<Vec<_>>(), &[]).await;
    check_left(&kubectl, &all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_applied_with_one_element_less_loses_exactly_that_one() {
    let Some(program) = testing::kubectl() else {
        println!(
            "skipped: a_status_applied_with_one_element_less_loses_exactly_that_one: no kubectl 1.30 or newer is installed"
        );
        return;
    };
    let kubectl = Kubectl { program, server: TestServer::start().await };
    let mut all = Vec::new();
    for kind in kept().filter(|kind| !is_followed(kind)) {
        let Type::Object { properties, .. } = &kind.schema().resolve().ty else { continue };
        let Some(schema) = properties.get("status") else { continue };
        let (mut status, mut lists) = (required_numbers(schema), BTreeSet::new());
        let Some(less) = fill(&kind.kind, schema, "status", &mut status, &mut lists) else { continue };
        let mut whole = example(kind);
        let (mut status, mut less) = (status, less);
        if kind.kind == "Pod" {
            for address in ["hostIP", "podIP"] {
                status[address] = "10.0.0.1".into();
                less[address] = "10.0.0.1".into();
            }
            whole["spec"]["resourceClaims"] = elements("resourceClaims", "name").0;
        }
        let with = |status: Value| {
            let mut object = Map::new();
            for name in ["kind", "apiVersion"] {
                object.insert(name.to_owned(), whole[name].clone());
            }
            let name =
                json!({"name": whole["metadata"]["name"], "namespace": whole["metadata"]["namespace"]});
            object.insert("metadata".to_owned(), name);
            object.insert("status".to_owned(), status);
            Value::from(object)
        };
        let less = with(less);
        all.push((kind, whole.clone(), with(status), Filled { lists, less }));
    }
    let lists: usize = all.iter().map(|(.., filled)| filled.lists.len()).sum();
    assert!(lists >= 15, "only {lists} lists");
    // Our own kinds must have a spec, which the status does not carry.
    let flags = ["--server-side", "--subresource=status", "--validate=false"];
    kubectl.apply("objects", &all.iter().map(|(_, whole, ..)| whole).collect::<Vec<_>>(), &[]).await;
    kubectl.apply("whole", &all.iter().map(|(_, _, status, _)| status).collect::<Vec<_>>(), &flags).await;
    kubectl.apply("less", &all.iter().map(|(.., filled)| &filled.less).collect::<Vec<_>>(), &flags).await;
    let all: Vec<_> = all.into_iter().map(|(kind, whole, _, filled)| (kind, whole, filled)).collect();
    check_left(&kubectl, &all).await;
}
