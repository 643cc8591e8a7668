//! Keeps the kubelet and kube-proxy running on a host without systemd.
//!
//! ```text
//! /etc/minik8s/services/NAME.json ──> one child each ──exit──> started again, later each time it fails at once
//! SIGHUP: look at the folder again      SIGTERM: end the children, then itself
//! ```
//!
//! It may die at any moment: its children go on, and when it is back it replaces them, which disturbs no pod.
//! One thread and no runtime: it lives as long as the machine, and waits nearly all of that time.

use crate::layout;
use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The shortest and the longest pause before a service is started again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// A service that ran this long has not failed at once.
const STEADY: Duration = Duration::from_secs(10);
/// How long a service may take to end.
const GRACE: Duration = Duration::from_secs(10);
/// A log longer than this becomes `NAME.log.1`.
const LONGEST_LOG_BYTES: u64 = 10 << 20;
/// How often it is looked whether somebody else's child has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
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
pub fn run() -> Result<()> {
    fs::create_dir_all(layout::RUN).context("make the supervisor's folder")?;
    fs::create_dir_all(layout::LOGS).context("make the folder of logs")?;
    let _only_one = lock()?;
    let signals = Signals::hold()?;
    let mut wanted = services(Path::new(layout::SERVICES))?;
    let mut kept: BTreeMap<String, Kept> = BTreeMap::new();
    let (mut logs_at, mut is_ending) = (Instant::now(), false);
    loop {
        let now = Instant::now();
        kept.retain(|name, kept| kept.step(wanted.get(name), now));
        for (name, service) in &wanted {
            kept.entry(name.clone()).or_insert_with(|| Kept::new(service.clone(), now));
        }
        if is_ending && kept.is_empty() {
            return Ok(());
        }
        if now >= logs_at {
            kept.keys().for_each(|name| turn_over(&log_path(name)));
            logs_at = now + LOG_INTERVAL;
        }
        let wakes = kept.values().filter_map(|kept| kept.wakes(now)).fold(logs_at, Instant::min);
        for signal in signals.wait(wakes.saturating_duration_since(now))? {
            match signal {
                Signal::SIGHUP if !is_ending => match services(Path::new(layout::SERVICES)) {
                    Ok(services) => wanted = services,
                    Err(error) => eprintln!("all services stay as they were: {error:#}"),
                },
                Signal::SIGTERM => {
                    is_ending = true;
                    wanted.clear();
                }
                _ => {}
            }
        }
    }
}

/// What is read instead of interrupting.
fn held_back() -> SigSet {
    SigSet::from_iter([Signal::SIGHUP, Signal::SIGTERM, Signal::SIGCHLD])
}

/// Signals, as they come.
struct Signals(SignalFd);

impl Signals {
    fn hold() -> Result<Signals> {
        let signals = held_back();
        signals.thread_block().context("hold signals back")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Signals(SignalFd::with_flags(&signals, flags).context("read signals")?))
    }

    /// Those that have come, or come before the time is over.
    fn wait(&self, longest: Duration) -> Result<Vec<Signal>> {
        // Rounded up, so that what was waited for is due.
        let longest = PollTimeout::try_from(longest + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        let _ = poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], longest);
        let mut signals = Vec::new();
        while let Some(signal) = self.0.read_signal().context("read a signal")? {
            let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
            signals.extend(Signal::try_from(number));
        }
        Ok(signals)
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

/// A service, and where it stands.
struct Kept {
    service: Service,
    state: State,
    pause: Duration,
}

enum State {
    /// What a supervisor before this one has left running must end first.
    Left { pid: Pid, kill_at: Instant },
    /// It runs again then.
    Waiting { until: Instant },
    /// It runs; if it was told to end, it is killed then.
    Running { child: Child, since: Instant, kill_at: Option<Instant> },
}

