//! `kubeadm join`: this machine becomes a node of a cluster.

use super::init::{client_of, node_ready, report, services_run, socket_path, wait_until};
use super::{Phase, reset, run_all};
use crate::cluster::Cluster;
use crate::discovery::{self, Trusted};
use crate::facts::{self, Wanted};
use crate::host::Host;
use crate::member::Member;
use crate::node::{self, Node};
use crate::{layout, node_name, preflight, services};
use anyhow::{Context, Result, bail};
use api::dialect::map_name;
use clap::Args;
use cli::Progress;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{self as core, ConfigMap};
use kube::{Api, Client};
use kubelet::node::Holder;
use pki::{BootstrapToken, Identity};
use serde_json::Value;
use std::io::{BufRead, IsTerminal, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// What `join` is told.
#[derive(Args)]
#[command(
    after_help = "Example:\n  kubeadm join 192.0.2.1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:…\n  kubeadm join --config=node.yaml      # kind: Node, with spec.masterIp, spec.nodeIp and spec.token"
)]
pub struct Flags {
    /// Where the control plane is, as host:port.
    endpoint: Option<String>,
    /// The token that the control plane has made.
    #[arg(long)]
    token: Option<String>,
    /// The hash of the cluster's CA, as `kubeadm init` has printed it.
    #[arg(long, value_delimiter = ',')]
    discovery_token_ca_cert_hash: Vec<String>,
    /// Trust whoever signs with the token.
    #[arg(long)]
    discovery_token_unsafe_skip_ca_verification: bool,
    /// A Node's YAML that says where the master is.
    #[arg(long)]
    config: Option<PathBuf>,
    /// This node's name.
    #[arg(long)]
    node_name: Option<String>,
    /// A node of this name is in the cluster, but not Ready, and its machine is gone for good: take its place.
    #[arg(long)]
    replace_node: bool,
    /// The address that others reach this node at.
    #[arg(long)]
    node_ip: Option<IpAddr>,
    /// containerd's socket.
    #[arg(long, default_value = "unix:///run/containerd/containerd.sock")]
    cri_socket: String,
    /// The one program that is to be installed; this one, if none is given.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Problems to live with, by name, or `all`.
    #[arg(long, value_delimiter = ',')]
    ignore_preflight_errors: Vec<String>,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
}

struct Join {
    host: Host,
    endpoint: String,
    token: BootstrapToken,
    ca_hashes: Vec<String>,
    node: Node,
    replaces: bool,
    program: PathBuf,
    ignored: Vec<String>,
    trusted: Option<Trusted>,
    cluster: Option<Cluster>,
    identity: Option<Identity>,
}

const PHASES: &[Phase<Join>] = &[
    Phase { name: "preflight", about: "looking at this machine", run: |join, _| join.preflight().boxed() },
    Phase {
        name: "discovery",
        about: "asking the control plane who it is",
        run: |join, _| join.discover().boxed(),
    },
    Phase {
        name: "name",
        about: "asking whether this node's name is free",
        run: |join, _| join.free_name().boxed(),
    },
    Phase {
        name: "certificate",
        about: "asking for this node's certificate",
        run: |join, _| join.certificate().boxed(),
    },
    Phase { name: "program", about: "installing the program", run: |join, _| join.program().boxed() },
    Phase {
        name: "services",
        about: "starting kubelet and kube-proxy",
        run: |join, _| join.services().boxed(),
    },
    Phase { name: "node", about: "waiting for the node", run: wait_for_node },
];

/// The first phase that changes this machine: what fails from there on is taken away again.
const FIRST_CHANGE: usize = 4;

/// Joins.
pub async fn run(flags: Flags) -> Result<()> {
    if layout::manifests().join("kube-apiserver.yaml").exists() {
        println!("This machine runs the control plane, and is a node of it already: nothing to do.");
        return Ok(());
    }
    if services_run()
        && let Some(member) = Member::of_this_machine()?
    {
        return joined_already(&member, &flags);
    }
    let mut join = Join::new(flags)?;
    run_all(&PHASES[..FIRST_CHANGE], &mut join, &[]).await?;
    if let Err(error) = run_all(&PHASES[FIRST_CHANGE..], &mut join, &[]).await {
        if !join.host.dry_run {
            eprintln!("Taking away what was done so far.");
            reset::remove_everything(join.host, &join.node.containerd_socket).await?;
        }
        return Err(error);
    }
    if !join.host.dry_run {
        println!("\nThis machine is a node of the cluster. On the control plane:\n\n  kubectl get nodes\n");
    }
    Ok(())
}

