//! A real redis-server on a loopback port of its own, gone when dropped.

use crate::Port;
use bus::{COMPONENTS, RedisConfig, RedisUser, password_hash};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a restart waits for its port, which somebody else may have for a moment.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the names of its channels and users begin with.
const CLUSTER: &str = "minik8s";

/// A running redis-server that lets in nobody but the users of a cluster, each by a password of its own.
pub struct RedisServer {
    dir: TempDir,
    port: Port,
    process: Child,
}

impl RedisServer {
    /// Starts one; when this returns it serves.
    pub fn start() -> RedisServer {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut acl = "user default off\n".to_owned();
        for (name, permission) in COMPONENTS {
            let password = format!("{name}'s password");
            std::fs::write(dir.path().join(name), &password).expect("write a password");
            let user = RedisUser::component(name, *permission, CLUSTER, password_hash(&password));
            acl.push_str(&user.line());
        }
        std::fs::write(dir.path().join("users.acl"), acl).expect("write the users");
        let port = Port::reserve();
        let process = start(&port, dir.path());
        RedisServer { dir, port, process }
    }

    /// How one of the control plane's programs reaches it.
    pub fn config(&self, component: &str) -> RedisConfig {
        self.config_at(component, self.port.number())
    }

    /// The same through somebody in between.
    pub fn config_at(&self, component: &str, port: u16) -> RedisConfig {
        let url = format!("redis://{CLUSTER}:{component}@127.0.0.1:{port}/{CLUSTER}");
        let password_file = Some(self.dir.path().join(component));
        RedisConfig { server: url.parse().expect("a good URL"), password_file, ca_file: None }
    }

    /// How nodes reach it: the API tells them who they are there.
    pub fn config_of_nodes(&self) -> RedisConfig {
        let url = format!("redis://127.0.0.1:{}/{CLUSTER}", self.port.number());
        RedisConfig { server: url.parse().expect("a good URL"), password_file: None, ca_file: None }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Where its users and their passwords are.
    pub fn dir(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills it as a crash would.
    pub fn kill(&mut self) {
        // It may be dead already, which is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it again where it was, with what it knew when it was made: users of nodes it has forgotten.
    pub fn restart(&mut self) {
        self.kill();
        self.process = start(&self.port, self.dir.path());
    }

    /// Stops it where it stands, connections and all, or lets it go on.
    pub fn freeze(&self, frozen: bool) {
        let signal = if frozen { "-STOP" } else { "-CONT" };
        let status = Command::new("kill").args([signal, &self.process.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn start(port: &Port, dir: &Path) -> Child {
    let patience = Instant::now() + PATIENCE;
    loop {
        match try_start(port, dir) {
            Ok(process) => return process,
            Err(log) => {
                let is_taken = log.contains("Address already in use");
                assert!(
                    is_taken && Instant::now() < patience,
                    "redis-server ended before it was ready:\n{log}"
                );
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn try_start(port: &Port, dir: &Path) -> Result<Child, String> {
    let mut process = Command::new("redis-server")
        .args([
            "--port",
            &port.number().to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ])
        .arg("--dir")
        .arg(dir)
        .arg("--aclfile")
        .arg(dir.join("users.acl"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("start redis-server: {error}; apt-get install redis-server"));
    let mut log = String::new();
    let stdout = process.stdout.take().expect("piped");
    let mut lines = BufReader::new(stdout).lines();
    loop {
        match lines.next() {
            Some(Ok(line)) if line.contains("Ready to accept connections") => break,
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
