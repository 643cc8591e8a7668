//! Many calls: at a steady rate from zero, while pods are killed, and while everything changes around them. Counts run whole
//! with `SOAK=1`, and a twentieth otherwise.

use crate::support::Functions;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::StatusCode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use testing::{Http, eventually};
use tokio_util::sync::CancellationToken;

/// So many of a count that has no place.
fn of(count: usize) -> usize {
    if std::env::var_os("SOAK").is_some() { count } else { count / 20 }
}

/// Calls made at a rate, one after the other, whether the earlier ones are answered or not. What each got.
async fn at_a_rate<F, T>(count: usize, per_second: u32, call: impl Fn(usize) -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second);
    let mut under_way = FuturesUnordered::new();
    let mut answers = Vec::with_capacity(count);
    for n in 0..count {
        ticks.tick().await;
        under_way.push(tokio::spawn(call(n)));
        while let Some(Some(answer)) = futures::FutureExt::now_or_never(under_way.next()) {
            answers.push(answer.expect("a call"));
        }
    }
    while let Some(answer) = under_way.next().await {
        answers.push(answer.expect("a call"));
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn seven_hundred_calls_a_second_from_zero_are_all_answered() {
    let functions = Functions::start().await;
    let spec =
        json!({"code": "def main(params):\n    return params['n']\n", "concurrency": 10, "idleSeconds": 2});
    functions.register_with("echo", spec).await;
    let caller = functions.caller().await;
    let answers = at_a_rate(of(700 * 30), 700, |n| {
        let caller = caller.clone();
        async move { (n, caller.call("echo", &json!({"n": n}).to_string()).await) }
    })
    .await;
    assert_eq!(answers.len(), of(700 * 30));
    for (n, answered) in answers {
        assert_eq!((answered.status, answered.body), (StatusCode::OK, n.to_string()));
    }
    functions.runs(0).await;
}

/// What each call has done is in a file: its number, once for each time that it was made.
#[tokio::test(flavor = "multi_thread")]
async fn while_pods_are_killed_each_call_is_answered_once_or_fails_honestly() {
    let functions = Functions::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let made = folder.path().join("made");
    std::fs::write(&made, "").expect("written");
    let code = format!(
        "import os\ndef main(params):\n    file = os.open({:?}, os.O_WRONLY | os.O_APPEND)\n    \
         os.write(file, b'%d\\n' % params['n'])\n    os.close(file)\n    return [params['n'], os.getpid()]\n",
        made.display().to_string()
    );
    functions.register_with("once", json!({"code": code, "concurrency": 4})).await;
    let caller = functions.caller().await;
    let count = of(4000);
    let answers = at_a_rate(count, 200, |n| {
        let caller = caller.clone();
        async move {
            let answered = caller.call("once", &json!({"n": n}).to_string()).await;
            let said: Value = serde_json::from_str(&answered.body).unwrap_or_default();
            if n % 20 == 19
                && let Some(pid) = said[1].as_i64().and_then(|pid| i32::try_from(pid).ok())
            {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            (n, answered, said)
        }
    })
    .await;
    let text = std::fs::read_to_string(&made).expect("read");
    let mut times: HashMap<usize, usize> = HashMap::new();
    for line in text.lines() {
        *times.entry(line.parse().expect("a number")).or_default() += 1;
    }
    let mut failed = 0;
    for (n, answered, said) in &answers {
        let made = times.get(n).copied().unwrap_or(0);
        match answered.status {
            StatusCode::OK => {
                assert_eq!((said[0].as_u64(), made), (u64::try_from(*n).ok(), 1), "{answered:?}")
            }
            status => {
                assert!(made <= 1, "call {n} was made {made} times");
                assert!(status.is_server_error() && !answered.message().is_empty(), "{answered:?}");
                failed += 1;
            }
        }
    }
    assert_eq!(answers.len(), count);
    assert!(failed < count, "some were answered");
}

/// An update, a way back and a restart of knative, under calls through the API server.
#[tokio::test(flavor = "multi_thread")]
async fn no_call_fails_because_of_an_update_an_undo_or_a_restart() {
    let mut functions = Functions::start_behind_the_api_server().await;
    functions
        .register_with("steady", json!({"code": "def main(params):\n    return 1\n", "concurrency": 20}))
        .await;
    let path = "/apis/minik8s.io/v1/namespaces/default/functions/steady/invoke";
    let (stop, http) = (CancellationToken::new(), Arc::new(functions.multiplexed().await));
    let stopped = stop.clone();
    let load = tokio::spawn(async move {
        let mut answers: HashMap<(u16, String), usize> = HashMap::new();
        // 500 calls a second, or a twentieth of that.
        let period = if std::env::var_os("SOAK").is_some() { 2 } else { 40 };
        let mut ticks = tokio::time::interval(Duration::from_millis(period));
        let mut under_way = FuturesUnordered::new();
        loop {
            tokio::select! {
                _ = ticks.tick(), if !stopped.is_cancelled() => {
                    let http = http.clone();
                    under_way.push(tokio::spawn(async move { call(&http, path).await }));
                }
                Some(answer) = under_way.next() => *answers.entry(answer.expect("a call")).or_default() += 1,
                else => return answers,
            }
        }
    });
    let rounds = if std::env::var_os("SOAK").is_some() { 20 } else { 2 };
    for round in 0..rounds {
        let code = format!("def main(params):\n    return {}\n", round + 2);
        functions.patch("steady", json!({"code": code})).await;
        let answered = call(&functions.server.http(), path).await;
        assert_eq!(answered, (200, (round + 2).to_string()));
        functions.patch("steady", json!({"code": "def main(params):\n    return 1\n"})).await;
        functions.restart().await;
        assert_eq!(call(&functions.server.http(), path).await, (200, "1".to_owned()));
    }
    stop.cancel();
    let answers = load.await.expect("calls");
    assert!(answers.keys().all(|(status, _)| *status == 200), "{answers:?}");
    assert!(answers.values().sum::<usize>() > 20, "{answers:?}");
}

async fn call(http: &Http, path: &str) -> (u16, String) {
    let answer = http.send("POST", path, &[("content-type", "application/json")], "").await;
    (answer.code, answer.text())
}

/// A call that takes long is not what scaling down takes, however many others come and go.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_pod_is_not_the_one_that_goes() {
    let functions = Functions::start().await;
    let code = "import os, time\ndef main(params):\n    time.sleep(params['s'])\n    return os.getpid()\n";
    functions.register_with("busy", json!({"code": code, "idleSeconds": 1})).await;
    let caller = functions.caller().await;
    let slow = {
        let caller = caller.clone();
        tokio::spawn(async move { caller.call("busy", r#"{"s":6}"#).await })
    };
    functions.runs(1).await;
    let quick = at_a_rate(8, 20, |_| {
        let caller = caller.clone();
        async move { caller.call("busy", r#"{"s":0.2}"#).await }
    })
    .await;
    assert!(quick.iter().all(|answered| answered.status == StatusCode::OK), "{quick:?}");
    functions.runs(1).await;
    let slow = slow.await.expect("a call");
    assert_eq!(slow.status, StatusCode::OK, "{slow:?}");
    assert!(quick.iter().all(|answered| answered.body != slow.body), "it went on to work on its call alone");
    eventually("and then it goes", || async { functions.is_idle().then_some(()) }).await;
}
