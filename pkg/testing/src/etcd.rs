//! A real etcd on free loopback ports, gone when dropped.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A running etcd with its own data.
pub struct EtcdServer {
    dir: TempDir,
    client_url: String,
    peer_url: String,
    process: Child,
}

impl EtcdServer {
    /// Starts one; when this returns it serves.
    pub fn start() -> EtcdServer {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let [client_url, peer_url] = free_urls();
        let process = launch(dir.path(), &client_url, &peer_url);
        EtcdServer { dir, client_url, peer_url, process }
    }

    /// Where clients connect.
    pub fn url(&self) -> &str {
        &self.client_url
    }

    /// Where its data is.
    pub fn data_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Kills it as a crash would, and starts it again on the same data.
    pub fn restart(&mut self) {
        self.kill();
        self.process = launch(self.dir.path(), &self.client_url, &self.peer_url);
    }

    fn kill(&mut self) {
        // It may be dead already, which is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn launch(dir: &Path, client_url: &str, peer_url: &str) -> Child {
    let mut process = Command::new("etcd")
        .args(["--name", "test", "--logger", "zap", "--log-level", "info"])
        .arg("--data-dir")
        .arg(dir.join("data"))
        .args(["--listen-client-urls", client_url, "--advertise-client-urls", client_url])
        .args(["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url])
        .args(["--initial-cluster", &format!("test={peer_url}")])
        .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("start etcd: {error}; apt-get install etcd-server"));
    let mut lines = BufReader::new(process.stderr.take().expect("piped above")).lines();
    let mut log = String::new();
    loop {
        match lines.next() {
            Some(Ok(line)) if line.contains("serving client") => break,
            Some(Ok(line)) => log.push_str(&(line + "\n")),
            _ => panic!("etcd ended before it was ready:\n{log}"),
        }
    }
    // It must not block on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    process
}

/// Two different ones: both ports are taken before either is let go.
fn free_urls() -> [String; 2] {
    let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    ports.map(|port| format!("http://{}", port.local_addr().expect("bound above")))
}
