//! One change, any number of listeners: over HTTP watches and over Redis, in one run.
//!
//! ```text
//! writer ──> apiserver ──┬── N watches ────────────> listeners: counted
//!                        └── one message ──> Redis ──> the same N
//! ```
//!
//! Listeners only count; they share the machine with what they measure.

use crate::http::request;
use crate::servers::{Redis, Server};
use anyhow::{Context, Result, ensure};
use bench::process::{cpu_seconds, memory};
use bus::{Channel, Connection, Login, RedisServer, Reply};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Changes that are made one after the other, each heard by all before the next.
const ALONE: usize = 40;
/// Changes that are under way at once, otherwise.
const ON_THE_WAY: u64 = 32;
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Http,
    Redis,
}

/// What N listeners of one transport come to.
struct Figures {
    listeners: usize,
    changes_per_second: f64,
    first: [Duration; 2],
    all: Duration,
    cpu_per_change: Duration,
    redis_cpu_per_change: Duration,
    memory_per_listener: f64,
}

/// Measures both transports and prints a table.
pub async fn measure(apiserver: &Path, quick: bool) -> Result<()> {
    let (numbers, window): (&[usize], _) = match quick {
        true => (&[1, 100], Duration::from_secs(1)),
        false => (&[1, 100, 1_000, 5_000], Duration::from_secs(4)),
    };
    println!(
        "{:<6} {:>9} {:>10} {:>21} {:>12} {:>15} {:>13} {:>14}",
        "",
        "listeners",
        "changes/s",
        "heard, p50 and p99",
        "by all, p50",
        "apiserver CPU",
        "Redis CPU",
        "memory each"
    );
    let Some(redis) = Redis::start()? else {
        println!("redis-server is not installed: apt-get install redis-server");
        return Ok(());
    };
    for (transport, name) in [(Transport::Http, "HTTP"), (Transport::Redis, "Redis")] {
        let mut alone = None;
        for number in numbers {
            let figures = one(apiserver, &redis, transport, *number, window).await?;
            let cpu = figures.cpu_per_change.as_secs_f64();
            let ratio = cpu / *alone.get_or_insert(cpu);
            println!(
                "{name:<6} {:>9} {:>10.0} {:>9.2} ms {:>6.2} ms {:>9.2} ms {:>7.0} µs {ratio:>4.2} {:>10.0} µs {:>11.1} KB",
                figures.listeners,
                figures.changes_per_second,
                figures.first[0].as_secs_f64() * 1e3,
                figures.first[1].as_secs_f64() * 1e3,
                figures.all.as_secs_f64() * 1e3,
                cpu * 1e6,
                figures.redis_cpu_per_change.as_secs_f64() * 1e6,
                figures.memory_per_listener / 1024.0,
            );
        }
    }
    Ok(())
}

