//! How Deployments, StatefulSets and DaemonSets go from one version to the next, and what holds them up.

use crate::work::{api, create, deployment, patch, pods, template, until, until_pods};
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use testing::{Cluster, Invariants, eventually};

/// A template that no node has room for.
fn too_large(app: &str, image: &str) -> Value {
    let mut template = template(app, image);
    template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100".into();
    template
}

fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref()).unwrap_or_default()
}

fn condition<'a>(deployment: &'a Deployment, ty: &str) -> Option<(&'a str, &'a str)> {
    let mut conditions = deployment.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let found = conditions.find(|condition| condition.type_ == ty)?;
    Some((found.status.as_str(), found.reason.as_deref().unwrap_or_default()))
}

/// How many replicas the ReplicaSets of a Deployment are asked for, by image.
async fn shares(client: &Client, app: &str) -> BTreeMap<String, i32> {
    let params = ListParams::default().labels(&format!("app={app}"));
    let sets = api::<ReplicaSet>(client).list(&params).await.expect("list").items;
    let share = |set: ReplicaSet| {
        let spec = set.spec?;
        let image = spec.template?.spec?.containers[0].image.clone()?;
        Some((image, spec.replicas.unwrap_or(0)))
    };
    sets.into_iter().filter_map(share).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn deployments_wait_resume_scale_in_proportion_and_say_when_they_are_stuck() {
    let cluster = Cluster::start().await;
    let client = &cluster.admin;
    // Upstream's example of proportional scaling: ten replicas, three more and two fewer at most.
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}});
    create::<Deployment>(client, deployment("wide", 10, rolling)).await;
    create::<Deployment>(client, deployment("slow", 2, json!({"type": "RollingUpdate"}))).await;
    let available = |count| {
        move |it: &Deployment| {
            it.status.as_ref().is_some_and(|status| {
                status.available_replicas == Some(count)
                    && status.updated_replicas == Some(count)
                    && status.observed_generation == it.metadata.generation
            })
        }
    };
    until(client, "wide", "ten pods", available(10)).await;
    until(client, "slow", "two pods", available(2)).await;

    // What is changed while paused rolls out when it is resumed, once.
    patch::<Deployment>(client, "slow", json!({"spec": {"paused": true}})).await;
    patch::<Deployment>(client, "slow", json!({"spec": {"template": template("slow", "v2")}})).await;
    patch::<Deployment>(client, "slow", json!({"spec": {"template": template("slow", "v3")}})).await;
    until(client, "slow", "it says that it is paused", |it: &Deployment| {
        condition(it, "Progressing") == Some(("Unknown", "DeploymentPaused"))
            && it.status.as_ref().is_some_and(|status| status.observed_generation == it.metadata.generation)
    })
    .await;
    assert_eq!(shares(client, "slow").await, BTreeMap::from([("v1".into(), 2)]));
    patch::<Deployment>(client, "slow", json!({"spec": {"paused": false}})).await;
    until(client, "slow", "resumed", available(2)).await;
    // Two may be available while one of them is still of the old version.
    eventually("two of the latest, and none of the version between", || async {
        let wanted = BTreeMap::from([("v1".to_owned(), 0), ("v3".to_owned(), 2)]);
        (shares(client, "slow").await == wanted).then_some(())
    })
    .await;

    // A version that cannot run stops at its limits, and more replicas go to both in proportion.
    patch::<Deployment>(client, "wide", json!({"spec": {"template": too_large("wide", "bad")}})).await;
    eventually("eight old and five new", || async {
        let wanted = BTreeMap::from([("v1".to_owned(), 8), ("bad".to_owned(), 5)]);
        (shares(client, "wide").await == wanted).then_some(())
    })
    .await;
    patch::<Deployment>(client, "wide", json!({"spec": {"replicas": 15}})).await;
    eventually("eleven old and seven new", || async {
        let wanted = BTreeMap::from([("v1".to_owned(), 11), ("bad".to_owned(), 7)]);
        (shares(client, "wide").await == wanted).then_some(())
    })
    .await;
    until(client, "wide", "all that was counted", |it: &Deployment| {
        it.status.as_ref().is_some_and(|status| {
            (status.replicas, status.updated_replicas, status.available_replicas)
                == (Some(18), Some(7), Some(11))
        })
    })
    .await;
    // After its deadline it says that it does not get on; a good version makes that good.
    cluster.clock.step(SignedDuration::from_secs(601));
    patch::<Deployment>(client, "wide", json!({"metadata": {"labels": {"looked": "at"}}})).await;
    until(client, "wide", "the deadline is over", |it: &Deployment| {
        condition(it, "Progressing") == Some(("False", "ProgressDeadlineExceeded"))
    })
    .await;
    patch::<Deployment>(client, "wide", json!({"spec": {"template": template("wide", "v1")}})).await;
    until(client, "wide", "undone", available(15)).await;
    until(client, "wide", "and well", |it: &Deployment| {
        condition(it, "Progressing") == Some(("True", "NewReplicaSetAvailable"))
            && condition(it, "Available").is_some_and(|(status, _)| status == "True")
    })
    .await;
    cluster.stop().await;
}

