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

/// As somebody meets it who writes YAML by hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_file_is_said_by_line_and_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut script = Command::new("sh");
    script.env("KUBECTL", env!("CARGO_BIN_EXE_kubectl")).current_dir(folder.path()).arg("-ec").arg(
        r#"pod() { printf 'apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    image: i\n    %s\n' "$1"; }
        refuses() { for verb in apply create; do
            if said=$("$KUBECTL" $verb -f f.yaml 2>&1); then echo "$verb took it: $said"; exit 1; fi
            case $said in *"$1"*) ;; *) echo "$verb says: $said"; echo "and not: $1"; exit 1 ;; esac
            case $said in *'Go struct'*|*valueUnstructured*) echo "$verb speaks Go: $said"; exit 1 ;; esac
        done; }
        pod 'env: [{name: a, value: true}]' >f.yaml
        refuses 'error: f.yaml:8:21: spec.containers[0].env[0].value: expected a text, found true: quote it: "true"'
        pod 'env: [{name: a, value: 8080}]' >f.yaml
        refuses 'found 8080: quote it: "8080"'
        pod 'ports: [{containerPort: "80"}]' >f.yaml
        refuses 'f.yaml:8:14: spec.containers[0].ports[0].containerPort: expected a number, found "80": write it without quotes: 80'
        pod 'resources: {limits: {memory: lots}}' >f.yaml
        refuses 'f.yaml:8:26: spec.containers[0].resources.limits.memory: "lots" is not a quantity, such as 500m, 1.5 or 200Mi'
        pod 'imagee: x' >f.yaml
        refuses 'unknown field "spec.containers[0].imagee" (did you mean "image"?)'
        printf 'apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata:\n  key: plain text\n' >f.yaml
        refuses 'f.yaml:5:3: data.key: "plain text" is not base64: wrong at byte 5 (plain text goes into stringData)'"#,
    );
    run_script(script).await;
}

/// `My_App` and `my-app` are two names, although Kubernetes has room for one of them only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_done_to_an_object_that_was_made_under_another_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut script = Command::new("sh");
    script.env("KUBECTL", env!("CARGO_BIN_EXE_kubectl")).current_dir(folder.path()).arg("-ec").arg(
        r#"file() { printf 'kind: ConfigMap\nmetadata: {name: %s}\ndata: {a: "%s"}\n' "$1" "$2" >"$1.yaml"; }
        file my-app 1; file My_App 2
        "$KUBECTL" apply -f my-app.yaml
        uid=$("$KUBECTL" get cm my-app -o 'jsonpath={.metadata.uid}')
        for words in 'apply -f' 'create -f' 'replace -f' 'delete -f' 'get -f' 'describe -f' 'diff -f' 'label a=b -f' \
            'annotate a=b -f' 'patch -p {} -f' 'wait --for=create -f'; do
            if said=$("$KUBECTL" $words My_App.yaml 2>&1); then echo "$words: $said"; exit 1; fi
        done
        for words in 'delete cm' 'get cm' 'describe cm' 'label a=b cm'; do
            if said=$("$KUBECTL" $words My_App 2>&1); then echo "$words: $said"; exit 1; fi
        done
        [ "$("$KUBECTL" get cm my-app -o 'jsonpath={.metadata.uid} {.data.a} {.metadata.labels}')" = "$uid 1 " ]
        "$KUBECTL" delete -f my-app.yaml
        "$KUBECTL" apply -f My_App.yaml
        if "$KUBECTL" delete -f my-app.yaml; then exit 1; fi
        "$KUBECTL" get cm My_App -o name | grep -qx configmap/my-app
        "$KUBECTL" delete -f My_App.yaml"#,
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
