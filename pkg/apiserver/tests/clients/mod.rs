//! A fresh apiserver, and a script to be run against it.

#![allow(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// An apiserver on a free port, with its data in a directory that goes with it.
pub struct Apiserver {
    dir: TempDir,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
}

impl Apiserver {
    /// Starts one and waits until it serves.
    pub async fn start() -> Apiserver {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let shutdown = CancellationToken::new();
        let (ready, serves) = oneshot::channel();
        let config = apiserver::Config::new(dir.path());
        let stop = shutdown.clone();
        let serving = tokio::spawn(async move {
            let told = |_: &_| ready.send(()).unwrap_or_default();
            apiserver::run(config, listener, stop, told).await.expect("the apiserver runs");
        });
        serves.await.expect("it serves");
        Apiserver { dir, shutdown, serving }
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("admin.kubeconfig")
    }

    /// Runs a script to its end and expects it to succeed; what it printed is shown where it does not.
    pub async fn run(self, mut script: Command) {
        script.env("KUBECONFIG", self.kubeconfig());
        let output = tokio::task::spawn_blocking(move || script.output().expect("the script starts"));
        let output = output.await.expect("the script ends");
        self.shutdown.cancel();
        self.serving.await.expect("the apiserver drains");
        let printed = String::from_utf8_lossy(&output.stdout);
        let failures: Vec<&str> = printed.lines().filter(|line| !line.starts_with("ok ")).collect();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\n{complaints}", failures.join("\n"));
        println!("{}", failures.join("\n"));
    }
}

/// The workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}
