//! How long rules take: all services from nothing, and one endpoint changed among them; and what kubeproxy takes.
//!
//! ```text
//! cargo run --release -p proxy --example rules -- KUBEPROXY [--peer KUBE-PROXY] [--iptables NAME] [--services NUMBER]
//!
//! bare      iptables-restore alone, of text that is ready: nobody can be faster
//! rules     what makes and applies rules, in this process
//! program   the program as it is built, beside an apiserver in this process; and, in the same way, a peer
//! ```
//!
//! Each is measured on a host of its own, which goes with all its rules. Programs are watched from outside, by
//! connections: all rules are there when services answer, a change is there when the new endpoint does.

mod bare;
mod cluster;
#[path = "../../../network/tests/network/host.rs"]
mod host;
mod probe;

use bench::table::{Row, render};
use clap::Parser;
use client::Key;
use cluster::{Kind, Program};
use host::Host;
use network::Protocol;
use proxy::record::More;
use proxy::services::{Endpoint, PortName, ServicePort};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

/// Of each service.
const ENDPOINTS: usize = 10;
/// Services listen here.
const PORT: u16 = 80;
/// Endpoints listen here.
const TARGET_PORT: u16 = 8080;
/// All services.
const SERVICES: &str = "10.96.0.0/12";
const FIRST_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 0);
/// All pods.
const PODS: &str = "10.128.0.0/9";
const FIRST_POD: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 0);
const FIRST_NEW_POD: Ipv4Addr = Ipv4Addr::new(10, 192, 0, 0);

/// Measures rules, and the program that keeps them.
#[derive(Parser)]
#[command(name = "rules")]
struct Flags {
    /// The built kubeproxy
    program: PathBuf,
    /// Measure this kube-proxy of upstream's too
    #[arg(long)]
    peer: Option<PathBuf>,
    /// With these
    #[arg(long, value_delimiter = ',', default_value = "iptables-nft,iptables-legacy")]
    iptables: Vec<String>,
    /// With so many services
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    services: Vec<usize>,
    /// How many times an endpoint changes
    #[arg(long, default_value = "20")]
    changes: usize,
}

/// What was asked for.
#[derive(Clone)]
struct Scale {
    iptables: String,
    services: usize,
    changes: usize,
}

/// Seconds from nothing to all rules, and from one endpoint's change to its rule, half of the times.
#[derive(Clone, Copy)]
struct Times {
    first: f64,
    change: f64,
}

fn main() {
    let flags = Flags::parse();
    for iptables in &flags.iptables {
        let mut rows = Vec::new();
        for services in &flags.services {
            let scale =
                Scale { iptables: iptables.clone(), services: *services, changes: flags.changes.max(1) };
            rows.extend(measure(&flags, &scale));
        }
        println!("\n{ENDPOINTS} endpoints each, {iptables}\n{}", render(&rows));
    }
}

fn measure(flags: &Flags, scale: &Scale) -> Vec<Row> {
    let say = |what: &str| eprintln!("{}, {} services: {what}", scale.iptables, scale.services);
    say("bare");
    let asked = scale.clone();
    let bare = Host::new().block_on(move || async move { bare::restore(&asked).await });
    say("rules");
    let asked = scale.clone();
    let rules = Host::new().block_on(move || async move { bare::sync(&asked).await });
    let program = |kind: Kind, path: &PathBuf| {
        let (path, asked) = (std::fs::canonicalize(path).unwrap_or_else(|_| path.clone()), scale.clone());
        let measured = Host::new()
            .block_on(move || async move { cluster::measure(&Program { kind, path }, &asked).await });
        // What was measured of others is worth showing without it.
        measured.inspect_err(|error| eprintln!("not measured: {error:#}")).ok()
    };
    say("program");
    let ours = program(Kind::Ours, &flags.program);
    let peer = flags.peer.as_ref().and_then(|path| {
        say("peer");
        program(Kind::Upstream, path)
    });
    let n = scale.services;
    let restore = |time: f64| Some((time, "iptables-restore of text that is ready"));
    let row = |what: String, unit, ours, floor, peer| Row { what, unit, ours, floor, peer };
    let of = |figure: fn(&cluster::Figures) -> f64| (ours.as_ref().map(figure), peer.as_ref().map(figure));
    let (first, change) = (of(|figures| figures.times.first), of(|figures| figures.times.change * 1e3));
    let (cpu, pss, peak) = (of(|figures| figures.cpu), of(|figures| figures.pss), of(|figures| figures.peak));
    vec![
        row(format!("{n} services, start to all served"), "s", first.0, restore(bare.first), first.1),
        row("… the rules alone".into(), "s", Some(rules.first), restore(bare.first), None),
        row("… CPU time of the program, without iptables'".into(), "s", cpu.0, None, cpu.1),
        row("one endpoint changed, to served".into(), "ms", change.0, restore(bare.change * 1e3), change.1),
        row("… the rules alone".into(), "ms", Some(rules.change * 1e3), restore(bare.change * 1e3), None),
        row("memory (PSS)".into(), "MB", pss.0, None, pss.1),
        row("memory at most (RSS)".into(), "MB", peak.0, None, peak.1),
    ]
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn key(n: usize) -> Key {
    Key::new("default", format!("service-{n}"))
}

fn cluster_ip(n: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(FIRST_SERVICE) + n as u32)
}

/// The `m`-th endpoint of a service. The `version`-th change gives the last of them another address.
fn pod_ip(n: usize, m: usize, version: usize) -> Ipv4Addr {
    match version {
        change @ 1.. if m == ENDPOINTS - 1 => Ipv4Addr::from(u32::from(FIRST_NEW_POD) + change as u32),
        _ => Ipv4Addr::from(u32::from(FIRST_POD) + (n * ENDPOINTS + m) as u32),
    }
}

/// Which service the `n`-th change is of: no two next to each other.
fn changed(n: usize, scale: &Scale) -> usize {
    (n * 7919) % scale.services
}

fn service(n: usize, version: usize) -> ServicePort {
    let endpoint = |m: usize| Endpoint {
        address: IpAddr::V4(pod_ip(n, m, version)),
        port: TARGET_PORT,
        ready: true,
        serving: true,
        terminating: false,
        local: false,
        hints: (None, None),
    };
    ServicePort {
        name: PortName { namespace: "default".into(), service: key(n).name, port: "http".into() },
        protocol: Protocol::Tcp,
        port: PORT,
        node_port: None,
        cluster_ips: vec![IpAddr::V4(cluster_ip(n))],
        more: More::default(),
        endpoints: (0..ENDPOINTS).map(endpoint).collect(),
    }
}
