//! Which transport an informer is on, seen by the watches that the apiserver serves, and how it gets from one to the other.

use crate::follower::{Follower, change};
use std::time::Instant;
use testing::{Engine, RedisServer, TestServer, eventually};

/// Waits until the apiserver serves so many watches.
async fn watches(server: &TestServer, what: &str, number: i64) {
    let began = Instant::now();
    eventually(what, async || {
        let page = server.http().get("/metrics").await;
        let text = String::from_utf8_lossy(&page.body);
        let line =
            text.lines().find(|line| line.starts_with("apiserver_longrunning_requests{verb=\"WATCH\"}"))?;
        (line.rsplit(' ').next()?.parse() == Ok(number)).then_some(())
    })
    .await;
    println!("{what} after {:.2} s", began.elapsed().as_secs_f64());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_informer_leaves_redis_when_it_is_gone_or_silent_and_returns_by_itself() {
    let mut redis = RedisServer::start();
    let config = redis.config("kube-apiserver");
    let server = TestServer::start_with(Engine::Embedded, |told| told.redis = Some(config)).await;
    let client = server.admin();
    let follower = Follower::start(client.clone(), Some(redis.config("kube-controller-manager"))).await;
    let mut random = fastrand::Rng::with_seed(7);
    watches(&server, "over Redis", 0).await;
    for round in ["first", "second"] {
        change(&client, &mut random).await;
        follower.agrees("a change over Redis", &client).await;
        redis.freeze(true);
        change(&client, &mut random).await;
        watches(&server, "over HTTP when Redis is silent", 1).await;
        follower.agrees("a change while Redis is silent", &client).await;
        redis.freeze(false);
        watches(&server, "over Redis when it speaks again", 0).await;
        redis.kill();
        watches(&server, "over HTTP when Redis is gone", 1).await;
        change(&client, &mut random).await;
        follower.agrees("a change while Redis is gone", &client).await;
        redis.restart();
        watches(&server, "over Redis when it is there again", 0).await;
        follower.assert_in_order(round);
    }
}
