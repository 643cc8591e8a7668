//! Our kubectl through the tour of upstream's (testcases/tour). Where it intentionally differs is listed in
//! testcases/tour/differs.txt.

use std::path::Path;
use std::process::{Command, Stdio};
use testing::TestServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tour_of_our_kubectl() {
    let mut server = TestServer::start().await;
    let tour = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testcases/tour");
    let mut script = Command::new(tour.join("run"));
    script
        .env("KUBECTL", env!("CARGO_BIN_EXE_kubectl"))
        .env("KUBECONFIG", server.data_dir().join("admin.kubeconfig"))
        .env("TOUR_DIFFERS", tour.join("differs.txt"));
    let output = tokio::task::spawn_blocking(move || script.output().expect("the tour starts"));
    let output = output.await.expect("the tour ends");
    server.stop().await;
    let printed = String::from_utf8_lossy(&output.stdout);
    let failures: Vec<&str> = printed.lines().filter(|line| !line.starts_with("ok ")).collect();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{complaints}", failures.join("\n"));
    println!("{}", failures.join("\n"));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error_of_ours() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut kubectl = Command::new(env!("CARGO_BIN_EXE_kubectl"));
    kubectl.args(["config", "view"]).env("KUBECONFIG", "/dev/null").stdout(writer).stderr(Stdio::piped());
    let output = kubectl.spawn().and_then(std::process::Child::wait_with_output).expect("it runs");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(141));
}
