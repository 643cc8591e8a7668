//! `kubectl logs`.

mod function;

use crate::connection::{ClusterFlags, Connection, Refusal, is_not_found};
use crate::pods;
use crate::select::{encode, name_of};
use anyhow::{Context, Result, bail};
use futures::{AsyncBufReadExt, AsyncReadExt, StreamExt};
use serde_json::Value;
use std::io::Write;

/// What `logs` is told.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  kubectl logs -f web\n  kubectl logs deployment/web -c main --tail 20\n  kubectl logs func/add -f"
)]
pub struct Flags {
    /// The pod, or kind/name of what has pods.
    pod: Option<String>,
    /// The container.
    container_name: Option<String>,
    /// The container.
    #[arg(long, short)]
    container: Option<String>,
    /// All containers.
    #[arg(long)]
    all_containers: bool,
    /// All pods of what was named.
    #[arg(long)]
    all_pods: bool,
    /// Of all pods with these labels.
    #[arg(long, short = 'l')]
    selector: Option<String>,
    /// Go on as more is written.
    #[arg(long, short)]
    follow: bool,
    /// Of the container before this one.
    #[arg(long, short)]
    previous: bool,
    /// Only the last lines; -1 is all (with -l: 10).
    #[arg(long, allow_negative_numbers = true)]
    tail: Option<i64>,
    /// Only what is newer, such as 10m.
    #[arg(long, value_parser = crate::duration::parse)]
    since: Option<std::time::Duration>,
    /// Only what is newer than a time.
    #[arg(long)]
    since_time: Option<String>,
    /// With the time of each line.
    #[arg(long)]
    timestamps: bool,
    /// At most so many bytes.
    #[arg(long)]
    limit_bytes: Option<u64>,
    /// With pod and container before each line.
    #[arg(long)]
    prefix: bool,
    /// How many logs may be followed at once.
    #[arg(long, default_value_t = 5)]
    max_log_requests: usize,
    /// Of a function: only what was written for this request, such as X-Request-Id has told.
    #[arg(long)]
    request_id: Option<String>,
    /// Go on when a log cannot be had.
    #[arg(long)]
    ignore_errors: bool,
    /// How long to wait until the pod runs.
    #[arg(long, default_value = "20s", hide = true, value_parser = crate::duration::parse)]
    pod_running_timeout: std::time::Duration,
}

/// One log.
struct Source {
    pod: String,
    container: String,
}

/// Shows.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    if let Some(name) = flags.pod.as_deref().and_then(function::named) {
        return function::run(&connection, name, &flags).await;
    }
    if flags.request_id.is_some() {
        bail!("--request-id goes with a function, such as func/add");
    }
    let sources = sources(&connection, &flags).await?;
    let query = query(&flags);
    if flags.follow && sources.len() > 1 {
        if sources.len() > flags.max_log_requests {
            bail!(
                "you are attempting to follow {} log streams, but maximum allowed concurrency is {}, use --max-log-requests to increase the limit",
                sources.len(),
                flags.max_log_requests
            );
        }
        let mut following: futures::stream::FuturesUnordered<_> =
            sources.iter().map(|source| show(&connection, &flags, source, &query)).collect();
        while let Some(ended) = following.next().await {
            ended?;
        }
        return Ok(());
    }
    for source in &sources {
        show(&connection, &flags, source, &query).await?;
    }
    Ok(())
}

