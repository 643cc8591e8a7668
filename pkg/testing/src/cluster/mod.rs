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
mod usage;

pub use invariants::Invariants;
pub use proxy::Proxy;

use crate::{TestServer, eventually};
use client::LeaderConfig;
use component::Component;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use kubelets::Kubelets;
use serde_json::json;
use std::time::Duration;
use usage::Usage;

/// How to start a cluster.
pub struct ClusterConfig {
    /// How many nodes there are.
    pub nodes: usize,
    /// How many CPUs each has.
    pub cpus: usize,
    /// Which controllers run, as `--controllers` says it.
    pub controllers: Vec<String>,
    /// How the controllers run otherwise than by default.
    pub configure: fn(&mut controllers::Config),
    /// How the scheduler runs otherwise than by default.
    pub place: fn(&mut scheduler::Config),
}

impl Default for ClusterConfig {
    fn default() -> Self {
        // Simulated nodes send no heartbeats.
        let controllers = ["*", "-node-lifecycle-controller", "-taint-eviction-controller"];
        ClusterConfig {
            nodes: 3,
            cpus: 8,
            controllers: controllers.map(str::to_owned).to_vec(),
            configure: |_| {},
            place: |_| {},
        }
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
    nodes: SimulatedNodes,
    /// Other replicas of controllers and scheduler.
    twins: Vec<Component>,
}

/// Nodes that only pretend to run containers, of whatever cluster the client is of; gone when dropped.
pub struct SimulatedNodes {
    kubelets: Kubelets,
    _usage: Usage,
}

impl SimulatedNodes {
    /// So many nodes with so many CPUs each; when this returns they are there. The client may do everything.
    pub async fn start(admin: &Client, nodes: usize, cpus: usize) -> SimulatedNodes {
        let usage = Usage::start(admin.clone()).await;
        make_nodes(admin, nodes, cpus, usage.port).await;
        let mut kubelets = Kubelets::start(admin.clone());
        if nodes == 0 {
            // They would run the pods of whatever other node there is.
            kubelets.stop().await;
        }
        SimulatedNodes { kubelets, _usage: usage }
    }
}

/// How long a replica that was killed keeps its lease.
const LEASE: Duration = Duration::from_secs(2);
const RENEW: Duration = Duration::from_millis(1500);
const RETRY: Duration = Duration::from_millis(100);

impl Cluster {
    /// A cluster of three nodes with all controllers.
    pub async fn start() -> Cluster {
        Self::start_with(ClusterConfig::default()).await
    }

    /// A cluster; when this returns its nodes are there.
    pub async fn start_with(config: ClusterConfig) -> Cluster {
        let server = TestServer::start().await;
        let admin = server.admin();
        let nodes = SimulatedNodes::start(&admin, config.nodes, config.cpus).await;
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        eventually("the default namespace", || async { namespaces.get_opt("default").await.ok().flatten() })
            .await;
        let proxy = Proxy::start(server.address()).await;
        let mut manager = controllers::Config {
            kubeconfig: Some(server.kubeconfig(proxy.address(), "system:kube-controller-manager", &[])),
            controllers: config.controllers,
            ..controllers::Config::default()
        };
        lead_quickly(&mut manager.leader);
        (config.configure)(&mut manager);
        let (clock, metrics) = (manager.clock.clone(), manager.metrics.clone());
        let mut placing = scheduler::Config {
            kubeconfig: Some(server.kubeconfig(proxy.address(), "system:kube-scheduler", &[])),
            ..scheduler::Config::default()
        };
        lead_quickly(&mut placing.leader);
        (config.place)(&mut placing);
        let controllers = Component::start("controllers", move |shutdown| {
            let config = manager.clone();
            async move { controllers::run(config, shutdown).await.map_err(|error| error.to_string()) }
        });
        let scheduler = Component::start("scheduler", move |shutdown| {
            let config = placing.clone();
            async move { scheduler::run(config, shutdown).await.map_err(|error| error.to_string()) }
        });
        let twins = Vec::new();
        Cluster { server, proxy, admin, clock, metrics, controllers, scheduler, nodes, twins }
    }

    /// Another replica of the controllers and of the scheduler, which wait for their leases.
    pub fn start_twins(&mut self) {
        self.twins.extend([self.controllers.twin(), self.scheduler.twin()]);
    }

    /// Ends the first replica of the controllers and of the scheduler as SIGKILL does.
    pub async fn kill_first(&mut self) {
        self.controllers.kill().await;
        self.scheduler.kill().await;
    }

    /// Kills the controllers, and starts them again.
    pub async fn crash_controllers(&mut self) {
        self.controllers.kill().await;
        self.controllers.run();
    }

    /// Kills the scheduler, and starts it again.
    pub async fn crash_scheduler(&mut self) {
        self.scheduler.kill().await;
        self.scheduler.run();
    }

    /// Ends the apiserver, and starts it again where it was.
    pub async fn restart_server(&mut self) {
        self.server.restart().await;
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
        self.nodes.kubelets.restart().await;
    }

    /// Ends everything in order.
    pub async fn stop(mut self) {
        self.controllers.stop().await;
        self.scheduler.stop().await;
        for twin in &mut self.twins {
            twin.stop().await;
        }
        self.nodes.kubelets.stop().await;
        self.proxy.stop();
        self.server.stop().await;
    }
}

fn lead_quickly(config: &mut LeaderConfig) {
    (config.lease_duration, config.renew_deadline, config.retry_period) = (LEASE, RENEW, RETRY);
}

async fn make_nodes(admin: &Client, count: usize, cpus: usize, port: u16) {
    let nodes: Api<Node> = Api::all(admin.clone());
    for number in 0..count {
        let made = nodes.create(&PostParams::default(), &node(number, cpus, port)).await;
        let name = made.expect("create a node").metadata.name.expect("a name");
        // Nobody here sees that it is ready and takes the taint off that a new node has.
        let ready = Patch::Merge(json!({"spec": {"taints": null}}));
        nodes.patch(&name, &PatchParams::default(), &ready).await.expect("make the node ready");
    }
}

fn node(number: usize, cpus: usize, port: u16) -> Node {
    let capacity = json!({"cpu": cpus.to_string(), "memory": "32Gi", "pods": "250"});
    let name = format!("node-{number}");
    let node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": capacity, "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        },
    });
    serde_json::from_value(node).expect("a node")
}
