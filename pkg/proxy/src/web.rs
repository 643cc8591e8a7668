//! Our own nginx: its own directory, configuration and process, none of which are Debian's service.
//!
//! A configuration is tested before it is used; one that nginx refuses is kept aside and the last good one goes on.
//! Some of what is wrong shows only at the reload, of which nobody is told: whether it is used is seen by new workers.
//!
//! ```text
//! nginx.conf.new ── nginx -t ──> nginx.conf ── reload ──> new workers ──> in-use: nginx.conf is what is served
//! ```
//!
//! Nginx outlives this program: who restarts kubeproxy drops no connection.

use crate::gateway::temporary;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// How often it is looked whether it is alive.
const ALIVE: Duration = Duration::from_secs(1);
/// How long it may take until a configuration is in use. For half of that nginx itself tries to get a port.
const USED_WITHIN: Duration = Duration::from_secs(5);
/// How often it is looked meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A log that is longer begins anew.
const LONGEST_LOG_BYTES: u64 = 4 << 20;
/// How much of the log is read for what went wrong.
const EXCERPT_BYTES: u64 = 64 << 10;

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
    /// nginx has taken it, and does not use it.
    #[error("nginx goes on with the last good configuration: {0}")]
    NotUsed(String),
}

/// The nginx of this node.
pub struct Web {
    dir: PathBuf,
}

impl Web {
    /// In this directory.
    pub fn new(dir: &Path) -> Result<Web, WebError> {
        let web = Web { dir: dir.to_owned() };
        web.make_folders()?;
        Ok(web)
    }

