//! The servers that are measured: started on free ports of the loopback with their data in a directory that goes away.

// The same ports as in tests, without all that tests need besides.
#[path = "../../pkg/testing/src/port.rs"]
mod port;

use crate::http::Endpoint;
use anyhow::{Context, Result, bail};
use bench::process::Program;
use port::Port;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A program of ours that serves.
pub struct Server {
    process: Program,
    /// From its start to the line that says that it serves.
    pub started_in: Duration,
    /// Where it is.
    pub endpoint: Endpoint,
}

impl Server {
    /// Starts a program that says on stdout when it serves and leaves `admin.kubeconfig` in the directory.
    pub fn start(program: &Path, args: &[&str], dir: &Path) -> Result<Server> {
        let begun = Instant::now();
        let mut command = Command::new(program);
        command.args(args).arg("--data-dir").arg(dir).stdout(Stdio::piped());
        let mut process = Program::start(command)?;
        let mut line = String::new();
        let said = process.stdout().map(|stdout| BufReader::new(stdout).read_line(&mut line));
        let started_in = begun.elapsed();
        if !matches!(said, Some(Ok(length)) if length > 0) {
            bail!("{} ended before it served", program.display());
        }
        Ok(Server { process, started_in, endpoint: Endpoint::from_file(&dir.join("admin.kubeconfig"))? })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// An etcd of our own.
pub struct Etcd {
    process: Program,
    /// Where it is.
    pub url: String,
    _dir: TempDir,
    _ports: [Port; 2],
}

impl Etcd {
    /// Starts one; `None` where it is not installed.
    pub fn start() -> Result<Option<Etcd>> {
        let dir = tempfile::tempdir()?;
        let ports = [Port::reserve(), Port::reserve()];
        let [url, peer_url] = ports.each_ref().map(|port| format!("http://127.0.0.1:{}", port.number()));
        let mut command = Command::new("etcd");
        command
            .args(["--name", "bench", "--logger", "zap", "--log-level", "info"])
            .arg("--data-dir")
            .arg(dir.path())
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("bench={peer_url}")])
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let is_missing = |error: &anyhow::Error| {
            error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::NotFound)
        };
        let mut process = match Program::start(command) {
            Err(error) if is_missing(&error) => return Ok(None),
            other => other?,
        };
        let mut lines = BufReader::new(process.stderr().context("etcd without stderr")?).lines();
        let serves = lines.by_ref().map_while(Result::ok).any(|line| line.contains("serving client"));
        // It must not block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let etcd = Etcd { process, url, _dir: dir, _ports: ports };
        if !serves {
            bail!("etcd ended before it served");
        }
        Ok(Some(etcd))
    }
}

impl Etcd {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// A Redis of our own, which lets everybody in.
pub struct Redis {
    process: Program,
    port: Port,
}

impl Redis {
    /// Starts one; `None` where it is not installed.
    pub fn start() -> Result<Option<Redis>> {
        let port = Port::reserve();
        let mut command = Command::new("redis-server");
        command
            .args([
                "--port",
                &port.number().to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--maxclients",
                "20000",
            ])
            .args(["--tcp-backlog", "1024"])
            .stdout(Stdio::piped());
        let is_missing = |error: &anyhow::Error| {
            error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::NotFound)
        };
        let mut process = match Program::start(command) {
            Err(error) if is_missing(&error) => return Ok(None),
            other => other?,
        };
        let mut lines = BufReader::new(process.stdout().context("redis-server without stdout")?).lines();
        if !lines.by_ref().map_while(Result::ok).any(|line| line.contains("Ready to accept")) {
            bail!("redis-server ended before it served");
        }
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Some(Redis { process, port }))
    }

    /// Where it is, as programs are told.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/bench", self.port.number())
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}
