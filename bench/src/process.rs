//! The programs that are measured: started on free ports of the loopback with their data in a directory that goes
//! away, asked for their memory and CPU time, and ended.

// The same ports as in tests, without all that tests need besides.
#[path = "../../pkg/testing/src/port.rs"]
mod port;

use crate::http::Endpoint;
use anyhow::{Context, Result, bail};
use port::Port;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A program of ours that serves.
pub struct Server {
    process: Child,
    /// From its start to the line that says that it serves.
    pub started_in: Duration,
    /// Where it is.
    pub endpoint: Endpoint,
}

impl Server {
    /// Starts a program that says on stdout when it serves and leaves `admin.kubeconfig` in the directory.
    pub fn start(program: &Path, args: &[&str], dir: &Path) -> Result<Server> {
        let begun = Instant::now();
        let mut process = Command::new(program)
            .args(args)
            .arg("--data-dir")
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut line = String::new();
        let said = process.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
        let started_in = begun.elapsed();
        let endpoint = match said {
            Some(Ok(length)) if length > 0 => Endpoint::from_file(&dir.join("admin.kubeconfig")),
            _ => Err(anyhow::anyhow!("{} ended before it served", program.display())),
        };
        match endpoint {
            Ok(endpoint) => Ok(Server { process, started_in, endpoint }),
            Err(error) => {
                end(&mut process);
                Err(error)
            }
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// An etcd of our own.
pub struct Etcd {
    process: Child,
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
        let started = Command::new("etcd")
            .args(["--name", "bench", "--logger", "zap", "--log-level", "info"])
            .arg("--data-dir")
            .arg(dir.path())
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("bench={peer_url}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut process = match started {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.context("start etcd")?,
        };
        let mut lines = BufReader::new(process.stderr.take().context("etcd without stderr")?).lines();
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
        self.process.id()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// Memory of a process in bytes: its share of what is resident (PSS), and the most that ever was resident.
pub fn memory(pid: u32) -> Result<(f64, f64)> {
    let field = |file: &str, name: &str| -> Result<f64> {
        let path = PathBuf::from(format!("/proc/{pid}/{file}"));
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
        let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kilobytes * 1024.0)
    };
    Ok((field("smaps_rollup", "Pss:")?, field("status", "VmHWM:")?))
}

/// The share of one core that a process takes during a while.
pub async fn idle_cpu(pid: u32, during: Duration) -> Result<f64> {
    let before = cpu_seconds(pid)?;
    tokio::time::sleep(during).await;
    Ok((cpu_seconds(pid)? - before) / during.as_secs_f64())
}

/// The CPU time that a process has taken.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("not a stat file")?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next().unwrap_or_default().parse::<f64>();
    // A tick is a hundredth of a second, on every Linux that there is.
    Ok((next()? + next()?) / 100.0)
}

fn end(process: &mut Child) {
    let _ = process.kill();
    let _ = process.wait();
}