    fn make_folders(&self) -> Result<(), WebError> {
        let failed = |source| WebError::Io { what: format!("make {}", self.dir.display()), source };
        std::fs::create_dir_all(self.dir.join("tmp")).map_err(failed)?;
        std::fs::create_dir_all(self.certificates()).map_err(failed)
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
             {}server {{\nlisten unix:{dir}/certificate.sock ssl;\nssl_certificate \"{}\";\nssl_certificate_key \"{}\";\n}} }}\n",
            temporary(&self.dir),
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
            false => Err(refusal(&tested)),
        }
    }

    /// Uses a configuration, if nginx takes it: by a reload, or by a start if it does not run. It is over when new
    /// connections are served by it.
    pub async fn apply(&self, text: &str) -> Result<(), WebError> {
        // Somebody may have removed all traces of us.
        self.make_folders()?;
        let (path, new) = (self.dir.join("nginx.conf"), self.dir.join("nginx.conf.new"));
        let in_use = self.dir.join("in-use");
        let same = in_use.exists() && std::fs::read_to_string(&path).is_ok_and(|old| old == text);
        let master = self.pid();
        if same && master.is_some() {
            return Ok(());
        }
        if master.is_none() {
            self.end_orphans();
        }
        write(&new, text)?;
        let tested = self.nginx(&new, &["-t"]).await?;
        if !tested.status.success() {
            return Err(refusal(&tested));
        }
        // Whoever is killed from here on has to try again: nobody knows what is served.
        forget(&in_use)?;
        let failed = |source| WebError::Io { what: format!("write {}", path.display()), source };
        std::fs::rename(&new, &path).map_err(failed)?;
        let (workers_before, said_before) = (master.map(workers).unwrap_or_default(), self.log_bytes());
        let arguments: &[&str] = if master.is_some() { &["-s", "reload"] } else { &[] };
        let output = self.nginx(&path, arguments).await?;
        if !output.status.success() {
            return Err(refusal(&output));
        }
        if tokio::time::timeout(USED_WITHIN, self.changed(&workers_before)).await.is_err() {
            let said = self.emergency(said_before).unwrap_or_else(|| "it does not say why".to_owned());
            return Err(WebError::NotUsed(said));
        }
        write(&in_use, "")
    }

    /// Keeps its log short, which nobody else does. nginx goes on at the end, wherever that is.
    pub fn trim_log(&self) {
        if self.log_bytes() <= LONGEST_LOG_BYTES {
            return;
        }
        let log = std::fs::OpenOptions::new().write(true).open(self.log());
        if let Err(error) = log.and_then(|log| log.set_len(0)) {
            tracing::warn!(%error, log = %self.log().display(), "the log of nginx grows");
        }
    }

    /// Ends it.
    pub async fn stop(&self) -> Result<(), WebError> {
        if self.pid().is_some() {
            self.nginx(&self.dir.join("nginx.conf"), &["-s", "stop"]).await?;
            let _ = tokio::time::timeout(USED_WITHIN, self.gone(LOOK_EVERY)).await;
        }
        self.end_orphans();
        Ok(())
    }

    /// Serves nothing any more, so that others can have its ports.
    pub async fn retire(&self) -> Result<(), WebError> {
        let config = self.dir.join("nginx.conf");
        if config.exists() {
            self.stop().await?;
            // The last step: who is killed before does it again.
            forget(&config)?;
        }
        Ok(())
    }

    /// Waits until it runs no more; for ever, if it does not run. It is nobody's child, so nobody is told of its end.
    pub async fn ended(&self) {
        if self.pid().is_none() {
            return std::future::pending().await;
        }
        self.gone(ALIVE).await;
    }

    /// Looks so often whether it still runs, until it does not.
    async fn gone(&self, every: Duration) {
        while self.pid().is_some() {
            tokio::time::sleep(every).await;
        }
    }

    /// Waits until it runs, and none of these workers takes connections any more. That is a better sign than anything
    /// that nginx says: it begins new workers only when it has all that the new configuration needs.
    async fn changed(&self, before: &BTreeSet<i32>) {
        loop {
            let now = self.pid().map(workers).unwrap_or_default();
            if !now.is_empty() && now.is_disjoint(before) {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn log(&self) -> PathBuf {
        self.dir.join("error.log")
    }

    fn log_bytes(&self) -> u64 {
        std::fs::metadata(self.log()).map_or(0, |log| log.len())
    }

    /// What its log says since then of why it does not go on.
    fn emergency(&self, since: u64) -> Option<String> {
        let mut log = std::fs::File::open(self.log()).ok()?;
        log.seek(io::SeekFrom::Start(since)).ok()?;
        let mut text = Vec::new();
        log.take(EXCERPT_BYTES).read_to_end(&mut text).ok()?;
        last_emergency(&String::from_utf8_lossy(&text)).map(str::to_owned)
    }

    /// Workers that have lost their master hold its ports, and nobody leads them any more. They finish what they are at.
    fn end_orphans(&self) {
        let log = self.log();
        for pid in processes().filter(|pid| is_nginx(*pid) && has_open(*pid, &log)) {
            tracing::info!(pid, "a worker of nginx has lost its master: it is ended");
            let _ = kill(Pid::from_raw(pid), Signal::SIGQUIT);
        }
    }

    /// Its process, if it runs: a number in a file may be of another process by now.
    fn pid(&self) -> Option<i32> {
        let pid: i32 = std::fs::read_to_string(self.dir.join("nginx.pid")).ok()?.trim().parse().ok()?;
        let ours = self.dir.display().to_string();
        let command = command_line(pid)?;
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

/// All processes there are.
fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn command_line(pid: i32) -> Option<String> {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(&command).into_owned())
}

fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // `7 (a name) S 1 …`: a name may contain anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The workers of a master that take connections. Those that only finish what they are at are called otherwise.
fn workers(master: i32) -> BTreeSet<i32> {
    let is_open = |pid: i32| {
        command_line(pid).is_some_and(|line| line.trim_matches(['\0', ' ']) == "nginx: worker process")
    };
    processes().filter(|pid| parent(*pid) == Some(master) && is_open(*pid)).collect()
}

/// What nginx says of why it does not take something.
fn refusal(output: &std::process::Output) -> WebError {
    let said = String::from_utf8_lossy(&output.stderr);
    WebError::Refused(last_emergency(&said).unwrap_or(said.trim()).to_owned())
}

/// The last reason that stands in a log, without when and who. Of a port that somebody else has, the line before the last
/// says which.
fn last_emergency(log: &str) -> Option<&str> {
    let reasons = log.lines().filter_map(|line| Some(line.split_once("[emerg] ")?.1.trim()));
    let reason = reasons.rev().find(|reason| !reason.ends_with("still could not bind()"))?;
    let process = |text: &str| text.split_once('#').is_some_and(|(pid, _)| pid.parse::<u32>().is_ok());
    Some(reason.split_once(": ").filter(|(who, _)| process(who)).map_or(reason, |(_, what)| what))
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
fn write(path: &Path, text: &str) -> Result<(), WebError> {
    written(path, text)
        .map(drop)
        .map_err(|source| WebError::Io { what: format!("write {}", path.display()), source })
}

/// The same, and it is there also after the power was lost.
pub fn write_durably(path: &Path, text: &str) -> Result<(), WebError> {
    let written = written(path, text).and_then(|file| file.sync_all());
    written.map_err(|source| WebError::Io { what: format!("write {}", path.display()), source })
}

fn written(path: &Path, text: &str) -> io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

/// Removes a file, if it is there.
fn forget(path: &Path) -> Result<(), WebError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(WebError::Io { what: format!("remove {}", path.display()), source })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use testing::Port;

    /// nginx outlives whoever starts it; it must not outlive a test.
    struct Ended(Web);

    impl Drop for Ended {
        fn drop(&mut self) {
            if let Some(pid) = self.0.pid() {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
        }
    }

    fn config(web: &Web, ports: &[&Port]) -> String {
        let servers = ports.iter().map(|port| format!("server {{ listen 127.0.0.1:{}; }}\n", port.number()));
        format!(
            "pid \"{dir}/nginx.pid\";\nerror_log \"{dir}/error.log\" warn;\nevents {{}}\nhttp {{\naccess_log off;\n\
             {}{}}}\n",
            temporary(web.dir()),
            servers.collect::<String>(),
            dir = web.dir().display(),
        )
    }

    #[tokio::test]
    async fn what_nginx_does_not_use_is_said_and_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let web = Ended(Web::new(dir.path()).unwrap());
        let web = &web.0;
        let (one, two) = (Port::reserve(), Port::reserve());
        web.apply(&config(web, &[&one])).await.unwrap();
        let master = web.pid().expect("a start is over when it runs");
        let first = workers(master);

        let theirs = TcpListener::bind(("127.0.0.1", two.number())).unwrap();
        let both = config(web, &[&one, &two]);
        let error = web.apply(&both).await.unwrap_err().to_string();
        let why = format!("bind() to 127.0.0.1:{} failed (98: Address already in use)", two.number());
        assert!(error.contains(&why), "{error}");
        assert_eq!(workers(master), first, "the last good one goes on");

        drop(theirs);
        web.apply(&both).await.unwrap();
        TcpStream::connect(("127.0.0.1", two.number())).unwrap();
        assert_eq!(web.pid(), Some(master));
        let second = workers(master);
        assert!(second.is_disjoint(&first), "{second:?} {first:?}");
        web.apply(&both).await.unwrap();
        assert_eq!(workers(master), second, "what is in use needs no reload");

        // Killed before it was seen whether it is used.
        std::fs::remove_file(dir.path().join("in-use")).unwrap();
        web.apply(&both).await.unwrap();
        assert!(workers(master).is_disjoint(&second));
    }

    #[test]
    fn the_log_says_why() {
        let check = |log: &str, expected: Option<&str>| assert_eq!(last_emergency(log), expected, "{log}");
        check("", None);
        check("1 [warn] x\n", None);
        check(
            "2026/01/01 00:00:00 [emerg] 1#1: x: z\n2026/01/01 00:00:00 [emerg] 7#7: y: z\n3 [warn] z\n",
            Some("y: z"),
        );
        check(
            "nginx: [emerg] bind() to a failed\nnginx: [emerg] still could not bind()\nnginx: test failed",
            Some("bind() to a failed"),
        );
    }

    #[test]
    fn a_long_log_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let web = Web::new(dir.path()).unwrap();
        for (bytes, left) in [(LONGEST_LOG_BYTES, LONGEST_LOG_BYTES), (LONGEST_LOG_BYTES + 1, 0)] {
            std::fs::File::create(web.log()).unwrap().set_len(bytes).unwrap();
            web.trim_log();
            assert_eq!(web.log_bytes(), left);
        }
    }
}
