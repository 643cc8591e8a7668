//! Any method, path and query to a kubelet: what is served is what was permitted, and names are one segment each.
#![no_main]

use kubelet::server::route::{PodPath, Query, Route, subresources};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &str, &str)| {
    let (method, path, query) = input;
    let query = Query::parse(query);
    let _ = (query.all("command"), query.get("container"), query.flag("tty"));
    let methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"];
    let method = methods[usize::from(method) % methods.len()].parse().expect("a method");
    let Ok(route) = Route::parse(&method, path) else { return };
    assert_eq!(subresources(path), route.subresources());
    if let Route::Logs(pod) | Route::Exec(pod) | Route::Attach(pod) | Route::PortForward(pod) = &route {
        let PodPath { namespace, pod, uid, container } = pod;
        let names = [Some(namespace), Some(pod), uid.as_ref()];
        assert!(names.into_iter().flatten().all(|name| !name.is_empty() && !name.contains('/')));
        assert!(!container.contains('/'));
    }
});
