//! `kubeadm init`: this machine becomes the control plane of a new cluster, and its first node.

use super::{Phase, run_all};
use crate::cluster::Cluster;
use crate::commands::image::containerd;
use crate::datastore::Datastore;
use crate::facts::{self, Wanted};
use crate::host::Host;
use crate::manifests::{self, ControlPlane};
use crate::moved::{self, Moved};
use crate::node::{self, Node};
use crate::objects::ACTIVATOR_PORT;
use crate::redis::{self, Redis};
use crate::{datastore, image, layout, links, node_name, objects, preflight, services};
use anyhow::{Context, Result, bail};
use clap::Args;
use cli::Progress;
use futures::FutureExt;
use futures::future::BoxFuture;
use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core;
use kube::{Api, Client};
use pki::file::Mode;
use pki::{BootstrapToken, ServerPki};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the API server and the node may take.
const PATIENCE: Duration = Duration::from_secs(240);

/// What `init` is told.
#[derive(Args)]
#[command(
    after_help = "Example:\n  kubeadm init --service-cidr 222.222.0.0/16\n  kubeadm init --datastore etcd\n  kubeadm init --pod-network-cidr 10.244.0.0/16,fd00:10:244::/56 --service-cidr 10.96.0.0/12,fd00:10:96::/112"
)]
pub struct Flags {
    /// The address that others reach this machine at.
    #[arg(long)]
    apiserver_advertise_address: Option<IpAddr>,
    /// The port of the API.
    #[arg(long, default_value_t = 6443)]
    apiserver_bind_port: u16,
    /// Further names and addresses for the API server's certificate.
    #[arg(long, value_delimiter = ',')]
    apiserver_cert_extra_sans: Vec<String>,
    /// A name for the control plane that outlives this machine, as host or host:port.
    #[arg(long)]
    control_plane_endpoint: Option<String>,
    /// Where pods' addresses come from; for a second address, a range of IPv6 after a comma.
    #[arg(long, default_value = "10.244.0.0/16", value_delimiter = ',')]
    pod_network_cidr: Vec<IpNet>,
    /// Where services' addresses come from; for a second address, a range of IPv6 after a comma.
    #[arg(long, default_value = "10.96.0.0/12", value_delimiter = ',')]
    service_cidr: Vec<IpNet>,
    /// The domain of services' names.
    #[arg(long, default_value = "cluster.local")]
    service_dns_domain: String,
    /// This node's name.
    #[arg(long)]
    node_name: Option<String>,
    /// containerd's socket.
    #[arg(long, default_value = "unix:///run/containerd/containerd.sock")]
    cri_socket: String,
    /// The token by which machines join; a new one is made if none is given.
    #[arg(long)]
    token: Option<BootstrapToken>,
    /// How long the token is good; 0 is for ever.
    #[arg(long, default_value = "24h", value_parser = crate::commands::token::lifetime)]
    token_ttl: SignedDuration,
    #[command(flatten)]
    datastore: datastore::StoreFlags,
    #[command(flatten)]
    redis: bus::RedisFlags,
    /// Keep ordinary pods off this machine.
    #[arg(long)]
    taint_control_plane: bool,
    /// The one program that is to be installed; this one, if none is given.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Problems to live with, by name, or `all`.
    #[arg(long, value_delimiter = ',')]
    ignore_preflight_errors: Vec<String>,
    /// Phases to leave out.
    #[arg(long, value_delimiter = ',')]
    skip_phases: Vec<String>,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
}

struct Init {
    host: Host,
    plane: ControlPlane,
    node: Node,
    token: BootstrapToken,
    token_ttl: SignedDuration,
    program: PathBuf,
    ignored: Vec<String>,
    pki: Option<ServerPki>,
    client: Option<Client>,
    moved: Option<Moved>,
}

