//! How long rules take: all services from nothing, and one endpoint changed among them.
//!
//! Run it in a network namespace of its own: `unshare --net rules [iptables-nft|iptables-legacy] [services…]`.

use client::Key;
use network::Protocol;
use proxy::iptables::Iptables;
use proxy::rules::Settings;
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
    let own = std::fs::read_to_string("/proc/self/net/dev")?.lines().count() <= 3 || std::env::var_os("FORCE").is_some();
    if !own {
        return Err("this would write thousands of rules here: run it by `unshare --net`".into());
    }
    println!("| services × {ENDPOINTS} endpoints, {program} | first sync | one endpoint changed (median of {CHANGES}) | peak memory |");
    println!("|---|---|---|---|");
    for size in sizes {
        let (first, change) = measure(&program, size).await?;
        println!("| {size} | {:.2} s | {:.0} ms | {} MB |", first.as_secs_f64(), change.as_secs_f64() * 1000.0, peak_mb());
    }
    Ok(())
}

async fn measure(program: &str, size: usize) -> Result<(Duration, Duration), Box<dyn std::error::Error>> {
    let iptables = Iptables::find(program).await?;
    iptables.cleanup().await?;
    let mut syncer = Syncer::new(iptables, Settings { pods: Some("10.0.0.0/8".parse()?), ..Settings::new(false) });
    let all: Vec<(Key, Vec<ServicePort>)> = (0..size).map(|n| (key(n), vec![service(n, 0)])).collect();
    let began = Instant::now();
    syncer.sync(all).await?;
    let first = began.elapsed();
    let mut times = Vec::new();
    for n in 0..CHANGES {
        let changed = (n * 7919) % size;
        let began = Instant::now();
        syncer.sync(vec![(key(changed), vec![service(changed, n as u8 + 1)])]).await?;
        times.push(began.elapsed());
    }
    times.sort();
    Ok((first, times[CHANGES / 2]))
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

fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or_default() / 1024
}
