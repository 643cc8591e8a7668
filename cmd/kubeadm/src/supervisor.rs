//! Keeps the kubelet and kube-proxy running on a host without systemd.
//!
//! ```text
//! /etc/minik8s/services/NAME.json ──> one child each ──exit──> started again, later each time it fails at once
//! SIGHUP: look at the folder again      SIGTERM: end the children, then itself
//! ```
//!
//! It may die at any moment: its children go on, and when it is back it replaces them, which disturbs no pod.

use crate::layout;
use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The shortest and the longest pause before a service is started again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// A service that ran this long has not failed at once.
const STEADY: Duration = Duration::from_secs(10);
/// How long a service may take to end.
const GRACE: Duration = Duration::from_secs(10);
/// A log longer than this becomes `NAME.log.1`.
const LONGEST_LOG_BYTES: u64 = 10 << 20;
/// How often logs are looked at.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A program to keep running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// What to run: the program, then its arguments.
    pub command: Vec<String>,
}

/// Runs until SIGTERM.
pub async fn run() -> Result<()> {
    fs::create_dir_all(layout::RUN).context("make the supervisor's folder")?;
    fs::create_dir_all(layout::LOGS).context("make the folder of logs")?;
    let _only_one = lock()?;
    let (mut hangup, mut terminate) = (signal(SignalKind::hangup())?, signal(SignalKind::terminate())?);
    let mut logs = tokio::time::interval(LOG_INTERVAL);
    let mut running: BTreeMap<String, (Service, CancellationToken)> = BTreeMap::new();
    let mut keepers = JoinSet::new();
    loop {
        let wanted = services(Path::new(layout::SERVICES))?;
        running.retain(|name, (service, stop)| {
            let stays = wanted.get(name) == Some(service);
            if !stays {
                stop.cancel();
            }
            stays
        });
        for (name, service) in wanted {
            running.entry(name).or_insert_with(|| {
                let stop = CancellationToken::new();
                keepers.spawn(keep(service.clone(), stop.clone()));
                (service, stop)
            });
        }
        loop {
            tokio::select! {
                _ = hangup.recv() => break,
                _ = terminate.recv() => {
                    running.values().for_each(|(_, stop)| stop.cancel());
                    while keepers.join_next().await.is_some() {}
                    return Ok(());
                }
                Some(_) = keepers.join_next() => {}
                _ = logs.tick() => running.keys().for_each(|name| turn_over(&log_path(name))),
            }
        }
    }
}

/// The services of a folder, by name. A file that cannot be read is an error that names it.
fn services(folder: &Path) -> Result<BTreeMap<String, Service>> {
    let mut services = BTreeMap::new();
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = file.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let service: Service =
                serde_json::from_str(&text).with_context(|| format!("understand {}", path.display()))?;
            services.insert(service.name.clone(), service);
        }
    }
    Ok(services)
}

async fn keep(service: Service, stop: CancellationToken) {
    let pid_path = Path::new(layout::RUN).join(format!("{}.pid", service.name));
    end_leftover(&pid_path, &service).await;
    let mut pause = PAUSE.0;
    while !stop.is_cancelled() {
        let began = Instant::now();
        match start(&service) {
            Ok(mut child) => {
                if let Some(pid) = child.id() {
                    let _ = fs::write(&pid_path, pid.to_string());
                }
                tokio::select! {
                    status = child.wait() => eprintln!("{} ended: {status:?}", service.name),
                    () = stop.cancelled() => { end(&mut child).await; break; }
                }
            }
            Err(error) => eprintln!("cannot start {}: {error:#}", service.name),
        }
        pause = next_pause(pause, began.elapsed());
        tokio::select! { () = tokio::time::sleep(pause) => {}, () = stop.cancelled() => {} }
    }
    let _ = fs::remove_file(&pid_path);
}

/// Twice as long each time, from the beginning once it has run well.
fn next_pause(last: Duration, ran: Duration) -> Duration {
    if ran >= STEADY { PAUSE.0 } else { (last * 2).min(PAUSE.1) }
}

fn start(service: &Service) -> Result<Child> {
    let [program, arguments @ ..] = service.command.as_slice() else { bail!("it has no command") };
    let path = log_path(&service.name);
    let log = OpenOptions::new().create(true).append(true).open(&path).context("open its log")?;
    let errors = log.try_clone().context("open its log")?;
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .process_group(0)
        .spawn()
        .with_context(|| format!("run {program}"))
}

async fn end(child: &mut Child) {
    let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) else { return };
    let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// Ends what a supervisor before this one has left running, if it is still that program.
async fn end_leftover(pid_path: &Path, service: &Service) {
    let Some(pid) = fs::read_to_string(pid_path).ok().and_then(|pid| pid.trim().parse::<i32>().ok()) else {
        return;
    };
    let is_ours = || {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let first = line.split(|&byte| byte == 0).next().unwrap_or_default();
        Some(first) == service.command.first().map(String::as_bytes)
    };
    let ends = Instant::now() + GRACE;
    let mut signal = Signal::SIGTERM;
    while is_ours() {
        let _ = kill(Pid::from_raw(pid), signal);
        if Instant::now() > ends {
            signal = Signal::SIGKILL;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The lock that says that a supervisor runs, with its process number in it.
fn lock() -> Result<File> {
    let path = pid_path();
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
    if file.try_lock().is_err() {
        bail!("another supervisor runs ({} is locked)", path.display());
    }
    file.set_len(0)?;
    fs::write(&path, std::process::id().to_string())?;
    Ok(file)
}

/// The process that supervises, if one does.
pub fn running() -> Option<Pid> {
    let file = File::open(pid_path()).ok()?;
    // Whoever can lock it is alone.
    if file.try_lock_shared().is_ok() {
        return None;
    }
    fs::read_to_string(pid_path()).ok()?.trim().parse().ok().map(Pid::from_raw)
}

fn pid_path() -> PathBuf {
    Path::new(layout::RUN).join("supervisor.pid")
}

fn log_path(name: &str) -> PathBuf {
    Path::new(layout::LOGS).join(format!("{name}.log"))
}

/// The child keeps its file, so the content moves and the file is emptied.
fn turn_over(path: &Path) {
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() > LONGEST_LOG_BYTES) {
        let _ = fs::copy(path, path.with_extension("log.1"));
        let _ = OpenOptions::new().write(true).truncate(true).open(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_while_it_fails_at_once_and_begin_anew_when_it_ran() {
        let mut pause = PAUSE.0;
        let pauses: Vec<u128> = (0..8)
            .map(|_| {
                pause = next_pause(pause, Duration::ZERO);
                pause.as_millis()
            })
            .collect();
        assert_eq!(pauses, [400, 800, 1600, 3200, 6400, 10000, 10000, 10000]);
        assert_eq!(next_pause(pause, STEADY), PAUSE.0);
    }

    #[test]
    fn a_broken_service_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let service = Service { name: "kubelet".into(), command: vec!["kubelet".into(), "--v".into()] };
        let text = serde_json::to_string(&service).expect("JSON");
        fs::write(folder.path().join("kubelet.json"), text).expect("written");
        fs::write(folder.path().join("README"), "not a service").expect("written");
        assert_eq!(services(folder.path()).expect("readable")["kubelet"], service);
        fs::write(folder.path().join("broken.json"), "{").expect("written");
        assert!(services(folder.path()).unwrap_err().to_string().contains("broken.json"));
    }
}
