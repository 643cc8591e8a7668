//! A runtime whose containers are plain processes of this machine. They end when it is dropped.

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use kubelet::runtime::*;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::{broadcast, mpsc, watch};

pub struct Processes {
    pods: Mutex<Vec<PodView>>,
    running: Mutex<BTreeMap<String, Arc<Process>>>,
    events: broadcast::Sender<Event>,
    /// Sizes that terminals were given.
    pub sizes: Arc<Mutex<Vec<(u16, u16)>>>,
    /// Containers whose standard input ends with that of the first who attaches.
    pub once: Mutex<BTreeSet<String>>,
}

struct Process {
    output: broadcast::Sender<Bytes>,
    input: mpsc::Sender<Bytes>,
    ended: watch::Receiver<Option<i32>>,
    kill: tokio_util::sync::CancellationToken,
}

impl Processes {
    pub fn new() -> Arc<Processes> {
        Arc::new(Processes {
            pods: Mutex::default(),
            running: Mutex::default(),
            events: broadcast::channel(64).0,
            sizes: Arc::default(),
            once: Mutex::default(),
        })
    }

    /// All pods.
    pub fn views(&self) -> Vec<PodView> {
        self.pods.lock().clone()
    }

    /// A pod without a container yet.
    pub fn add_pod(&self, pod: &PodRef, network: Option<PathBuf>) {
        let spec = SandboxSpec { network_namespace: network, ..SandboxSpec::default() };
        let sandbox =
            SandboxView { id: SandboxId(pod.uid.clone()), spec, pid: Some(1), created_at: Timestamp::now() };
        self.pods.lock().push(PodView { pod: pod.clone(), sandboxes: vec![sandbox], containers: Vec::new() });
    }

    /// Starts a process as a container; what it writes goes to a file in CRI format.
    pub fn run(self: &Arc<Self>, pod: &PodRef, name: &str, id: &str, script: &str, log_path: &Path) {
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let pid = child.id().unwrap();
        self.change(pod, |view| {
            view.containers.push(ContainerView {
                id: ContainerId(id.to_owned()),
                sandbox: view.sandboxes[0].id.clone(),
                name: name.to_owned(),
                attempt: 0,
                image: ImageId::default(),
                image_ref: "sh".to_owned(),
                state: ContainerState::Running { started_at: Timestamp::now(), pid },
                labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
                log_path: log_path.to_owned(),
                user: None,
                created_at: Timestamp::now(),
            });
        });
        let (tell_ended, ended) = watch::channel(None);
        let (input, mut from_clients) = mpsc::channel::<Bytes>(8);
        let output = broadcast::channel(64).0;
        let kill = tokio_util::sync::CancellationToken::new();
        let process = Process { output: output.clone(), input, ended, kill: kill.clone() };
        self.running.lock().insert(id.to_owned(), Arc::new(process));
        let mut stdin = child.stdin.take().unwrap();
        tokio::spawn(async move {
            // Nothing is the end.
            while let Some(bytes) = from_clients.recv().await.filter(|bytes| !bytes.is_empty()) {
                if stdin.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        });
        let (runtime, pod, id, log_path) = (self.clone(), pod.clone(), id.to_owned(), log_path.to_owned());
        tokio::spawn(async move {
            let code = tokio::select! {
                code = write_log(&mut child, &log_path, &output) => code,
                () = kill.cancelled() => 137,
            };
            let _ = child.kill().await;
            runtime.change(&pod, |view| {
                let container = view.containers.iter_mut().find(|container| container.id.0 == id).unwrap();
                container.state = ContainerState::Exited {
                    started_at: Some(container.created_at),
                    finished_at: Timestamp::now(),
                    code,
                    out_of_memory: false,
                    message: None,
                };
            });
            tell_ended.send_replace(Some(code));
        });
    }

    /// Kills a container.
    pub fn kill(&self, id: &str) {
        self.running.lock()[id].kill.cancel();
    }

    /// Writes to the standard input of a container's process.
    pub async fn tell(&self, id: &str, text: &str) {
        let input = self.running.lock()[id].input.clone();
        input.send(Bytes::from(text.to_owned())).await.unwrap();
    }

    fn change(&self, pod: &PodRef, change: impl FnOnce(&mut PodView)) {
        change(self.pods.lock().iter_mut().find(|view| view.pod == *pod).unwrap());
        let _ = self.events.send(Event::Changed(pod.clone()));
    }
}

async fn write_log(child: &mut Child, path: &Path, output: &broadcast::Sender<Bytes>) -> i32 {
    let mut stdout = child.stdout.take().unwrap();
    let mut block = vec![0; 4096];
    let mut rest = Vec::new();
    while let Ok(count @ 1..) = stdout.read(&mut block).await {
        let _ = output.send(Bytes::copy_from_slice(&block[..count]));
        rest.extend_from_slice(&block[..count]);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            log_line(path, "stdout", std::str::from_utf8(&line).unwrap().trim_end());
        }
    }
    child.wait().await.unwrap().code().unwrap_or(137)
}