async fn sources(connection: &Connection, flags: &Flags) -> Result<Vec<Source>> {
    let named = flags.container.as_ref().or(flags.container_name.as_ref());
    if named.is_some() && flags.all_containers {
        bail!(
            "--all-containers=true should not be specified with container name {}",
            named.map_or("", String::as_str)
        );
    }
    let found = match (&flags.pod, &flags.selector) {
        (Some(_), Some(_)) => bail!("only a selector (-l) or a POD name is allowed"),
        (None, None) => bail!(
            "expected 'logs [-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]'.\nPOD or TYPE/NAME is a required argument for the logs command"
        ),
        (None, Some(selector)) => pods::selected(connection, selector).await?,
        (Some(word), None) => {
            let mut found = match pods::of_word(connection, word).await {
                // Most who look in vain look in the wrong namespace.
                Err(error) if is_not_found(&error) => {
                    let why = error.downcast::<Refusal>().map(|refusal| refusal.message)?;
                    bail!("error from server (NotFound): {why} in namespace {:?}", connection.namespace);
                }
                found => found?,
            };
            if found.len() > 1 && !flags.all_pods {
                if let Some(first) = found.first() {
                    eprintln!("Found {} pods, using pod/{}", found.len(), name_of(first));
                }
                found.truncate(1);
            }
            found
        }
    };
    if found.is_empty() {
        eprintln!("No resources found in {} namespace.", connection.namespace);
    }
    let mut sources = Vec::new();
    for pod in &found {
        let containers: Vec<String> = match named {
            Some(container) => {
                known(pod, container)?;
                vec![container.clone()]
            }
            None if flags.all_containers => in_order(pod),
            None => vec![pods::default_container(pod, false)?],
        };
        let name = name_of(pod);
        sources.extend(containers.into_iter().map(|container| Source { pod: name.to_owned(), container }));
    }
    Ok(sources)
}

fn known(pod: &Value, container: &str) -> Result<()> {
    if pods::containers(pod).contains(&container) {
        return Ok(());
    }
    bail!("container {container} is not valid for pod {}", name_of(pod))
}

/// All containers in the order in which they run.
fn in_order(pod: &Value) -> Vec<String> {
    let names = ["initContainers", "containers", "ephemeralContainers"]
        .iter()
        .filter_map(|field| pod["spec"][field].as_array())
        .flatten()
        .filter_map(|container| container["name"].as_str());
    names.map(str::to_owned).collect()
}

fn query(flags: &Flags) -> String {
    let mut query = Vec::new();
    for (name, is_set) in
        [("follow", flags.follow), ("previous", flags.previous), ("timestamps", flags.timestamps)]
    {
        if is_set {
            query.push(format!("&{name}=true"));
        }
    }
    let tail = flags.tail.or(flags.selector.as_ref().map(|_| 10)).filter(|tail| *tail >= 0);
    query.extend(tail.map(|tail| format!("&tailLines={tail}")));
    query.extend(flags.since.map(|since| format!("&sinceSeconds={}", since.as_secs())));
    query.extend(flags.since_time.as_ref().map(|time| format!("&sinceTime={}", encode(time))));
    query.extend(flags.limit_bytes.map(|limit| format!("&limitBytes={limit}")));
    query.concat()
}

async fn show(connection: &Connection, flags: &Flags, source: &Source, query: &str) -> Result<()> {
    let path =
        format!("{}/log?container={}{query}", pods::path(connection, &source.pod), encode(&source.container));
    let shown = async {
        let stream = connection.stream(&path, "*/*").await?;
        match flags.prefix {
            true => lines(stream, &format!("[pod/{}/{}] ", source.pod, source.container)).await,
            false => bytes(stream).await,
        }
    };
    match shown.await {
        Err(error) if flags.ignore_errors => {
            println!("{error:#}");
            Ok(())
        }
        result => result,
    }
}

/// Shows what a container says until it ends.
pub async fn follow(connection: &Connection, pod: &str, container: &str) -> Result<()> {
    let path = format!("{}/log?follow=true&container={}", pods::path(connection, pod), encode(container));
    bytes(connection.stream(&path, "*/*").await?).await
}

async fn bytes(mut stream: impl AsyncReadExt + Unpin) -> Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = stream.read(&mut buffer).await.context("the log broke off")?;
        if read == 0 {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        out.write_all(&buffer[..read])?;
        out.flush()?;
    }
}

async fn lines(mut stream: impl AsyncBufReadExt + Unpin, prefix: &str) -> Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if stream.read_until(b'\n', &mut line).await.context("the log broke off")? == 0 {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        out.write_all(prefix.as_bytes())?;
        out.write_all(&line)?;
        out.flush()?;
    }
}
