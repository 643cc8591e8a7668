//! Each test is one cluster, and everything that a verb should do on it: with our kubectl, and with upstream's where one is
//! installed, so that a wrong test shows.

use crate::node;
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use testing::{eventually, in_time};

/// A cluster, and a kubectl that talks to it.
struct Cluster {
    kubectl: PathBuf,
    is_ours: bool,
    own: node::Cluster,
}

impl std::ops::Deref for Cluster {
    type Target = node::Cluster;

    fn deref(&self) -> &node::Cluster {
        &self.own
    }
}

/// Tries our kubectl, then upstream's.
async fn with_each(test: impl AsyncFn(Cluster)) {
    let ours = PathBuf::from(env!("CARGO_BIN_EXE_kubectl"));
    test(Cluster { kubectl: ours, is_ours: true, own: node::Cluster::start().await }).await;
    match testing::kubectl() {
        Some(kubectl) => test(Cluster { kubectl, is_ours: false, own: node::Cluster::start().await }).await,
        None => println!("skipped: the same with upstream's kubectl: no 1.30 or newer is installed"),
    }
}

impl Cluster {
    fn command(&self, arguments: &[&str]) -> Command {
        self.program(&self.kubectl, arguments)
    }

    /// A program that may call kubectl.
    fn program(&self, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env("KUBECONFIG", self.server.data_dir().join("admin.kubeconfig"));
        // What it discovers is kept in the test's own folder.
        command.env("HOME", self.server.data_dir());
        command
    }

    /// Runs kubectl to its end.
    async fn kubectl(&self, arguments: &[&str]) -> Output {
        output(self.command(arguments), b"").await
    }

    /// The same, with what it is told on standard input.
    async fn kubectl_told(&self, arguments: &[&str], input: &[u8]) -> Output {
        output(self.command(arguments), input).await
    }
}

/// A process that is not left behind.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace("\r\n", "\n")
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[track_caller]
fn failed(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stderr)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_are_shown_followed_and_told_apart() {
    with_each(try_logs_are_shown_followed_and_told_apart).await;
}

