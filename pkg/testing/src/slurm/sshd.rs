//! An SSH server on the loopback for a test, with keys of its own: whoever has the client's key is root there.

use super::{await_that, nix_kill};
use crate::Port;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server, until this is dropped.
pub struct Sshd {
    folder: PathBuf,
    process: Option<Child>,
    port: Port,
}

impl Sshd {
    /// Starts one in this folder.
    pub fn start(folder: &Path) -> Sshd {
        let folder = folder.join("ssh");
        std::fs::create_dir(&folder).expect("a folder");
        for name in ["host", "client"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(name));
            assert!(keygen.status().expect("ssh-keygen: scripts/packages test installs it").success());
        }
        std::fs::copy(folder.join("client.pub"), folder.join("authorized")).expect("the key");
        let port = Port::reserve();
        let host = std::fs::read_to_string(folder.join("host.pub")).expect("the host's key");
        let known = format!("[127.0.0.1]:{} {host}", port.number());
        std::fs::write(folder.join("known_hosts"), known).expect("the known hosts");
        let mut sshd = Sshd { folder, process: None, port };
        sshd.launch();
        sshd
    }

    fn launch(&mut self) {
        std::fs::create_dir_all("/run/sshd").expect("the folder that sshd wants");
        let at = self.folder.display();
        let mut command = Command::new("/usr/sbin/sshd");
        command.args(["-D", "-f", "/dev/null", "-p", &self.port.number().to_string()]);
        for option in [
            format!("HostKey={at}/host"),
            format!("AuthorizedKeysFile={at}/authorized"),
            "ListenAddress=127.0.0.1".to_owned(),
            "PasswordAuthentication=no".to_owned(),
            "PermitRootLogin=prohibit-password".to_owned(),
            "StrictModes=no".to_owned(),
            "UsePAM=no".to_owned(),
            "PidFile=none".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        let log = std::fs::File::create(self.folder.join("log")).expect("its log");
        command.arg("-e").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().expect("sshd: scripts/packages test installs it"));
        let number = self.port.number();
        let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        await_that("sshd", || std::net::TcpStream::connect(("127.0.0.1", number)).is_ok(), log);
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The client's key.
    pub fn identity(&self) -> PathBuf {
        self.folder.join("client")
    }

    /// The hosts that a client knows: this one.
    pub fn known_hosts(&self) -> PathBuf {
        self.folder.join("known_hosts")
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = nix_kill(process.id(), "TERM");
            let _ = process.wait();
        }
    }
}