/// A node of the cluster that is meant stays so; one of another is not made one by accident.
fn joined_already(member: &Member, flags: &Flags) -> Result<()> {
    let Member { name, server, .. } = member;
    let asked = flags.endpoint.as_ref().map(|endpoint| format!("https://{}", with_port(endpoint)));
    let other_name = flags.node_name.as_ref().is_some_and(|asked| asked != name);
    if other_name || asked.is_some_and(|asked| asked != *server) {
        bail!(
            "this machine is a node already, {name} of the cluster at {server}: kubeadm reset takes it out of that \
             one first"
        );
    }
    println!(
        "This machine is a node of the cluster at {server} already, {name}: nothing to do. (kubeadm status shows how \
         it is; kubeadm reset takes it out.)"
    );
    Ok(())
}

fn with_port(endpoint: &str) -> String {
    if endpoint.contains(':') { endpoint.to_owned() } else { format!("{endpoint}:6443") }
}

/// What the seed's Node YAML says.
#[derive(Debug, Default, PartialEq, Eq)]
struct NodeFile {
    name: Option<String>,
    master: Option<String>,
    address: Option<IpAddr>,
    token: Option<String>,
}

impl NodeFile {
    fn parse(text: &str) -> Result<NodeFile> {
        let value: Value = serde_saphyr::from_str(text)?;
        if value["kind"] != "Node" {
            bail!("kind: expected Node, found {}", value["kind"]);
        }
        let text = |path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let address = text("/spec/nodeIp").map(|address| {
            address.parse().with_context(|| format!("spec.nodeIp: {address:?} is not an address"))
        });
        Ok(NodeFile {
            name: text("/metadata/name"),
            master: text("/spec/masterIp"),
            address: address.transpose()?,
            token: text("/spec/token"),
        })
    }
}

impl Join {
    fn new(flags: Flags) -> Result<Join> {
        let file = match &flags.config {
            None => NodeFile::default(),
            Some(path) => {
                let text =
                    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
                NodeFile::parse(&text).with_context(|| path.display().to_string())?
            }
        };
        let endpoint = flags.endpoint.or(file.master).context(
            "where is the control plane? Give it as host:port, or --config=node.yaml with spec.masterIp",
        )?;
        let with_port = with_port(&endpoint);
        let may_skip = flags.config.is_some() || flags.discovery_token_unsafe_skip_ca_verification;
        if flags.discovery_token_ca_cert_hash.is_empty() && !may_skip {
            bail!(
                "--discovery-token-ca-cert-hash is missing: it is in the line that kubeadm token create \
                 --print-join-command prints (--discovery-token-unsafe-skip-ca-verification goes without)"
            );
        }
        let token = match flags.token.or(file.token) {
            Some(token) => token,
            None => ask_token()?,
        };
        // The seed's names are mapped as kubectl maps them.
        let name = flags.node_name.or(file.name.map(|name| map_name(&name)));
        let name = node_name::checked(name, facts::host_name)?;
        let address = flags.node_ip.or(file.address).or_else(|| facts::address_towards(&with_port));
        Ok(Join {
            host: Host { dry_run: flags.dry_run },
            endpoint: with_port,
            token: token.trim().parse().context("--token")?,
            ca_hashes: flags.discovery_token_ca_cert_hash,
            node: Node {
                name,
                addresses: facts::with_other_family(address),
                containerd_socket: socket_path(&flags.cri_socket),
                labels: Vec::new(),
                taints: Vec::new(),
            },
            replaces: flags.replace_node,
            program: flags.program.map_or_else(std::env::current_exe, Ok).context("find this program")?,
            ignored: flags.ignore_preflight_errors,
            trusted: None,
            cluster: None,
            identity: None,
        })
    }

    async fn preflight(&mut self) -> Result<String> {
        let leftovers = if services_run() { vec![layout::etc("kubelet.conf")] } else { Vec::new() };
        let facts = facts::gather(&Wanted {
            ports: &[10250],
            programs: &[("iptables", "iptables"), ("runc", "runc"), ("setsid", "util-linux")],
            containerd_socket: &self.node.containerd_socket,
            files: &leftovers,
            program: &self.program,
            other_stores: &[],
        });
        report(preflight::sort(preflight::check(&facts), &self.ignored), self.host)
    }

