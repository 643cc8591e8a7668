//! Shims that containerd has lost: whoever asked for one died while it started, and containerd forgot it. It has no
//! task, so nobody can be told to remove it; it is found by its command line and killed.

use super::Engine;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A killed process is gone within moments; one that is not is left alone.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(10);
/// Where shims put their sockets, whatever containerd's own folders are.
const SOCKETS: &str = "/run/containerd/s";

impl Engine {
    /// Ends the shim of a sandbox that has no task.
    pub(super) async fn end_lost_shim(&self, id: &str) {
        let socket = self.config.socket.display().to_string();
        let (namespace, wanted) = (self.config.namespace.clone(), id.to_owned());
        for _ in 0..TRIES {
            let (socket, namespace, wanted) = (socket.clone(), namespace.clone(), wanted.clone());
            let found = tokio::task::spawn_blocking(move || {
                shims_of(Path::new("/proc"), &namespace, &wanted, &socket)
            });
            let found = found.await.unwrap_or_default();
            if found.is_empty() {
                break;
            }
            tracing::info!(sandbox = id, ?found, "end a shim that containerd has lost");
            for pid in found {
                // It may have ended by itself.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            tokio::time::sleep(PAUSE).await;
        }
        // What its container left would be in the way of the next one of the same id.
        let _ =
            std::fs::remove_dir_all(self.config.state_dir.join("runc").join(&self.config.namespace).join(id));
        // Its socket would stay for ever; mostly there is none.
        let _ = std::fs::remove_file(socket_of(&socket, &self.config.namespace, id));
    }
}

/// The processes that are shims of this id; also those that are about to start one.
fn shims_of(proc: &Path, namespace: &str, id: &str, socket: &str) -> Vec<i32> {
    let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let line = std::fs::read(proc.join(pid.to_string()).join("cmdline")).unwrap_or_default();
        is_shim_of(&String::from_utf8_lossy(&line), namespace, id, socket)
    })
    .collect()
}

fn is_shim_of(command_line: &str, namespace: &str, id: &str, socket: &str) -> bool {
    let words: Vec<&str> = command_line.split('\0').collect();
    let says = |flag: &str, value: &str| words.windows(2).any(|pair| pair == [flag, value]);
    words.first().is_some_and(|program| program.contains("containerd-shim"))
        && says("-namespace", namespace)
        && says("-id", id)
        && says("-address", socket)
}

/// The socket of a shim: its name is a hash of whose it is.
fn socket_of(socket: &str, namespace: &str, id: &str) -> PathBuf {
    let whose = Path::new(socket).join(namespace).join(id);
    let hash = ring::digest::digest(&ring::digest::SHA256, whose.display().to_string().as_bytes());
    let name: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Path::new(SOCKETS).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_shim_of_that_sandbox_and_containerd_is_meant() {
        let line = |program: &str, namespace: &str, id: &str, socket: &str| {
            [program, "-namespace", namespace, "-id", id, "-address", socket].join("\0") + "\0"
        };
        let shim = "/usr/bin/containerd-shim-runc-v2";
        let check = |line: String, expected: bool| {
            assert_eq!(is_shim_of(&line, "k8s.io", "abc", "/run/c.sock"), expected, "{line:?}");
        };
        check(line(shim, "k8s.io", "abc", "/run/c.sock"), true);
        check(line(shim, "k8s.io", "abc", "/run/c.sock") + "start\0", true);
        check(line(shim, "k8s.io", "abcd", "/run/c.sock"), false);
        check(line(shim, "other", "abc", "/run/c.sock"), false);
        check(line(shim, "k8s.io", "abc", "/run/other.sock"), false);
        check(line("grep", "k8s.io", "abc", "/run/c.sock"), false);
    }
}
