//! Our kubectl through the tour of upstream's (testcases/tour). Where it intentionally differs is listed in
//! testcases/tour/differs.txt.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use testing::{run_script, testcases};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tour_of_our_kubectl() {
    let tour = testcases().join("tour");
    let mut script = Command::new(tour.join("run"));
    script.env("KUBECTL", env!("CARGO_BIN_EXE_kubectl")).env("TOUR_DIFFERS", tour.join("differs.txt"));
    run_script(script).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_has_moved_is_found() {
    let mut script = Command::new("sh");
    script.env("KUBECTL", env!("CARGO_BIN_EXE_kubectl")).arg("-c").arg(
        r#"printf 'apiVersion: extensions/v1beta1\nkind: Ingress\nmetadata: {name: old}\n' | "$KUBECTL" apply -f - 2>&1 |
        grep -F 'in version "extensions/v1beta1" (this server has it in version "networking.k8s.io/v1")'"#,
    );
    run_script(script).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefix_describes_all_whose_names_start_with_it() {
    let mut script = Command::new("sh");
    script.env("KUBECTL", env!("CARGO_BIN_EXE_kubectl")).arg("-ec").arg(
        r#"for name in web-a web-b wet exact exact-b; do "$KUBECTL" create configmap $name; done
        one() { "$KUBECTL" describe cm/$1; }
        same() { [ "$1" = "$2" ] || { echo "$1"; exit 1; }; }
        same "$("$KUBECTL" describe cm web; echo end)" "$(one web-a; echo; one web-b; echo; echo end)"
        same "$("$KUBECTL" describe cm web-b; echo end)" "$(one web-b; echo end)"
        same "$("$KUBECTL" describe cm exact; echo end)" "$(one exact; echo end)"
        for words in 'cm nope' 'cm/web' 'cm web wet' 'cm,secret web'; do
            if said=$("$KUBECTL" describe $words 2>&1); then echo "$words: $said"; exit 1; fi
            echo "$said" | grep -E '^Error from server \(NotFound\): configmaps "(nope|web)" not found$'
        done"#,
    );
    run_script(script).await;
}

/// Compared are those of the same version: in older ones some words are others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ours_and_upstreams_print_the_same() {
    let Some(peer) = testing::kubectl().filter(is_ours_version) else {
        println!("skipped: ours_and_upstreams_print_the_same: no kubectl 1.35 is installed");
        return;
    };
    let mut script = Command::new(testcases().join("tour/alike"));
    script.env("KUBECTL", env!("CARGO_BIN_EXE_kubectl")).env("PEER", peer);
    run_script(script).await;
}

fn is_ours_version(kubectl: &PathBuf) -> bool {
    let output = Command::new(kubectl).args(["version", "--client"]).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).contains("v1.35.")
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
