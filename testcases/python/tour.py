"""The Python client against a fresh apiserver: typed clients, the dynamic client, watches, pages, patches, YAML.

    KUBECONFIG=DIR/admin.kubeconfig python3 testcases/python/tour.py

Every function named test_* is one test; the closing line says how many passed.
"""

import sys
import tempfile
import time
import traceback
from pathlib import Path

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.rest import ApiException

NAMESPACE = "python-tour"


def pod(name, **labels):
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name=name, labels=labels or None),
        spec=client.V1PodSpec(containers=[client.V1Container(name="main", image="busybox:1.36")]),
    )


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=data or None)


def deployment(name):
    return client.V1Deployment(
        metadata=client.V1ObjectMeta(name=name),
        spec=client.V1DeploymentSpec(
            replicas=2,
            selector=client.V1LabelSelector(match_labels={"app": name}),
            template=client.V1PodTemplateSpec(
                metadata=client.V1ObjectMeta(labels={"app": name}),
                spec=client.V1PodSpec(containers=[client.V1Container(name="main", image="nginx:1.25")]),
            ),
        ),
    )


def refused(status, reason, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except ApiException as error:
        assert error.status == status, f"{error.status} is not {status}: {error.body}"
        assert f'"reason":"{reason}"' in error.body.replace(": ", ":"), error.body
        return error.body
    raise AssertionError(f"{call.__name__} was not refused")


def test_version():
    assert client.VersionApi().get_code().major == "1"


def test_create_read_replace_delete():
    core = client.CoreV1Api()
    made = core.create_namespaced_config_map(NAMESPACE, config_map("crud", a="1"))
    assert made.metadata.uid and made.metadata.resource_version
    refused(409, "AlreadyExists", core.create_namespaced_config_map, NAMESPACE, config_map("crud"))
    read = core.read_namespaced_config_map("crud", NAMESPACE)
    assert read.data == {"a": "1"}
    read.data["b"] = "2"
    changed = core.replace_namespaced_config_map("crud", NAMESPACE, read)
    assert changed.data == {"a": "1", "b": "2"}
    refused(409, "Conflict", core.replace_namespaced_config_map, "crud", NAMESPACE, read)
    assert core.delete_namespaced_config_map("crud", NAMESPACE).status == "Success"
    refused(404, "NotFound", core.read_namespaced_config_map, "crud", NAMESPACE)


def test_secret_is_bytes():
    core = client.CoreV1Api()
    secret = client.V1Secret(metadata=client.V1ObjectMeta(name="secret"), string_data={"a": "geheim"})
    assert core.create_namespaced_secret(NAMESPACE, secret).data == {"a": "Z2VoZWlt"}


def test_invalid_objects_are_refused():
    core = client.CoreV1Api()
    body = refused(422, "Invalid", core.create_namespaced_pod, NAMESPACE, pod("Bad_Name"))
    assert "metadata.name" in body
    empty = client.V1Pod(metadata=client.V1ObjectMeta(name="empty"), spec=client.V1PodSpec(containers=[]))
    assert "spec.containers" in refused(422, "Invalid", core.create_namespaced_pod, NAMESPACE, empty)
    refused(400, "BadRequest", core.create_namespaced_pod, NAMESPACE, {"spec": {"containers": "none"}})


def test_dry_run():
    core = client.CoreV1Api()
    core.create_namespaced_config_map(NAMESPACE, config_map("dry"), dry_run="All")
    refused(404, "NotFound", core.read_namespaced_config_map, "dry", NAMESPACE)


def test_patches():
    apps = client.AppsV1Api()
    apps.create_namespaced_deployment(NAMESPACE, deployment("patched"))
    containers = [{"name": "main", "image": "nginx:1.26"}]
    strategic = {"spec": {"template": {"spec": {"containers": containers}}}}
    result = apps.patch_namespaced_deployment("patched", NAMESPACE, strategic)
    assert result.spec.template.spec.containers[0].image == "nginx:1.26"
    result = apps.patch_namespaced_deployment(
        "patched", NAMESPACE, [{"op": "replace", "path": "/spec/replicas", "value": 5}]
    )
    assert result.spec.replicas == 5
    assert result.metadata.generation == 3
    deployments = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="apps/v1", kind="Deployment")
    place = {"name": "patched", "namespace": NAMESPACE}
    merged = deployments.patch(body={"spec": {"replicas": 3}}, content_type="application/merge-patch+json", **place)
    assert merged.spec.replicas == 3
    applied = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 7}}
    try:
        deployments.server_side_apply(body=applied, field_manager="tour", **place)
    except dynamic.exceptions.ConflictError as error:
        assert b".spec.replicas" in error.body, error.body
    else:
        raise AssertionError("no conflict")
    forced = deployments.server_side_apply(body=applied, field_manager="tour", force_conflicts=True, **place)
    assert forced.spec.replicas == 7


