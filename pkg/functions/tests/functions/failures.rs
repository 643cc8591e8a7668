//! What a caller sees when a function fails: why, at once, and the next call works.

use crate::support::{Answered, Functions};
use futures::StreamExt;
use http::StatusCode;
use serde_json::json;
use testing::eventually;

/// One function that fails in the way that its parameters ask for.
const FAILING: &str = r#"
import os, sys, time
def main(params):
    how = params.get("how")
    if how == "raises":
        raise ValueError("no such thing")
    if how == "set":
        return {1, 2}
    if how == "nan":
        return float("nan")
    if how == "exits":
        sys.exit(3)
    if how == "dies":
        print("last words", flush=True)
        os._exit(7)
    if how == "killed":
        os.kill(os.getpid(), 9)
    if how == "hangs":
        time.sleep(600)
    if how == "large":
        return "x" * (7 << 20)
    return "fine"
"#;

fn check(answered: &Answered, status: u16, reason: &str, parts: &[&str]) {
    let said: serde_json::Value = serde_json::from_str(&answered.body).unwrap_or_default();
    assert_eq!((answered.status.as_u16(), said["reason"].as_str()), (status, Some(reason)), "{answered:?}");
    for part in parts {
        assert!(answered.message().contains(part), "no {part:?} in {answered:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_goes_wrong_in_a_call_is_said_and_the_next_one_works() {
    let functions = Functions::start().await;
    functions.register_with("failing", json!({"code": FAILING, "timeoutSeconds": 2})).await;
    let caller = functions.caller().await;
    let call = async |how: &str| caller.call("failing", &json!({"how": how}).to_string()).await;
    for (how, status, reason, parts) in [
        ("raises", 500, "Raised", &["ValueError: no such thing", "function.py\", line 6"][..]),
        ("set", 500, "NotJSON", &["not JSON serializable"]),
        ("nan", 500, "NotJSON", &["what main returned is not JSON"]),
        ("exits", 500, "Raised", &["the function exited with 3"]),
        ("dies", 502, "Exited", &["exited with 7"]),
        ("killed", 502, "OutOfMemory", &["more memory"]),
        ("hangs", 504, "TimedOut", &["did not answer within 2 s"]),
        ("large", 502, "AnswerTooLarge", &["limits.responseBytes"]),
    ] {
        check(&call(how).await, status, reason, parts);
        let next = call("").await;
        assert_eq!((next.status, next.body.as_str()), (StatusCode::OK, "\"fine\""), "after {how}: {next:?}");
    }
    check(&caller.call("failing", "{").await, 400, "NotJSON", &["the parameters are not JSON"]);
    check(&caller.call("nothing", "").await, 404, "NotFound", &["\"nothing\" not found"]);
    let large = " ".repeat(7 << 20);
    check(&caller.call("failing", &large).await, 413, "RequestTooLarge", &["limits.requestBytes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_cannot_be_loaded_is_the_callers_answer() {
    let functions = Functions::start().await;
    let caller = functions.caller().await;
    for (name, code, reason, part) in [
        ("import", "import nothere\ndef main(p): pass\n", "ImportFailed", "No module named 'nothere'"),
        ("syntax", "def main(p)\n", "ImportFailed", "SyntaxError"),
        ("handler", "def other(p): pass\n", "NoHandler", "has no function main"),
        ("exits", "import os\nos._exit(9)\n", "Exited", "exited with 9"),
    ] {
        functions.register(name, code).await;
        let answered = caller.call(name, "").await;
        let said: serde_json::Value = serde_json::from_str(&answered.body).unwrap_or_default();
        // The way to a pod that exits may break before its status says why.
        assert!(said["reason"] == reason || said["reason"] == "LoadFailed", "{answered:?}");
        assert!(said["reason"] == "LoadFailed" || answered.message().contains(part), "{answered:?}");
        functions.patch(name, json!({"code": "def main(p):\n    return 'better'\n"})).await;
        assert_eq!(caller.call(name, "").await.body, "\"better\"", "{name}");
    }
    functions.register("broken", "import nothere\n").await;
    caller.call("broken", "").await;
    let status = eventually("the status says why", || async {
        let status = functions.functions().get("broken").await.expect("there").status;
        (!status.last_error.is_empty()).then_some(status)
    });
    let status = status.await;
    assert_eq!(
        (status.conditions[0].status.as_str(), status.conditions[0].reason.as_str()),
        ("False", "ImportFailed")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_bounded_and_nobody_waits_without_end() {
    let functions = Functions::start().await;
    let limits = json!({"queueLength": 2, "queueSeconds": 1});
    let code = "import time\ndef main(p):\n    time.sleep(3)\n    return 1\n";
    functions.register_with("slow", json!({"code": code, "maxReplicas": 1, "limits": limits})).await;
    let caller = functions.caller().await;
    let calls: Vec<_> = (0..2)
        .map(|_| {
            tokio::spawn({
                let caller = caller.clone();
                async move { caller.call("slow", "").await }
            })
        })
        .collect();
    eventually("one is under way", || async {
        (functions.functions().get("slow").await.expect("there").status.ready_replicas == 1).then_some(())
    })
    .await;
    let mut answers = Vec::new();
    for call in (0..4)
        .map(|_| caller.call("slow", ""))
        .collect::<futures::stream::FuturesUnordered<_>>()
        .collect::<Vec<_>>()
        .await
    {
        answers.push(call.status.as_u16());
    }
    for call in calls {
        answers.push(call.await.expect("a call").status.as_u16());
    }
    answers.sort_unstable();
    // One was answered; two more waited in vain, and there was no place for the others.
    assert!(answers.iter().all(|status| [200, 429, 503].contains(status)), "{answers:?}");
    assert!([200, 429, 503].iter().all(|status| answers.contains(status)), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_runtime_is_said_before_anybody_calls() {
    let functions = Functions::start().await;
    functions.register_with("old", json!({"code": "x", "runtime": "cobol"})).await;
    let caller = functions.caller().await;
    let answered = caller.call("old", "").await;
    check(&answered, 500, "UnknownRuntime", &["there is no runtime \"cobol\"; there are python, nodejs"]);
    let status = functions.functions().get("old").await.expect("there").status;
    assert_eq!(status.conditions[0].reason, "UnknownRuntime");
}

/// Bodies, headers, names and sources of those who mean no good: each gets an answer, and the next call works.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_input_harms_nobody() {
    let functions = Functions::start().await;
    let code = "import os\ndef main(params, context):\n    if isinstance(params, dict) and params.get('how') == 'closes':\n        \
        os.closerange(3, 256)\n    return context['requestId'][:20]\n";
    functions.register("target", code).await;
    let caller = functions.caller().await;
    let works = async || {
        let answered = caller.call_with("target", "{}", &[("x-request-id", "id-1")]).await;
        assert_eq!((answered.status, answered.body.as_str()), (StatusCode::OK, "\"id-1\""), "{answered:?}");
    };
    works().await;
    for body in [
        "[".repeat(100_000),
        "{\"a\":".repeat(50_000),
        "\u{0}".repeat(1000),
        "1e999999".to_owned(),
        "NaN,".to_owned(),
    ] {
        let answered = caller.call("target", &body).await;
        assert!(matches!(answered.status.as_u16(), 200 | 400), "{answered:?}");
        works().await;
    }
    let bytes = axum::body::Body::from(vec![0xff; 1000]);
    let answered = caller.send("POST", "default", "target", bytes).await.expect("answered");
    check(&answered, 400, "NotJSON", &[]);
    let long = "x".repeat(10_000);
    let answered = caller.call_with("target", "{}", &[("x-request-id", &long)]).await;
    assert!(answered.status == StatusCode::OK && !answered.body.contains("xxx"), "{answered:?}");
    for id in ["] forged", "a b", "\t"] {
        let answered = caller.call_with("target", "{}", &[("x-request-id", id)]).await;
        assert!(answered.status == StatusCode::OK && !answered.body.contains(id), "{answered:?}");
    }
    // What only knative says cannot be said from outside: another's answer is not to be had so.
    let forged = [("x-function-call", "stolen"), ("x-function-token", "x"), ("x-function-attempt", "9")];
    let code = "n = 0\ndef main(params, context):\n    global n\n    n += 1\n    return [n, context['callId'], context['attempt']]\n";
    functions.register("counted", code).await;
    assert_eq!(caller.call_with("counted", "{}", &forged).await.body, "[1, \"\", 1]");
    assert_eq!(caller.call_with("counted", "{}", &forged).await.body, "[2, \"\", 1]");
    for name in ["..", "%2e%2e", "target%00", "target%2f..", "TARGET", "a".repeat(5000).as_str()] {
        let answered = caller.send("POST", "default", name, axum::body::Body::empty()).await;
        assert!(answered.is_none_or(|answered| answered.status.is_client_error()), "{name}");
    }
    works().await;
    let answered = caller.call("target", r#"{"how":"closes"}"#).await;
    assert!(answered.status.is_server_error(), "{answered:?}");
    works().await;
    let large = format!("PAD = '{}'\ndef main(params):\n    return len(PAD)\n", "x".repeat((1 << 20) - 100));
    functions.register("large", &large).await;
    assert_eq!(caller.call("large", "").await.body, ((1 << 20) - 100).to_string());
}
