//! Images from registries and archives.

use crate::node::{Node, archive};
use crate::registry::Registry;
use futures::StreamExt;
use kubelet::runtime::{ContainerSpec, Credentials, Error, Event, Progress, Runtime};
use oci_client::secrets::RegistryAuth;
use std::sync::Mutex;
use testing::{eventually, in_time};

fn me(password: &str) -> Credentials {
    Credentials { username: "me".into(), password: password.into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_pulled_by_tag_and_digest_and_run() {
    let node = Node::start().await;
    let registry = Registry::start(false);
    let digest =
        registry.push(&archive("httpd", node.containerd.dir()), "app:v1", &RegistryAuth::Anonymous).await;
    let name = format!("{}/app:v1", registry.address);
    let steps = Mutex::new(Vec::new());
    let image = node.runtime.pull(&name, &[], &|step: Progress| steps.lock().expect("ours").push(step)).await;
    let image = image.expect("pulled").image;
    let by_digest = format!("{}/app@{digest}", registry.address);
    assert_eq!((&image.tags, &image.digests), (&vec![name.clone()], &vec![by_digest.clone()]));
    assert!(image.size_bytes > 100_000, "{image:?}");
    let steps = steps.into_inner().expect("ours");
    let last = steps.last().expect("progress");
    assert_eq!(last.done_bytes, last.total_bytes);
    assert_eq!(node.runtime.image(&name).await.expect("an answer"), Some(image.clone()));
    assert_eq!(node.runtime.image(&image.id.0).await.expect("an answer"), Some(image.clone()));
    let again = node.runtime.pull(&by_digest, &[], &|_| {}).await.expect("pulled").image;
    assert_eq!(again, image);
    let pod = node.pod("pulled");
    let spec = ContainerSpec {
        image: image.id.clone(),
        image_ref: name,
        ..node.shell(&pod, "main", "test -x /bin/serve && exit 11")
    };
    let (sandbox, container) = node.run(&pod, &spec).await;
    assert_eq!(node.end(&pod, &container.id).await.0, 11);
    node.runtime.remove_sandbox(&sandbox).await.expect("it goes");
    node.runtime.remove_image(&image.id).await.expect("it goes");
    node.runtime.remove_image(&image.id).await.expect("it is gone");
    let left: Vec<_> =
        node.runtime.images().await.expect("a list").into_iter().map(|image| image.id).collect();
    assert_eq!(left, std::slice::from_ref(&node.image));
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_tried_in_order() {
    let node = Node::start().await;
    let registry = Registry::start(true);
    let auth = RegistryAuth::Basic("me".into(), "secret".into());
    registry.push(&archive("httpd", node.containerd.dir()), "private:v1", &auth).await;
    let name = format!("{}/private:v1", registry.address);
    let error = node.runtime.pull(&name, &[], &|_| {}).await.expect_err("nobody is let in");
    let expected = format!(
        "rpc error: code = Unknown desc = failed to pull and unpack image {name:?}: failed to resolve reference {name:?}: \
         pull access denied, repository does not exist or may require authorization: authorization failed: no basic auth credentials"
    );
    assert!(matches!(&error, Error::ImageRefused(text) if *text == expected), "{error}");
    let error = node.runtime.pull(&name, &[me("wrong")], &|_| {}).await.expect_err("a wrong password");
    assert!(matches!(error, Error::ImageRefused(_)), "{error}");
    let pulled =
        node.runtime.pull(&name, &[me("wrong"), me("secret")], &|_| {}).await.expect("the second is right");
    assert_eq!((pulled.image.tags, pulled.by), (vec![name], Some(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_image_is_told_as_upstream_tells_it() {
    let node = Node::start().await;
    let registry = Registry::start(false);
    let name = format!("{}/nothing:v1", registry.address);
    let error = node.runtime.pull(&name, &[], &|_| {}).await.expect_err("no such image");
    let expected = format!(
        "rpc error: code = NotFound desc = failed to pull and unpack image {name:?}: \
         failed to resolve reference {name:?}: {name}: not found"
    );
    assert!(matches!(&error, Error::ImageNotFound(text) if *text == expected), "{error}");
    let address = registry.address.clone();
    drop(registry);
    let error = node.runtime.pull(&name, &[], &|_| {}).await.expect_err("nobody answers");
    assert!(matches!(&error, Error::Unavailable { .. }), "{error}");
    assert!(
        error.to_string().contains(&format!("failed to do request: Head \"http://{address}/v2/nothing\"")),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_come_first_and_pulls_of_one_image_join() {
    let node = Node::start().await;
    let registry = Registry::start(false);
    registry.push(&archive("httpd", node.containerd.dir()), "library/web:v2", &RegistryAuth::Anonymous).await;
    let folder = node.config.registries_dir.join("docker.io");
    std::fs::create_dir_all(&folder).expect("a folder");
    let hosts = format!(
        "server = \"http://127.0.0.1:1\"\n[host.\"http://{}\"]\n  capabilities = [\"pull\"]\n",
        registry.address
    );
    std::fs::write(folder.join("hosts.toml"), hosts).expect("written");
    let mut events = node.runtime.events();
    assert_eq!(in_time("the first event", events.next()).await, Some(Event::Lost));
    let (one, other) = tokio::join!(
        node.runtime.pull("web:v2", &[], &|_| {}),
        node.runtime.pull("docker.io/library/web:v2", &[], &|_| {}),
    );
    let image = one.expect("pulled");
    assert_eq!(image, other.expect("joined"));
    assert_eq!(image.by, None, "nobody was asked who they are");
    assert_eq!(image.image.tags, ["docker.io/library/web:v2"]);
    assert_eq!(in_time("it is told", events.next()).await, Some(Event::Images));
}

/// A layer of one small file.
fn layer() -> Vec<u8> {
    let mut layer = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(3);
    header.set_mode(0o644);
    header.set_cksum();
    layer.append_data(&mut header, "file", &b"abc"[..]).expect("appended");
    layer.into_inner().expect("a layer")
}

/// What containerd keeps for a node: contents, snapshots, leases, and what is being written.
fn kept(node: &Node) -> Vec<String> {
    let socket = node.config.socket.display().to_string();
    let lists: [&[&str]; 4] =
        [&["content", "ls", "-q"], &["snapshots", "ls"], &["leases", "ls", "-q"], &["content", "active"]];
    let listed = lists.iter().map(|list| {
        let told = std::process::Command::new("ctr")
            .args(["--address", &socket, "--namespace", &node.config.namespace])
            .args(*list)
            .output()
            .expect("ctr");
        assert!(told.status.success(), "{told:?}");
        format!("{}:\n{}", list.join(" "), String::from_utf8_lossy(&told.stdout))
    });
    listed.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_image_leaves_nothing_and_is_healed_by_a_push() {
    let node = Node::start().await;
    let registry = Registry::start(false);
    let before = kept(&node);
    let check = async |name: &str, expected: &str| {
        let name = format!("{}/{name}", registry.address);
        let error = node.runtime.pull(&name, &[], &|_| {}).await.expect_err("broken").to_string();
        assert!(error.contains(&format!("failed to pull and unpack image {name:?}")), "{error}");
        assert!(error.contains(expected), "{error}");
        assert_eq!(node.runtime.image(&name).await.expect("an answer"), None);
        eventually("nothing is left of it", || async { (kept(&node) == before).then_some(()) }).await;
    };
    // No archive at all; not what its configuration says; not what its manifest says.
    let digest = registry.push_layer("broken:v1", b"this is no archive", None).await;
    check("broken:v1", &format!("failed to extract layer {digest}")).await;
    let other = format!("sha256:{}", "1".repeat(64));
    registry.push_layer("lies:v1", &layer(), Some(&other)).await;
    check("lies:v1", "wrong diff id").await;
    let damaged = registry.push_layer("damaged:v1", &layer(), None).await;
    registry.damage(&damaged);
    check("damaged:v1", &damaged).await;

    let busybox = archive("busybox", node.containerd.dir());
    for name in ["broken:v1", "lies:v1", "damaged:v1"] {
        registry.push(&busybox, name, &RegistryAuth::Anonymous).await;
        let name = format!("{}/{name}", registry.address);
        assert_eq!(
            node.runtime.pull(&name, &[], &|_| {}).await.expect("it is whole now").image.id,
            node.image
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_are_imported() {
    let node = Node::start().await;
    let busybox = node.runtime.image("busybox").await.expect("an answer").expect("imported");
    assert_eq!(
        (busybox.id.clone(), busybox.tags.clone()),
        (node.image.clone(), vec!["docker.io/library/busybox:latest".to_owned()])
    );
    // As `docker save` writes it: no manifest, a plain layer.
    let saved = node.config.root_dir.join("saved.tar");
    let layer = layer();
    let digest: String = ring::digest::digest(&ring::digest::SHA256, &layer)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let config = format!(
        r#"{{"config":{{"User":"33","Cmd":["/x"]}},"rootfs":{{"type":"layers","diff_ids":["sha256:{digest}"]}}}}"#
    );
    let manifest = r#"[{"Config":"c.json","RepoTags":["saved:v1"],"Layers":["one/layer.tar"]}]"#;
    let mut archive = tar::Builder::new(std::fs::File::create(&saved).expect("a file"));
    for (name, bytes) in
        [("c.json", config.as_bytes()), ("one/layer.tar", &layer), ("manifest.json", manifest.as_bytes())]
    {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        archive.append_data(&mut header, name, bytes).expect("appended");
    }
    archive.finish().expect("written");
    let images = kubelet::runtime::images::import(&node.config, &saved).await.expect("imported");
    assert_eq!(images[0].tags, ["docker.io/library/saved:v1"]);
    assert_eq!(images[0].user, Some(33));
    let broken = node.config.root_dir.join("broken.tar");
    std::fs::write(&broken, "no archive").expect("written");
    let error = node.runtime.import(&broken).await.expect_err("no archive");
    assert!(
        error.to_string().starts_with(&format!("{} is not an image archive", broken.display())),
        "{error}"
    );
    assert_eq!(node.runtime.images().await.expect("a list").len(), 2);
}
