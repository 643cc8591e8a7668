//! Our kubectl through the tour of upstream's (testcases/tour). Where it intentionally differs is listed in
//! testcases/tour/differs.txt.

use std::process::{Command, Stdio};
use testing::{run_script, testcases};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tour_of_our_kubectl() {
    let tour = testcases().join("tour");
    let mut script = Command::new(tour.join("run"));
    script.env("KUBECTL", env!("CARGO_BIN_EXE_kubectl")).env("TOUR_DIFFERS", tour.join("differs.txt"));
    run_script(script).await;
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
