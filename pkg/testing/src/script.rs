//! Scripts of clients, run against a fresh apiserver.

use crate::{Engine, TestServer};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a script to its end and expects it to succeed; what it printed is shown where it does not. As in any cluster that
/// is some minutes old, how things began is history.
pub async fn run_script(mut script: Command) {
    // As upstream's is by default, which clients expect.
    let mut server =
        TestServer::start_with(Engine::Embedded, |config| config.deny_service_external_ips = false).await;
    server.forget().await;
    script.env("KUBECONFIG", server.data_dir().join("admin.kubeconfig"));
    let output = tokio::task::spawn_blocking(move || script.output().expect("the script starts"));
    let output = output.await.expect("the script ends");
    server.stop().await;
    let printed = String::from_utf8_lossy(&output.stdout);
    let failures: Vec<&str> = printed.lines().filter(|line| !line.starts_with("ok ")).collect();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{complaints}", failures.join("\n"));
    println!("{}", failures.join("\n"));
}

/// The folder of what people try: `testcases`.
pub fn testcases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testcases").canonicalize().expect("the workspace")
}