    async fn discover(&mut self) -> Result<String> {
        let trusted = discovery::discover(&self.endpoint, &self.token, &self.ca_hashes).await?;
        let client = discovery::token_client(&trusted, &self.token)?;
        let api: Api<ConfigMap> = Api::namespaced(client, "kube-system");
        let config = api.get("kubeadm-config").await.context("read the cluster's configuration")?;
        let text = config.data.and_then(|mut data| data.remove("ClusterConfiguration"));
        self.cluster = Some(Cluster::from_yaml(&text.context("kubeadm-config is empty")?)?);
        let done = format!("{} is the cluster that made the token", trusted.server);
        self.trusted = Some(trusted);
        Ok(done)
    }

    async fn free_name(&mut self) -> Result<String> {
        let trusted = self.trusted.as_ref().context("the cluster is not known")?;
        let nodes: Api<core::Node> = Api::all(discovery::token_client(trusted, &self.token)?);
        let node = nodes.get_opt(&self.node.name).await.context("look for a node of this name")?;
        node_name::free(&self.node.name, node.as_ref(), self.replaces)
    }

    async fn certificate(&mut self) -> Result<String> {
        let trusted = self.trusted.as_ref().context("the cluster is not known")?;
        if self.host.would(&format!("ask for a certificate for {}", self.node.name)) {
            return Ok("nothing was asked".to_owned());
        }
        let client = discovery::token_client(trusted, &self.token)?;
        self.identity = Some(discovery::request_identity(&client, &self.node.name).await?);
        Ok(format!("the cluster has signed the certificate of {}", self.node.name))
    }

    async fn program(&mut self) -> Result<String> {
        node::install_program(&self.host, &self.program)
    }

    async fn services(&mut self) -> Result<String> {
        let cluster = self.cluster.as_ref().context("the cluster is not known")?;
        if let (Some(trusted), Some(identity)) = (&self.trusted, &self.identity) {
            node::write_identity(&self.host, cluster, &trusted.ca_pem, &self.node, identity)?;
        }
        for folder in [layout::manifests(), layout::KUBELET.into()] {
            self.host.private_folder(&folder)?;
        }
        services::install(&self.host, &node::services(cluster, &self.node)?)?;
        Ok("kubelet and kube-proxy run".to_owned())
    }
}

fn wait_for_node<'a>(join: &'a mut Join, progress: &'a Progress) -> BoxFuture<'a, Result<String>> {
    async move {
        let (Some(cluster), Some(trusted), Some(identity)) = (&join.cluster, &join.trusted, &join.identity)
        else {
            return Ok("nothing to wait for".to_owned());
        };
        let user = format!("system:node:{}", join.node.name);
        let config =
            pki::kubeconfig(&cluster.url(), &trusted.ca_pem, &user, &identity.certificate, &identity.key);
        let client = client_of(&config).await?;
        // Others may have come by the same name at the same moment: then one of both kubelets has it.
        let own = kubelet_has_node(&client, &join.node.name, progress);
        own.await.with_context(|| format!("this machine does not get the name {}", join.node.name))?;
        node_ready(&client, &join.node.name, progress).await?;
        Ok(format!("{} is Ready", join.node.name))
    }
    .boxed()
}

/// Waits until the kubelet of this machine has the node.
async fn kubelet_has_node(client: &Client, name: &str, progress: &Progress) -> Result<()> {
    let root = Path::new(layout::KUBELET);
    wait_until(async || match kubelet::node::holder(client, name, root).await.ok()? {
        Holder::Own => Some(()),
        Holder::Nobody => None,
        Holder::Another => {
            progress.update("waiting for the node: another machine has had its name until now");
            None
        }
    })
    .await
}

fn ask_token() -> Result<String> {
    if !std::io::stdin().is_terminal() {
        bail!("--token is missing (or spec.token in the file of --config): kubeadm token create makes one");
    }
    eprint!("Token (from `kubeadm token create` on the control plane): ");
    std::io::stderr().flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_node_file_is_understood() {
        let text =
            "kind: Node\nmetadata:\n  name: vmeet1\nspec:\n  masterIp: 192.168.1.6\n  nodeIp: 192.168.1.5\n";
        let file = NodeFile::parse(text).expect("readable");
        assert_eq!(file.name.as_deref(), Some("vmeet1"));
        assert_eq!(file.master.as_deref(), Some("192.168.1.6"));
        assert_eq!(file.address, Some([192, 168, 1, 5].into()));
        assert_eq!(file.token, None);
    }

    #[test]
    fn a_wrong_node_file_says_what_is_wrong() {
        let error = NodeFile::parse("kind: Node\nspec:\n  nodeIp: here\n").unwrap_err();
        assert_eq!(error.to_string(), "spec.nodeIp: \"here\" is not an address");
        assert!(NodeFile::parse("kind: Pod").unwrap_err().to_string().contains("expected Node"));
    }
}