const PHASES: &[Phase<Init>] = &[
    Phase { name: "preflight", about: "looking at this machine", run: |init, _| init.preflight().boxed() },
    Phase { name: "program", about: "installing the program", run: |init, _| init.program().boxed() },
    Phase { name: "certs", about: "making keys and certificates", run: |init, _| init.certs().boxed() },
    Phase { name: "kubeconfig", about: "writing kubeconfigs", run: |init, _| init.kubeconfigs().boxed() },
    Phase { name: "image", about: "making the control plane's image", run: |init, _| init.image().boxed() },
    Phase { name: "manifests", about: "writing the static pods", run: |init, _| init.manifests().boxed() },
    Phase {
        name: "services",
        about: "starting kubelet and kube-proxy",
        run: |init, _| init.services().boxed(),
    },
    Phase { name: "apiserver", about: "waiting for the API", run: |init, _| init.wait_for_api().boxed() },
    Phase {
        name: "bootstrap",
        about: "preparing for machines to join",
        run: |init, _| init.bootstrap().boxed(),
    },
    Phase { name: "node", about: "waiting for the node", run: wait_for_node },
];

/// Makes the cluster.
pub async fn run(flags: Flags) -> Result<()> {
    let skipped = flags.skip_phases.clone();
    if let Some(unknown) = skipped.iter().find(|name| !PHASES.iter().any(|phase| phase.name == **name)) {
        let names: Vec<&str> = PHASES.iter().map(|phase| phase.name).collect();
        bail!("there is no phase {unknown:?}; there are {}", names.join(", "));
    }
    let mut init = Init::new(flags)?;
    run_all(PHASES, &mut init, &skipped).await?;
    if !init.host.dry_run {
        println!("{}", init.farewell()?);
    }
    Ok(())
}

impl Init {
    fn new(flags: Flags) -> Result<Init> {
        let address = flags.apiserver_advertise_address.or_else(facts::default_address).context(
            "this machine has no address but the loopback's: give one with --apiserver-advertise-address",
        )?;
        let port = flags.apiserver_bind_port;
        let own = std::net::SocketAddr::new(address, port).to_string();
        let endpoint = match flags.control_plane_endpoint {
            Some(name) if name.contains(':') => name,
            Some(name) => format!("{name}:{port}"),
            None => own,
        };
        let mut names = flags.apiserver_cert_extra_sans;
        names.extend(endpoint.rsplit_once(':').map(|(host, _)| host.trim_matches(['[', ']']).to_owned()));
        let datastore = Datastore::from(flags.datastore);
        let redis = Redis::choose(flags.redis, datastore == Datastore::Etcd, address);
        let cluster = Cluster {
            redis: redis.as_ref().map(Redis::arguments_of_nodes).unwrap_or_default(),
            endpoint,
            pod_cidrs: flags.pod_network_cidr,
            service_cidrs: flags.service_cidr,
            dns_domain: flags.service_dns_domain,
        };
        cluster.check()?;
        let taint = "node-role.kubernetes.io/control-plane=:NoSchedule";
        Ok(Init {
            host: Host { dry_run: flags.dry_run },
            plane: ControlPlane { cluster, advertise_address: address, port, datastore, redis, names },
            node: Node {
                name: node_name::checked(flags.node_name, facts::host_name)?,
                addresses: facts::with_other_family(Some(address)),
                containerd_socket: socket_path(&flags.cri_socket),
                labels: Vec::new(),
                taints: flags.taint_control_plane.then(|| taint.to_owned()).into_iter().collect(),
            },
            token: flags.token.map_or_else(BootstrapToken::generate, Ok)?,
            token_ttl: flags.token_ttl,
            program: flags.program.map_or_else(std::env::current_exe, Ok).context("find this program")?,
            ignored: flags.ignore_preflight_errors,
            pki: None,
            client: None,
            moved: None,
        })
    }

