//! Upstream's kubectl: logs, exec, attach, cp, port-forward, top.

use crate::node::Cluster;
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use testing::{eventually, in_time};

/// The cluster and the program, or a word on why not.
async fn start(test: &str) -> Option<(Cluster, PathBuf)> {
    let Some(kubectl) = testing::kubectl() else {
        println!("skipped: {test}: no kubectl 1.30 or newer is installed");
        return None;
    };
    Some((Cluster::start().await, kubectl))
}

/// A command that talks to the cluster.
fn command(cluster: &Cluster, program: &PathBuf, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env("KUBECONFIG", cluster.server.data_dir().join("admin.kubeconfig"));
    // What it discovers is kept in the test's own folder.
    command.env("HOME", cluster.server.data_dir());
    command
}

/// Runs it to its end, with what it is told on standard input.
async fn output(mut command: Command, input: &[u8]) -> Output {
    let (what, input) = (format!("{command:?}"), input.to_vec());
    let run = tokio::task::spawn_blocking(move || {
        let child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut child = Ended(child);
        let mut stdin = child.0.stdin.take().unwrap();
        let writing = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let (mut out, mut err) = (child.0.stdout.take().unwrap(), child.0.stderr.take().unwrap());
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            err.read_to_end(&mut text).unwrap();
            text
        });
        let mut stdout = Vec::new();
        out.read_to_end(&mut stdout).unwrap();
        let status = child.0.wait().unwrap();
        writing.join().unwrap();
        Output { status, stdout, stderr: errors.join().unwrap() }
    });
    in_time(&what, run).await.unwrap()
}

