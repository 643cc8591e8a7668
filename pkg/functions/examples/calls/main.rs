//! How long functions take, on a machine of their own with the built program, a real kubelet and containerd:
//! `cargo run --release -p functions --example calls -- bin/minik8s` (as root; `make bench` runs it).
//!
//! ```text
//! kubectl trigger, by wall clock ──> cold starts: nothing pre-started, a source never loaded before
//! calls from inside ──> activator ──> pod   beside   calls ──> the same pod: what the activator adds
//! ```
//!
//! Nothing is kept ready anywhere: these are the figures without pools.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures for people"
)]

mod load;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testing::{Machine, Switch};

#[derive(Parser)]
struct Flags {
    /// The program of all programs.
    program: Option<PathBuf>,
    /// Fewer of everything.
    #[arg(long)]
    quick: bool,
    #[command(subcommand)]
    command: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    /// Calls, from inside of the machine: started by the benchmark itself.
    #[command(hide = true)]
    Load(load::Flags),
}

/// Where the programs are on the machine.
const PROGRAM: &str = "/opt/minik8s";
const SELF: &str = "/opt/calls";
const ACTIVATOR: &str = "127.0.0.1:10270";
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> Result<()> {
    let flags = Flags::parse();
    match flags.command {
        Some(Part::Load(load)) => {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            runtime.block_on(load::run(load))
        }
        None => bench(&flags.program.context("which program? bin/minik8s")?, flags.quick),
    }
}

fn bench(program: &Path, quick: bool) -> Result<()> {
    let switch = Switch::new();
    let node = Node(Machine::boot(&switch, "calls", 1));
    std::fs::copy(program, node.0.path(PROGRAM)).context("copy the program")?;
    std::fs::copy(std::env::current_exe()?, node.0.path(SELF)).context("copy this program")?;
    node.run(&["kubeadm", "init"])?;
    let archive = node.0.path("/opt/image.tar");
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images/build");
    ensure!(Command::new(build).arg("python").arg(&archive).status()?.success(), "images/build python");
    node.run(&["kubeadm", "image", "import", "/opt/image.tar"])?;
    let of = |full: usize| if quick { full / 10 } else { full };
    println!("\nFunctions: nothing is kept ready\n");
    cold_starts(&node, of(200))?;
    warm(&node, of(20_000))?;
    from_zero(&node, of(1000), of(100))?;
    idle(&node, of(1000))
}

/// A machine.
struct Node(Machine);

impl Node {
    fn attempt(&self, arguments: &[&str]) -> Result<String> {
        let output = self.0.output(PROGRAM, arguments);
        ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        self.attempt(arguments)
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.run(&[&["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"], arguments].concat())
    }

