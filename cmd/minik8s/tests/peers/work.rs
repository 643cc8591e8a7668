//! What a cluster is asked to do, and how it is seen that it has.

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Namespace, Pod, ResourceQuota, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Debug;
use testing::eventually;

/// Objects that live in namespaces.
trait Namespaced:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + serde::Serialize
    + serde::de::DeserializeOwned
{
}
impl<K> Namespaced for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + serde::Serialize
        + serde::de::DeserializeOwned
{
}

/// One namespace of a cluster.
struct Place {
    client: Client,
    namespace: String,
}

impl Place {
    /// A new one.
    async fn make(client: &Client, namespace: &str) -> Place {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let wanted = serde_json::from_value(json!({"metadata": {"name": namespace}})).expect("a namespace");
        namespaces.create(&PostParams::default(), &wanted).await.expect("create the namespace");
        Place { client: client.clone(), namespace: namespace.to_owned() }
    }

    fn api<K: Namespaced>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates an object; tried again while the namespace's own account is not there yet.
    async fn create<K: Namespaced>(&self, name: &str, spec: Value) {
        let wanted: K =
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("an object");
        let objects = self.api::<K>();
        eventually(&format!("{name} is created"), || async {
            objects.create(&PostParams::default(), &wanted).await.ok()
        })
        .await;
    }

    async fn patch<K: Namespaced>(&self, name: &str, patch: Value) {
        let patched = self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.expect("patch");
    }

    async fn until<K: Namespaced>(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let objects = self.api::<K>();
        eventually(&format!("{name}: {what}"), || async {
            let found = objects.get_opt(name).await.expect("get")?;
            let found = serde_json::to_value(found).expect("JSON");
            is(&found).then_some(found)
        })
        .await
    }

    async fn list<K: Namespaced>(&self, label: &str) -> Vec<K> {
        self.api::<K>().list(&ListParams::default().labels(label)).await.expect("list").items
    }

    async fn until_gone<K: Namespaced>(&self, label: &str) {
        eventually(&format!("nothing is left with {label}"), || async {
            self.list::<K>(label).await.is_empty().then_some(())
        })
        .await;
    }
}

/// Every workload, from its beginning to its end.
pub async fn everything(client: &Client) {
    let place = Place::make(client, "work").await;
    // It has a minute while the others are tried.
    let job = json!({"spec": {"template": template("tick", "v1", "Never")}});
    place.create::<CronJob>("tick", json!({"schedule": "* * * * *", "jobTemplate": job})).await;
    tokio::join!(deployments(&place), sets(&place), jobs(&place), quotas(client));
    garbage(&place).await;
    let ran = |cron: &Value| cron["status"]["lastScheduleTime"].is_string();
    place.until::<CronJob>("tick", "it has ticked", ran).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.delete("work", &DeleteParams::default()).await.expect("delete the namespace");
    eventually("the namespace is gone", || async {
        namespaces.get_opt("work").await.expect("get").is_none().then_some(())
    })
    .await;
}

async fn deployments(place: &Place) {
    place.create::<Deployment>("web", workload("web", 3)).await;
    place.until::<Deployment>("web", "version 1", rolled_to("1")).await;
    place.create::<Service>("web", json!({"selector": {"app": "web"}, "ports": [{"port": 80}]})).await;
    place.patch::<Deployment>("web", image("web", "v2")).await;
    place.until::<Deployment>("web", "version 2", rolled_to("2")).await;
    // As `kubectl rollout undo` does.
    place.patch::<Deployment>("web", image("web", "v1")).await;
    place.until::<Deployment>("web", "version 1 again", rolled_to("3")).await;
    assert_eq!(place.list::<ReplicaSet>("app=web").await.len(), 2, "the first one was used again");
    eventually("the endpoints are the pods", || async {
        let pods = place.list::<Pod>("app=web").await;
        let pods: BTreeSet<String> = pods.into_iter().filter_map(|pod| pod.status?.pod_ip).collect();
        let slices = place.list::<EndpointSlice>("kubernetes.io/service-name=web").await;
        let endpoints = slices.into_iter().flat_map(|slice| slice.endpoints);
        let ready = endpoints.filter(|endpoint| {
            endpoint.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(true))
        });
        let ready: BTreeSet<String> = ready.flat_map(|endpoint| endpoint.addresses).collect();
        (pods.len() == 3 && ready == pods).then_some(())
    })
    .await;
}

