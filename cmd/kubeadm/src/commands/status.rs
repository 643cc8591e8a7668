//! `kubeadm status`: looks at what of a cluster is on this machine, for those who were told "connection refused" and nothing
//! else. It needs nothing that may be broken: what does not answer is left out, and said to be so.

use super::image::containerd;
use crate::member::Member;
use crate::phases::init::{client_of, socket_path};
use crate::status::{Part, Seen, State, last_lines, page, static_pod};
use crate::{layout, services, supervisor};
use anyhow::{Context, Result, bail};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use kubelet::node::GIVEN_BACK;
use kubelet::runtime::{ContainerState, ContainerView, PodView, Runtime};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long whatever is asked may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// So much of what something said last is shown.
const LINES: usize = 8;
/// No more of a log is read than this.
const LOG_BYTES: usize = 64 << 10;

/// What `status` is told.
#[derive(Args)]
#[command(after_help = "Example:\n  kubeadm status      # ends with 1 if something does not work")]
pub struct Flags {
    /// containerd's socket.
    #[arg(long, default_value = "unix:///run/containerd/containerd.sock")]
    cri_socket: String,
}

/// Shows it.
pub async fn run(flags: &Flags) -> Result<()> {
    let Some(member) = Member::of_this_machine()? else {
        bail!("no cluster is on this machine: kubeadm init makes one, kubeadm join makes it a node of one");
    };
    let pods = pods(&socket_path(&flags.cri_socket)).await;
    let mut parts = vec![match &pods {
        Ok(_) => Part::good("containerd", "running", ""),
        Err(error) => {
            let advice =
                "start it (systemctl start containerd): without it no pod runs, nor does the control plane";
            Part::bad("containerd", "no answer", format!("{error:#}"), advice)
        }
    }];
    parts.extend(["kubelet", "kubeproxy"].map(service));
    parts.extend(control_plane(pods.as_deref().unwrap_or_default()));
    parts.extend(api(&member).await);
    print!("{}", page(&parts));
    let bad: Vec<&str> =
        parts.iter().filter(|part| part.state == State::Bad).map(|part| part.name.as_str()).collect();
    if !bad.is_empty() {
        bail!("not all of it works: {}", bad.join(", "));
    }
    Ok(())
}

async fn pods(socket: &Path) -> Result<Vec<PodView>> {
    let runtime = containerd(socket)?;
    tokio::time::timeout(PATIENCE, runtime.pods())
        .await
        .with_context(|| format!("it says nothing at {}", socket.display()))?
        .with_context(|| format!("ask it at {}", socket.display()))
}

/// The kubelet or kube-proxy, whoever keeps it running.
fn service(name: &'static str) -> Part {
    let pid = match services::has_systemd() {
        true => said_by("systemctl", &["show", "-p", "MainPID", "--value", name]).trim().parse().ok(),
        false => supervisor::process_of(name).map(|pid| pid.as_raw()),
    };
    if let Some(pid) = pid.filter(|pid| *pid > 0) {
        return Part::good(name, "running", format!("process {pid}"));
    }
    let (log, advice) = match services::has_systemd() {
        true => {
            let lines = said_by("journalctl", &["-u", name, "-n", "50", "-o", "cat", "--no-pager"]);
            (lines, format!("systemctl restart {name}; its log: journalctl -u {name}"))
        }
        false => {
            let file = supervisor::log_path(name);
            let advice = match supervisor::running() {
                Some(_) => format!("it is started again and again; its log: {}", file.display()),
                None => {
                    "the supervisor does not run: /etc/init.d/minik8s start, or boot this machine".to_owned()
                }
            };
            (end_of(&file), advice)
        }
    };
    Part::bad(name, "not running", "", advice).saying(last_lines(&log, LINES))
}

/// The static pods, by their manifests.
fn control_plane(pods: &[PodView]) -> Vec<Part> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(layout::manifests())
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    files.iter().map(|file| by_manifest(file, pods)).collect()
}