    async fn preflight(&mut self) -> Result<String> {
        // What a restore, or an init that was broken off, has left is taken up; a running cluster is not.
        let running = layout::etc("kubelet.conf");
        let leftovers = if services_run() { vec![running] } else { Vec::new() };
        let mut programs = vec![("iptables", "iptables"), ("runc", "runc"), ("setsid", "util-linux")];
        if self.plane.datastore == Datastore::Etcd {
            programs.push(("etcd", "etcd-server"));
        }
        let mut ports = vec![self.plane.port, 10250, ACTIVATOR_PORT];
        if self.plane.redis.as_ref().is_some_and(Redis::is_own) {
            programs.push(("redis-server", "redis-server"));
            ports.push(redis::PORT);
        }
        let other_stores = match self.plane.datastore {
            Datastore::Embedded => vec![layout::ETCD.into()],
            Datastore::Etcd => vec![layout::embedded_store()],
            Datastore::External { .. } => vec![layout::ETCD.into(), layout::embedded_store()],
        };
        let facts = facts::gather(&Wanted {
            ports: &ports,
            programs: &programs,
            containerd_socket: &self.node.containerd_socket,
            files: &leftovers,
            program: &self.program,
            other_stores: &other_stores,
        });
        report(preflight::sort(preflight::check(&facts), &self.ignored), self.host)
    }

    async fn program(&mut self) -> Result<String> {
        node::install_program(&self.host, &self.program)
    }

    async fn certs(&mut self) -> Result<String> {
        let dir = layout::pki();
        if self.host.would(&format!("make the authority, keys and certificates in {}", dir.display())) {
            return Ok("nothing was made".to_owned());
        }
        let first = self.plane.cluster.service_cidrs.first().and_then(|range| range.hosts().next());
        let names = self.plane.names.iter().cloned();
        let config = pki::Config {
            names: names.chain([self.plane.advertise_address.to_string(), self.node.name.clone()]).collect(),
            service_ip: first,
        };
        let existed = dir.join("ca.crt").exists();
        let now = Timestamp::now();
        let pki = pki::ensure(&dir, &config, now)?;
        pki::ensure_activator(&dir, &pki.authority, &self.plane.activator_names(), now)?;
        if let Some(redis) = &self.plane.redis {
            redis.prepare(&self.host, &pki.authority).context("prepare Redis")?;
        }
        self.pki = Some(pki);
        let what = if existed { "keep to the authority in" } else { "are new, in" };
        Ok(format!("certificates {what} {}", dir.display()))
    }

    async fn kubeconfigs(&mut self) -> Result<String> {
        let Some(pki) = &self.pki else { return Ok("nothing was written".to_owned()) };
        let (now, url) = (Timestamp::now(), self.plane.cluster.url());
        for component in &pki::COMPONENTS {
            pki::ensure_component(Path::new(layout::ETC), component, &url, &pki.authority, now)?;
        }
        let identity = match node::own_identity(&self.node.name, &pki.authority) {
            Some(identity) => identity,
            None => {
                let user = format!("system:node:{}", self.node.name);
                pki.authority.client(&user, &["system:nodes"], now)?
            }
        };
        let ca = pki.authority.pem();
        node::write_identity(&self.host, &self.plane.cluster, ca, &self.node, &identity)?;
        Ok(format!("admin.conf, kubelet.conf and more are in {}", layout::ETC))
    }

    async fn image(&mut self) -> Result<String> {
        let own = image::Program {
            file: &self.program,
            target: image::PROGRAM,
            links: &["/apiserver", "/controller-manager", "/knative", "/scheduler"],
        };
        self.import(&own, image::OWN).await?;
        if self.plane.datastore == Datastore::Etcd {
            let file = facts::find_program("etcd").context("etcd is missing: apt-get install etcd-server")?;
            self.import(&image::Program { file: &file, target: "/etcd", links: &[] }, image::ETCD).await?;
        }
        if self.plane.redis.as_ref().is_some_and(Redis::is_own) {
            let missing = "redis-server is missing: apt-get install redis-server";
            let file = facts::find_program("redis-server").context(missing)?;
            let redis = image::Program { file: &file, target: "/redis-server", links: &[] };
            self.import(&redis, image::REDIS).await?;
        }
        Ok(format!("{} is in containerd", image::OWN))
    }