/// A process that is not left behind.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace("\r\n", "\n")
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_shows_and_follows_logs() {
    let Some((cluster, kubectl)) = start("kubectl_shows_and_follows_logs").await else { return };
    let id = cluster.run("web", "cat").await;
    cluster.node.runtime.tell(&id, "one\n").await;
    let log = cluster.node.log(&id);
    eventually("the container has written", || async { log.exists().then_some(()) }).await;
    let mut follow =
        Ended(command(&cluster, &kubectl, &["logs", "-f", "web"]).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(follow.0.stdout.take().unwrap()).lines();
    let next = move || lines.next().map(Result::unwrap);
    let (first, next) = in_time(
        "the first line",
        tokio::task::spawn_blocking(move || {
            let mut next = next;
            (next(), next)
        }),
    )
    .await
    .unwrap();
    assert_eq!(first.as_deref(), Some("one"));
    cluster.node.runtime.tell(&id, "two\n").await;
    let (second, next) = in_time(
        "the second line",
        tokio::task::spawn_blocking(move || {
            let mut next = next;
            (next(), next)
        }),
    )
    .await
    .unwrap();
    assert_eq!(second.as_deref(), Some("two"));
    let shown = output(command(&cluster, &kubectl, &["logs", "web", "--tail=1"]), b"").await;
    assert_eq!(succeeded(&shown), "two\n");
    cluster.node.runtime.kill(&id);
    let last = in_time("the end", tokio::task::spawn_blocking(next)).await.unwrap();
    assert_eq!(last, None);
    assert!(follow.0.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_executes_with_and_without_a_terminal() {
    let Some((cluster, kubectl)) = start("kubectl_executes_with_and_without_a_terminal").await else {
        return;
    };
    cluster.run("web", "cat").await;
    let plain = output(
        command(&cluster, &kubectl, &["exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]),
        b"",
    )
    .await;
    assert_eq!(plain.status.code(), Some(7), "{}", text(&plain.stderr));
    assert_eq!(text(&plain.stdout), "out\n");
    assert_eq!(text(&plain.stderr), "err\ncommand terminated with exit code 7\n");
    // More than any buffer on the way, and its end is seen.
    let input = b"0123456789abcde\n".repeat(20_000);
    let counted = output(
        command(&cluster, &kubectl, &["exec", "-i", "web", "--", "sh", "-c", "cat; echo end"]),
        &input,
    )
    .await;
    assert!(succeeded(&counted).into_bytes() == [&input[..], b"end\n"].concat());
    // A terminal here, a terminal there, of the same size; it stays until that was seen.
    let seen = cluster.server.data_dir().join("seen");
    let waits = format!("test -t 1 && echo terminal; until [ -e {} ]; do sleep 0.05; done", seen.display());
    let inner = format!("stty cols 91 rows 37; {} exec -it web -- sh -c '{waits}'", kubectl.display());
    let with_terminal = output(command(&cluster, &"script".into(), &["-qefc", &inner, "/dev/null"]), b"");
    let sizes = cluster.node.runtime.sizes.clone();
    let resized = async {
        eventually("the size of the terminal", || async { sizes.lock().contains(&(91, 37)).then_some(()) })
            .await;
        std::fs::write(&seen, "").unwrap();
    };
    let (with_terminal, ()) = tokio::join!(with_terminal, resized);
    assert!(succeeded(&with_terminal).contains("terminal\n"), "{}", text(&with_terminal.stdout));
    let wrong = output(command(&cluster, &kubectl, &["exec", "web", "-c", "x", "--", "id"]), b"").await;
    assert!(text(&wrong.stderr).contains("container x is not valid for pod web"), "{}", text(&wrong.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_attaches_and_detaches() {
    let Some((cluster, kubectl)) = start("kubectl_attaches_and_detaches").await else { return };
    let script = "while read -r line; do echo \"got $line\"; test \"$line\" = stop && exit 0; done";
    cluster.run_in("web", script, None, json!({"stdin": true})).await;
    let attached = output(command(&cluster, &kubectl, &["attach", "-i", "web"]), b"hello\nstop\n").await;
    assert_eq!(succeeded(&attached), "got hello\ngot stop\n", "{}", text(&attached.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_copies_both_ways() {
    let Some((cluster, kubectl)) = start("kubectl_copies_both_ways").await else { return };
    cluster.run("web", "cat").await;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let contents = b"some bytes \x00\xff\n".repeat(30_000);
    std::fs::write(path("here"), &contents).unwrap();
    let there = format!("web:{}", path("there"));
    succeeded(&output(command(&cluster, &kubectl, &["cp", &path("here"), &there]), b"").await);
    assert!(std::fs::read(path("there")).unwrap() == contents);
    succeeded(&output(command(&cluster, &kubectl, &["cp", &there, &path("back")]), b"").await);
    assert!(std::fs::read(path("back")).unwrap() == contents);
}

/// Says back what it hears.
fn echo() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_forwards_ports() {
    let Some((cluster, kubectl)) = start("kubectl_forwards_ports").await else { return };
    cluster.run("web", "cat").await;
    let port = echo();
    let forward = format!(":{port}");
    let mut child = Ended(
        command(&cluster, &kubectl, &["port-forward", "pod/web", &forward, "--address=127.0.0.1"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut said = BufReader::new(child.0.stdout.take().unwrap());
    let (line, said) = in_time(
        "the local port",
        tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            (line, said)
        }),
    )
    .await
    .unwrap();
    // Forwarding from 127.0.0.1:40000 -> 80
    let local = line
        .split_whitespace()
        .nth(2)
        .and_then(|word| word.rsplit(':').next())
        .unwrap_or_else(|| panic!("{line:?}"));
    let local: u16 = local.parse().unwrap();
    let contents = b"0123456789abcdef".repeat(50_000);
    let talks = (0..4).map(|_| {
        let contents = contents.clone();
        tokio::task::spawn_blocking(move || {
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", local)).unwrap();
            let mut writer = stream.try_clone().unwrap();
            let sent = contents.clone();
            let writing = std::thread::spawn(move || {
                writer.write_all(&sent).unwrap();
                writer.shutdown(std::net::Shutdown::Write).unwrap();
            });
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            writing.join().unwrap();
            assert!(back == contents, "{} bytes came back", back.len());
        })
    });
    for talk in in_time("all connections", futures::future::join_all(talks)).await {
        talk.unwrap();
    }
    drop(child);
    drop(said);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_shows_usage() {
    let Some((cluster, kubectl)) = start("kubectl_shows_usage").await else { return };
    cluster.run("web", "cat").await;
    let nodes = succeeded(&output(command(&cluster, &kubectl, &["top", "nodes"]), b"").await);
    assert!(nodes.starts_with("NAME") && nodes.contains("node-1"), "{nodes}");
    let pods = succeeded(
        &output(command(&cluster, &kubectl, &["top", "pods", "--containers", "--no-headers"]), b"").await,
    );
    let words: Vec<&str> = pods.split_whitespace().collect();
    assert!(words.starts_with(&["web", "c"]) && words[3].ends_with("Mi"), "{pods}");
}