async fn sets(place: &Place) {
    let mut ordered = workload("db", 2);
    ordered["serviceName"] = "db".into();
    place.create::<StatefulSet>("db", ordered).await;
    place.patch::<StatefulSet>("db", json!({"spec": {"replicas": 3}})).await;
    let ready = |set: &Value| set["status"]["readyReplicas"] == 3;
    place.until::<StatefulSet>("db", "three are ready", ready).await;
    let names = |pods: Vec<Pod>| pods.iter().map(ResourceExt::name_any).collect::<BTreeSet<_>>();
    let pods = names(place.list::<Pod>("app=db").await);
    assert_eq!(pods, ["db-0", "db-1", "db-2"].map(str::to_owned).into());
    let mut everywhere = workload("agent", 0);
    everywhere.as_object_mut().expect("fields").remove("replicas");
    place.create::<DaemonSet>("agent", everywhere).await;
    let available = |set: &Value| set["status"]["numberAvailable"] == 3;
    place.until::<DaemonSet>("agent", "one on each node", available).await;
    let pods = place.list::<Pod>("app=agent").await;
    let nodes: BTreeSet<_> = pods.into_iter().filter_map(|pod| pod.spec?.node_name).collect();
    assert_eq!(nodes.len(), 3, "{nodes:?}");
}

async fn jobs(place: &Place) {
    let spec = json!({"completions": 3, "parallelism": 2, "completionMode": "Indexed",
        "template": template("once", "v1", "Never")});
    place.create::<Job>("once", spec).await;
    let job = place.until::<Job>("once", "it is complete", |job| is_true(job, "Complete")).await;
    assert_eq!((&job["status"]["succeeded"], &job["status"]["completedIndexes"]), (&json!(3), &json!("0-2")));
    let mut failing = template("fails", "v1", "Never");
    failing["metadata"]["annotations"] = json!({"sim/exit": "7"});
    place.create::<Job>("fails", json!({"backoffLimit": 0, "template": failing})).await;
    let job = place.until::<Job>("fails", "it has failed", |job| is_true(job, "Failed")).await;
    let conditions = job["status"]["conditions"].as_array().expect("conditions").clone();
    let failed = conditions.into_iter().find(|condition| condition["type"] == "Failed");
    assert_eq!(failed.expect("looked for above")["reason"], "BackoffLimitExceeded");
}

async fn quotas(client: &Client) {
    let place = Place::make(client, "little").await;
    place.create::<ResourceQuota>("little", json!({"hard": {"pods": "2"}})).await;
    let counted = |quota: &Value| quota["status"]["hard"]["pods"] == "2";
    place.until::<ResourceQuota>("little", "it is counted", counted).await;
    place.create::<Deployment>("web", workload("web", 3)).await;
    let refused = |it: &Value| it["status"]["replicas"] == 2 && is_true(it, "ReplicaFailure");
    place.until::<Deployment>("web", "the third is refused", refused).await;
    let used = |quota: &Value| quota["status"]["used"]["pods"] == "2";
    place.until::<ResourceQuota>("little", "it is used up", used).await;
}