impl Kept {
    fn new(service: Service, now: Instant) -> Kept {
        let left = fs::read_to_string(child_path(&service.name)).ok();
        let state = match left.and_then(|pid| pid.trim().parse().ok()).map(Pid::from_raw) {
            Some(pid) => State::Left { pid, kill_at: now + GRACE },
            None => State::Waiting { until: now },
        };
        Kept { service, state, pause: PAUSE.0 }
    }

    /// Does what is due. Whether anything is left to do for this service.
    fn step(&mut self, wanted: Option<&Service>, now: Instant) -> bool {
        let stays = wanted == Some(&self.service);
        match &mut self.state {
            State::Left { pid, kill_at } if is_of(*pid, &self.service) => {
                let signal = if now < *kill_at { Signal::SIGTERM } else { Signal::SIGKILL };
                let _ = kill(*pid, signal);
            }
            State::Left { .. } => self.state = State::Waiting { until: now },
            State::Waiting { .. } if !stays => {
                let _ = fs::remove_file(child_path(&self.service.name));
                return false;
            }
            State::Waiting { until } if now >= *until => self.state = self.begin(now),
            State::Waiting { .. } => {}
            State::Running { child, since, kill_at } => match (child.try_wait(), *kill_at) {
                (Ok(None), None) if !stays => {
                    let _ = kill(pid_of(child), Signal::SIGTERM);
                    *kill_at = Some(now + GRACE);
                }
                (Ok(None), Some(at)) if now >= at => drop(child.kill()),
                (Ok(None), _) => {}
                (ended, _) => {
                    eprintln!("{} ended: {ended:?}", self.service.name);
                    self.pause = next_pause(self.pause, now.saturating_duration_since(*since));
                    self.state = State::Waiting { until: now + self.pause };
                }
            },
        }
        true
    }

    fn begin(&mut self, now: Instant) -> State {
        match start(&self.service) {
            Ok(child) => {
                let _ = fs::write(child_path(&self.service.name), child.id().to_string());
                State::Running { child, since: now, kill_at: None }
            }
            Err(error) => {
                eprintln!("cannot start {}: {error:#}", self.service.name);
                self.pause = next_pause(self.pause, Duration::ZERO);
                State::Waiting { until: now + self.pause }
            }
        }
    }

    /// When there is something to do, though no signal comes.
    fn wakes(&self, now: Instant) -> Option<Instant> {
        match self.state {
            State::Left { .. } => Some(now + LOOK_INTERVAL),
            State::Waiting { until } => Some(until),
            // Somebody may have ended unseen while it was started.
            State::Running { since, .. } if since == now => Some(now),
            State::Running { kill_at, .. } => kill_at,
        }
    }
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
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
    // A child inherits what is held back, and must hear when it is to end.
    held_back().thread_unblock().context("let signals through")?;
    let child = command.spawn();
    held_back().thread_block().context("hold signals back")?;
    child.with_context(|| format!("run {program}"))
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("the kernel's process numbers are small"))
}

/// Whether that process is one of this service: its number may be another's by now.
fn is_of(pid: Pid, service: &Service) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|&byte| byte == 0).take(2);
    words.eq(service.command.iter().take(2).map(String::as_bytes))
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

/// The process of a service that is kept running here, while it has one.
pub fn process_of(name: &str) -> Option<Pid> {
    let service = services(Path::new(layout::SERVICES)).ok()?.remove(name)?;
    let pid = fs::read_to_string(child_path(name)).ok()?.trim().parse().ok().map(Pid::from_raw)?;
    is_of(pid, &service).then_some(pid)
}

fn pid_path() -> PathBuf {
    Path::new(layout::RUN).join("supervisor.pid")
}

/// Where the process number of a service is written down.
fn child_path(name: &str) -> PathBuf {
    Path::new(layout::RUN).join(format!("{name}.pid"))
}

/// Where what a service says is written.
pub fn log_path(name: &str) -> PathBuf {
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
