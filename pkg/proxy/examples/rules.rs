//! How long rules take: all services from nothing, and one endpoint changed among them.
//!
//! Run it in a network namespace of its own: `unshare --net rules [iptables-nft|iptables-legacy] [services…]`.

use client::Key;
use network::Protocol;
use proxy::iptables::Iptables;
use proxy::rules::{self, Settings, Table};
use proxy::services::{Endpoint, PortName, ServicePort};
use proxy::syncer::Syncer;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

const ENDPOINTS: usize = 10;
const CHANGES: usize = 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().unwrap_or_else(|| "iptables-nft".to_owned());
    let mut sizes: Vec<usize> = arguments.filter_map(|size| size.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![1_000, 10_000];
    }
    let own = std::fs::read_to_string("/proc/self/net/dev")?.lines().count() <= 3
        || std::env::var_os("FORCE").is_some();
    if !own {
        return Err("this would write thousands of rules here: run it by `unshare --net`".into());
    }
    println!(
        "| services × {ENDPOINTS} endpoints, {program} | first sync | bare restore of the same | one endpoint changed (median of {CHANGES}) | bare restore of the same | own CPU of the first sync | memory after (PSS), peak |"
    );
    println!("|---|---|---|---|---|---|---|");
    for size in sizes {
        let (bare_first, bare_change) = bare(&program, size).await?;
        let figures = measure(&program, size).await?;
        println!(
            "| {size} | {:.2} s | {:.2} s | {:.0} ms | {:.0} ms | {:.2} s | {:.1} MB, {:.1} MB |",
            figures.first.as_secs_f64(),
            bare_first.as_secs_f64(),
            figures.change.as_secs_f64() * 1000.0,
            bare_change.as_secs_f64() * 1000.0,
            figures.cpu.as_secs_f64(),
            kilobytes("/proc/self/smaps_rollup", "Pss:") / 1024.0,
            kilobytes("/proc/self/status", "VmHWM:") / 1024.0
        );
    }
    Ok(())
}

struct Figures {
    first: Duration,
    change: Duration,
    cpu: Duration,
}

async fn measure(program: &str, size: usize) -> Result<Figures, Box<dyn std::error::Error>> {
    let iptables = Iptables::find(program).await?;
    iptables.cleanup().await?;
    let mut syncer = Syncer::new(iptables, settings()?);
    let (began, cpu) = (Instant::now(), own_cpu());
    syncer.sync((0..size).map(|n| (key(n), vec![service(n, 0)]))).await?;
    let (first, cpu) = (began.elapsed(), own_cpu() - cpu);
    let mut times = Vec::new();
    for n in 0..CHANGES {
        let changed = (n * 7919) % size;
        let began = Instant::now();
        syncer.sync([(key(changed), vec![service(changed, n as u8 + 1)])]).await?;
        times.push(began.elapsed());
    }
    times.sort();
    Ok(Figures { first, change: times[CHANGES / 2], cpu })
}

/// The limit: nothing but iptables-restore, of text that is ready, in the same chunks.
async fn bare(program: &str, size: usize) -> Result<(Duration, Duration), Box<dyn std::error::Error>> {
    let iptables = Iptables::find(program).await?;
    iptables.cleanup().await?;
    let settings = settings()?;
    let shared = shared_chains(size, &settings);
    let shared = format!("{}{}", text("nat", &shared.nat), text("filter", &shared.filter));
    let mark = "*nat\n:KUBE-HOST-MARK - [0:0]\n-A KUBE-HOST-MARK -j MARK --set-xmark 0x6000/0x6000\nCOMMIT\n"
        .to_owned();
    let chunk = if iptables.is_nft() { 50 } else { size };
    let chunks = (0..size).step_by(chunk).map(|from| {
        let services = (from..size.min(from + chunk)).map(|n| rules::port(&service(n, 0), &settings).chains);
        text("nat", &services.flatten().collect())
    });
    let texts: Vec<String> = std::iter::once(mark).chain(chunks).chain([shared]).collect();
    let began = Instant::now();
    for text in &texts {
        iptables.restore(text).await?;
    }
    // The kernel checks the whole of what a packet can reach at every change.
    iptables.add_jumps().await?;
    let first = began.elapsed();
    let mut times = Vec::new();
    for n in 0..CHANGES {
        let changed = (n * 7919) % size;
        let chains = |version: u8| rules::port(&service(changed, version), &settings).chains;
        let before = chains(0);
        // The service's own chain, and that of the endpoint that is another.
        let differs = |(name, rules): &(String, Vec<String>)| before.get(name) != Some(rules);
        let text = text("nat", &chains(n as u8 + 1).into_iter().filter(differs).collect());
        let began = Instant::now();
        iptables.restore(&text).await?;
        times.push(began.elapsed());
    }
    times.sort();
    iptables.cleanup().await?;
    Ok((first, times[CHANGES / 2]))
}

fn shared_chains(size: usize, settings: &Settings) -> rules::Rules {
    let rendered: Vec<_> = (0..size).map(|n| rules::port(&service(n, 0), settings)).collect();
    rules::shared(rendered.iter(), settings)
}

fn text(table: &str, chains: &Table) -> String {
    let names: String = chains.keys().map(|name| format!(":{name} - [0:0]\n")).collect();
    let rules =
        chains.iter().flat_map(|(name, rules)| rules.iter().map(move |rule| format!("-A {name} {rule}\n")));
    format!("*{table}\n{names}{}COMMIT\n", rules.collect::<String>())
}

fn settings() -> Result<Settings, Box<dyn std::error::Error>> {
    Ok(Settings { pods: Some("10.0.0.0/8".parse()?), ..Settings::new(false) })
}

/// CPU time of this process, without its children's.
fn own_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    // In hundredths of a second, on every Linux that we build for.
    Duration::from_millis(fields.filter_map(|field| field.parse::<u64>().ok()).sum::<u64>() * 10)
}

fn key(n: usize) -> Key {
    Key::new("default", format!("service-{n}"))
}

/// `version` changes the last endpoint.
fn service(n: usize, version: u8) -> ServicePort {
    let address = |base: u32, n: usize| IpAddr::V4(Ipv4Addr::from(base + n as u32));
    let endpoint = |m: usize| Endpoint {
        address: address(0x0A80_0000, n * ENDPOINTS + m),
        port: 8080 + if m == ENDPOINTS - 1 { u16::from(version) } else { 0 },
        ready: true,
        serving: true,
        terminating: false,
        local: false,
        hinted: true,
    };
    ServicePort {
        name: PortName { namespace: "default".into(), service: format!("service-{n}"), port: "http".into() },
        protocol: Protocol::Tcp,
        port: 80,
        node_port: None,
        cluster_ips: vec![address(0xAC10_0000, n)],
        external_ips: vec![],
        load_balancer_ips: vec![],
        source_ranges: vec![],
        affinity_seconds: None,
        internal_local: false,
        external_local: false,
        endpoints: (0..ENDPOINTS).map(endpoint).collect(),
    }
}

fn kilobytes(file: &str, field: &str) -> f64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or_default()
}
