//! containerd without a kubelet: the same calls (pause, one container, one shim per pod) without an apiserver, a network or
//! volumes. Nothing on this machine can be faster.

use crate::FOREVER;
use futures::future::join_all;
use kubelet::runtime::containerd::{Config, Containerd};
use kubelet::runtime::{ContainerSpec, ImageId, PodRef, Resources, Runtime, SandboxId, SandboxSpec};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Makes an image of this name, as a file in the folder.
pub fn image(name: &str, folder: &Path) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images/build");
    let archive = folder.join(format!("{name}.tar"));
    let made = Command::new(script).arg(name).arg(&archive).status().expect("images/build");
    assert!(made.success(), "images/build {name}");
    archive
}

/// containerd without a kubelet.
pub struct Alone {
    runtime: Containerd,
    image: ImageId,
    cgroup: String,
    logs: PathBuf,
}

impl Alone {
    /// With our own shim, if one is given, else with runc.
    pub async fn new(containerd: &testing::Containerd, shim: Option<&Path>) -> Alone {
        let name = if shim.is_some() { "alone-shim" } else { "alone" };
        let config = Config {
            socket: containerd.socket(),
            namespace: name.to_owned(),
            root_dir: containerd.dir().join(name),
            state_dir: containerd.dir().join(format!("{name}-run")),
            ..Config::default()
        };
        let config = match shim {
            Some(program) => config.with_shim(program),
            None => config,
        };
        let runtime = Containerd::new(config).expect("a runtime");
        let image = runtime.import(&image("busybox", containerd.dir())).await.expect("busybox").remove(0).id;
        let logs = containerd.dir().join(format!("{name}-logs"));
        Alone { runtime, image, cgroup: format!("{}/{name}", containerd.cgroup()), logs }
    }

    pub async fn start(&self, names: &[String]) -> f64 {
        let began = Instant::now();
        join_all(names.iter().map(|name| async move {
            let pod = PodRef { namespace: "default".into(), name: name.clone(), uid: name.clone() };
            let cgroup_parent = format!("{}/pod{name}", self.cgroup);
            // As the kubelet has it for BestEffort: next to no share of the processors.
            let resources = Resources { cpu_shares: 2, ..Resources::default() };
            let sandbox = SandboxSpec {
                hostname: name.clone(),
                cgroup_parent,
                resources: resources.clone(),
                ..SandboxSpec::default()
            };
            let sandbox = self.runtime.start_sandbox(&pod, &sandbox).await.expect("a sandbox").id;
            let spec = ContainerSpec {
                name: "c".into(),
                image: self.image.clone(),
                command: ["sh", "-c", FOREVER].map(str::to_owned).into(),
                log_path: self.logs.join(format!("{name}.log")),
                resources,
                ..ContainerSpec::default()
            };
            self.runtime.start_container(&pod, &sandbox, &spec).await.expect("a container");
        }))
        .await;
        began.elapsed().as_secs_f64()
    }

    pub async fn remove(&self, names: &[String]) -> f64 {
        let views = self.runtime.pods().await.expect("pods");
        let began = Instant::now();
        join_all(views.iter().filter(|view| names.contains(&view.pod.name)).map(|view| async {
            for container in &view.containers {
                self.runtime.stop_container(&container.id, Duration::from_secs(30)).await.expect("stopped");
            }
            let sandboxes: Vec<&SandboxId> = view.sandboxes.iter().map(|sandbox| &sandbox.id).collect();
            for sandbox in sandboxes {
                self.runtime.remove_sandbox(sandbox).await.expect("removed");
            }
        }))
        .await;
        began.elapsed().as_secs_f64()
    }
}