async fn try_logs_are_shown_followed_and_told_apart(cluster: Cluster) {
    let id = cluster.run("web", "cat").await;
    cluster.node.runtime.tell(&id, "one\ntwo\n").await;
    let log = cluster.node.log(&id);
    let lines = || std::fs::read_to_string(&log).map(|log| log.lines().count()).unwrap_or_default();
    eventually("the container has written", || async { (lines() == 2).then_some(()) }).await;
    assert_eq!(succeeded(&cluster.kubectl(&["logs", "web"]).await), "one\ntwo\n");
    assert_eq!(succeeded(&cluster.kubectl(&["logs", "pod/web", "--tail=1"]).await), "two\n");
    assert_eq!(
        succeeded(&cluster.kubectl(&["logs", "-l", "app=web", "--prefix", "--tail=1"]).await),
        "[pod/web/c] two\n"
    );
    let stamped = succeeded(&cluster.kubectl(&["logs", "web", "c", "--timestamps", "--tail", "1"]).await);
    assert!(stamped.ends_with("Z two\n") || stamped.contains("+00:00 two"), "{stamped}");
    let wrong = failed(&cluster.kubectl(&["logs", "web", "-c", "none"]).await, 1);
    assert_eq!(wrong, "error: container none is not valid for pod web\n");
    let wrong = failed(&cluster.kubectl(&["logs", "nobody"]).await, 1);
    assert!(wrong.contains("rror from server (NotFound): pods \"nobody\" not found"), "{wrong}");

    let follow = cluster.command(&["logs", "-f", "web"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut follow = Ended(follow);
    let lines = BufReader::new(follow.0.stdout.take().unwrap()).lines();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
    let mut next = async |what: &str| in_time(what, told.recv()).await;
    assert_eq!(next("the first line").await.as_deref(), Some("one"));
    assert_eq!(next("the second line").await.as_deref(), Some("two"));
    cluster.node.runtime.tell(&id, "three\n").await;
    assert_eq!(next("a new line").await.as_deref(), Some("three"));
    cluster.node.runtime.kill(&id);
    assert_eq!(next("the end").await, None);
    assert!(follow.0.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_run_with_and_without_a_terminal_and_end_as_they_end() {
    with_each(try_commands_run_with_and_without_a_terminal_and_end_as_they_end).await;
}

async fn try_commands_run_with_and_without_a_terminal_and_end_as_they_end(cluster: Cluster) {
    cluster.run("web", "cat").await;
    let plain = cluster.kubectl(&["exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]).await;
    assert_eq!(failed(&plain, 7), "err\ncommand terminated with exit code 7\n");
    assert_eq!(text(&plain.stdout), "out\n");
    // More than any buffer on the way, and its end is seen.
    let input = b"0123456789abcde\n".repeat(20_000);
    let counted = ["exec", "-i", "pod/web", "--", "sh", "-c", "cat; echo end"];
    assert!(
        succeeded(&cluster.kubectl_told(&counted, &input).await).into_bytes()
            == [&input[..], b"end\n"].concat()
    );
    // Without -i nobody waits for what is typed.
    assert_eq!(succeeded(&cluster.kubectl(&["exec", "web", "-c", "c", "--", "echo", "-n", "x"]).await), "x");
    // No terminal here: none there.
    let without = cluster.kubectl(&["exec", "-it", "web", "--", "sh", "-c", "test -t 1 || echo none"]).await;
    assert_eq!(succeeded(&without), "none\n");
    assert!(text(&without.stderr).starts_with("Unable to use a TTY"), "{}", text(&without.stderr));
    // A terminal here, a terminal there, of the same size; it stays until that was seen. Ours is as before when it ends.
    let seen = cluster.server.data_dir().join("seen");
    let waits =
        format!("test -t 1 && echo terminal; until [ -e {} ]; do sleep 0.05; done; exit 3", seen.display());
    let inner = format!(
        "stty cols 91 rows 37; before=$(stty -g); {} exec -it web -- sh -c '{waits}'; echo ended $?; \
         test \"$before\" = \"$(stty -g)\" && echo restored",
        cluster.kubectl.display()
    );
    let with_terminal = output(cluster.program("script", &["-qefc", &inner, "/dev/null"]), b"");
    let sizes = cluster.node.runtime.sizes.clone();
    let resized = async {
        eventually("the size of the terminal", || async { sizes.lock().contains(&(91, 37)).then_some(()) })
            .await;
        std::fs::write(&seen, "").unwrap();
    };
    let (with_terminal, ()) = tokio::join!(with_terminal, resized);
    let said = succeeded(&with_terminal);
    for expected in ["terminal", "ended 3", "restored"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let wrong = failed(&cluster.kubectl(&["exec", "web", "-c", "none", "--", "date"]).await, 1);
    assert!(wrong.contains("container none is not valid for pod web"), "{wrong}");
    let wrong = failed(&cluster.kubectl(&["exec", "nobody", "--", "date"]).await, 1);
    assert_eq!(wrong, "Error from server (NotFound): pods \"nobody\" not found\n");
    let wrong = failed(&cluster.kubectl(&["exec", "web"]).await, 1);
    assert_eq!(wrong, "error: you must specify at least one command for the container\n");
    let wrong = failed(&cluster.kubectl(&["exec", "web", "--", "/no/such/program"]).await, 1);
    assert!(wrong.contains("No such file"), "{wrong}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_attaches_is_heard_and_hears() {
    with_each(try_who_attaches_is_heard_and_hears).await;
}

async fn try_who_attaches_is_heard_and_hears(cluster: Cluster) {
    let script = "while read -r line; do echo \"got $line\"; test \"$line\" = stop && exit 0; done";
    cluster.run_in("web", script, None, json!({"stdin": true})).await;
    let attached = cluster.kubectl_told(&["attach", "-i", "web"], b"hello\nstop\n").await;
    assert_eq!(succeeded(&attached), "got hello\ngot stop\n", "{}", text(&attached.stderr));
    // The end of what is typed is the end of what the process reads, while what it says is still heard.
    let counts = "cat | wc -c; echo end";
    cluster.run_in("once", counts, None, json!({"stdin": true, "stdinOnce": true})).await;
    let attached = cluster.kubectl_told(&["attach", "-i", "once"], b"12345").await;
    assert_eq!(succeeded(&attached), "5\nend\n", "{}", text(&attached.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_and_folders_are_copied_both_ways() {
    with_each(try_files_and_folders_are_copied_both_ways).await;
}

async fn try_files_and_folders_are_copied_both_ways(cluster: Cluster) {
    cluster.run("web", "cat").await;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let there = |name: &str| format!("web:{}", path(name));
    let contents = b"some bytes \x00\xff\n".repeat(30_000);
    std::fs::write(path("here"), &contents).unwrap();
    succeeded(&cluster.kubectl(&["cp", &path("here"), &there("there")]).await);
    assert!(std::fs::read(path("there")).unwrap() == contents);
    succeeded(&cluster.kubectl(&["cp", &format!("default/{}", there("there")), &path("back")]).await);
    assert!(std::fs::read(path("back")).unwrap() == contents);

    // A folder as another name, into a folder that is there, and back again.
    std::fs::create_dir_all(path("site/deep")).unwrap();
    std::fs::write(path("site/deep/page"), "text").unwrap();
    succeeded(&cluster.kubectl(&["cp", &path("site"), &there("copy")]).await);
    assert_eq!(std::fs::read_to_string(path("copy/deep/page")).unwrap(), "text");
    std::fs::create_dir(path("target")).unwrap();
    succeeded(&cluster.kubectl(&["cp", &path("site"), &there("target"), "-c", "c"]).await);
    assert_eq!(std::fs::read_to_string(path("target/site/deep/page")).unwrap(), "text");
    std::os::unix::fs::symlink("/etc/passwd", path("copy/link")).unwrap();
    let copied = cluster.kubectl(&["cp", &there("copy"), &path("again")]).await;
    succeeded(&copied);
    assert!(text(&copied.stderr).contains("skipping symlink"), "{}", text(&copied.stderr));
    assert_eq!(std::fs::read_to_string(path("again/deep/page")).unwrap(), "text");
    assert!(!std::fs::exists(path("again/link")).unwrap());

    let wrong = failed(&cluster.kubectl(&["cp", &path("none"), &there("x")]).await, 1);
    assert!(wrong.contains("doesn't exist in local filesystem"), "{wrong}");
    if cluster.is_ours {
        // Upstream's says nothing.
        let missing = cluster.kubectl(&["cp", &there("none"), &path("x")]).await;
        let said = text(&missing.stderr);
        assert!(!missing.status.success() && said.contains("No such file"), "{said}");
    }
    let wrong = failed(&cluster.kubectl(&["cp", "/a", "/b"]).await, 1);
    assert_eq!(wrong, "error: one of src or dest must be a remote file specification\n");
}

/// Forwards a port of a pod as long as it lives: the local port, and the pod's.
async fn forward(cluster: &Cluster, target: &str, remote: &str) -> (Ended, u16, u16) {
    let arguments = ["port-forward", target, remote, "--address=127.0.0.1"];
    let mut child = Ended(cluster.command(&arguments).stdout(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(child.0.stdout.take().unwrap());
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let _ = tell.send(line);
        // Somebody must hear the rest.
        let _ = std::io::copy(&mut said, &mut std::io::sink());
    });
    let line = in_time("the local port", told).await.unwrap();
    let ports = line.strip_prefix("Forwarding from 127.0.0.1:").and_then(|rest| rest.split_once(" -> "));
    let (local, to) = ports.unwrap_or_else(|| panic!("{target}: {line:?}"));
    (child, local.parse().unwrap(), to.trim().parse().unwrap())
}

/// Serves each connection in a thread of its own.
fn serve(serves: impl Fn(TcpStream) + Send + Clone + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let serves = serves.clone();
            std::thread::spawn(move || serves(stream));
        }
    });
    port
}

/// Says back what it hears, until the client has said all or "bye".
fn echo() -> u16 {
    serve(|mut stream| {
        let mut block = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut block) {
            if stream.write_all(&block[..count]).is_err() || block[..count].ends_with(b"bye") {
                return;
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ports_are_forwarded_also_those_of_services() {
    with_each(try_ports_are_forwarded_also_those_of_services).await;
}

async fn try_ports_are_forwarded_also_those_of_services(cluster: Cluster) {
    let port = echo();
    let ports = json!({"ports": [{"name": "echo", "containerPort": port}]});
    cluster.run_in("web", "cat", None, ports).await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "echo"}]}});
    cluster.server.http().post("/api/v1/namespaces/default/services", &service).await.expect(201);
    for (target, remote) in
        [("pod/web", format!(":{port}")), ("service/web", ":80".to_owned()), ("web", ":echo".to_owned())]
    {
        let (forwarding, local, to) = forward(&cluster, target, &remote).await;
        assert_eq!(to, port);
        let contents = [&b"0123456789abcdef".repeat(50_000)[..], b"bye"].concat();
        let talks = (0..3).map(|_| {
            let contents = contents.clone();
            tokio::task::spawn_blocking(move || {
                let mut stream = TcpStream::connect(("127.0.0.1", local)).unwrap();
                let mut writer = stream.try_clone().unwrap();
                let sent = contents.clone();
                let writing = std::thread::spawn(move || writer.write_all(&sent));
                let mut back = Vec::new();
                stream.read_to_end(&mut back).unwrap();
                let _ = writing.join().unwrap();
                assert!(back == contents, "{} of {} bytes came back", back.len(), contents.len());
            })
        });
        for talk in in_time("all connections", futures::future::join_all(talks)).await {
            talk.unwrap();
        }
        drop(forwarding);
    }
    let wrong = failed(&cluster.kubectl(&["port-forward", "service/web", "81"]).await, 1);
    assert_eq!(wrong, "error: Service web does not have a service port 81\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_said_all_is_still_answered() {
    with_each(try_who_has_said_all_is_still_answered).await;
}

async fn try_who_has_said_all_is_still_answered(cluster: Cluster) {
    cluster.run("web", "cat").await;
    let contents = b"0123456789abcdef".repeat(50_000);
    // Nothing is answered before the client has said all.
    let hears_first = serve(|mut stream| {
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        stream.write_all(&heard).unwrap();
    });
    let (forwarding, local, _) = forward(&cluster, "web", &format!(":{hears_first}")).await;
    let sent = contents.clone();
    let back = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(("127.0.0.1", local)).unwrap();
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        back
    });
    let back = in_time("the answer", back).await.unwrap();
    assert!(back == contents, "{} of {} bytes came back", back.len(), contents.len());
    drop(forwarding);
    if !cluster.is_ours {
        // Upstream's goes when the pod has said all.
        return;
    }
    // The other way round: the pod says all, and then listens.
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let says_first = serve(move |mut stream| {
        stream.write_all(b"all").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        tell.send(heard).unwrap();
    });
    let (_forwarding, local, _) = forward(&cluster, "web", &format!(":{says_first}")).await;
    let sent = contents.clone();
    let talk = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(("127.0.0.1", local)).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert_eq!(said, "all");
        stream.write_all(&sent).unwrap();
    });
    in_time("all is said", talk).await.unwrap();
    let heard = in_time("all is heard", told.recv()).await.unwrap();
    assert!(heard == contents, "{} of {} bytes were heard", heard.len(), contents.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_pods_and_nodes_use_is_shown() {
    with_each(try_what_pods_and_nodes_use_is_shown).await;
}

async fn try_what_pods_and_nodes_use_is_shown(cluster: Cluster) {
    cluster.run("web", "cat").await;
    let nodes = succeeded(&cluster.kubectl(&["top", "nodes"]).await);
    assert!(nodes.starts_with("NAME") && nodes.contains("node-1"), "{nodes}");
    let pods = succeeded(&cluster.kubectl(&["top", "pods", "--containers", "--no-headers"]).await);
    let words: Vec<&str> = pods.split_whitespace().collect();
    assert!(words.starts_with(&["web", "c"]) && words[3].ends_with("Mi"), "{pods}");
    let pod = succeeded(&cluster.kubectl(&["top", "pod", "web"]).await);
    assert_eq!(pod.lines().map(str::trim_end).next(), Some("NAME   CPU(cores)   MEMORY(bytes)"));
    assert!(pod.lines().nth(1).is_some_and(|line| line.starts_with("web ")), "{pod}");
}