/// Adds a line to a log as a runtime does.
pub fn log_line(path: &Path, stream: &str, text: &str) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    writeln!(file, "{:.9} {stream} F {text}", Timestamp::now()).unwrap();
}

fn not_here<T>(what: &str) -> Result<T, Error> {
    Err(Error::Container(format!("{what}: not in this test")))
}

#[async_trait]
impl Runtime for Processes {
    async fn version(&self) -> Result<String, Error> {
        Ok("processes://1".to_owned())
    }

    fn events(&self) -> BoxStream<'static, Event> {
        let events = futures::stream::unfold(self.events.subscribe(), |mut events| async {
            match events.recv().await {
                Ok(event) => Some((event, events)),
                Err(broadcast::error::RecvError::Lagged(_)) => Some((Event::Lost, events)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        });
        futures::stream::iter([Event::Lost]).chain(events).boxed()
    }

    async fn pods(&self) -> Result<Vec<PodView>, Error> {
        Ok(self.views())
    }

    async fn pod(&self, pod: &PodRef) -> Result<PodView, Error> {
        let found = self.pods.lock().iter().find(|view| view.pod == *pod).cloned();
        Ok(found.unwrap_or(PodView { pod: pod.clone(), sandboxes: Vec::new(), containers: Vec::new() }))
    }

    async fn exec(&self, container: &ContainerId, spec: &ExecSpec) -> Result<Session, Error> {
        assert!(self.running.lock().contains_key(&container.0));
        let Some((program, arguments)) = spec.command.split_first() else { return not_here("no command") };
        let mut command = if spec.tty {
            let line: Vec<String> =
                spec.command.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
            let mut command = Command::new("script");
            command.args(["-qefc", &line.join(" "), "/dev/null"]);
            command
        } else {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        };
        let stream = |wanted: bool| if wanted { Stdio::piped() } else { Stdio::null() };
        let child = command.stdin(stream(spec.stdin)).stdout(stream(spec.stdout)).stderr(stream(spec.stderr));
        let mut child =
            child.kill_on_drop(true).spawn().map_err(|error| Error::Container(error.to_string()))?;
        let (resize, mut sizes) = mpsc::channel(4);
        let seen = self.sizes.clone();
        tokio::spawn(async move {
            while let Some(size) = sizes.recv().await {
                seen.lock().push(size);
            }
        });
        Ok(Session {
            stdin: child.stdin.take().map(|stream| Box::new(stream) as _),
            stdout: child.stdout.take().map(|stream| Box::new(stream) as _),
            stderr: child.stderr.take().map(|stream| Box::new(stream) as _),
            resize,
            exit: Box::pin(async move { Ok(child.wait().await.unwrap().code().unwrap_or(137)) }),
        })
    }

    async fn attach(&self, container: &ContainerId, _: bool) -> Result<Session, Error> {
        let process = self.running.lock()[&container.0].clone();
        let once = self.once.lock().remove(&container.0);
        let (stdin, mut typed) = tokio::io::duplex(4096);
        let (mut written, stdout) = tokio::io::duplex(4096);
        let (input, mut output, mut ended) =
            (process.input.clone(), process.output.subscribe(), process.ended.clone());
        tokio::spawn(async move {
            let mut block = vec![0; 4096];
            while let Ok(count @ 1..) = typed.read(&mut block).await {
                let _ = input.send(Bytes::copy_from_slice(&block[..count])).await;
            }
            if once {
                let _ = input.send(Bytes::new()).await;
            }
        });
        tokio::spawn(async move {
            loop {
                let piece = tokio::select! {
                    biased;
                    piece = output.recv() => piece,
                    _ = ended.wait_for(Option::is_some) => return,
                };
                let Ok(piece) = piece else { return };
                if written.write_all(&piece).await.is_err() {
                    return;
                }
            }
        });
        let mut ended = process.ended.clone();
        Ok(Session {
            stdin: Some(Box::new(stdin)),
            stdout: Some(Box::new(stdout)),
            stderr: None,
            resize: mpsc::channel(4).0,
            exit: Box::pin(async move { Ok(ended.wait_for(Option::is_some).await.unwrap().unwrap()) }),
        })
    }

    async fn usage(&self, pod: &PodRef) -> Result<BTreeMap<String, Usage>, Error> {
        let view = self.pod(pod).await?;
        let running = view.containers.iter().filter_map(|container| match container.state {
            ContainerState::Running { pid, .. } => Some((container.name.clone(), usage(pid)?)),
            _ => None,
        });
        Ok(running.collect())
    }

    async fn start_sandbox(&self, _: &PodRef, _: &SandboxSpec) -> Result<SandboxView, Error> {
        not_here("start_sandbox")
    }
    async fn remove_sandbox(&self, _: &SandboxId) -> Result<(), Error> {
        not_here("remove_sandbox")
    }
    async fn start_container(
        &self,
        _: &PodRef,
        _: &SandboxId,
        _: &ContainerSpec,
    ) -> Result<ContainerView, Error> {
        not_here("start_container")
    }
    async fn stop_container(&self, _: &ContainerId, _: Duration) -> Result<(), Error> {
        not_here("stop_container")
    }
    async fn signal_container(&self, _: &ContainerId, _: i32) -> Result<(), Error> {
        not_here("signal_container")
    }
    async fn remove_container(&self, _: &ContainerId) -> Result<(), Error> {
        not_here("remove_container")
    }
    async fn update_container(&self, _: &ContainerId, _: &Resources) -> Result<(), Error> {
        not_here("update_container")
    }
    async fn reopen_log(&self, _: &ContainerId) -> Result<(), Error> {
        not_here("reopen_log")
    }
    async fn image(&self, _: &str) -> Result<Option<Image>, Error> {
        not_here("image")
    }
    async fn images(&self) -> Result<Vec<Image>, Error> {
        not_here("images")
    }
    async fn pull(
        &self,
        _: &str,
        _: &[Credentials],
        _: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Pulled, Error> {
        not_here("pull")
    }
    async fn remove_image(&self, _: &ImageId) -> Result<(), Error> {
        not_here("remove_image")
    }
}

/// What a process really uses.
fn usage(pid: u32) -> Option<Usage> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let pages: u64 = fields.get(21)?.parse().ok()?;
    let bytes = pages * 4096;
    Some(Usage {
        at: Timestamp::now(),
        cpu_ns: ticks * 10_000_000,
        memory_bytes: bytes,
        working_set_bytes: bytes,
        rss_bytes: bytes,
        pids: 1,
    })
}
