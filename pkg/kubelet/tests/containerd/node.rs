//! A node for a test: a containerd that the tests of this program share, and on it a runtime in a namespace of its own.

use futures::StreamExt;
use futures::stream::BoxStream;
use kubelet::runtime::containerd::{Config, Containerd};
use kubelet::runtime::{
    ContainerId, ContainerSpec, ContainerState, ContainerView, Event, ImageId, PodRef, Runtime, SandboxId,
    SandboxSpec,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use testing::{eventually, in_time};

static SHARED: Mutex<Weak<testing::Containerd>> = Mutex::new(Weak::new());
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Our own shim, where these tests are its own.
pub const SHIM: Option<&str> = option_env!("CARGO_BIN_EXE_containerd-shim-minik8s-v1");

/// A runtime with the image `busybox`.
pub struct Node {
    pub runtime: Containerd,
    pub config: Config,
    pub image: ImageId,
    /// Dropped last: it takes everything with it.
    pub containerd: Arc<testing::Containerd>,
}

impl Node {
    /// On the containerd that tests share.
    pub async fn start() -> Self {
        let containerd = {
            let mut shared = SHARED.lock().expect("nobody panics with it");
            shared.upgrade().unwrap_or_else(|| {
                let started = Arc::new(testing::Containerd::start());
                *shared = Arc::downgrade(&started);
                started
            })
        };
        Self::on(containerd).await
    }

    /// On a containerd of its own, for tests that hurt it.
    pub async fn on(containerd: Arc<testing::Containerd>) -> Self {
        let name = format!("node{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let dir = containerd.dir().join(&name);
        let config = Config {
            socket: containerd.socket(),
            namespace: name,
            root_dir: dir.join("root"),
            state_dir: dir.join("run"),
            registries_dir: dir.join("certs.d"),
            ..Config::default()
        };
        let config = match SHIM {
            Some(program) => config.with_shim(Path::new(program)),
            None => config,
        };
        let runtime = Containerd::new(config.clone()).expect("a runtime");
        let images = runtime.import(&archive("busybox", containerd.dir())).await.expect("busybox");
        Node { runtime, config, image: images[0].id.clone(), containerd }
    }

    /// As after a restart of the kubelet.
    pub fn restarted(&self) -> Containerd {
        Containerd::new(self.config.clone()).expect("a runtime")
    }

    /// A pod that nobody else has.
    pub fn pod(&self, name: &str) -> PodRef {
        PodRef {
            namespace: "default".into(),
            name: name.into(),
            uid: format!("{}-{name}", self.config.namespace),
        }
    }

    pub fn cgroup(&self, pod: &PodRef) -> String {
        format!("{}/pod{}", self.containerd.cgroup(), pod.uid)
    }

    pub fn sandbox(&self, pod: &PodRef) -> SandboxSpec {
        SandboxSpec { hostname: pod.name.clone(), cgroup_parent: self.cgroup(pod), ..SandboxSpec::default() }
    }

    /// A container that runs a line of shell.
    pub fn shell(&self, pod: &PodRef, name: &str, line: &str) -> ContainerSpec {
        ContainerSpec {
            name: name.into(),
            image: self.image.clone(),
            image_ref: "busybox".into(),
            command: ["sh", "-c", line].map(str::to_owned).into(),
            log_path: self.log(pod, name),
            ..ContainerSpec::default()
        }
    }

    pub fn log(&self, pod: &PodRef, name: &str) -> PathBuf {
        self.config.root_dir.join("logs").join(&pod.uid).join(name).join("0.log")
    }

    /// What a log says, without times.
    pub fn lines(&self, pod: &PodRef, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.log(pod, name)).unwrap_or_default();
        // A line that is being written is none yet.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| line.split_once(' ').expect("a time").1.to_owned()).collect()
    }

    /// Starts a pod with one container.
    pub async fn run(&self, pod: &PodRef, spec: &ContainerSpec) -> (SandboxId, ContainerView) {
        let sandbox = self.runtime.start_sandbox(pod, &self.sandbox(pod)).await.expect("a sandbox");
        let container = self.runtime.start_container(pod, &sandbox.id, spec).await.expect("a container");
        (sandbox.id, container)
    }

    pub async fn state(&self, pod: &PodRef, id: &ContainerId) -> ContainerState {
        let view = self.runtime.pod(pod).await.expect("a view");
        view.containers.into_iter().find(|container| container.id == *id).expect("the container").state
    }

    /// The end of a container: code, whether for want of memory.
    pub async fn end(&self, pod: &PodRef, id: &ContainerId) -> (i32, bool) {
        eventually("the container ends", || async {
            match self.state(pod, id).await {
                ContainerState::Exited { code, out_of_memory, .. } => Some((code, out_of_memory)),
                _ => None,
            }
        })
        .await
    }
}

/// The archive of one of our images, made once for a containerd.
pub fn archive(name: &str, dir: &Path) -> PathBuf {
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let path = dir.join(format!("{name}.tar"));
    if !path.exists() {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images/build");
        let status = Command::new(script).arg(name).arg(&path).status().expect("images/build");
        assert!(status.success(), "images/build {name}");
    }
    path
}

/// The next event that is not about images.
pub async fn next(events: &mut BoxStream<'static, Event>) -> Event {
    loop {
        match in_time("an event", events.next()).await.expect("events never end") {
            Event::Images => {}
            event => return event,
        }
    }
}
