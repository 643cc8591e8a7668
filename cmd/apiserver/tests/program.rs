//! The program as its user meets it: one line when it serves, one file to begin with, a clean end.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn start(data: &Path) -> (Child, String) {
    let mut program = command(data).spawn().expect("the program starts");
    let mut line = String::new();
    BufReader::new(program.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
    (program, line)
}

fn command(data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_apiserver"));
    command.arg("--data-dir").arg(data).args(["--bind-address", "127.0.0.1", "--secure-port", "0"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn signal(program: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &program.id().to_string()]).status().expect("kill");
    assert!(sent.success());
}

#[test]
fn it_says_where_it_serves_and_ends_cleanly() {
    let data = tempfile::tempdir().expect("a directory");
    let (mut program, line) = start(data.path());
    let address =
        line.trim().strip_prefix("Serving the Kubernetes API on https://").expect("the line it promises");
    TcpStream::connect(address).expect("it serves once it has said so");

    let kubeconfig = data.path().join("admin.kubeconfig");
    let mode = std::fs::metadata(&kubeconfig).expect("a kubeconfig").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only its owner may read it");
    assert!(std::fs::read_to_string(&kubeconfig).expect("readable").contains(address));

    signal(&program, "-TERM");
    assert_eq!(program.wait().expect("it ends").code(), Some(0));
}

#[test]
fn it_comes_back_after_being_killed_and_is_alone_in_its_directory() {
    let data = tempfile::tempdir().expect("a directory");
    let (mut first, _) = start(data.path());
    let Output { status, stderr, .. } = command(data.path()).output().expect("a second one");
    assert!(!status.success());
    let complaint = String::from_utf8_lossy(&stderr);
    assert!(complaint.contains("open the store"), "{complaint}");

    signal(&first, "-KILL");
    first.wait().expect("it is gone");
    let (mut again, line) = start(data.path());
    assert!(line.starts_with("Serving"), "{line}");
    signal(&again, "-TERM");
    let mut complaints = String::new();
    again.stderr.take().expect("its errors").read_to_string(&mut complaints).expect("text");
    assert_eq!(again.wait().expect("it ends").code(), Some(0), "{complaints}");
}