    async fn import(&self, program: &image::Program<'_>, name: &str) -> Result<()> {
        if self.host.would(&format!("import {name}, made of {}", program.file.display())) {
            return Ok(());
        }
        let archive = tempfile::NamedTempFile::new().context("make a temporary file")?;
        image::write_archive(program, name, archive.path())?;
        let containerd = containerd(&self.node.containerd_socket)?;
        containerd.import(archive.path()).await.with_context(|| format!("import {name}"))?;
        Ok(())
    }

    async fn manifests(&mut self) -> Result<String> {
        for folder in [layout::DATA, layout::KUBELET] {
            self.host.private_folder(Path::new(folder))?;
        }
        let all = manifests::all(&self.plane)?;
        for (file, text) in &all {
            self.host.write(&layout::manifests().join(file), text, Mode::Secret)?;
        }
        Ok(format!("{} static pods are in {}", all.len(), layout::manifests().display()))
    }

    async fn services(&mut self) -> Result<String> {
        services::install(&self.host, &node::services(&self.plane.cluster, &self.node)?)?;
        Ok(format!(
            "kubelet and kube-proxy run under {}",
            if services::has_systemd() { "systemd" } else { "minik8s' own supervisor" }
        ))
    }

    async fn wait_for_api(&mut self) -> Result<String> {
        let Some(pki) = &self.pki else { return Ok("nothing to wait for".to_owned()) };
        let url = self.plane.cluster.url();
        let admin = pki.admin.clone();
        let client = admin_client(&url, pki.authority.pem(), &admin.certificate, &admin.key).await?;
        let ready = wait_until(|| async { client.apiserver_version().await.is_ok().then_some(()) });
        ready.await.with_context(|| {
            format!(
                "{url} does not answer; kubeadm status says more, and so do the kubelet's log ({}) and the API server's ({}/kube-system_kube-apiserver-*)",
                if services::has_systemd() { "journalctl -u kubelet".to_owned() } else { format!("{}/kubelet.log", layout::LOGS) },
                layout::POD_LOGS,
            )
        })?;
        self.client = Some(client);
        Ok(format!("{url} answers"))
    }

    async fn bootstrap(&mut self) -> Result<String> {
        let (Some(client), Some(pki)) = (&self.client, &self.pki) else {
            return Ok("nothing was made".to_owned());
        };
        // Before the cluster's own word of where it is, by which this is noticed, says otherwise.
        self.moved = moved::machines_left_behind(client, &self.plane.cluster, &self.node.name).await?;
        let mut all = objects::all(&self.plane.cluster, pki.authority.pem())?;
        let expires = (!self.token_ttl.is_zero()).then(|| Timestamp::now() + self.token_ttl);
        all.push(objects::token(&self.token, "The token that kubeadm init made.", expires));
        objects::apply(client, &all).await?;
        Ok("machines can join".to_owned())
    }

    /// What to do next.
    fn farewell(&self) -> Result<String> {
        let pem = self.pki.as_ref().map(|pki| pki.authority.pem()).context("no authority was made")?;
        let join = join_command(&self.plane.cluster.endpoint, &self.token, pem)?;
        let left_behind = self.moved.as_ref().map(|moved| moved.told(&join)).unwrap_or_default();
        Ok(format!(
            "\nThe cluster is up. To use it:\n\n  export KUBECONFIG={admin}\n  {kubectl} get nodes\n\n\
             To add a machine, run there as root:\n\n  {join}\n{left_behind}",
            admin = layout::admin().display(),
            kubectl = links::call("kubectl", &links::names(&self.program)),
        ))
    }
}

/// The line by which a machine joins.
pub fn join_command(endpoint: &str, token: &BootstrapToken, ca_pem: &str) -> Result<String> {
    let hash = pki::public_key_hash(ca_pem)?;
    Ok(format!("kubeadm join {endpoint} --token {token} --discovery-token-ca-cert-hash {hash}"))
}

