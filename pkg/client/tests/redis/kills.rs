//! Redis, the publishing apiserver and etcd killed, with history compacted meanwhile: 20 times, and 500 with `SOAK=1`.

use crate::follower::{Follower, change};
use std::sync::Arc;
use std::time::Duration;
use testing::{Engine, EtcdServer, RedisServer, TestServer};

const CHANGES: usize = 12;
/// So short that most outages outlast what is kept of history.
const COMPACTION: Duration = Duration::from_millis(400);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_killed_nothing_is_missed_or_repeated() {
    let runs = if std::env::var_os("SOAK").is_some() { 500 } else { 20 };
    let mut random =
        fastrand::Rng::with_seed(std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1));
    let (mut redis, etcd) = (RedisServer::start(), Arc::new(EtcdServer::start()));
    let config = redis.config("kube-apiserver");
    let told = |told: &mut apiserver::Config| {
        told.redis = Some(config.clone());
        told.compaction_interval = COMPACTION;
    };
    let mut publisher = TestServer::start_with(Engine::Etcd(etcd.clone()), told).await;
    // Writes go on while the publisher is dead: through its twin, which publishes too when its turn comes.
    let twin = publisher.twin_with(told).await;
    let (client, other) = (publisher.admin(), twin.admin());
    let hears = redis.config("kube-controller-manager");
    let followers = [
        ("at the publisher", Follower::start(client.clone(), Some(hears.clone())).await),
        ("at its twin", Follower::start(other.clone(), Some(hears)).await),
        ("over HTTP", Follower::start(other.clone(), None).await),
    ];
    for run in 0..runs {
        for _ in 0..CHANGES {
            change(&client, &mut random).await;
        }
        let victims: Vec<&str> =
            ["Redis", "the publisher", "etcd"].into_iter().filter(|_| random.bool()).collect();
        for victim in &victims {
            match *victim {
                "Redis" => redis.kill(),
                "the publisher" => publisher.kill(),
                _ => etcd.crash(),
            }
        }
        if victims.contains(&"etcd") {
            etcd.revive();
        }
        for _ in 0..CHANGES {
            change(&other, &mut random).await;
        }
        if victims.contains(&"Redis") {
            redis.restart();
        }
        if victims.contains(&"the publisher") {
            publisher.restart().await;
        }
        for _ in 0..CHANGES {
            change(&client, &mut random).await;
        }
        let what = format!("run {run}, killed: {victims:?}");
        for (who, follower) in &followers {
            let what = format!("{what}: {who}");
            follower.agrees(&what, &other).await;
            follower.assert_in_order(&what);
        }
    }
}
