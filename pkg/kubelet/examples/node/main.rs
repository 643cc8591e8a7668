//! How fast pods start and end on a node, and what the kubelet takes, beside containerd alone and, if it is given,
//! beside upstream's kubelet.
//!
//! ```text
//! cargo run --release -p kubelet --example node -- KUBELET [--peer UPSTREAM'S] [--quick]
//!
//! containerd ── alone   pause and one container per pod, and nothing else
//!          ├─── ours    the program as it is built, and an apiserver in this process
//! another one ─ peer    the same pods, the same apiserver, through containerd's CRI and a CNI bridge
//! ```
//!
//! Everything is in a network namespace of its own.

mod alone;
#[path = "../../../../cmd/kubelet/tests/node/command.rs"]
mod command;
mod peer;
mod pods;
mod shim;

use alone::Alone;
use bench::process;
use bench::table::{Row, render};
use clap::Parser;
use pods::BenchNode;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testing::{Containerd, TestServer};

const NAME: &str = "bench";
const FOREVER: &str = "trap 'exit 0' TERM; while true; do sleep 1 & wait; done";
const TOGETHER: usize = 30;
const DELETED: usize = 34;
const MANY: usize = 100;
const MOST_PODS: usize = 200;

/// Measures a kubelet.
#[derive(Parser)]
#[command(name = "node")]
struct Flags {
    /// The built kubelet
    program: PathBuf,
    /// Measure this kubelet of upstream's too
    #[arg(long)]
    peer: Option<PathBuf>,
    /// Measure this shim beside runc too: containerd alone, in turns
    #[arg(long)]
    shim: Option<PathBuf>,
    /// Nothing but the shim beside runc
    #[arg(long, requires = "shim")]
    only_shim: bool,
    /// Fewer pods, shorter windows
    #[arg(long)]
    quick: bool,
}

/// What a kubelet does and takes: seconds, megabytes, and shares of a core.
#[derive(Default)]
struct Figures {
    one: f64,
    exit: Option<f64>,
    together: f64,
    deleted: f64,
    /// Memory and CPU without pods.
    empty: Option<(f64, f64)>,
    /// The same with many.
    full: Option<(f64, f64)>,
}

