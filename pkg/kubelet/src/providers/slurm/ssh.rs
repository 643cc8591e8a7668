//! A site behind SSH: the system's `ssh`, one kept connection, made anew when it breaks.
//!
//! ```text
//! command ──> connection (a control master, made once) ──> ssh -S <its socket> … 'word' 'word'
//! ```
//!
//! The user's ssh configuration holds: jump hosts, agents, Kerberos. Passwords are never asked for, and a host whose key
//! is not known is refused.

use super::door::{Door, DoorError};
use super::script::quoted;
use super::site::SshConfig;
use async_trait::async_trait;
use openssh::{KnownHosts, Session, SessionBuilder};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

/// A connection that does not stand by then is given up.
const CONNECT: Duration = Duration::from_secs(20);
/// sshd takes ten sessions on one connection unless it is told otherwise; the others are for logs and shells.
const COMMANDS_AT_ONCE: usize = 5;
/// What ssh returns where it failed itself.
const SSH_FAILED: i32 = 255;

/// A site behind SSH.
pub struct SshDoor {
    config: SshConfig,
    env: Vec<(String, String)>,
    /// Where the socket of the connection is.
    folder: PathBuf,
    session: Mutex<Option<Arc<Session>>>,
    turns: Arc<Semaphore>,
}

impl SshDoor {
    /// Not connected yet. What an earlier program left in the folder is ended.
    pub async fn new(
        config: SshConfig,
        env: Vec<(String, String)>,
        folder: &Path,
    ) -> std::io::Result<SshDoor> {
        tokio::fs::create_dir_all(folder).await?;
        let mut entries = tokio::fs::read_dir(folder).await?;
        while let Some(entry) = entries.next_entry().await? {
            let socket = entry.path().join("master");
            if tokio::fs::metadata(&socket).await.is_ok() {
                let mut exit = Command::new("ssh");
                exit.arg("-S").arg(&socket).args(["-O", "exit", "-o", "BatchMode=yes", "--", "none"]);
                let _ = exit.output().await;
            }
            let _ = tokio::fs::remove_dir_all(entry.path()).await;
        }
        let turns = Arc::new(Semaphore::new(COMMANDS_AT_ONCE));
        Ok(SshDoor { config, env, folder: folder.to_owned(), session: Mutex::default(), turns })
    }

    async fn session(&self) -> Result<Arc<Session>, DoorError> {
        let mut session = self.session.lock().await;
        if let Some(kept) = &*session {
            return Ok(kept.clone());
        }
        let mut builder = SessionBuilder::default();
        builder
            .known_hosts_check(KnownHosts::Strict)
            .control_directory(&self.folder)
            .connect_timeout(CONNECT)
            .server_alive_interval(Duration::from_secs(15));
        if let Some(port) = self.config.port {
            builder.port(port);
        }
        if let Some(file) = &self.config.identity_file {
            builder.keyfile(file);
        }
        if let Some(file) = &self.config.known_hosts_file {
            builder.user_known_hosts_file(file);
        }
        if let Some(file) = &self.config.config_file {
            builder.config_file(file);
        }
        let made = builder.connect(&self.config.destination).await;
        let made = Arc::new(made.map_err(|error| DoorError::Unreachable(crate::error::chain(&error)))?);
        *session = Some(made.clone());
        Ok(made)
    }
}

#[async_trait]
impl Door for SshDoor {
    async fn command(&self, words: &[String], tty: bool) -> Result<Command, DoorError> {
        let session = self.session().await?;
        let mut command = Command::new("ssh");
        // Without the kept connection nothing is run: a new one would not know what this one was told.
        command.arg("-S").arg(session.control_socket()).args([
            "-o",
            "BatchMode=yes",
            "-o",
            "ProxyCommand=false",
        ]);
        command.arg(if tty { "-tt" } else { "-T" });
        let mut line = String::from("env");
        for (name, value) in &self.env {
            line.push_str(&format!(" {name}={}", quoted(value)));
        }
        for word in words {
            line.push(' ');
            line.push_str(&quoted(word));
        }
        command.args(["--", "none", &line]);
        Ok(command)
    }

    async fn judge(&self, code: i32, stderr: &str) -> Result<(), DoorError> {
        if code != SSH_FAILED {
            return Ok(());
        }
        let kept = self.session.lock().await.clone();
        let stands = match &kept {
            Some(session) => session.check().await.is_ok(),
            None => false,
        };
        if !stands {
            self.session.lock().await.take();
        }
        Err(DoorError::Unreachable(stderr.trim().to_owned()))
    }

    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.turns.clone().acquire_owned().await.ok()
    }
}
