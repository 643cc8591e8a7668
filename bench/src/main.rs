//! The table of benchmarks, measured in one run: our API server on both of its stores, beside floors (programs that do
//! nothing but what cannot be left out) and, if one is given, beside another API server under the same load.
//!
//! ```text
//! load ──> apiserver, embedded store ┐
//!      ──> apiserver, etcd           ├──> figures ──> table
//!      ──> floor: HTTPS, same bytes  │
//!      ──> peer                      ┘     floors: fdatasync, etcd compare-and-swap
//! ```
//!
//! The load shares the machine with what it measures, so a figure says little alone and its ratio to others much.

mod fanout;
mod floor;
mod hostile;
mod http;
mod load;
mod servers;

use crate::http::Endpoint;
use crate::load::{Figures, Scale};
use crate::servers::{Etcd, Server};
use anyhow::{Context, Result};
use bench::process;
use bench::table::{self, Row};
use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Measures the API server and prints a table.
#[derive(Parser)]
#[command(name = "bench")]
struct Flags {
    /// The apiserver program.
    #[arg(long, default_value = "bin/apiserver")]
    apiserver: PathBuf,
    /// Measure another API server too: a kubeconfig with a client certificate that may do everything.
    #[arg(long)]
    peer_kubeconfig: Option<PathBuf>,
    /// The peer's process, if it runs here: for its memory.
    #[arg(long, requires = "peer_kubeconfig")]
    peer_pid: Option<u32>,
    /// Fewer objects, shorter windows.
    #[arg(long)]
    quick: bool,
    /// Leave out etcd.
    #[arg(long)]
    no_etcd: bool,
    #[command(subcommand)]
    command: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    /// Clients that mean no good: what others notice of them, and what they take.
    Hostile,
    /// A change heard by many, over HTTP and over Redis.
    Fanout,
    /// The server that does nothing: started by the benchmark itself.
    #[command(hide = true)]
    Floor {
        #[arg(long)]
        data_dir: PathBuf,
    },
}

const FULL: Scale = Scale { connections: 16, pods: 10_000, watchers: 1_000, window: Duration::from_secs(5) };
const QUICK: Scale = Scale { connections: 16, pods: 2_000, watchers: 100, window: Duration::from_secs(1) };
/// After its start a server gets this long to settle before its idle state is measured.
const SETTLE: Duration = Duration::from_secs(12);

/// What one API server does and takes.
struct Measured {
    figures: Figures,
    started: Option<Duration>,
    /// With all the pods in its store.
    restarted: Option<Duration>,
    cpu_idle: Option<f64>,
    memory_idle: Option<f64>,
    memory_after: Option<f64>,
    memory_peak: Option<f64>,
}

/// What floors do.
struct Floors {
    https: Figures,
    group_commits: f64,
    /// How many per second, and etcd's CPU seconds for each.
    etcd_creates: Option<(f64, f64)>,
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match &flags.command {
        Some(Part::Floor { data_dir }) => runtime.block_on(floor::serve(data_dir)),
        Some(Part::Hostile) => {
            let scale = if flags.quick { hostile::QUICK } else { hostile::FULL };
            runtime.block_on(hostile::measure(&flags.apiserver, scale))
        }
        Some(Part::Fanout) => runtime.block_on(fanout::measure(&flags.apiserver, flags.quick)),
        None => runtime.block_on(measure(&flags)),
    }
}

