//! A whole cluster in this process: a real apiserver, the real controllers and scheduler, and nodes that only pretend to
//! run containers.
//!
//! ```text
//! TestServer <── Proxy (slows, cuts) <── controllers, scheduler      as the users that they are, with RBAC
//!      ^──────────────────────────────── Kubelets, Invariants, the test itself
//! ```

mod component;
mod invariants;
mod kubelets;
mod proxy;

pub use invariants::Invariants;
pub use proxy::Proxy;

use crate::{TestServer, eventually};
use component::Component;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use kubelets::Kubelets;
use serde_json::json;
use std::time::Duration;

/// How to start a cluster.
pub struct ClusterConfig {
    /// How many nodes there are.
    pub nodes: usize,
    /// How many CPUs each has.
    pub cpus: usize,
    /// Which controllers run, as `--controllers` says it.
    pub controllers: Vec<String>,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        // Simulated nodes send no heartbeats.
        let controllers = ["*", "-node-lifecycle-controller", "-taint-eviction-controller"];
        ClusterConfig { nodes: 3, cpus: 8, controllers: controllers.map(str::to_owned).to_vec() }
    }
}

/// A running cluster; gone when dropped.
pub struct Cluster {
    /// The apiserver.
    pub server: TestServer,
    /// What is between the apiserver and the components.
    pub proxy: Proxy,
    /// May do everything.
    pub admin: Client,
    /// What time the controllers think it is.
    pub clock: controllers::runtime::Clock,
    /// What the controllers did.
    pub metrics: controllers::Metrics,
    controllers: Component,
    scheduler: Component,
    kubelets: Kubelets,
}

impl Cluster {
    /// A cluster of three nodes with all controllers.
    pub async fn start() -> Cluster {
        Self::start_with(ClusterConfig::default()).await
    }

    /// A cluster; when this returns its nodes are there.
    pub async fn start_with(config: ClusterConfig) -> Cluster {
        let server = TestServer::start().await;
        let admin = server.admin();
        let nodes: Api<Node> = Api::all(admin.clone());
        for number in 0..config.nodes {
            let made = nodes.create(&PostParams::default(), &node(number, config.cpus)).await;
            let name = made.expect("create a node").metadata.name.expect("a name");
            // Nobody here sees that it is ready and takes the taint off that a new node has.
            let ready = Patch::Merge(json!({"spec": {"taints": null}}));
            nodes.patch(&name, &PatchParams::default(), &ready).await.expect("make the node ready");
        }
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        eventually("the default namespace", || async { namespaces.get_opt("default").await.ok().flatten() })
            .await;
        let proxy = Proxy::start(server.address()).await;
        let manager = controllers::Config {
            kubeconfig: Some(server.kubeconfig(proxy.address(), "system:kube-controller-manager", &[])),
            controllers: config.controllers,
            lease_duration: Duration::from_secs(3),
            renew_deadline: Duration::from_secs(2),
            retry_period: Duration::from_millis(200),
            ..controllers::Config::default()
        };
        let (clock, metrics) = (manager.clock.clone(), manager.metrics.clone());
        let placing = scheduler::Config {
            kubeconfig: Some(server.kubeconfig(proxy.address(), "system:kube-scheduler", &[])),
            lease_duration: Duration::from_secs(3),
            renew_deadline: Duration::from_secs(2),
            retry_period: Duration::from_millis(200),
            ..scheduler::Config::default()
        };
        let kubelets = Kubelets::start(admin.clone());
        let controllers = Component::start("controllers", move |shutdown| {
            let config = manager.clone();
            async move { controllers::run(config, shutdown).await.map_err(|error| error.to_string()) }
        });
        let scheduler = Component::start("scheduler", move |shutdown| {
            let config = placing.clone();
            async move { scheduler::run(config, shutdown).await.map_err(|error| error.to_string()) }
        });
        Cluster { server, proxy, admin, clock, metrics, controllers, scheduler, kubelets }
    }

    /// Ends the controllers as SIGTERM does, and starts them again.
    pub async fn restart_controllers(&mut self) {
        self.controllers.stop().await;
        self.controllers.run();
    }

    /// Ends the scheduler as SIGTERM does, and starts it again.
    pub async fn restart_scheduler(&mut self) {
        self.scheduler.stop().await;
        self.scheduler.run();
    }

    /// Ends the nodes' kubelets and starts them again.
    pub async fn restart_kubelets(&mut self) {
        self.kubelets.restart().await;
    }

    /// Ends everything in order.
    pub async fn stop(mut self) {
        self.controllers.stop().await;
        self.scheduler.stop().await;
        self.kubelets.stop().await;
        self.proxy.stop();
        self.server.stop().await;
    }
}

fn node(number: usize, cpus: usize) -> Node {
    let capacity = json!({"cpu": cpus.to_string(), "memory": "32Gi", "pods": "250"});
    let node = json!({
        "metadata": {"name": format!("node-{number}"), "labels": {"kubernetes.io/hostname": format!("node-{number}")}},
        "status": {
            "capacity": capacity, "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    });
    serde_json::from_value(node).expect("a node")
}
