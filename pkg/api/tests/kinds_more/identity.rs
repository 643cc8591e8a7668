//! What discovery and the server derive from kinds.

use api::kind::{Cell, Scope, Subresource, Verbs};
use api::{Errors, Field, kinds};
use serde_json::json;
use std::collections::HashSet;

/// Short names, scope and subresources as `kubectl api-resources` shows them.
#[test]
fn kinds_are_called_as_upstreams() {
    let lines: Vec<String> = kinds::all()
        .iter()
        .filter(|kind| !kind.group.is_empty() || kind.kind == "Service")
        .map(|kind| {
            let parts: Vec<&str> = kind
                .subresources
                .iter()
                .map(|part| match part {
                    Subresource::Status => "status",
                    Subresource::Scale { .. } => "scale",
                    Subresource::Named { name, .. } => name,
                })
                .collect();
            let scope = if kind.scope == Scope::Namespaced { "" } else { " cluster" };
            let verbs = if kind.verbs == Verbs::All { "" } else { " create" };
            let all = if kind.categories.iter().any(|category| category == "all") { " all" } else { "" };
            let version = kind.api_version();
            let short = kind.short_names.join(",");
            format!("{version} {} [{short}] ({}){scope}{verbs}{all}", kind.plural, parts.join(","))
        })
        .collect();
    let mut sorted = lines.clone();
    sorted.sort();
    assert_eq!(sorted.join("\n"), EXPECTED.trim());
}

const EXPECTED: &str = "
admissionregistration.k8s.io/v1 mutatingwebhookconfigurations [] () cluster
admissionregistration.k8s.io/v1 validatingadmissionpolicies [] (status) cluster
admissionregistration.k8s.io/v1 validatingadmissionpolicybindings [] () cluster
admissionregistration.k8s.io/v1 validatingwebhookconfigurations [] () cluster
apiextensions.k8s.io/v1 customresourcedefinitions [crd,crds] (status) cluster
apiregistration.k8s.io/v1 apiservices [] (status) cluster
apps/v1 controllerrevisions [] ()
apps/v1 daemonsets [ds] (status) all
apps/v1 deployments [deploy] (status,scale) all
apps/v1 replicasets [rs] (status,scale) all
apps/v1 statefulsets [sts] (status,scale) all
authentication.k8s.io/v1 selfsubjectreviews [] () cluster create
authentication.k8s.io/v1 tokenreviews [] () cluster create
authorization.k8s.io/v1 localsubjectaccessreviews [] () create
authorization.k8s.io/v1 selfsubjectaccessreviews [] () cluster create
authorization.k8s.io/v1 selfsubjectrulesreviews [] () cluster create
authorization.k8s.io/v1 subjectaccessreviews [] () cluster create
autoscaling/v1 horizontalpodautoscalers [hpa] (status) all
autoscaling/v2 horizontalpodautoscalers [hpa] (status) all
batch/v1 cronjobs [cj] (status) all
batch/v1 jobs [] (status) all
certificates.k8s.io/v1 certificatesigningrequests [csr] (status,approval) cluster
coordination.k8s.io/v1 leases [] ()
discovery.k8s.io/v1 endpointslices [] ()
events.k8s.io/v1 events [ev] ()
flowcontrol.apiserver.k8s.io/v1 flowschemas [] (status) cluster
flowcontrol.apiserver.k8s.io/v1 prioritylevelconfigurations [] (status) cluster
minik8s.io/v1 dnses [] (status)
minik8s.io/v1 functioncalls [fcall] (status)
minik8s.io/v1 functions [func,fn] (status,invoke,log)
minik8s.io/v1 workflowruns [wfr] (status)
minik8s.io/v1 workflows [wf] ()
networking.k8s.io/v1 ingressclasses [] () cluster
networking.k8s.io/v1 ingresses [ing] (status)
networking.k8s.io/v1 ipaddresses [ip] () cluster
networking.k8s.io/v1 networkpolicies [netpol] ()
networking.k8s.io/v1 servicecidrs [] (status) cluster
node.k8s.io/v1 runtimeclasses [] () cluster
policy/v1 poddisruptionbudgets [pdb] (status)
rbac.authorization.k8s.io/v1 clusterrolebindings [] () cluster
rbac.authorization.k8s.io/v1 clusterroles [] () cluster
rbac.authorization.k8s.io/v1 rolebindings [] ()
rbac.authorization.k8s.io/v1 roles [] ()
resource.k8s.io/v1 deviceclasses [] () cluster
resource.k8s.io/v1 resourceclaims [] (status)
resource.k8s.io/v1 resourceclaimtemplates [] ()
resource.k8s.io/v1 resourceslices [] () cluster
scheduling.k8s.io/v1 priorityclasses [pc] () cluster
storage.k8s.io/v1 csidrivers [] () cluster
storage.k8s.io/v1 csinodes [] () cluster
storage.k8s.io/v1 csistoragecapacities [] ()
storage.k8s.io/v1 storageclasses [sc] () cluster
storage.k8s.io/v1 volumeattachments [] (status) cluster
storage.k8s.io/v1 volumeattributesclasses [vac] () cluster
v1 services [svc] (status,proxy) all
";

#[test]
fn every_kind_has_a_definition_and_a_place_of_its_own() {
    let mut seen = HashSet::new();
    for kind in kinds::all() {
        assert!(seen.insert((kind.api_version(), kind.kind.clone())), "{} twice", kind.kind);
        assert!(kind.schema().property("metadata").is_some() || kind.kind == "Binding", "{}", kind.kind);
    }
}

#[test]
fn events_are_stored_under_core() {
    let event = kinds::all().iter().find(|kind| kind.group == "events.k8s.io").expect("events");
    assert_eq!(event.key("default", "e"), "/registry/core/events/default/e");
}

/// Whatever is missing, a kind says so and goes on.
#[test]
fn no_kind_stumbles_over_an_object_with_nothing_in_it() {
    let now = "2026-01-01T00:00:00Z".parse().expect("a time");
    for kind in kinds::all() {
        let bare = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {}});
        let parts = json!({"spec": {}, "status": {}});
        let mut with_parts = bare.clone();
        for (name, part) in parts.as_object().expect("parts") {
            if kind.schema().property(name).is_some() {
                with_parts[name] = part.clone();
            }
        }
        for mut object in [bare, with_parts] {
            let old = object.clone();
            (kind.default)(&mut object);
            (kind.prepare)(&mut object, None);
            (kind.prepare)(&mut object, Some(&old));
            (kind.prepare_status)(&mut object, Some(&old));
            let mut errors = Errors::new();
            let (new, old) = (Field::root(&object), Field::root(&old));
            (kind.validate)(&new, &mut errors);
            (kind.validate_create)(&new, &mut errors);
            (kind.validate_update)(&new, &old, &mut errors);
            (kind.validate_status)(&new, &old, &mut errors);
            for column in &kind.columns {
                if let Cell::Fn(cell) = column.cell {
                    cell(&object, now);
                }
            }
            if let Some((from_stored, to_stored)) = kind.convert {
                to_stored(from_stored(object.clone()));
            }
            let mut again = object.clone();
            (kind.default)(&mut again);
            assert_eq!(again, object, "defaults of {} are filled in once", kind.kind);
        }
    }
}