fn set(name: &str, template: Value, more: Value) -> Value {
    let mut set = json!({
        "metadata": {"name": name},
        "spec": {"replicas": 3, "serviceName": name, "selector": {"matchLabels": {"app": name}}, "template": template},
    });
    for (key, value) in more.as_object().expect("fields") {
        set["spec"][key] = value.clone();
    }
    set
}

#[tokio::test(flavor = "multi_thread")]
async fn stateful_sets_start_in_order_or_at_once_and_update_down_to_their_partition() {
    let cluster = Cluster::start().await;
    let client = &cluster.admin;
    // Pods that never run: in order, the second is not begun; at once, all are.
    create::<StatefulSet>(client, set("ordered", too_large("ordered", "v1"), json!({}))).await;
    let parallel = json!({"podManagementPolicy": "Parallel"});
    create::<StatefulSet>(client, set("parallel", too_large("parallel", "v1"), parallel)).await;
    let claims = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Mi"}}}}]);
    let partition = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}});
    create::<StatefulSet>(client, set("db", template("db", "v1"), partition)).await;
    let mut kept = set(
        "kept",
        too_large("kept", "v1"),
        json!({"replicas": 1, "volumeClaimTemplates": claims, "podManagementPolicy": "Parallel"}),
    );
    kept["spec"]["persistentVolumeClaimRetentionPolicy"] =
        json!({"whenDeleted": "Delete", "whenScaled": "Retain"});
    create::<StatefulSet>(client, kept).await;
    until_pods(client, "app=parallel", "all at once", |pods| pods.len() == 3).await;
    until_pods(client, "app=ordered", "the first", |pods| pods.len() == 1).await;
    let settled = |updated: i32| {
        move |set: &StatefulSet| {
            set.status.as_ref().is_some_and(|status| {
                status.observed_generation == set.metadata.generation
                    && status.ready_replicas == Some(3)
                    && status.updated_replicas == Some(updated)
            })
        }
    };
    until(client, "db", "three pods", settled(3)).await;
    assert_eq!(pods(client, "app=ordered").await.len(), 1, "the others wait for the first");

    let images = async || -> Vec<(String, String)> {
        pods(client, "app=db").await.iter().map(|pod| (pod.name_any(), image(pod).to_owned())).collect()
    };
    patch::<StatefulSet>(client, "db", json!({"spec": {"template": template("db", "v2")}})).await;
    until(client, "db", "one is new", settled(1)).await;
    let pairs = |versions: [&str; 3]| -> Vec<(String, String)> {
        versions.iter().enumerate().map(|(at, version)| (format!("db-{at}"), (*version).to_owned())).collect()
    };
    assert_eq!(images().await, pairs(["v1", "v1", "v2"]));
    // An old one that goes comes back old, since it is below the partition.
    api::<Pod>(client).delete("db-0", &Default::default()).await.expect("delete");
    until(client, "db", "replaced", settled(1)).await;
    eventually("the first is back, as it was", || async {
        (images().await == pairs(["v1", "v1", "v2"])).then_some(())
    })
    .await;
    let all =
        json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}}});
    patch::<StatefulSet>(client, "db", all).await;
    until(client, "db", "all are new", |set: &StatefulSet| {
        settled(3)(set)
            && set.status.as_ref().is_some_and(|status| status.current_revision == status.update_revision)
    })
    .await;
    assert_eq!(images().await, pairs(["v2", "v2", "v2"]));

    // Claims are made, kept while the set is there, and go with it as its policy says.
    let volumes = api::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(client);
    eventually("a claim that belongs to its set", || async {
        let claim = volumes.get_opt("data-kept-0").await.expect("get")?;
        (!claim.owner_references().is_empty()).then_some(())
    })
    .await;
    api::<StatefulSet>(client).delete("kept", &Default::default()).await.expect("delete");
    eventually("the claim goes with it", || async {
        let claim = volumes.get_opt("data-kept-0").await.expect("get");
        claim.is_none_or(|claim| claim.metadata.deletion_timestamp.is_some()).then_some(())
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_sets_surge_and_follow_the_labels_of_nodes() {
    let cluster = Cluster::start().await;
    let client = &cluster.admin;
    let spec = |app: &str, more: Value| {
        let mut spec = json!({"selector": {"matchLabels": {"app": app}}, "template": template(app, "v1")});
        for (key, value) in more.as_object().expect("fields") {
            spec[key] = value.clone();
        }
        json!({"metadata": {"name": app}, "spec": spec})
    };
    let surging = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}});
    create::<DaemonSet>(client, spec("surging", surging)).await;
    let mut some = spec("some", json!({"updateStrategy": {"type": "OnDelete"}}));
    some["spec"]["template"]["spec"]["nodeSelector"] = json!({"disk": "fast"});
    create::<DaemonSet>(client, some).await;
    let ready = |count: i32| {
        move |set: &DaemonSet| {
            set.status.as_ref().is_some_and(|status| {
                status.number_available.unwrap_or(0) == count
                    && status.updated_number_scheduled.unwrap_or(0) == count
                    && status.desired_number_scheduled == count
                    && status.observed_generation == set.metadata.generation
            })
        }
    };
    until(client, "surging", "one on every node", ready(3)).await;
    until(client, "some", "none", ready(0)).await;
    // With surge there is one on every node at all times, and never a third.
    let invariants = Invariants::watch(client.clone()).await;
    invariants.never_fewer_ready_than(("app", "surging"), 3);
    invariants.never_more_on_a_node_than(("app", "surging"), 2);
    patch::<DaemonSet>(client, "surging", json!({"spec": {"template": template("surging", "v2")}})).await;
    until(client, "surging", "updated", ready(3)).await;
    until_pods(client, "app=surging", "only new pods", |pods| {
        pods.len() == 3 && pods.iter().all(|pod| image(pod) == "v2")
    })
    .await;
    invariants.hold();

    let nodes: Api<Node> = Api::all(client.clone());
    let label = async |value: Value| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"disk": value}}}));
        nodes.patch("node-1", &PatchParams::default(), &patch).await.expect("label the node");
    };
    label("fast".into()).await;
    until(client, "some", "one on the node that fits now", ready(1)).await;
    // On delete: a new version waits until somebody deletes the old pod.
    patch::<DaemonSet>(
        client,
        "some",
        json!({"spec": {"template": {"spec": template("some", "v2")["spec"]}}}),
    )
    .await;
    until(client, "some", "it knows of the new version", |set: &DaemonSet| {
        set.status.as_ref().is_some_and(|status| {
            status.observed_generation == set.metadata.generation
                && status.updated_number_scheduled.unwrap_or(0) == 0
        })
    })
    .await;
    let old = pods(client, "app=some").await;
    assert_eq!((old.len(), image(&old[0])), (1, "v1"));
    api::<Pod>(client).delete(&old[0].name_any(), &Default::default()).await.expect("delete");
    until_pods(client, "app=some", "the new version", |pods| pods.len() == 1 && image(&pods[0]) == "v2")
        .await;
    label(Value::Null).await;
    until_pods(client, "app=some", "none, since no node fits", <[Pod]>::is_empty).await;
    cluster.stop().await;
}