fn by_manifest(file: &Path, pods: &[PodView]) -> Part {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let understood = std::fs::read_to_string(file)
        .map_err(|error| error.to_string())
        .and_then(|text| serde_saphyr::from_str::<Value>(&text).map_err(|error| error.to_string()));
    let text = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let (name, namespace) = match &understood {
        Ok(pod) => (text(pod, "/metadata/name"), text(pod, "/metadata/namespace")),
        Err(_) => (None, None),
    };
    let Some(name) = name else {
        let why = understood.err().unwrap_or_else(|| "metadata.name is missing".to_owned());
        let why = why.lines().next().unwrap_or_default().to_owned();
        let advice = format!("mend {}: the pod that it was runs on until then, if it ran", file.display());
        return Part::bad(&stem, "not understood", why, advice);
    };
    let namespace = namespace.unwrap_or_else(|| "default".to_owned());
    let newest = pods
        .iter()
        .filter(|view| view.pod.namespace == namespace && view.pod.name.starts_with(&format!("{name}-")))
        .flat_map(|view| &view.containers)
        .max_by_key(|container| (container.created_at, container.attempt));
    let seen = newest.map_or(Seen::Nothing, seen);
    let words = newest.map(words_of).unwrap_or_default();
    static_pod(&name, file, &seen, words, Timestamp::now())
}

fn seen(container: &ContainerView) -> Seen {
    let starts = container.attempt + 1;
    match &container.state {
        ContainerState::Created => Seen::Nothing,
        ContainerState::Running { started_at, .. } => Seen::Runs { since: *started_at, starts },
        ContainerState::Exited { code, .. } => Seen::Ended { code: *code, starts },
    }
}

/// What a container said last, or the one before it; or why it could not be started.
fn words_of(container: &ContainerView) -> Vec<String> {
    let before = container
        .attempt
        .checked_sub(1)
        .map(|attempt| container.log_path.with_file_name(format!("{attempt}.log")));
    let logs = [Some(container.log_path.clone()), before];
    let said = logs.into_iter().flatten().map(|log| last_lines(&end_of(&log), LINES));
    let said = said.into_iter().find(|lines| !lines.is_empty()).unwrap_or_default();
    match &container.state {
        ContainerState::Exited { message: Some(message), .. } if said.is_empty() => {
            last_lines(message, LINES)
        }
        _ => said,
    }
}

/// The end of a log.
fn end_of(file: &Path) -> String {
    let text = std::fs::read(file).unwrap_or_default();
    String::from_utf8_lossy(&text[text.len().saturating_sub(LOG_BYTES)..]).into_owned()
}

fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// What the API says: of itself and all nodes on the control plane, of this node elsewhere.
async fn api(member: &Member) -> Vec<Part> {
    let admin = std::fs::read_to_string(layout::admin()).ok();
    let client = match &admin {
        Some(admin) => client_of(admin).await,
        None => member.client().await,
    };
    let nodes = match client {
        Ok(client) => tokio::time::timeout(PATIENCE, nodes(&client, member, admin.is_some()))
            .await
            .unwrap_or_else(|_| Err(anyhow::anyhow!("no answer in {} s", PATIENCE.as_secs()))),
        Err(error) => Err(error),
    };
    match nodes {
        Ok(nodes) => {
            let mut parts = vec![Part::good("API", "answers", &member.server)];
            parts.extend(nodes.iter().map(node));
            parts
        }
        Err(error) => {
            let why = error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ");
            let advice = match admin {
                Some(_) => "it is the kube-apiserver of this machine: see what is said of it, and of the kubelet, which \
                            starts it"
                    .to_owned(),
                None => format!(
                    "does kubeadm status on the control plane find it well, and is {} its address still? If it has moved: \
                     kubeadm reset, then join again",
                    member.server
                ),
            };
            vec![Part::bad("API", "no answer", format!("{}: {why}", member.server), advice)]
        }
    }
}

async fn nodes(client: &Client, member: &Member, all: bool) -> Result<Vec<Node>> {
    let nodes: Api<Node> = Api::all(client.clone());
    Ok(match all {
        true => nodes.list(&ListParams::default()).await?.items,
        false => nodes.get_opt(&member.name).await?.into_iter().collect(),
    })
}

fn node(node: &Node) -> Part {
    let name = format!("node {}", node.name_any());
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    let message = ready.and_then(|ready| ready.message.clone()).unwrap_or_default();
    if ready.is_some_and(|ready| ready.status == "True") {
        return Part::good(&name, "Ready", "");
    }
    let own = node.name_any();
    let advice = match node.annotations().contains_key(GIVEN_BACK) {
        true => format!(
            "on its machine: kubeadm reset, then the line that kubeadm token create --print-join-command prints here; if it \
             is gone for good: kubectl delete node {own}"
        ),
        false => format!(
            "kubeadm status on its machine says more; if that is gone for good: kubectl delete node {own}"
        ),
    };
    Part::bad(&name, "NotReady", message, advice)
}
