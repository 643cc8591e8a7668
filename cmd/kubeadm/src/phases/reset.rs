//! `kubeadm reset`: takes away exactly what init or join made, and leaves the host's own network as it was.

use super::{Phase, run_all};
use crate::host::Host;
use crate::member::Member;
use crate::{image, layout, node, services};
use anyhow::{Context, Result, bail};
use clap::{Args, Parser};
use futures::FutureExt;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a control plane may take to hear that a machine leaves.
const MANNERS: Duration = Duration::from_secs(5);

/// What `reset` is told.
#[derive(Args)]
#[command(after_help = "Example:\n  kubeadm reset --force")]
pub struct Flags {
    /// Do not ask.
    #[arg(long, short)]
    force: bool,
    /// containerd's socket.
    #[arg(long, default_value = "unix:///run/containerd/containerd.sock")]
    cri_socket: String,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
}

struct Reset {
    host: Host,
    containerd_socket: PathBuf,
    /// What kube-proxy was started with: it takes away what it made when it is told so with the same words.
    kubeproxy: Option<Vec<String>>,
}

const PHASES: &[Phase<Reset>] = &[
    Phase {
        name: "services",
        about: "stopping kubelet and kube-proxy",
        run: |reset, _| reset.services().boxed(),
    },
    Phase { name: "node", about: "telling the cluster", run: |reset, _| reset.node().boxed() },
    Phase { name: "pods", about: "removing pods", run: |reset, _| reset.pods().boxed() },
    Phase { name: "rules", about: "removing rules", run: |reset, _| reset.rules().boxed() },
    Phase { name: "files", about: "removing files", run: |reset, _| reset.files().boxed() },
];

/// Resets.
pub async fn run(flags: Flags) -> Result<()> {
    if !flags.force && !flags.dry_run {
        confirm()?;
    }
    let host = Host { dry_run: flags.dry_run };
    remove_everything(host, &super::init::socket_path(&flags.cri_socket)).await
}

/// All phases, without asking.
pub async fn remove_everything(host: Host, containerd_socket: &Path) -> Result<()> {
    let kubeproxy = services::command("kubeproxy");
    let mut reset = Reset { host, containerd_socket: containerd_socket.to_owned(), kubeproxy };
    run_all(PHASES, &mut reset, &[]).await
}

impl Reset {
    async fn services(&mut self) -> Result<String> {
        services::remove(&self.host)?;
        Ok("kubelet and kube-proxy are stopped".to_owned())
    }

    /// The cluster is told that the node's name is free, if it can be: it would wait for a machine that does not come back.
    async fn node(&mut self) -> Result<String> {
        if layout::manifests().join("kube-apiserver.yaml").exists() {
            return Ok("the control plane goes with it".to_owned());
        }
        let Some(member) = Member::of_this_machine()? else {
            return Ok("this machine is no node".to_owned());
        };
        let name = &member.name;
        if self.host.would(&format!("tell {} that {name} is gone", member.server)) {
            return Ok("nobody was told".to_owned());
        }
        let told =
            tokio::time::timeout(MANNERS, member.gives_back("kubeadm reset was called on its machine"));
        Ok(match told.await {
            Ok(Ok(true)) => format!("{} knows that {name} is gone", member.server),
            Ok(Ok(false)) => format!("{name} is another machine's by now"),
            Ok(Err(_)) | Err(_) => {
                format!("{} was not reached; on the control plane: kubectl delete node {name}", member.server)
            }
        })
    }

    async fn pods(&mut self) -> Result<String> {
        if self
            .host
            .would("remove all pods, their networks, mounts and control groups, and the images made here")
        {
            return Ok("nothing was removed".to_owned());
        }
        // As the kubelet was told, so that everything is found where it was put.
        let socket = format!("--container-runtime-endpoint={}", self.containerd_socket.display());
        let config = kubelet::Config::from(kubelet::Flags::try_parse_from(["kubelet", &socket])?);
        let removed = kubelet::cleanup(&config, &[image::OWN, image::ETCD])
            .await
            .context("remove the pods (is containerd running?)")?;
        Ok(format!("{removed} pods are gone"))
    }

    async fn rules(&mut self) -> Result<String> {
        let Some([program, arguments @ ..]) = self.kubeproxy.as_deref() else {
            return Ok("no rules of ours".to_owned());
        };
        let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        arguments.push("--cleanup");
        self.host.call(program, &arguments)?;
        Ok("rules and devices are gone".to_owned())
    }

    async fn files(&mut self) -> Result<String> {
        for path in [
            layout::ETC,
            layout::DATA,
            layout::KUBELET,
            layout::POD_LOGS,
            layout::CONTAINER_LOGS,
            layout::LOGS,
            layout::RUN,
        ] {
            self.host.remove(Path::new(path))?;
        }
        node::remove_program(&self.host)?;
        Ok("files are gone".to_owned())
    }
}

fn confirm() -> Result<()> {
    if !std::io::stdin().is_terminal() {
        bail!("this removes the cluster's data from this machine: say --force");
    }
    eprint!("This removes all pods and the cluster's data from this machine. Go on? [y/N] ");
    std::io::stderr().flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    if !matches!(line.trim(), "y" | "Y" | "yes") {
        bail!("nothing was changed");
    }
    Ok(())
}