async fn one(
    apiserver: &Path,
    redis: &Redis,
    transport: Transport,
    number: usize,
    window: Duration,
) -> Result<Figures> {
    let dir = tempfile::tempdir()?;
    let url = redis.url();
    let arguments: &[&str] = match transport {
        Transport::Http => &[],
        Transport::Redis => &["--redis-url", &url],
    };
    let place = ["--bind-address=127.0.0.1", "--secure-port=0", "--max-connections=20000"];
    let server = Server::start(apiserver, &[arguments, &place[..]].concat(), dir.path())?;
    let pids = [server.pid(), redis.pid()];
    let before = memory(pids[0])?.0 + memory(pids[1])?.0;
    let heard = Arc::new(Heard { first: AtomicU64::new(0), all: AtomicU64::new(0) });
    let listeners = listen(&server, &url, transport, number, &heard).await?;
    let memory_per_listener = (memory(pids[0])?.0 + memory(pids[1])?.0 - before) / number as f64;
    let mut writer = Writer { connection: server.endpoint.connect().await?, made: 0 };
    // The first of them: whoever publishes begins.
    let begun = Instant::now();
    while heard.first.load(Relaxed) == 0 {
        ensure!(begun.elapsed() < PATIENCE, "nothing is heard");
        writer.change().await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    heard.settle(number as u64).await?;
    let (mut first, mut all) = (Vec::new(), Vec::new());
    for _ in 0..ALONE {
        let (before, all_before, begun) =
            (heard.first.load(Relaxed), heard.all.load(Relaxed), Instant::now());
        writer.change().await?;
        heard.wait(|heard| heard.first.load(Relaxed) > before).await?;
        first.push(begun.elapsed());
        heard.wait(|heard| heard.all.load(Relaxed) >= all_before + number as u64).await?;
        all.push(begun.elapsed());
    }
    first.sort();
    all.sort();
    let cpu = || -> Result<[f64; 2]> { Ok([cpu_seconds(pids[0])?, cpu_seconds(pids[1])?]) };
    let (cpu_before, all_before, made_before, begun) =
        (cpu()?, heard.all.load(Relaxed), writer.made, Instant::now());
    while begun.elapsed() < window {
        writer.change().await?;
        let made = writer.made - made_before;
        let due = made.saturating_sub(ON_THE_WAY) * number as u64;
        heard.wait(|heard| heard.all.load(Relaxed) - all_before >= due).await?;
    }
    let made = (writer.made - made_before) as f64;
    heard
        .wait(|heard| heard.all.load(Relaxed) - all_before >= (writer.made - made_before) * number as u64)
        .await?;
    let (seconds, cpu_after) = (begun.elapsed().as_secs_f64(), cpu()?);
    ensure!(listeners.iter().all(|listener| !listener.is_finished()), "a listener was cut off");
    listeners.iter().for_each(JoinHandle::abort);
    let per_change = |of: usize| Duration::from_secs_f64((cpu_after[of] - cpu_before[of]).max(0.0) / made);
    Ok(Figures {
        listeners: number,
        changes_per_second: made / seconds,
        first: [first[ALONE / 2], first[ALONE - 1]],
        all: all[ALONE / 2],
        cpu_per_change: per_change(0),
        redis_cpu_per_change: per_change(1),
        memory_per_listener,
    })
}

struct Heard {
    /// By the first listener.
    first: AtomicU64,
    /// By all together.
    all: AtomicU64,
}

impl Heard {
    async fn wait(&self, is_so: impl Fn(&Heard) -> bool) -> Result<()> {
        let begun = Instant::now();
        while !is_so(self) {
            ensure!(begun.elapsed() < PATIENCE, "a change is not heard by all");
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        Ok(())
    }

    /// Until all have heard what the first has.
    async fn settle(&self, number: u64) -> Result<()> {
        loop {
            let all = self.all.load(Relaxed);
            tokio::time::sleep(Duration::from_millis(300)).await;
            if self.all.load(Relaxed) == all && all >= number {
                return Ok(());
            }
        }
    }

    fn count(&self, listener: usize, events: u64) {
        if listener == 0 {
            self.first.fetch_add(events, Relaxed);
        }
        self.all.fetch_add(events, Relaxed);
    }
}

async fn listen(
    server: &Server,
    url: &str,
    transport: Transport,
    number: usize,
    heard: &Arc<Heard>,
) -> Result<Vec<JoinHandle<()>>> {
    let watch = request(
        "GET",
        "/api/v1/configmaps?watch=true&resourceVersion=0&fieldSelector=metadata.namespace%3Ddefault",
        &[],
    );
    let redis: RedisServer = url.parse()?;
    let channel = Channel::of_resource("", "configmaps").context("a channel")?.name(&redis.cluster);
    let mut listeners = Vec::new();
    for listener in 0..number {
        let heard = heard.clone();
        listeners.push(match transport {
            Transport::Http => {
                let mut connection = server.endpoint.connect().await?;
                connection.watch(&watch).await?;
                tokio::spawn(async move {
                    while let Ok((_, events)) = connection.events().await {
                        heard.count(listener, events as u64);
                    }
                })
            }
            Transport::Redis => {
                let mut connection = Connection::open(&redis, &Login::default()).await?;
                connection.call(&["SUBSCRIBE", &channel]).await?;
                let (mut reader, writer) = connection.split();
                tokio::spawn(async move {
                    let _kept = writer;
                    while let Ok(Reply::Parts(parts)) = reader.next().await {
                        let is_change = matches!(parts.get(2), Some(Reply::Part(payload)) if !payload.starts_with(b"1 BOOKMARK"));
                        heard.count(listener, u64::from(is_change));
                    }
                })
            }
        });
    }
    Ok(listeners)
}

struct Writer {
    connection: crate::http::Connection,
    made: u64,
}

impl Writer {
    async fn change(&mut self) -> Result<()> {
        let name = format!("change-{}", self.made);
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": "x".repeat(1000)},
        });
        let body = object.to_string();
        let create = request("POST", "/api/v1/namespaces/default/configmaps", body.as_bytes());
        self.connection.exchange(&create, None).await?.is_created()?;
        self.made += 1;
        Ok(())
    }
}
