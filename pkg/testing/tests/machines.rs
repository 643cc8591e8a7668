//! The machines that other tests stand on.

use testing::{Machine, Switch};

#[test]
fn machines_see_each_other_and_nothing_else() {
    let switch = Switch::new();
    let mut one = Machine::boot(&switch, "one", 1);
    let two = Machine::boot(&switch, "two", 2);
    assert_eq!(two.run("hostname", &[]).trim(), "two");
    let reaches = |from: &Machine, to: &Machine| {
        from.output("busybox", &["ping", "-c1", "-W1", &to.address().to_string()]).status.success()
    };
    assert!(reaches(&one, &two));
    two.connect(false);
    assert!(!reaches(&one, &two));
    two.connect(true);
    assert!((0..20).any(|_| reaches(&one, &two)));
    // Ten kilobytes pass at once through a whole cable, and not through a slow one.
    let passes = || {
        let fetch = ["-W1", "-c1", "-s10000", &two.address().to_string()];
        one.output("busybox", &[&["ping"], &fetch[..]].concat()).status.success()
    };
    assert!(passes());
    two.slow(Some(16));
    assert!(!passes());
    two.slow(None);
    assert!((0..20).any(|_| passes()));
    // No route leads out.
    assert!(!one.output("ip", &["route", "get", "192.0.2.1"]).status.success());
    // Nothing of this machine's files is there but its programs.
    let elsewhere = tempfile::tempdir().expect("a folder");
    assert!(!one.output("ls", &[&elsewhere.path().display().to_string()]).status.success());
    assert!(!one.output("touch", &["/usr/bin/new"]).status.success());
    // What is on its disk stays, what is in /run does not.
    one.run("sh", &["-c", "echo kept > /var/lib/kept; echo lost > /run/lost"]);
    assert!(one.path("/var/lib/kept").exists());
    one.reboot();
    assert_eq!(one.run("cat", &["/var/lib/kept"]).trim(), "kept");
    assert!(!one.output("cat", &["/run/lost"]).status.success());
    assert!(!std::path::Path::new("/var/lib/kept").exists());
}