async fn measure(flags: &Flags) -> Result<()> {
    let scale = if flags.quick { QUICK } else { FULL };
    let scratch = tempfile::tempdir()?;
    eprintln!("embedded store");
    let floor_dir = scratch.path().join("floor");
    std::fs::create_dir(&floor_dir)?;
    let embedded =
        ours(&flags.apiserver, &[], &scratch.path().join("embedded"), scale, None, Some(&floor_dir)).await?;
    let object_bytes = std::fs::metadata(floor_dir.join(floor::OBJECT))?.len() as usize;
    let server = if flags.no_etcd { None } else { Etcd::start()? };
    let (mut on_etcd, mut etcd_creates) = (None, None);
    if let Some(etcd) = &server {
        eprintln!("etcd");
        etcd_creates = Some(floor::etcd_creates(etcd, scale.connections, object_bytes, scale.window).await?);
        let args = ["--etcd-servers", &etcd.url];
        let dir = scratch.path().join("etcd");
        on_etcd = Some(ours(&flags.apiserver, &args, &dir, scale, Some(etcd.pid()), None).await?);
    }
    drop(server);
    eprintln!("floors");
    let group_commits = floor::group_commits(scratch.path(), scale.connections, object_bytes, scale.window)?;
    let https = {
        let own = std::env::current_exe().context("find the benchmark's own program")?;
        let server = Server::start(&own, &["floor"], &floor_dir)?;
        load::run(&server.endpoint, Some(server.pid()), None, scale).await.context("measure the floor")?
    };
    let peer = match &flags.peer_kubeconfig {
        Some(path) => {
            eprintln!("peer");
            let measured = peer(&Endpoint::from_file(path)?, flags.peer_pid, scale).await;
            // What was measured of ours is worth showing without it.
            measured.inspect_err(|error| eprintln!("cannot measure the peer: {error:#}")).ok()
        }
        None => None,
    };
    let floors = Floors { https, group_commits, etcd_creates };
    print!("{}", table::render(&rows(&embedded, on_etcd.as_ref(), &floors, peer.as_ref())));
    Ok(())
}

/// Measures our server. What it answers becomes what the floor answers.
async fn ours(
    program: &Path,
    args: &[&str],
    dir: &Path,
    scale: Scale,
    behind: Option<u32>,
    floor: Option<&Path>,
) -> Result<Measured> {
    let args = [&["--bind-address", "127.0.0.1", "--secure-port", "0"], args].concat();
    let server = Server::start(program, &args, dir)?;
    tokio::time::sleep(SETTLE).await;
    let cpu_idle = process::idle_cpu(server.pid(), scale.window).await?;
    let (memory_idle, _) = process::memory(server.pid())?;
    let figures = load::run(&server.endpoint, Some(server.pid()), behind, scale).await?;
    tokio::time::sleep(SETTLE).await;
    let (memory_after, memory_peak) = process::memory(server.pid())?;
    if let Some(floor) = floor {
        floor::write_samples(floor, &load::samples(&server.endpoint).await?)?;
    }
    let started = server.started_in;
    drop(server);
    let restarted = Server::start(program, &args, dir)?.started_in;
    Ok(Measured {
        figures,
        started: Some(started),
        restarted: Some(restarted),
        cpu_idle: Some(cpu_idle),
        memory_idle: Some(memory_idle),
        memory_after: Some(memory_after),
        memory_peak: Some(memory_peak),
    })
}

async fn peer(endpoint: &Endpoint, pid: Option<u32>, scale: Scale) -> Result<Measured> {
    let memory = || pid.map(process::memory).transpose();
    let idle = memory()?;
    let cpu_idle = match pid {
        Some(pid) => Some(process::idle_cpu(pid, scale.window).await?),
        None => None,
    };
    let figures = load::run(endpoint, pid, None, scale).await;
    let after = memory()?;
    load::clean_up(endpoint).await?;
    Ok(Measured {
        figures: figures?,
        started: None,
        restarted: None,
        cpu_idle,
        memory_idle: idle.map(|(pss, _)| pss),
        memory_after: after.map(|(pss, _)| pss),
        memory_peak: after.map(|(_, peak)| peak),
    })
}

const HTTPS: &str = "HTTPS server that does nothing, equal bytes";

