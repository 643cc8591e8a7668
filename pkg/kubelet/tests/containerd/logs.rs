//! What containers write is in their logs, whatever happens to us.

use crate::node::{Node, next};
use kubelet::runtime::{ContainerSpec, Event, Runtime};
use testing::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn logs_have_the_format_that_everybody_reads() {
    let node = Node::start().await;
    let pod = node.pod("format");
    let line = "echo out; echo err >&2; head -c 20000 /dev/zero | tr '\\0' x; echo; printf 'no newline'";
    let (_, container) = node.run(&pod, &node.shell(&pod, "main", line)).await;
    assert_eq!(node.end(&pod, &container.id).await.0, 0);
    let lines =
        eventually("all lines", || async { Some(node.lines(&pod, "main")).filter(|lines| lines.len() == 5) })
            .await;
    let of = |stream: &str| lines.iter().filter(|line| line.starts_with(stream)).cloned().collect::<Vec<_>>();
    assert_eq!(of("stderr"), ["stderr F err"]);
    let expected = [
        "stdout F out".to_owned(),
        format!("stdout P {}", "x".repeat(16384)),
        format!("stdout F {}", "x".repeat(20000 - 16384)),
        "stdout P no newline".to_owned(),
    ];
    assert_eq!(of("stdout"), expected);
    let text = std::fs::read_to_string(node.log(&pod, "main")).expect("a log");
    for line in text.lines() {
        let time = line.split(' ').next().expect("a time");
        assert_eq!(time.len(), "2026-01-02T03:04:05.000000006Z".len(), "{time}");
        time.parse::<jiff::Timestamp>().expect("a time");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_moved_away_is_opened_again() {
    let node = Node::start().await;
    let pod = node.pod("rotate");
    let spec =
        ContainerSpec { stdin: true, ..node.shell(&pod, "main", "while read line; do echo $line; done") };
    let (_, container) = node.run(&pod, &spec).await;
    let mut stdin =
        node.runtime.attach(&container.id, true).await.expect("attached").stdin.expect("an input");
    let mut say = async |word: &str| {
        tokio::io::AsyncWriteExt::write_all(&mut stdin, format!("{word}\n").as_bytes())
            .await
            .expect("written");
        eventually("it is in the log", || async {
            node.lines(&pod, "main").iter().any(|line| line.ends_with(word)).then_some(())
        })
        .await;
    };
    say("before").await;
    let log = node.log(&pod, "main");
    let moved = log.with_extension("old");
    std::fs::rename(&log, &moved).expect("moved");
    node.runtime.reopen_log(&container.id).await.expect("opened");
    say("after").await;
    assert_eq!(node.lines(&pod, "main"), ["stdout F after"]);
    assert!(std::fs::read_to_string(moved).expect("the old one").ends_with("stdout F before\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_nobody_waits_while_no_kubelet_runs() {
    let node = Node::start().await;
    let pod = node.pod("away");
    // Far more than pipes hold.
    let line =
        "i=0; while [ $i -lt 40000 ]; do echo line $i; i=$((i+1)); done; echo done > /done; exec sleep 1000";
    let spec = node.shell(&pod, "main", line);
    let first = node.restarted();
    let sandbox = first.start_sandbox(&pod, &node.sandbox(&pod)).await.expect("a sandbox").id;
    first.start_container(&pod, &sandbox, &spec).await.expect("a container");
    drop(first);
    let whole = || async { (node.lines(&pod, "main").len() == 40_000).then_some(()) };
    eventually("all lines are there", whole).await;
    let lines = node.lines(&pod, "main");
    assert!(lines.iter().enumerate().all(|(number, line)| *line == format!("stdout F line {number}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_logger_that_was_killed_is_replaced() {
    let node = Node::start().await;
    let pod = node.pod("killed");
    let mut events = node.runtime.events();
    assert_eq!(next(&mut events).await, Event::Lost);
    let driving = tokio::spawn(async move {
        loop {
            next(&mut events).await;
        }
    });
    let line = "i=0; while :; do echo line $i; i=$((i+1)); usleep 2000; done";
    let (_, container) = node.run(&pod, &node.shell(&pod, "main", line)).await;
    let more_than = |count: usize| {
        let node = &node;
        let pod = &pod;
        eventually("more lines", move || async move { (node.lines(pod, "main").len() > count).then_some(()) })
    };
    more_than(5).await;
    let program = node.config.root_dir.join("logger");
    for entry in std::fs::read_dir("/proc").expect("processes").flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some(pid) = pid
            && std::fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program)
        {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
                .expect("killed");
        }
    }
    more_than(node.lines(&pod, "main").len() + 50).await;
    assert!(matches!(
        node.state(&pod, &container.id).await,
        kubelet::runtime::ContainerState::Running { .. }
    ));
    driving.abort();
}
