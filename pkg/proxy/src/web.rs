//! Our own nginx: its own directory, configuration and process, none of which are Debian's service.
//!
//! A configuration is tested before it is used; one that nginx refuses is kept aside and the last good one goes on.
//! Nginx outlives this program: who restarts kubeproxy drops no connection.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// How often it is looked whether it is alive.
const ALIVE: Duration = Duration::from_secs(1);

/// Why there is no new configuration.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// A file or a program.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// nginx does not take it.
    #[error("nginx refuses the configuration, the last good one stays: {0}")]
    Refused(String),
}

/// The nginx of this node.
pub struct Web {
    dir: PathBuf,
}

impl Web {
    /// In this directory.
    pub fn new(dir: &Path) -> Result<Web, WebError> {
        let failed = |source| WebError::Io { what: format!("make {}", dir.display()), source };
        std::fs::create_dir_all(dir.join("tmp")).map_err(failed)?;
        std::fs::create_dir_all(dir.join("certificates")).map_err(failed)?;
        Ok(Web { dir: dir.to_owned() })
    }

    /// Where it keeps everything.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where certificates and keys are.
    pub fn certificates(&self) -> PathBuf {
        self.dir.join("certificates")
    }

    /// Whether nginx takes a certificate and its key: one that it does not take would keep back everybody's changes.
    pub async fn takes_certificate(&self, certificate: &Path, key: &Path) -> Result<(), WebError> {
        let config = self.dir.join("certificate.conf");
        let text = format!(
            "pid \"{dir}/certificate.pid\";\nerror_log \"{dir}/error.log\" warn;\nevents {{}}\nhttp {{ access_log off;\n\
             client_body_temp_path \"{dir}/tmp/body\";\nproxy_temp_path \"{dir}/tmp/proxy\";\n\
             fastcgi_temp_path \"{dir}/tmp/fastcgi\";\nuwsgi_temp_path \"{dir}/tmp/uwsgi\";\n\
             scgi_temp_path \"{dir}/tmp/scgi\";\nserver {{\n\
             listen unix:{dir}/certificate.sock ssl;\nssl_certificate \"{}\";\nssl_certificate_key \"{}\";\n}} }}\n",
            certificate.display(),
            key.display(),
            dir = self.dir.display()
        );
        write(&config, &text)?;
        let tested = self.nginx(&config, &["-t"]).await?;
        let _ = std::fs::remove_file(&config);
        let _ = std::fs::remove_file(self.dir.join("certificate.sock"));
        match tested.status.success() {
            true => Ok(()),
            false => Err(WebError::Refused(String::from_utf8_lossy(&tested.stderr).trim().to_owned())),
        }
    }

    /// Uses a configuration, if nginx takes it: by a reload, or by a start if it does not run.
    pub async fn apply(&self, text: &str) -> Result<(), WebError> {
        let (path, new) = (self.dir.join("nginx.conf"), self.dir.join("nginx.conf.new"));
        let same = std::fs::read_to_string(&path).is_ok_and(|old| old == text);
        let running = self.pid().is_some();
        if same && running {
            return Ok(());
        }
        if !running {
            self.end_orphans();
        }
        write(&new, text)?;
        let tested = self.nginx(&new, &["-t"]).await?;
        if !tested.status.success() {
            return Err(WebError::Refused(String::from_utf8_lossy(&tested.stderr).trim().to_owned()));
        }
        let failed = |source| WebError::Io { what: format!("write {}", path.display()), source };
        std::fs::rename(&new, &path).map_err(failed)?;
        let arguments: &[&str] = if running { &["-s", "reload"] } else { &[] };
        let output = self.nginx(&path, arguments).await?;
        match output.status.success() {
            true => Ok(()),
            false => Err(WebError::Refused(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        }
    }

    /// Ends it.
    pub async fn stop(&self) -> Result<(), WebError> {
        if self.pid().is_some() {
            self.nginx(&self.dir.join("nginx.conf"), &["-s", "stop"]).await?;
        }
        self.end_orphans();
        Ok(())
    }

    /// Waits until it runs no more; for ever, if it does not run. It is nobody's child, so nobody is told of its end.
    pub async fn ended(&self) {
        if self.pid().is_none() {
            return std::future::pending().await;
        }
        while self.pid().is_some() {
            tokio::time::sleep(ALIVE).await;
        }
    }

    /// Workers that have lost their master hold its ports, and nobody leads them any more. They finish what they are at.
    fn end_orphans(&self) {
        let log = self.dir.join("error.log");
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        for pid in pids.filter(|pid| is_nginx(*pid) && has_open(*pid, &log)) {
            tracing::info!(pid, "a worker of nginx has lost its master: it is ended");
            let _ = kill(Pid::from_raw(pid), Signal::SIGQUIT);
        }
    }

    /// Its process, if it runs: a number in a file may be of another process by now.
    fn pid(&self) -> Option<i32> {
        let pid: i32 = std::fs::read_to_string(self.dir.join("nginx.pid")).ok()?.trim().parse().ok()?;
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let ours = self.dir.display().to_string();
        let command = String::from_utf8_lossy(&command).into_owned();
        (command.contains("nginx") && command.contains(&ours)).then_some(pid)
    }

    async fn nginx(&self, config: &Path, arguments: &[&str]) -> Result<std::process::Output, WebError> {
        let mut command = Command::new("nginx");
        command.arg("-p").arg(&self.dir).arg("-c").arg(config).args(arguments).stdin(Stdio::null());
        let failed = |source| WebError::Io {
            what: "run nginx: is the package nginx-light installed?".to_owned(),
            source,
        };
        // A daemon that holds our pipes would never let us finish: its output goes to a file.
        let log = self.dir.join("start.log");
        let file = std::fs::File::create(&log).map_err(failed)?;
        let status = command.stdout(Stdio::null()).stderr(file).status().await.map_err(failed)?;
        let stderr = std::fs::read(&log).unwrap_or_default();
        Ok(std::process::Output { status, stdout: Vec::new(), stderr })
    }
}

fn is_nginx(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "nginx")
}

/// Our nginx is known by its log: the workers' command lines say nothing.
fn has_open(pid: i32, file: &Path) -> bool {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|path| path == file)
}

/// Writes a file that only root may read: keys are among them.
pub fn write(path: &Path, text: &str) -> Result<(), WebError> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let file = options.create(true).truncate(true).write(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| WebError::Io { what: format!("write {}", path.display()), source })
}