async fn garbage(place: &Place) {
    let deployments = place.api::<Deployment>();
    for (name, options) in [
        ("kept", DeleteParams::orphan()),
        ("first", DeleteParams::foreground()),
        ("later", DeleteParams::background()),
    ] {
        place.create::<Deployment>(name, workload(name, 1)).await;
        place.until::<Deployment>(name, "version 1", rolled_to("1")).await;
        deployments.delete(name, &options).await.expect("delete");
        place.until_gone::<Deployment>(&format!("app={name}")).await;
        eventually(&format!("{name} is gone"), || async {
            deployments.get_opt(name).await.expect("get").is_none().then_some(())
        })
        .await;
    }
    for name in ["first", "later"] {
        place.until_gone::<ReplicaSet>(&format!("app={name}")).await;
        place.until_gone::<Pod>(&format!("app={name}")).await;
    }
    let kept = place.list::<ReplicaSet>("app=kept").await;
    assert_eq!(kept.len(), 1);
    eventually("what is kept has no owner", || async {
        let kept = place.list::<ReplicaSet>("app=kept").await;
        kept[0].owner_references().is_empty().then_some(())
    })
    .await;
    assert_eq!(place.list::<Pod>("app=kept").await.len(), 1);
}

/// An autoscaler follows what pods use.
pub async fn autoscaling(client: &Client) {
    let place = Place::make(client, "busy").await;
    let mut busy = workload("busy", 1);
    busy["template"]["metadata"]["annotations"] = json!({"sim/cpu": "200"});
    place.create::<Deployment>("busy", busy).await;
    let half = json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "busy"});
    let spec = json!({"scaleTargetRef": target, "maxReplicas": 3, "metrics": [half]});
    place.create::<HorizontalPodAutoscaler>("busy", spec).await;
    place
        .until::<Deployment>("busy", "as many as there may be", |it| it["status"]["readyReplicas"] == 3)
        .await;
}