def test_status_and_scale():
    apps = client.AppsV1Api()
    apps.create_namespaced_deployment(NAMESPACE, deployment("scaled"))
    apps.patch_namespaced_deployment_status("scaled", NAMESPACE, {"status": {"replicas": 2}})
    assert apps.read_namespaced_deployment_status("scaled", NAMESPACE).status.replicas == 2
    scale = apps.read_namespaced_deployment_scale("scaled", NAMESPACE)
    assert scale.spec.replicas == 2 and scale.status.selector == "app=scaled"
    scale.spec.replicas = 6
    assert apps.replace_namespaced_deployment_scale("scaled", NAMESPACE, scale).spec.replicas == 6
    assert apps.read_namespaced_deployment("scaled", NAMESPACE).spec.replicas == 6


def test_lists_selectors_and_pages():
    core = client.CoreV1Api()
    for number in range(7):
        core.create_namespaced_pod(NAMESPACE, pod(f"page-{number}", parity="even" if number % 2 == 0 else "odd"))
    names = lambda answer: [item.metadata.name for item in answer.items]
    even = core.list_namespaced_pod(NAMESPACE, label_selector="parity=even")
    assert names(even) == ["page-0", "page-2", "page-4", "page-6"]
    assert names(core.list_namespaced_pod(NAMESPACE, field_selector="metadata.name=page-3")) == ["page-3"]
    found, token, pages = [], None, 0
    while True:
        page = core.list_namespaced_pod(NAMESPACE, label_selector="parity", limit=3, _continue=token)
        found, pages, token = found + names(page), pages + 1, page.metadata._continue
        if not token:
            break
    assert found == [f"page-{number}" for number in range(7)] and pages == 3
    refused(400, "BadRequest", core.list_namespaced_pod, NAMESPACE, field_selector="spec.colour=red")
    core.delete_collection_namespaced_pod(NAMESPACE, label_selector="parity=odd")
    assert names(core.list_namespaced_pod(NAMESPACE, label_selector="parity")) == names(even)
    assert core.list_pod_for_all_namespaces(label_selector="parity").items


def test_watch():
    core = client.CoreV1Api()
    version = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    core.create_namespaced_config_map(NAMESPACE, config_map("watched", a="1"))
    core.patch_namespaced_config_map("watched", NAMESPACE, {"data": {"a": "2"}})
    core.delete_namespaced_config_map("watched", NAMESPACE)
    seen = []
    stream = watch.Watch().stream(
        core.list_namespaced_config_map, NAMESPACE, resource_version=version,
        field_selector="metadata.name=watched", timeout_seconds=20,
    )
    for event in stream:
        seen.append((event["type"], (event["object"].data or {}).get("a")))
        if event["type"] == "DELETED":
            break
    assert seen == [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")], seen


def test_a_watch_that_begins_too_far_back():
    core = client.CoreV1Api()
    seen = []
    try:
        for event in watch.Watch().stream(core.list_namespaced_config_map, NAMESPACE, resource_version="1"):
            seen.append(event)
    except ApiException as error:
        assert error.status == 410, error
        assert error.reason.startswith("Expired: too old resource version: 1 ("), error.reason
    else:
        raise AssertionError("nobody said that it was too far back")
    assert not seen, seen


def test_delete_options():
    core = client.CoreV1Api()
    made = core.create_namespaced_config_map(NAMESPACE, config_map("options"))
    wrong = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="wrong"))
    refused(409, "Conflict", core.delete_namespaced_config_map, "options", NAMESPACE, body=wrong)
    right = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=made.metadata.uid))
    core.delete_namespaced_config_map("options", NAMESPACE, body=right)
    bound = pod("bound")
    bound.spec.node_name = "somewhere"
    core.create_namespaced_pod(NAMESPACE, bound)
    ending = core.delete_namespaced_pod("bound", NAMESPACE, grace_period_seconds=17)
    assert ending.metadata.deletion_grace_period_seconds == 17
    core.delete_namespaced_pod("bound", NAMESPACE, grace_period_seconds=0)
    refused(404, "NotFound", core.read_namespaced_pod, "bound", NAMESPACE)
    held = config_map("held")
    held.metadata.finalizers = ["tour.example.com/hold"]
    core.create_namespaced_config_map(NAMESPACE, held)
    core.delete_namespaced_config_map("held", NAMESPACE)
    assert core.read_namespaced_config_map("held", NAMESPACE).metadata.deletion_timestamp
    core.patch_namespaced_config_map("held", NAMESPACE, {"metadata": {"finalizers": None}})
    refused(404, "NotFound", core.read_namespaced_config_map, "held", NAMESPACE)


