//! Executing in containers, and attaching to them.

use crate::node::Node;
use kubelet::runtime::{ContainerSpec, ExecSpec, Runtime, Session};
use testing::{eventually, in_time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn command(line: &str) -> ExecSpec {
    let command = ["sh", "-c", line].map(str::to_owned).into();
    ExecSpec { command, stdout: true, stderr: true, ..ExecSpec::default() }
}

/// All that a session writes, and how it ends.
async fn finish(session: Session) -> (String, String, i32) {
    let Session { stdin, stdout, stderr, resize, exit } = session;
    drop(stdin);
    let read = |stream: Option<Box<dyn tokio::io::AsyncRead + Send + Unpin>>| async {
        let mut text = String::new();
        if let Some(mut stream) = stream {
            stream.read_to_string(&mut text).await.expect("text");
        }
        text
    };
    let all = async { tokio::join!(read(stdout), read(stderr), exit) };
    let (stdout, stderr, code) = in_time("the session ends", all).await;
    drop(resize);
    (stdout, stderr, code.expect("a code"))
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_has_streams_and_a_code() {
    let node = Node::start().await;
    let pod = node.pod("exec");
    let (_, container) = node.run(&pod, &node.shell(&pod, "main", "sleep 1000")).await;
    let session =
        node.runtime.exec(&container.id, &command("echo out; echo err >&2; exit 3")).await.expect("it runs");
    assert_eq!(finish(session).await, ("out\n".into(), "err\n".into(), 3));
    let with_input = ExecSpec { stdin: true, ..command("sort; hostname") };
    let mut session = node.runtime.exec(&container.id, &with_input).await.expect("it runs");
    let mut stdin = session.stdin.take().expect("an input");
    stdin.write_all(b"b\na\n").await.expect("written");
    stdin.shutdown().await.expect("closed");
    assert_eq!(finish(session).await, ("a\nb\nexec\n".into(), String::new(), 0));
    let missing = ExecSpec { command: vec!["/no/such".into()], stdout: true, ..ExecSpec::default() };
    let error = node.runtime.exec(&container.id, &missing).await.err().expect("no such program");
    assert!(error.to_string().contains("no such file or directory"), "{error}");
    node.runtime.close().await;
    let left = std::fs::read_dir(node.config.state_dir.join("exec")).expect("a folder").count();
    assert_eq!(left, 0, "its streams are gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_output_comes_whole() {
    let node = Node::start().await;
    let pod = node.pod("large");
    let (_, container) = node.run(&pod, &node.shell(&pod, "main", "sleep 1000")).await;
    let session = node
        .runtime
        .exec(&container.id, &command("head -c 3000000 /dev/zero | tr '\\0' x"))
        .await
        .expect("it runs");
    let (stdout, _, code) = finish(session).await;
    assert_eq!((stdout.len(), code), (3_000_000, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_can_be_resized() {
    let node = Node::start().await;
    let pod = node.pod("tty");
    let (_, container) = node.run(&pod, &node.shell(&pod, "main", "sleep 1000")).await;
    let line = "test -t 0 && echo terminal; until [ \"$(stty size)\" = '33 77' ]; do usleep 1000; done; echo resized; read x; echo got $x";
    let spec = ExecSpec { tty: true, stdin: true, ..command(line) };
    let mut session = node.runtime.exec(&container.id, &spec).await.expect("it runs");
    assert!(session.stderr.is_none());
    let mut stdin = session.stdin.take().expect("an input");
    let mut stdout = session.stdout.take().expect("an output");
    session.resize.send((77, 33)).await.expect("it listens");
    stdin.write_all(b"word\n").await.expect("written");
    let mut text = String::new();
    let all = async { tokio::join!(stdout.read_to_string(&mut text), session.exit) };
    let (_, code) = in_time("the session ends", all).await;
    drop(stdin);
    assert_eq!(code.expect("a code"), 0);
    assert!(text.contains("terminal") && text.contains("resized") && text.contains("got word"), "{text:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_waits_for_is_killed() {
    let node = Node::start().await;
    let pod = node.pod("drop");
    let (_, container) = node.run(&pod, &node.shell(&pod, "main", "sleep 1000")).await;
    let session =
        node.runtime.exec(&container.id, &command("echo on; exec sleep 4321")).await.expect("it runs");
    let count = || async {
        let session = node
            .runtime
            .exec(&container.id, &command("ps -o args | grep -c '^sleep 4321'"))
            .await
            .expect("it runs");
        finish(session).await.0.trim().to_owned()
    };
    eventually("it runs", || async { (count().await == "1").then_some(()) }).await;
    drop(session);
    eventually("it is killed", || async { (count().await == "0").then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attaching_gives_input_and_what_comes_from_now_on() {
    let node = Node::start().await;
    let pod = node.pod("attach");
    let spec = ContainerSpec {
        stdin: true,
        stdin_once: true,
        ..node.shell(
            &pod,
            "main",
            "while read line; do echo got $line; echo err $line >&2; done; echo end; exit 6",
        )
    };
    let (_, container) = node.run(&pod, &spec).await;
    // Who only looks on leaves the input to others.
    let looks_on = node.runtime.attach(&container.id, false).await.expect("attached");
    assert!(looks_on.stdin.is_none());
    drop(looks_on);
    let mut session = node.runtime.attach(&container.id, true).await.expect("attached");
    let mut stdin = session.stdin.take().expect("an input");
    stdin.write_all(b"one\ntwo\n").await.expect("written");
    drop(stdin);
    let (stdout, stderr, code) = finish(session).await;
    assert_eq!(
        (stdout.as_str(), stderr.as_str(), code),
        ("got one\ngot two\nend\n", "err one\nerr two\n", 6)
    );
    // It is in the log as well.
    assert_eq!(node.lines(&pod, "main").len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_leaves_an_attached_container_does_not_end_it() {
    let node = Node::start().await;
    let pod = node.pod("leave");
    let spec = ContainerSpec {
        stdin: true,
        tty: true,
        ..node.shell(&pod, "main", "stty -echo; echo ready; while read line; do echo got $line; done")
    };
    let (_, container) = node.run(&pod, &spec).await;
    eventually("it is ready", || async { (!node.lines(&pod, "main").is_empty()).then_some(()) }).await;
    for word in ["one", "two"] {
        let mut session = node.runtime.attach(&container.id, true).await.expect("attached");
        let mut stdin = session.stdin.take().expect("an input");
        stdin.write_all(format!("{word}\n").as_bytes()).await.expect("written");
        let mut stdout = session.stdout.take().expect("an output");
        let mut text = String::new();
        while !text.contains(&format!("got {word}")) {
            let byte = in_time("it answers", stdout.read_u8()).await.expect("a byte");
            text.push(char::from(byte));
        }
    }
    let lines = node.lines(&pod, "main");
    assert!(lines.iter().all(|line| line.starts_with("stdout F ")), "a terminal has one stream: {lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_no_more_to_say_leaves_a_container_that_others_may_speak_to() {
    let node = Node::start().await;
    let pod = node.pod("said");
    let spec = ContainerSpec {
        stdin: true,
        ..node.shell(&pod, "main", "while read line; do echo got $line; done; exit 6")
    };
    let (_, container) = node.run(&pod, &spec).await;
    for word in ["one", "two"] {
        let mut session = node.runtime.attach(&container.id, true).await.expect("attached");
        let mut stdin = session.stdin.take().expect("an input");
        stdin.write_all(format!("{word}\n").as_bytes()).await.expect("written");
        stdin.shutdown().await.expect("closed");
        assert_eq!(finish(session).await.2, 0, "it goes on");
    }
    eventually("both were heard", || async { (node.lines(&pod, "main").len() == 2).then_some(()) }).await;
}
