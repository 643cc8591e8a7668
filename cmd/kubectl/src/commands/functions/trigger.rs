//! `kubectl trigger`: calls that are waited for, that are not, and that need no cluster.

use super::{local, path};
use crate::connection::{ClusterFlags, Connection, Refusal};
use anyhow::{Context, Result, bail};
use api::dialect::map_name;
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use serde_json::Value;
use std::io::Read;
use std::time::{Duration, Instant};

/// What `trigger` is told.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  kubectl trigger add '{\"x\":1,\"y\":2}'
  kubectl trigger add - < params.json
  kubectl trigger add '{\"x\":1,\"y\":2}' --async
  kubectl get functioncalls
  kubectl trigger add-4fk20xw1mz --again --wait
  kubectl trigger ./add.py '{\"x\":1,\"y\":2}' --local")]
pub struct TriggerFlags {
    /// The function; with --local its source, with --again the functioncall.
    name: String,
    /// Its parameters, as JSON; empty for none, - to read them from standard input.
    #[arg(default_value = "")]
    data: String,
    /// Do not wait: the call is kept in the cluster until it is made, and made again if it fails.
    #[arg(long = "async", conflicts_with = "local")]
    is_async: bool,
    /// With --async or --again: wait until it has ended, and show what came of it.
    #[arg(long)]
    wait: bool,
    /// With --async: calls with the same key are one call.
    #[arg(long, requires = "is_async")]
    idempotency_key: Option<String>,
    /// Make a functioncall of before again, with the same parameters.
    #[arg(long, conflicts_with_all = ["is_async", "local"])]
    again: bool,
    /// Call a source on this machine, without a cluster.
    #[arg(long)]
    local: bool,
}

/// A call that was certainly not made, since nobody takes calls yet, is made again for so long.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);
/// By which a call is not waited for.
const PREFER: HeaderName = HeaderName::from_static("prefer");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Calls a function, and prints what it returns.
pub async fn trigger(cluster: &ClusterFlags, flags: TriggerFlags) -> Result<()> {
    if flags.wait && !flags.is_async && !flags.again {
        bail!("--wait goes with --async or --again: a call without them is waited for anyway");
    }
    let data = params(&flags)?;
    if flags.local {
        return local::call(flags.name.as_ref(), &data);
    }
    let connection = Connection::open(cluster).await?;
    if flags.again {
        let call = connection.get(&call_path(&connection, &flags.name)).await?;
        let text = |name: &str| call["spec"][name].as_str().unwrap_or_default().to_owned();
        return promise(&connection, &flags, &text("function"), text("params")).await;
    }
    let name = map_name(&flags.name);
    if flags.is_async {
        return promise(&connection, &flags, &name, data).await;
    }
    let headers = [(CONTENT_TYPE, "application/json"), (ACCEPT, "*/*")];
    let answer = send(&connection, &name, &headers, data).await?;
    print!("{answer}{}", if answer.ends_with('\n') { "" } else { "\n" });
    Ok(())
}

fn params(flags: &TriggerFlags) -> Result<String> {
    if flags.again && !flags.data.is_empty() {
        bail!("--again takes the parameters of the call of before");
    }
    let data = match flags.data.as_str() {
        "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("read the parameters from standard input")?;
            text
        }
        data => data.to_owned(),
    };
    if !data.trim().is_empty() {
        serde_json::from_str::<serde::de::IgnoredAny>(&data).context("the parameters are not JSON")?;
    }
    Ok(data)
}

async fn send(
    connection: &Connection,
    name: &str,
    headers: &[(HeaderName, &str)],
    data: String,
) -> Result<String> {
    let path = format!("{}/invoke", path(connection, Some(name)));
    let ends = Instant::now() + PATIENCE;
    loop {
        match connection.text_with(Method::POST, &path, headers, Some(data.clone())).await {
            Err(error) if was_not_made(&error) && Instant::now() < ends => tokio::time::sleep(PAUSE).await,
            sent => return sent,
        }
    }
}

/// Whether a call was refused before it reached anything: nobody has answered for functions yet.
fn was_not_made(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refusal>().is_some_and(|refusal| {
        refusal.code == 503
            && (refusal.reason == "NotLeading"
                || refusal.message == "service unavailable"
                || refusal.message.contains("dial tcp"))
    })
}

/// Has a call promised, and shows it, or what came of it.
async fn promise(connection: &Connection, flags: &TriggerFlags, name: &str, data: String) -> Result<()> {
    let mut headers = vec![(CONTENT_TYPE, "application/json"), (ACCEPT, "*/*"), (PREFER, "respond-async")];
    headers.extend(flags.idempotency_key.as_deref().map(|key| (IDEMPOTENCY_KEY, key)));
    let answer = send(connection, name, &headers, data).await?;
    let call: Value =
        serde_json::from_str(&answer).context("the call is promised, but its answer is not JSON")?;
    let call = call["metadata"]["name"].as_str().unwrap_or_default();
    if !flags.wait {
        println!("functioncall.minik8s.io/{call} promised");
        return Ok(());
    }
    let path = call_path(connection, call);
    loop {
        let live = connection.get(&path).await?;
        let status = &live["status"];
        let text = |name: &str| status[name].as_str().unwrap_or_default();
        match text("phase") {
            "Succeeded" => {
                println!("{}", text("result"));
                return Ok(());
            }
            "Failed" => bail!(
                "functioncall.minik8s.io/{call} failed after {} attempts: {}: {}",
                status["attempts"],
                text("reason"),
                text("message")
            ),
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn call_path(connection: &Connection, name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name);
    format!("/apis/minik8s.io/v1/namespaces/{}/functioncalls/{name}", connection.namespace)
}
