//! An apiserver, controllers and a scheduler, each of either kind, on the loopback, with simulated nodes.

use crate::support::{Keys, Process, QUICK_LEASES, Whose, any_controller_manager, peer, upstreams_apiserver};
use crate::work;
use Whose::{Ours, Upstreams};
use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use testing::{EtcdServer, Port, SimulatedNodes, eventually};

/// Nodes that are simulated send no heartbeats.
const CONTROLLERS: &str = "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller";

/// A control plane; its parts end in the order in which they are declared.
struct ControlPlane {
    admin: Client,
    _nodes: SimulatedNodes,
    controllers: Option<Process>,
    _scheduler: Process,
    _apiserver: Process,
    _etcd: Option<EtcdServer>,
    programs: Programs,
    keys: Keys,
    _port: Port,
    folder: TempDir,
}

/// Where programs are, and where they say what they do.
struct Programs {
    peer: PathBuf,
    logs: PathBuf,
    server: String,
}

impl ControlPlane {
    async fn start(peer: PathBuf, apiserver: Whose, controllers: Whose, scheduler: Whose) -> ControlPlane {
        let (folder, port) = (tempfile::tempdir().expect("a folder"), Port::reserve());
        let keys = Keys::make(folder.path(), "127.0.0.1");
        let server = format!("https://127.0.0.1:{}", port.number());
        let programs = Programs { peer, logs: folder.path().to_owned(), server };
        let etcd = (apiserver == Upstreams).then(EtcdServer::start);
        let apiserver = programs.apiserver(folder.path(), etcd.as_ref(), port.number());
        let admin = client(&keys.kubeconfig(&programs.server, "admin", &["system:masters"])).await;
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        eventually("the apiserver serves", || async { namespaces.get("default").await.ok() }).await;
        let nodes = SimulatedNodes::start(&admin, 3, 8).await;
        let controllers = Some(programs.controllers(controllers, folder.path(), &keys));
        let scheduler = programs.scheduler(scheduler, &keys);
        ControlPlane {
            admin,
            _nodes: nodes,
            controllers,
            _scheduler: scheduler,
            _apiserver: apiserver,
            _etcd: etcd,
            programs,
            keys,
            _port: port,
            folder,
        }
    }

    /// Ends the controllers, and lets others take their place.
    fn replace_controllers(&mut self, whose: Whose) {
        self.controllers.take().expect("some run").stop();
        self.controllers = Some(self.programs.controllers(whose, self.folder.path(), &self.keys));
    }
}

impl Programs {
    fn command(&self, whose: Whose, name: &str) -> Command {
        match whose {
            Upstreams => Command::new(self.peer.join(format!("kube-{name}"))),
            Ours => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_minik8s"));
                command.arg(name);
                command
            }
        }
    }

    /// Ours on its own store, upstream's on etcd.
    fn apiserver(&self, folder: &Path, etcd: Option<&EtcdServer>, port: u16) -> Process {
        let folder = folder.to_str().expect("a plain path");
        let command = match etcd {
            Some(etcd) => {
                let mut command = self.command(Upstreams, "apiserver");
                command.args(upstreams_apiserver(folder, &etcd.url(), "127.0.0.1", port));
                command
            }
            None => {
                let mut command = self.command(Ours, "apiserver");
                command.args(["--bind-address=127.0.0.1", "--data-dir", folder]);
                command.args(["--secure-port", &port.to_string()]);
                command
            }
        };
        Process::start("apiserver", command, &self.logs)
    }

    fn controllers(&self, whose: Whose, folder: &Path, keys: &Keys) -> Process {
        let kubeconfig = keys.kubeconfig(&self.server, "system:kube-controller-manager", &[]);
        let kubeconfig = kubeconfig.to_str().expect("a plain path");
        let mut command = self.command(whose, "controller-manager");
        command.args(any_controller_manager(folder.to_str().expect("a plain path"), kubeconfig));
        command.arg(CONTROLLERS).args(QUICK_LEASES).args([
            "--horizontal-pod-autoscaler-sync-period=1s",
            "--horizontal-pod-autoscaler-cpu-initialization-period=1s",
            "--horizontal-pod-autoscaler-initial-readiness-delay=1s",
        ]);
        match whose {
            Upstreams => command.arg("--secure-port=0"),
            Ours => command.arg("--health-port=0"),
        };
        Process::start("controller-manager", command, &self.logs)
    }

    fn scheduler(&self, whose: Whose, keys: &Keys) -> Process {
        let kubeconfig = keys.kubeconfig(&self.server, "system:kube-scheduler", &[]);
        let mut command = self.command(whose, "scheduler");
        command.arg("--kubeconfig").arg(kubeconfig).args(QUICK_LEASES);
        match whose {
            Upstreams => command.arg("--secure-port=0"),
            Ours => command.arg("--health-port=0"),
        };
        Process::start("scheduler", command, &self.logs)
    }
}

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("the kubeconfig")).expect("a client")
}

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_controllers_work_with_our_apiserver() {
    let Some(peer) = peer("upstreams_controllers_work_with_our_apiserver") else { return };
    let control_plane = ControlPlane::start(peer, Ours, Upstreams, Ours).await;
    work::everything(&control_plane.admin).await;
    // What pods use is served by our apiserver itself.
    work::autoscaling(&control_plane.admin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_scheduler_works_with_our_apiserver() {
    let Some(peer) = peer("upstreams_scheduler_works_with_our_apiserver") else { return };
    let control_plane = ControlPlane::start(peer, Ours, Ours, Upstreams).await;
    work::everything(&control_plane.admin).await;
    work::scheduling(&control_plane.admin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn our_controllers_and_scheduler_work_with_upstreams_apiserver() {
    let Some(peer) = peer("our_controllers_and_scheduler_work_with_upstreams_apiserver") else { return };
    let control_plane = ControlPlane::start(peer, Upstreams, Ours, Ours).await;
    work::everything(&control_plane.admin).await;
    work::scheduling(&control_plane.admin).await;
}

/// Whoever takes over finds what the other left as it should be, and replaces nothing.
#[tokio::test(flavor = "multi_thread")]
async fn controllers_take_over_from_each_other_without_a_pod_replaced() {
    let Some(peer) = peer("controllers_take_over_from_each_other_without_a_pod_replaced") else { return };
    let mut control_plane = ControlPlane::start(peer, Ours, Ours, Ours).await;
    let admin = control_plane.admin.clone();
    for (number, whose) in [Upstreams, Ours].into_iter().enumerate() {
        let namespace = format!("before-{number}");
        work::rolled_out(&admin, &namespace).await;
        let before = work::made_for(&admin, &namespace).await;
        control_plane.replace_controllers(whose);
        // By the time it has rolled out something else it has looked at all that was there.
        work::rolled_out(&admin, &format!("after-{number}")).await;
        work::observed_again(&admin, &namespace).await;
        assert_eq!(work::made_for(&admin, &namespace).await, before, "{whose:?} took over");
    }
}