/// A client with a certificate.
async fn admin_client(url: &str, ca_pem: &str, certificate: &str, key: &str) -> Result<Client> {
    client_of(&pki::kubeconfig(url, ca_pem, "admin", certificate, key)).await
}

/// A client of a kubeconfig's text.
pub async fn client_of(kubeconfig: &str) -> Result<Client> {
    let config = kube::config::Kubeconfig::from_yaml(kubeconfig).context("read the kubeconfig")?;
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options).await;
    let config = config.context("understand the kubeconfig")?;
    Client::try_from(config).context("make a client")
}

/// containerd's socket, with or without `unix://`.
pub fn socket_path(text: &str) -> PathBuf {
    text.strip_prefix("unix://").unwrap_or(text).into()
}

/// Whether the services of a cluster run here.
pub fn services_run() -> bool {
    let has_unit = Path::new(layout::UNITS).join("kubelet.service").exists();
    (services::has_systemd() && has_unit) || crate::supervisor::running().is_some()
}

/// Says what preflight found; an error if something stands in the way.
pub fn report(found: (Vec<preflight::Problem>, Vec<preflight::Problem>), host: Host) -> Result<String> {
    let (errors, warnings) = found;
    let lines = |problems: &[preflight::Problem]| {
        problems.iter().map(|problem| format!("\n  {problem}")).collect::<String>()
    };
    if !errors.is_empty() && !host.dry_run {
        bail!(
            "this machine is not ready:{}\n(--ignore-preflight-errors=NAME goes on all the same)",
            lines(&errors)
        );
    }
    let all = [errors, warnings].concat();
    Ok(if all.is_empty() { "this machine is ready".to_owned() } else { format!("ready, but{}", lines(&all)) })
}

/// Asks again and again until something is there.
pub async fn wait_until<T, F: Future<Output = Option<T>>>(mut condition: impl FnMut() -> F) -> Result<T> {
    let waiting = async {
        let mut pause = Duration::from_millis(10);
        loop {
            if let Some(found) = condition().await {
                return found;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .with_context(|| format!("waited {} seconds in vain", PATIENCE.as_secs()))
}

fn wait_for_node<'a>(init: &'a mut Init, progress: &'a Progress) -> BoxFuture<'a, Result<String>> {
    async move {
        let Some(client) = &init.client else { return Ok("nothing to wait for".to_owned()) };
        let labels = serde_json::json!({"metadata": {"labels": {
            "node-role.kubernetes.io/control-plane": "",
            "node.kubernetes.io/exclude-from-external-load-balancers": "",
        }}});
        node_ready(client, &init.node.name, progress).await?;
        let api: Api<core::Node> = Api::all(client.clone());
        let parameters = kube::api::PatchParams::default();
        api.patch(&init.node.name, &parameters, &kube::api::Patch::Merge(labels))
            .await
            .context("label the node")?;
        Ok(format!("{} is Ready", init.node.name))
    }
    .boxed()
}

/// Waits until a node is Ready, and says meanwhile why it is not.
pub async fn node_ready(client: &Client, name: &str, progress: &Progress) -> Result<()> {
    let api: Api<core::Node> = Api::all(client.clone());
    let why = std::sync::Mutex::new("it has not registered".to_owned());
    let ready = wait_until(async || {
        let node = api.get_opt(name).await.ok()??;
        let conditions = node.status.unwrap_or_default().conditions.unwrap_or_default();
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
        if ready.status != "True" {
            let message = ready.message.unwrap_or_default();
            progress.update(&format!("waiting for the node: {message}"));
            why.lock().expect("nobody panics with it").clone_from(&message);
            return None;
        }
        Some(())
    })
    .await;
    ready.with_context(|| {
        format!("node {name} does not become Ready: {}", why.lock().expect("nobody panics with it"))
    })
}