fn rows(embedded: &Measured, etcd: Option<&Measured>, floors: &Floors, peer: Option<&Measured>) -> Vec<Row> {
    const MB: f64 = 1e6;
    let row = |what: &str, unit, ours: Option<f64>, floor, peer: Option<f64>| {
        let what = what.to_owned();
        Row { what, unit, ours, floor, peer }
    };
    let of = |measured: Option<&Measured>, figure: fn(&Figures) -> f64| measured.map(|m| figure(&m.figures));
    let https = |figure: fn(&Figures) -> f64| Some((figure(&floors.https), HTTPS));
    let creates = |figures: &Figures| figures.creates_per_second;
    let gets = |figures: &Figures| figures.gets_per_second;
    let lists = |figures: &Figures| figures.lists_per_second;
    let list_mb = |figures: &Figures| figures.lists_per_second * figures.list_bytes as f64 / MB;
    let changes = |figures: &Figures| figures.changes_per_second;
    let watch_mb = |figures: &Figures| figures.watch_bytes_per_second / MB;
    let own = Some(embedded);
    let raw_etcd = floors.etcd_creates.map(|(rate, _)| (rate, "compare-and-swap on etcd"));
    let raw_disk = Some((floors.group_commits, "fdatasync of as many at once"));
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let mb = |bytes: Option<f64>| bytes.map(|bytes| bytes / MB);
    let peer_of = |field: fn(&Measured) -> Option<f64>| peer.and_then(field);
    let cpu = |what, figure: fn(&Figures) -> Option<f64>| {
        let micros = |figures: &Figures| figure(figures).map(|seconds| seconds * 1e6);
        let floor = micros(&floors.https).map(|value| (value, HTTPS));
        row(what, "µs", micros(&embedded.figures), floor, peer.and_then(|peer| micros(&peer.figures)))
    };
    let micros_of = |measured: Option<&Measured>, figure: fn(&Figures) -> Option<f64>| {
        measured.and_then(|measured| figure(&measured.figures)).map(|seconds| seconds * 1e6)
    };
    let etcd_cpu = floors.etcd_creates.map(|(_, cpu)| (cpu * 1e6, "compare-and-swap on etcd"));
    vec![
        row("pod creates, embedded store", "/s", of(own, creates), raw_disk, of(peer, creates)),
        row("", "/s", of(own, creates), https(creates), of(peer, creates)),
        row("pod creates, etcd", "/s", of(etcd, creates), raw_etcd, of(peer, creates)),
        row("GET pod, embedded store", "/s", of(own, gets), https(gets), of(peer, gets)),
        row("GET pod, etcd", "/s", of(etcd, gets), https(gets), of(peer, gets)),
        row("LIST all pods, embedded store", "/s", of(own, lists), https(lists), of(peer, lists)),
        row("", "MB/s", of(own, list_mb), https(list_mb), of(peer, list_mb)),
        row("LIST all pods, etcd", "/s", of(etcd, lists), https(lists), of(peer, lists)),
        row("changes to each watcher, embedded", "/s", of(own, changes), https(changes), of(peer, changes)),
        row("", "MB/s", of(own, watch_mb), https(watch_mb), of(peer, watch_mb)),
        row("changes to each watcher, etcd", "/s", of(etcd, changes), https(changes), of(peer, changes)),
        cpu("CPU time of one create, embedded", |figures| figures.create_cpu),
        row("CPU time of one create, etcd", "µs", micros_of(etcd, |f| f.create_cpu), None, None),
        row("… of etcd itself", "µs", micros_of(etcd, |f| f.create_cpu_behind), etcd_cpu, None),
        cpu("CPU time of one GET, embedded", |figures| figures.get_cpu),
        row("CPU time of one GET, etcd", "µs", micros_of(etcd, |f| f.get_cpu), None, None),
        cpu("CPU time of one LIST, embedded", |figures| figures.list_cpu),
        row("memory idle (PSS)", "MB", mb(embedded.memory_idle), None, mb(peer_of(|p| p.memory_idle))),
        row(
            "memory after the load (PSS)",
            "MB",
            mb(embedded.memory_after),
            None,
            mb(peer_of(|p| p.memory_after)),
        ),
        row("memory at most (RSS)", "MB", mb(embedded.memory_peak), None, mb(peer_of(|p| p.memory_peak))),
        row("memory after the load, etcd (PSS)", "MB", mb(etcd.and_then(|e| e.memory_after)), None, None),
        row("CPU idle", "cores", embedded.cpu_idle, None, peer_of(|p| p.cpu_idle)),
        row("first start, embedded store", "s", seconds(embedded.started), None, None),
        row("first start, etcd", "s", seconds(etcd.and_then(|e| e.started)), None, None),
        row("start with all pods, embedded store", "s", seconds(embedded.restarted), None, None),
        row("start with all pods, etcd", "s", seconds(etcd.and_then(|e| e.restarted)), None, None),
    ]
}
