//! A real etcd on loopback ports of its own, gone when dropped; one member, or several that are one cluster.
//!
//! The tests of the store use this file too, by its path: `store` must not wait for all that `testing` stands on.

use super::port::Port;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How often others are tried when ports turn out to be taken.
const ATTEMPTS: usize = 20;
/// How long a restart waits for its ports, which somebody else may have for a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// Files for TLS, all PEM.
#[derive(Clone)]
pub struct EtcdTls {
    /// Signs for clients.
    pub ca_file: PathBuf,
    /// The server's certificate.
    pub cert_file: PathBuf,
    /// Its key.
    pub key_file: PathBuf,
}

/// A running etcd with its own data.
pub struct EtcdServer {
    dir: TempDir,
    place: Place,
    process: Mutex<Child>,
}

/// What a member is told each time it starts.
struct Place {
    name: String,
    client: Port,
    peer: Port,
    /// All members, as etcd wants them.
    cluster: String,
    tls: Option<EtcdTls>,
}

impl EtcdServer {
    /// Starts one; when this returns it serves.
    pub fn start() -> EtcdServer {
        start_members(1, None).pop().expect("one was started")
    }

    /// Starts one that speaks TLS with its clients, and only with those whose certificate the authority signed.
    pub fn start_secured(tls: EtcdTls) -> EtcdServer {
        start_members(1, Some(&tls)).pop().expect("one was started")
    }

    /// Starts several that are one cluster.
    pub fn start_cluster(size: usize) -> Vec<EtcdServer> {
        start_members(size, None)
    }

    /// Where clients connect.
    pub fn url(&self) -> String {
        self.place.client_url()
    }

    /// Where its data is.
    pub fn data_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Kills it as a crash would.
    pub fn kill(&mut self) {
        self.crash();
    }

    /// The same, of one that others use too.
    pub fn crash(&self) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        // It may be dead already, which is as good.
        let _ = process.kill();
        let _ = process.wait();
    }

    /// Kills it, and starts it again on the same data and ports.
    pub fn restart(&mut self) {
        self.revive();
    }

    /// The same, of one that others use too.
    pub fn revive(&self) {
        self.crash();
        let patience = Instant::now() + PATIENCE;
        let process = loop {
            match wait(spawn(&self.place, self.dir.path())) {
                Ok(process) => break process,
                Err(log) => assert!(
                    port_taken(&log) && Instant::now() < patience,
                    "etcd ended before it was ready:\n{log}"
                ),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = process;
    }

    /// Stops it where it stands, connections and all, or lets it go on.
    pub fn freeze(&self, frozen: bool) {
        let signal = if frozen { "-STOP" } else { "-CONT" };
        let pid = self.process.lock().unwrap_or_else(PoisonError::into_inner).id();
        let status = Command::new("kill").args([signal, &pid.to_string()]).status();
        assert!(status.expect("kill runs").success());
        // The signal reaches one thread; the others stop a moment later, and could answer until then.
        let patience = Instant::now() + PATIENCE;
        while frozen && !is_stopped(pid) {
            assert!(Instant::now() < patience, "etcd does not stop");
            std::thread::yield_now();
        }
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Place {
    fn client_url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.client.number())
    }
}

fn start_members(count: usize, tls: Option<&EtcdTls>) -> Vec<EtcdServer> {
    for _ in 0..ATTEMPTS {
        let places = places(count, tls);
        let dirs: Vec<TempDir> =
            places.iter().map(|_| tempfile::tempdir().expect("a temporary directory")).collect();
        // No member serves before most of them run, so all are begun before any is waited for.
        let begun: Vec<Child> =
            places.iter().zip(&dirs).map(|(place, dir)| spawn(place, dir.path())).collect();
        match wait_for_all(begun) {
            Ok(processes) => {
                let members = places.into_iter().zip(dirs).zip(processes);
                return members
                    .map(|((place, dir), process)| EtcdServer { dir, place, process: Mutex::new(process) })
                    .collect();
            }
            Err(log) => assert!(port_taken(&log), "etcd ended before it was ready:\n{log}"),
        }
    }
    panic!("no free ports for etcd after {ATTEMPTS} attempts");
}

/// All, once all serve, or the log of one that does not; then none is left running.
fn wait_for_all(processes: Vec<Child>) -> Result<Vec<Child>, String> {
    let waits: Vec<_> =
        processes.into_iter().map(|process| std::thread::spawn(move || wait(process))).collect();
    let results: Vec<_> = waits.into_iter().map(|wait| wait.join().expect("it does not panic")).collect();
    if results.iter().all(Result::is_ok) {
        return Ok(results.into_iter().flatten().collect());
    }
    let mut log = String::new();
    for result in results {
        match result {
            Ok(mut process) => {
                let _ = process.kill();
                let _ = process.wait();
            }
            Err(why) => log = why,
        }
    }
    Err(log)
}

fn places(count: usize, tls: Option<&EtcdTls>) -> Vec<Place> {
    let ports: Vec<_> = (0..count).map(|_| (Port::reserve(), Port::reserve())).collect();
    let member = |(i, (_, peer)): (usize, &(Port, Port))| format!("m{i}=http://127.0.0.1:{}", peer.number());
    let cluster = ports.iter().enumerate().map(member).collect::<Vec<_>>().join(",");
    let place = |(i, (client, peer)): (usize, (Port, Port))| Place {
        name: format!("m{i}"),
        client,
        peer,
        cluster: cluster.clone(),
        tls: tls.cloned(),
    };
    ports.into_iter().enumerate().map(place).collect()
}

fn spawn(place: &Place, dir: &Path) -> Child {
    let (client_url, peer_url) = (place.client_url(), format!("http://127.0.0.1:{}", place.peer.number()));
    let mut command = Command::new("etcd");
    command
        .args(["--name", &place.name, "--logger", "zap", "--log-level", "info"])
        .arg("--data-dir")
        .arg(dir.join("data"))
        .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
        .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
        .args(["--initial-cluster", &place.cluster]);
    // One member elects itself at once; several must not depose a leader that a busy machine slows down.
    let [heartbeat, election] = if place.cluster.contains(',') { ["200", "2000"] } else { ["50", "500"] };
    command.args(["--heartbeat-interval", heartbeat, "--election-timeout", election]);
    if let Some(EtcdTls { ca_file, cert_file, key_file }) = &place.tls {
        command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(ca_file);
        command.arg("--cert-file").arg(cert_file).arg("--key-file").arg(key_file);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("start etcd: {error}; apt-get install etcd-server"))
}

/// Waits until it serves, or has ended: then this is its log.
fn wait(mut process: Child) -> Result<Child, String> {
    let mut log = String::new();
    let Some(stderr) = process.stderr.take() else { return Err(log) };
    let mut lines = BufReader::new(stderr).lines();
    loop {
        match lines.next() {
            Some(Ok(line)) if line.contains("serving client") => break,
            Some(Ok(line)) => log.push_str(&(line + "\n")),
            _ => {
                let _ = process.kill();
                let _ = process.wait();
                return Err(log);
            }
        }
    }
    // It must not block on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    Ok(process)
}

fn port_taken(log: &str) -> bool {
    log.contains("address already in use")
}

/// Whether every thread of a process is stopped.
fn is_stopped(process: u32) -> bool {
    std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs").flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_none_or(|(_, fields)| fields.trim_start().starts_with('T'))
    })
}