    fn apply(&self, functions: &[Value]) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": functions});
        std::fs::write(self.0.path("/opt/list.json"), list.to_string())?;
        self.kubectl(&["apply", "-f", "/opt/list.json"]).map(drop)
    }

    /// Waits until so many pods of functions are there.
    fn pods(&self, count: usize) -> Result<Vec<String>> {
        let ends = Instant::now() + PATIENCE;
        loop {
            let names = self.kubectl(&["get", "pods", "-l", "minik8s.io/function", "-o", "name"])?;
            let names: Vec<String> = names.lines().map(str::to_owned).collect();
            if names.len() == count {
                return Ok(names);
            }
            ensure!(Instant::now() < ends, "there are {} pods, not {count}", names.len());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn load(&self, arguments: &[&str]) -> Result<Value> {
        let output = self.0.output(SELF, &[&["load"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        serde_json::from_str(&said)
            .with_context(|| format!("{said} {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Calls through the activator.
    fn activator(&self, paths: &[String], calls: usize, at_a_time: usize, more: &[&str]) -> Result<Value> {
        let (calls, at_a_time) = (calls.to_string(), at_a_time.to_string());
        let mut arguments = vec!["--address", ACTIVATOR, "--authority", "/etc/kubernetes/pki/ca.crt"];
        arguments.extend(["--calls", &calls, "--at-a-time", &at_a_time]);
        paths.iter().for_each(|path| arguments.extend(["--path", path]));
        arguments.extend(more);
        self.load(&arguments)
    }

    fn knative(&self) -> Result<String> {
        let pid = self.0.run("sh", &["-c", "pgrep -f '^/knative ' | head -n 1"]);
        ensure!(!pid.trim().is_empty(), "knative does not run");
        Ok(pid.trim().to_owned())
    }

    /// What knative takes of the machine's memory, in MB.
    fn memory(&self) -> Result<f64> {
        let pid = self.knative()?;
        let text = self.0.run("cat", &[&format!("/proc/{pid}/smaps_rollup")]);
        let line = text.lines().find(|line| line.starts_with("Pss:")).context("no Pss")?;
        let kilobytes: f64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
        Ok(kilobytes * 1024.0 / 1e6)
    }

    /// The processor time that knative has taken.
    fn processor(&self) -> Result<Duration> {
        let text = self.0.run("cat", &[&format!("/proc/{}/stat", self.knative()?)]);
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
        Ok(Duration::from_millis(ticks * 10))
    }
}

fn function(name: &str, code: &str, more: &Value) -> Value {
    let mut function = json!({"apiVersion": "minik8s.io/v1", "kind": "Function", "metadata": {"name": name}, "spec": {"code": code}});
    for (field, value) in more.as_object().into_iter().flatten() {
        function["spec"][field] = value.clone();
    }
    function
}

fn path(name: &str) -> String {
    format!("/functions/default/{name}")
}

fn line(what: &str, figures: &str) {
    println!("  {what:<58} {figures}");
}

/// The p50, p99 and last of some times, in milliseconds.
fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |share: f64| {
        times[((times.len() as f64 * share) as usize).min(times.len() - 1)].as_secs_f64() * 1000.0
    };
    format!(
        "p50 {:.0} ms   p99 {:.0} ms   longest {:.0} ms   ({} times)",
        at(0.5),
        at(0.99),
        at(1.0),
        times.len()
    )
}

fn served(said: &Value) -> String {
    let number = |name: &str| said[name].as_f64().unwrap_or_default();
    format!(
        "{:.0}/s   p50 {:.2} ms   p99 {:.2} ms   {} errors",
        number("per_second"),
        number("p50"),
        number("p99"),
        said["errors"]
    )
}

/// Whole commands, each of a function that was never called.
fn cold_starts(node: &Node, count: usize) -> Result<()> {
    let name = |number: usize| format!("cold{number}");
    let (mut times, mut floor) = (Vec::new(), Vec::new());
    for number in 0..count + 3 {
        let code = format!("def main(params):\n    return params['x'] + {number}\n");
        node.apply(&[function(&name(number), &code, &json!({"idleSeconds": 1}))])?;
        let began = Instant::now();
        let said = node.kubectl(&["trigger", &name(number), r#"{"x":1}"#])?;
        let took = began.elapsed();
        ensure!(said.trim() == (number + 1).to_string(), "{said}");
        let began = Instant::now();
        node.kubectl(&["get", "func", &name(number), "-o", "name"])?;
        // The first of all pay for what is read from disk once.
        if number >= 3 {
            times.push(took);
            floor.push(began.elapsed());
        }
        node.kubectl(&["delete", "func", &name(number)])?;
        node.pods(0)?;
    }
    line("kubectl trigger, from zero, whole command", &percentiles(times));
    line("  of which a kubectl that only asks takes", &percentiles(floor));
    let page = node.0.run("busybox", &["wget", "-qO-", "http://127.0.0.1:10272/metrics"]);
    let number = |name: &str| {
        let found = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        found.unwrap_or_default()
    };
    let mut phases = Vec::new();
    for phase in ["create", "bind", "sandbox", "container", "import"] {
        let of =
            |what: &str| number(&format!("function_cold_start_phase_seconds_{what}{{phase=\"{phase}\"}}"));
        phases.push(format!("{phase} {:.0}", of("sum") / of("count").max(1.0) * 1000.0));
    }
    line("  on average, in ms", &phases.join("   "));
    Ok(())
}

/// One pod that is there, through the activator and directly.
fn warm(node: &Node, calls: usize) -> Result<()> {
    let spec = json!({"public": true, "concurrency": 20, "maxReplicas": 1, "idleSeconds": 300});
    node.apply(&[function("warm", "def main(params):\n    return 1\n", &spec)])?;
    node.kubectl(&["trigger", "warm", ""])?;
    let pod = node.pods(1)?.pop().context("a pod")?;
    let pod = pod.trim_start_matches("pod/").to_owned();
    let ip = node.kubectl(&["get", "pod", &pod, "-o", "jsonpath={.status.podIP}"])?;
    let key = std::fs::read(node.0.path("/etc/kubernetes/pki/knative.key"))?;
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
    let token = ring::hmac::sign(&key, format!("function pod default/{pod}").as_bytes());
    let token: String = token.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let address = format!("{ip}:8080");
    let direct = |calls: usize, more: &[&str]| {
        let calls = calls.to_string();
        let own = [
            "--address",
            &address,
            "--token",
            &token,
            "--path",
            "/call",
            "--calls",
            &calls,
            "--at-a-time",
            "20",
        ];
        node.load(&[&own[..], more].concat())
    };
    let warm = [path("warm")];
    direct(calls / 10, &[])?;
    node.activator(&warm, calls / 10, 20, &[])?;
    line("one Python pod, 20 at a time, asked directly", &served(&direct(calls, &[])?));
    let before = node.processor()?;
    let through = node.activator(&warm, calls, 20, &[])?;
    let took = node.processor()?.saturating_sub(before).as_secs_f64();
    line("  through the activator, over TLS", &served(&through));
    line(
        "  calls for a second of knative's processor time",
        &format!("{:.0}", calls as f64 / took.max(0.01)),
    );
    let at_rate = ["--per-second", "1000"];
    let (direct, through) = (direct(calls / 4, &at_rate)?, node.activator(&warm, calls / 4, 20, &at_rate)?);
    line("at 1,000 calls a second, directly", &served(&direct));
    line("  through the activator", &served(&through));
    node.kubectl(&["delete", "func", "warm"])?;
    node.pods(0).map(drop)
}

fn from_zero(node: &Node, calls: usize, functions: usize) -> Result<()> {
    let code = "import time\ndef main(params):\n    time.sleep(0.01)\n    return 1\n";
    let spec = json!({"public": true, "idleSeconds": 1});
    node.apply(&[function("burst", code, &spec)])?;
    let said = node.activator(&[path("burst")], calls, calls, &[])?;
    let number = |name: &str| said[name].as_f64().unwrap_or_default() / 1000.0;
    let figures = format!(
        "last answer after {:.2} s, p50 {:.2} s, {} errors",
        number("last"),
        number("p50"),
        said["errors"]
    );
    line(&format!("{calls} calls of 10 ms at once, from zero"), &figures);
    node.kubectl(&["delete", "func", "burst"])?;
    node.pods(0)?;
    let many: Vec<Value> = (0..functions)
        .map(|number| {
            function(&format!("many{number}"), &format!("def main(params):\n    return {number}\n"), &spec)
        })
        .collect();
    node.apply(&many)?;
    let paths: Vec<String> = (0..functions).map(|number| path(&format!("many{number}"))).collect();
    let said = node.activator(&paths, functions, functions, &[])?;
    let number = |name: &str| said[name].as_f64().unwrap_or_default() / 1000.0;
    let figures = format!(
        "p50 {:.2} s, p95 {:.2} s, last {:.2} s, {} errors",
        number("p50"),
        number("p95"),
        number("last"),
        said["errors"]
    );
    line(&format!("{functions} functions at once, from zero"), &figures);
    node.kubectl(&["delete", "func", "--all"])?;
    node.pods(0).map(drop)
}

/// What functions take that nobody calls.
fn idle(node: &Node, functions: usize) -> Result<()> {
    node.0.run("sh", &["-c", "kill $(pgrep -f '^/knative ' | head -n 1)"]);
    let ends = Instant::now() + PATIENCE;
    node.apply(&[function("one", "def main(params):\n    return 1\n", &json!({"idleSeconds": 1}))])?;
    while node.kubectl(&["trigger", "one", ""]).is_err() {
        if Instant::now() > ends {
            bail!("knative does not come back");
        }
    }
    node.pods(0)?;
    let few = node.memory()?;
    let many: Vec<Value> = (0..functions)
        .map(|number| {
            function(
                &format!("idle{number}"),
                &format!("def main(params):\n    return {number}\n"),
                &json!({}),
            )
        })
        .collect();
    node.apply(&many)?;
    let last = format!("idle{}", functions - 1);
    while node.kubectl(&["get", "func", &last, "-o", "jsonpath={.status.revision}"])?.is_empty() {
        std::thread::sleep(Duration::from_millis(200));
    }
    std::thread::sleep(Duration::from_secs(10));
    let (many, before) = (node.memory()?, node.processor()?);
    std::thread::sleep(Duration::from_secs(20));
    let busy = node.processor()?.saturating_sub(before).as_secs_f64() / 20.0 * 100.0;
    line(
        &format!("knative with {functions} functions at zero"),
        &format!("{many:.1} MB (with one: {few:.1}), {busy:.2} % of a core"),
    );
    Ok(())
}