/// A scheduler says why a pod has no place, and makes room for one that is more important.
pub async fn scheduling(client: &Client) {
    let place = Place::make(client, "tight").await;
    let pod = |cpus: usize, priority: &str| {
        json!({"terminationGracePeriodSeconds": 0, "priorityClassName": priority,
            "containers": [{"name": "c", "image": "v1", "resources": {"requests": {"cpu": cpus.to_string()}}}]})
    };
    place.create::<Pod>("large", pod(9, "")).await;
    let large =
        place.until::<Pod>("large", "it has no place", |pod| condition(pod, "PodScheduled").is_some()).await;
    let said = condition(&large, "PodScheduled").expect("looked for above");
    assert_eq!((&said["status"], &said["reason"]), (&json!("False"), &json!("Unschedulable")));
    let message = said["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("0/3 nodes are available: 3 Insufficient cpu. "), "{message}");
    for number in 0..3 {
        place.create::<Pod>(&format!("low-{number}"), pod(5, "")).await;
        place
            .until::<Pod>(&format!("low-{number}"), "it runs", |pod| pod["status"]["phase"] == "Running")
            .await;
    }
    place.create::<Pod>("high", pod(5, "system-cluster-critical")).await;
    place.until::<Pod>("high", "it runs", |pod| pod["status"]["phase"] == "Running").await;
    let pods = place.list::<Pod>("").await;
    let low = pods.iter().filter(|pod| pod.name_any().starts_with("low-")).count();
    assert_eq!(low, 2, "one made room");
}

/// Rolls out one of each workload twice, in a new namespace.
pub async fn rolled_out(client: &Client, namespace: &str) {
    let place = Place::make(client, namespace).await;
    let mut ordered = workload("db", 2);
    ordered["serviceName"] = "db".into();
    let mut everywhere = workload("agent", 0);
    everywhere.as_object_mut().expect("fields").remove("replicas");
    place.create::<Deployment>("web", workload("web", 2)).await;
    place.create::<StatefulSet>("db", ordered).await;
    place.create::<DaemonSet>("agent", everywhere).await;
    place.until::<Deployment>("web", "version 1", rolled_to("1")).await;
    place
        .until::<StatefulSet>("db", "version 1", |it| is_seen(it) && it["status"]["readyReplicas"] == 2)
        .await;
    place
        .until::<DaemonSet>("agent", "version 1", |it| is_seen(it) && it["status"]["numberAvailable"] == 3)
        .await;
    place.patch::<Deployment>("web", image("web", "v2")).await;
    place.patch::<StatefulSet>("db", image("db", "v2")).await;
    place.patch::<DaemonSet>("agent", image("agent", "v2")).await;
    place.until::<Deployment>("web", "version 2", rolled_to("2")).await;
    place
        .until::<StatefulSet>("db", "version 2", |it| {
            let status = &it["status"];
            is_seen(it)
                && status["updateRevision"] == status["currentRevision"]
                && (&status["updatedReplicas"], &status["readyReplicas"]) == (&json!(2), &json!(2))
        })
        .await;
    place
        .until::<DaemonSet>("agent", "version 2", |it| {
            let status = &it["status"];
            is_seen(it)
                && (&status["updatedNumberScheduled"], &status["numberAvailable"]) == (&json!(3), &json!(3))
        })
        .await;
}

/// Waits until whoever controls the workloads of a namespace has looked at each of them again.
pub async fn observed_again(client: &Client, namespace: &str) {
    let place = Place { client: client.clone(), namespace: namespace.to_owned() };
    // What is not of a template is seen, and changes nothing.
    place.patch::<Deployment>("web", json!({"spec": {"minReadySeconds": 1}})).await;
    place.patch::<StatefulSet>("db", json!({"spec": {"minReadySeconds": 1}})).await;
    place.patch::<DaemonSet>("agent", json!({"spec": {"minReadySeconds": 1}})).await;
    place
        .until::<Deployment>("web", "it is seen", |it| is_seen(it) && it["status"]["availableReplicas"] == 2)
        .await;
    place
        .until::<StatefulSet>("db", "it is seen", |it| is_seen(it) && it["status"]["availableReplicas"] == 2)
        .await;
    place
        .until::<DaemonSet>("agent", "it is seen", |it| is_seen(it) && it["status"]["numberAvailable"] == 3)
        .await;
}

/// The names of what was made for the workloads of a namespace.
pub async fn made_for(client: &Client, namespace: &str) -> BTreeSet<String> {
    let place = Place { client: client.clone(), namespace: namespace.to_owned() };
    let pods = place.list::<Pod>("").await.into_iter().map(|pod| format!("pod {}", pod.name_any()));
    let sets = place.list::<ReplicaSet>("").await.into_iter().map(|set| format!("set {}", set.name_any()));
    let revisions = place.list::<ControllerRevision>("").await;
    let revisions = revisions.into_iter().map(|it| format!("revision {} {}", it.name_any(), it.revision));
    pods.chain(sets).chain(revisions).collect()
}

fn template(app: &str, image: &str, restart: &str) -> Value {
    let container = json!({"name": "c", "image": image, "resources": {"requests": {"cpu": "100m"}}});
    json!({"metadata": {"labels": {"app": app}}, "spec": {
        "terminationGracePeriodSeconds": 1, "restartPolicy": restart, "containers": [container]}})
}

fn workload(app: &str, replicas: usize) -> Value {
    json!({"replicas": replicas, "selector": {"matchLabels": {"app": app}}, "template": template(app, "v1", "Always")})
}

fn image(app: &str, image: &str) -> Value {
    json!({"spec": {"template": template(app, image, "Always")}})
}

fn condition(object: &Value, ty: &str) -> Option<Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == ty).cloned()
}

fn is_true(object: &Value, ty: &str) -> bool {
    condition(object, ty).is_some_and(|condition| condition["status"] == "True")
}

fn is_seen(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

/// Whether a Deployment has all its pods of a revision, and no others.
fn rolled_to(revision: &str) -> impl Fn(&Value) -> bool {
    move |it| {
        let (status, wanted) = (&it["status"], &it["spec"]["replicas"]);
        is_seen(it)
            && it["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == *revision
            && ["replicas", "updatedReplicas", "availableReplicas"]
                .iter()
                .all(|name| status[*name] == *wanted)
    }
}
