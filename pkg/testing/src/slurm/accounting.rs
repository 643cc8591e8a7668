//! Accounting for a test's SLURM: slurmdbd on a MariaDB of its own.

use super::{await_that, nix_kill};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Both of them, until this is dropped.
pub struct Accounting {
    children: Vec<Child>,
}

impl Accounting {
    /// Starts them in the folder of a site, and waits until they answer.
    pub fn start(dir: &Path, port: u16) -> Accounting {
        let data = dir.join("db");
        let socket = dir.join("db.sock");
        let quiet = |command: &mut Command| {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        };
        let mut install = Command::new("mariadb-install-db");
        install.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
        install.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--user=root"]);
        quiet(&mut install);
        assert!(install.status().expect("mariadb-install-db: scripts/packages test installs it").success());
        let mut server = Command::new("mariadbd");
        server.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
        server
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--pid-file={}", dir.join("db.pid").display()));
        server.args([
            "--skip-networking",
            "--user=root",
            "--skip-grant-tables",
            "--innodb-buffer-pool-size=32M",
        ]);
        quiet(&mut server);
        let server = server.spawn().expect("mariadbd");
        await_that("mariadbd", || socket.exists(), String::new);
        let at = dir.display();
        let conf = format!(
            "AuthType=auth/munge\nAuthInfo=socket={at}/munge/socket\nDbdHost=localhost\nDbdAddr=127.0.0.1\n\
             DbdPort={port}\nSlurmUser=root\nLogFile={at}/log/slurmdbd\nPidFile={at}/slurmdbd.pid\n\
             StorageType=accounting_storage/mysql\nStorageHost=localhost\nStorageUser=root\nStorageLoc=slurm_acct_db\n",
        );
        let path = dir.join("etc/slurmdbd.conf");
        std::fs::write(&path, conf).expect("slurmdbd.conf");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
        let mut dbd = Command::new("slurmdbd");
        dbd.arg("-D").env("SLURM_CONF", dir.join("etc/slurm.conf")).env("MYSQL_UNIX_PORT", &socket);
        quiet(&mut dbd);
        let dbd = dbd.spawn().expect("slurmdbd");
        let log = || std::fs::read_to_string(dir.join("log/slurmdbd")).unwrap_or_default();
        await_that("slurmdbd", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok(), log);
        Accounting { children: vec![dbd, server] }
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = nix_kill(child.id(), "TERM");
            let ends = std::time::Instant::now() + std::time::Duration::from_secs(5);
            while child.try_wait().ok().flatten().is_none() && std::time::Instant::now() < ends {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
