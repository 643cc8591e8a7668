//! What the tests ask for, and how they wait for it.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use testing::eventually;

/// Objects of a kind in the default namespace.
pub fn api<K>(client: &Client) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), "default")
}

/// Creates an object.
pub async fn create<K>(client: &Client, object: Value) -> K
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let object: K = serde_json::from_value(object).expect("an object");
    api::<K>(client).create(&PostParams::default(), &object).await.expect("create")
}

/// Changes an object by a merge patch. A server that is slow or cut off is asked again.
pub async fn patch<K>(client: &Client, name: &str, patch: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let patched = api::<K>(client).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    patched.expect("patch");
}

/// Waits until an object is as wanted.
pub async fn until<K>(client: &Client, name: &str, what: &str, is: impl Fn(&K) -> bool) -> K
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let (objects, last) = (api::<K>(client), std::sync::Mutex::new(String::new()));
    let found = eventually(what, || async {
        let found = objects.get_opt(name).await.expect("get");
        *last.lock().expect("no panics") = format!("{found:#?}");
        found.filter(|object| is(object))
    });
    found.await
}

/// The pods with a label.
pub async fn pods(client: &Client, label: &str) -> Vec<Pod> {
    api::<Pod>(client).list(&ListParams::default().labels(label)).await.expect("list").items
}

/// Waits until the pods with a label are as wanted.
pub async fn until_pods(client: &Client, label: &str, what: &str, are: impl Fn(&[Pod]) -> bool) -> Vec<Pod> {
    eventually(what, || async {
        let pods = pods(client, label).await;
        are(&pods).then_some(pods)
    })
    .await
}

/// A template with a label and an image; every pod asks for a tenth of a CPU.
pub fn template(app: &str, image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": image, "resources": {"requests": {"cpu": "100m"}}}],
        },
    })
}

/// A Deployment.
pub fn deployment(name: &str, replicas: usize, strategy: Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name, "v1"),
            "strategy": strategy,
        },
    })
}

/// A Job of pods that end as the annotations say.
pub fn job(name: &str, spec: Value, annotations: Value) -> Value {
    let mut template = template(name, "v1");
    template["metadata"]["annotations"] = annotations;
    template["spec"]["restartPolicy"] = "Never".into();
    let mut job = json!({"metadata": {"name": name}, "spec": {"template": template}});
    for (key, value) in spec.as_object().expect("fields") {
        job["spec"][key] = value.clone();
    }
    job
}