def test_create_from_yaml():
    text = (Path(__file__).parent.parent / "tour/objects/sets.yaml").read_text()
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        made = utils.create_from_yaml(client.ApiClient(), file.name, namespace=NAMESPACE)
    assert [item[0].metadata.name for item in made] == ["store", "agent"]


def test_reviews_and_tokens():
    review = client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(
            resource_attributes=client.V1ResourceAttributes(verb="create", resource="pods", namespace=NAMESPACE)
        )
    )
    assert client.AuthorizationV1Api().create_self_subject_access_review(review).status.allowed
    request = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=600))
    core = client.CoreV1Api()
    token = core.create_namespaced_service_account_token("default", NAMESPACE, request).status.token
    answer = client.AuthenticationV1Api().create_token_review(
        client.V1TokenReview(spec=client.V1TokenReviewSpec(token=token))
    )
    assert answer.status.user.username == f"system:serviceaccount:{NAMESPACE}:default"


DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "boats.python.example.com"},
    "spec": {
        "group": "python.example.com",
        "scope": "Namespaced",
        "names": {"plural": "boats", "singular": "boat", "kind": "Boat"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "sails": {"type": "integer", "minimum": 1},
                                    "name": {"type": "string", "default": "Nameless"},
                                },
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


def boat(name, sails):
    return {
        "apiVersion": "python.example.com/v1",
        "kind": "Boat",
        "metadata": {"name": name},
        "spec": {"sails": sails, "nonsense": True},
    }


def test_custom_objects():
    extensions = client.ApiextensionsV1Api()
    extensions.create_custom_resource_definition(DEFINITION)
    for _ in range(100):
        conditions = extensions.read_custom_resource_definition("boats.python.example.com").status.conditions or []
        if any(condition.type == "Established" and condition.status == "True" for condition in conditions):
            break
        time.sleep(0.1)
    place = {"group": "python.example.com", "version": "v1", "namespace": NAMESPACE, "plural": "boats"}
    custom = client.CustomObjectsApi()
    made = custom.create_namespaced_custom_object(**place, body=boat("one", 2))
    assert made["spec"] == {"sails": 2, "name": "Nameless"}
    refused(422, "Invalid", custom.create_namespaced_custom_object, **place, body=boat("none", 0))
    changed = custom.patch_namespaced_custom_object(**place, name="one", body={"spec": {"sails": 3}})
    assert changed["spec"]["sails"] == 3 and changed["metadata"]["generation"] == 2
    status = custom.patch_namespaced_custom_object_status(**place, name="one", body={"status": {"afloat": True}})
    assert status["status"] == {"afloat": True} and status["metadata"]["generation"] == 2
    assert len(custom.list_namespaced_custom_object(**place)["items"]) == 1
    custom.delete_namespaced_custom_object(**place, name="one")
    extensions.delete_custom_resource_definition("boats.python.example.com")


def test_dynamic_client():
    dynamic_client = dynamic.DynamicClient(client.ApiClient())
    services = dynamic_client.resources.get(api_version="v1", kind="Service")
    body = {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "dyn"}, "spec": {"ports": [{"name": "a", "port": 80}]}}
    made = services.create(body=body, namespace=NAMESPACE)
    assert made.spec.clusterIP and made.spec.type == "ClusterIP"
    applied = services.server_side_apply(
        body={**body, "spec": {"ports": [{"name": "b", "port": 81}]}}, name="dyn", namespace=NAMESPACE, field_manager="dynamic"
    )
    assert sorted(port.port for port in applied.spec.ports) == [80, 81]
    patched = services.patch(
        body={"metadata": {"labels": {"a": "b"}}}, name="dyn", namespace=NAMESPACE,
        content_type="application/merge-patch+json",
    )
    assert patched.metadata.labels.a == "b"
    for event in services.watch(namespace=NAMESPACE, timeout=20):
        assert event["type"] == "ADDED" and event["object"].metadata.name == "dyn"
        break
    services.delete(name="dyn", namespace=NAMESPACE)


def main():
    config.load_kube_config()
    core = client.CoreV1Api()
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    for _ in range(100):
        if core.list_namespaced_service_account(NAMESPACE).items:
            break
        time.sleep(0.1)
    passed = failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
        except Exception:
            failed += 1
            print(f"FAILED {name}")
            traceback.print_exc()
        else:
            passed += 1
            print(f"ok {name}")
    core.delete_namespace(NAMESPACE)
    print(f"{passed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
