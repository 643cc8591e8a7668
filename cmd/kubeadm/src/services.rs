//! The kubelet and kube-proxy as services of this host: systemd's units where there is systemd, our own supervisor where
//! there is none (and a line for whatever starts things at boot there).

use crate::host::Host;
use crate::layout;
use crate::supervisor::{self, Service};
use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use pki::file::Mode;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the supervisor and its services may take to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether this host is run by systemd.
pub fn has_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Installs and starts services; those that run as they should go on, those that changed start anew.
pub fn install(host: &Host, services: &[Service]) -> Result<()> {
    if has_systemd() { install_units(host, services) } else { install_supervised(host, services) }
}

/// Stops and removes what [`install`] made.
pub fn remove(host: &Host) -> Result<()> {
    if has_systemd() {
        for name in ["kubelet", "kubeproxy"] {
            let unit = format!("{name}.service");
            let path = Path::new(layout::UNITS).join(&unit);
            if path.exists() {
                host.call("systemctl", &["disable", "--now", &unit])?;
                host.remove(&path)?;
            }
        }
        return host.call("systemctl", &["daemon-reload"]).map(|_| ());
    }
    if let Some(pid) = supervisor::running()
        && !host.would(&format!("stop the supervisor (process {pid})"))
    {
        kill(pid, Signal::SIGTERM).context("stop the supervisor")?;
        let ends = Instant::now() + PATIENCE;
        while supervisor::running().is_some() && Instant::now() < ends {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    for path in [layout::SERVICES, layout::RUN, layout::LOGS, "/etc/init.d/minik8s"] {
        host.remove(Path::new(path))?;
    }
    // Only if nobody else has put something there.
    let _ = std::fs::remove_dir("/etc/minik8s");
    for link in boot_links() {
        host.remove(&link)?;
    }
    Ok(())
}

/// What an installed service runs, if it is installed.
pub fn command(name: &str) -> Option<Vec<String>> {
    let unit = std::fs::read_to_string(Path::new(layout::UNITS).join(format!("{name}.service")));
    if let Some(line) =
        unit.ok().and_then(|text| Some(text.split_once("ExecStart=")?.1.lines().next()?.to_owned()))
    {
        return Some(line.split(' ').map(str::to_owned).collect());
    }
    let text = std::fs::read_to_string(Path::new(layout::SERVICES).join(format!("{name}.json"))).ok()?;
    serde_json::from_str::<Service>(&text).ok().map(|service| service.command)
}

fn install_units(host: &Host, services: &[Service]) -> Result<()> {
    for service in services {
        let unit = format!("{}.service", service.name);
        let changed = host.write(&Path::new(layout::UNITS).join(&unit), &unit_text(service), Mode::Public)?;
        if changed {
            host.call("systemctl", &["daemon-reload"])?;
        }
        host.call("systemctl", &["enable", &unit])?;
        host.call("systemctl", &[if changed { "restart" } else { "start" }, &unit])?;
    }
    Ok(())
}

/// A unit of systemd. Pods outlive the kubelet, so only its own process is ended with it.
fn unit_text(service: &Service) -> String {
    let Service { name, command } = service;
    let command = command.join(" ");
    format!(
        "[Unit]\nDescription=minik8s {name}\nAfter=network.target containerd.service\nWants=containerd.service\n\
         StartLimitIntervalSec=0\n\n\
         [Service]\nExecStart={command}\nRestart=always\nRestartSec=1\nKillMode=process\nDelegate=yes\n\
         OOMScoreAdjust=-999\nLimitNOFILE=1048576\n\n\
         [Install]\nWantedBy=multi-user.target\n"
    )
}

fn install_supervised(host: &Host, services: &[Service]) -> Result<()> {
    for service in services {
        let path = Path::new(layout::SERVICES).join(format!("{}.json", service.name));
        host.write(&path, &serde_json::to_string_pretty(service)?, Mode::Public)?;
    }
    if Path::new("/etc/init.d").is_dir() {
        let script = Path::new("/etc/init.d/minik8s");
        host.write(script, &boot_script(), Mode::Public)?;
        if !host.dry_run {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755))?;
        }
        for link in boot_links() {
            if link.parent().is_some_and(Path::is_dir)
                && link.symlink_metadata().is_err()
                && !host.would(&format!("link {}", link.display()))
            {
                std::os::unix::fs::symlink("../init.d/minik8s", &link)?;
            }
        }
    }
    match supervisor::running() {
        Some(pid) if !host.would("tell the supervisor") => Ok(kill(pid, Signal::SIGHUP)?),
        Some(_) => Ok(()),
        None if host.would("start the supervisor") => Ok(()),
        None => start_supervisor(),
    }
}

fn start_supervisor() -> Result<()> {
    std::fs::create_dir_all(layout::LOGS).context("make the folder of logs")?;
    let path = Path::new(layout::LOGS).join("supervisor.log");
    let log = std::fs::OpenOptions::new().create(true).append(true).open(&path).context("open its log")?;
    // `setsid` gives it a session of its own: it must not end with the terminal that kubeadm was called from.
    Command::new("setsid")
        .args(["--fork", layout::PROGRAM, "kubeadm", "supervise"])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .context("start the supervisor")?;
    Ok(())
}

/// What an init of the old kind runs at boot.
fn boot_script() -> String {
    let (program, run) = (layout::PROGRAM, layout::RUN);
    format!(
        "#!/bin/sh\n### BEGIN INIT INFO\n# Provides:          minik8s\n# Required-Start:    $local_fs $network\n\
         # Required-Stop:     $local_fs\n# Default-Start:     2 3 4 5\n# Default-Stop:      0 1 6\n\
         # Short-Description: keeps the kubelet and kube-proxy running\n### END INIT INFO\n\
         case \"$1\" in\n  start) setsid --fork {program} kubeadm supervise </dev/null >/dev/null 2>&1 ;;\n\
         \x20 stop) kill \"$(cat {run}/supervisor.pid)\" ;;\n  *) echo \"usage: $0 start|stop\" >&2; exit 2 ;;\nesac\n"
    )
}

fn boot_links() -> Vec<PathBuf> {
    (2..=5).map(|level| PathBuf::from(format!("/etc/rc{level}.d/S99minik8s"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_ends_only_its_own_process() {
        let service =
            Service { name: "kubelet".into(), command: vec!["/x/kubelet".into(), "--kubeconfig=/k".into()] };
        let text = unit_text(&service);
        assert!(text.contains("\nExecStart=/x/kubelet --kubeconfig=/k\n"), "{text}");
        assert!(text.contains("\nKillMode=process\n"), "{text}");
    }
}