fn main() {
    let flags = Flags::parse();
    command::enter_a_network_of_its_own();
    if flags.peer.is_some() {
        peer::enter_mounts_of_its_own();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(bench(&flags));
}

async fn bench(flags: &Flags) {
    if let Some(program) = &flags.shim {
        let program = std::path::absolute(program).expect("the shim");
        print!("{}", render(&shim::rows(&program, flags.quick).await));
    }
    if flags.only_shim {
        return;
    }
    let program = std::fs::canonicalize(&flags.program).expect("the kubelet");
    let (floor, ours) = {
        let containerd = Containerd::start();
        eprintln!("containerd alone");
        let floor = alone(&Alone::new(&containerd, None).await, flags.quick).await;
        eprintln!("kubelet");
        let server = TestServer::start().await;
        let mut command = command::kubelet(&program, NAME, &containerd, Some(&server));
        // By this name the one program of all acts as the kubelet.
        command.arg0("kubelet").args(["--max-pods", &MOST_PODS.to_string()]).env("LOG", "warn");
        (floor, kubelet(server, command, &containerd, flags.quick).await)
    };
    let peer = match &flags.peer {
        Some(program) => {
            eprintln!("peer");
            let program = std::fs::canonicalize(program).expect("the peer");
            // What was measured of ours is worth showing without it.
            let measured = client::contained(upstream(&program, flags.quick)).await;
            measured.inspect_err(|error| eprintln!("cannot measure the peer: {error}")).ok()
        }
        None => None,
    };
    print!("{}", render(&rows(&floor, &ours, peer.as_ref())));
}

async fn upstream(program: &Path, quick: bool) -> Figures {
    let _sysctls = peer::Sysctls::keep();
    let containerd = Containerd::start_with_cri(peer::SANDBOX_IMAGE);
    let server = TestServer::start().await;
    let command = peer::kubelet(program, &containerd, &server);
    kubelet(server, command, &containerd, quick).await
}

/// The same without a kubelet.
async fn alone(alone: &Alone, quick: bool) -> Figures {
    let (mut starts, mut figures) = (Vec::new(), Figures::default());
    for name in names("one", 0..rounds(quick)) {
        starts.push(alone.start(std::slice::from_ref(&name)).await);
        alone.remove(&[name]).await;
    }
    figures.one = median(starts);
    figures.together = alone.start(&names("many", 0..TOGETHER)).await;
    alone.start(&names("many", TOGETHER..DELETED)).await;
    figures.deleted = alone.remove(&names("many", 0..DELETED)).await;
    figures
}

/// Starts a kubelet and measures it.
async fn kubelet(server: TestServer, mut command: Command, containerd: &Containerd, quick: bool) -> Figures {
    let log = containerd.dir().join("kubelet.log");
    command.stderr(std::fs::File::create(&log).expect("a log"));
    let node = BenchNode::start(server, command, &log).await;
    let window = Duration::from_secs(if quick { 5 } else { 20 });
    let takes = async || {
        let cpu = process::idle_cpu(node.kubelet.pid(), window).await.expect("its CPU time");
        let (pss, _) = process::memory(node.kubelet.pid()).expect("its memory");
        Some((pss / 1e6, cpu * 100.0))
    };
    let mut figures = Figures { empty: takes().await, ..Figures::default() };
    let (mut starts, mut exits) = (Vec::new(), Vec::new());
    for name in names("one", 0..rounds(quick)) {
        starts.push(node.start_pods(std::slice::from_ref(&name)).await);
        exits.push(node.exit(&name).await);
        node.delete_pods(&[name]).await;
    }
    (figures.one, figures.exit) = (median(starts), Some(median(exits)));
    figures.together = node.start_pods(&names("many", 0..TOGETHER)).await;
    node.start_pods(&names("many", TOGETHER..DELETED)).await;
    figures.deleted = node.delete_pods(&names("many", 0..DELETED)).await;
    if !quick {
        node.start_pods(&names("hundred", 0..MANY)).await;
        figures.full = takes().await;
        node.delete_pods(&names("hundred", 0..MANY)).await;
    }
    figures
}

fn rows(floor: &Figures, ours: &Figures, peer: Option<&Figures>) -> Vec<Row> {
    let row = |what: &str, unit, figure: fn(&Figures) -> Option<f64>, has_floor: bool| Row {
        what: what.to_owned(),
        unit,
        ours: figure(ours),
        floor: figure(floor).filter(|_| has_floor).map(|value| (value, "containerd alone")),
        peer: peer.and_then(figure),
    };
    let rows = [
        row("one pod, apply to Ready (median)", "s", |f| Some(f.one), true),
        row("an exit, to the API (median)", "s", |f| f.exit, false),
        row("30 pods, apply to all Ready", "s", |f| Some(f.together), true),
        row("34 pods that obey SIGTERM deleted", "s", |f| Some(f.deleted), true),
        row("kubelet, no pods: memory (PSS)", "MB", |f| f.empty.map(|(pss, _)| pss), false),
        row("kubelet, no pods: CPU", "% of a core", |f| f.empty.map(|(_, cpu)| cpu), false),
        row("kubelet, 100 pods: memory (PSS)", "MB", |f| f.full.map(|(pss, _)| pss), false),
        row("kubelet, 100 pods: CPU", "% of a core", |f| f.full.map(|(_, cpu)| cpu), false),
    ];
    rows.into_iter().filter(|row| row.ours.is_some()).collect()
}

fn rounds(quick: bool) -> usize {
    if quick { 3 } else { 10 }
}

fn names(prefix: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("{prefix}{number}")).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
