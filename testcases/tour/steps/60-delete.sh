# kubectl delete and wait: how objects end.
in_namespace delete
cm() { for name in "$@"; do k create configmap "$name" >/dev/null; k label configmap "$name" batch=one >/dev/null; done; }

cm a b c d e f
expect delete 'configmap "a" deleted' k delete configmap a
refuse delete-again 'Error from server \(NotFound\): configmaps "a" not found' k delete configmap a
expect delete-ignore-not-found '^$' bash -c "'$KUBECTL' -n $namespace delete configmap a --ignore-not-found; echo"
expect delete-several 'configmap "c" deleted' k delete configmap b c
expect delete-dry-run 'configmap "d" deleted.*\(server dry run\)' k delete configmap d --dry-run=server
expect delete-dry-run-left-it '^d ' k get configmap d
expect delete-selector 'configmap "d" deleted' k delete configmaps -l batch=one
cm g h
expect delete-all 'configmap "g" deleted' k delete configmaps --all
cm i
expect delete-field-selector 'configmap "i" deleted' k delete configmaps --field-selector=metadata.name=i
k create -f "$tour/objects/pod.yaml" >/dev/null
expect delete-grace 'pod "plain" deleted' k delete pod plain --wait=false
expect delete-grace-pod-waits-for-its-node '^30$' k get pod plain -o 'jsonpath={.metadata.deletionGracePeriodSeconds}{"\n"}'
expect delete-grace-shows '^plain +0/1 +Terminating ' k get pod plain
expect delete-now 'pod "plain" deleted' k delete pod plain --now --wait=false
expect delete-now-shortens '^1$' k get pod plain -o 'jsonpath={.metadata.deletionGracePeriodSeconds}{"\n"}'
expect delete-force 'Warning: Immediate deletion does not wait.*' k delete pod plain --force
refuse delete-forced-is-gone 'NotFound' k get pod plain
k run unscheduled --image=busybox >/dev/null
expect delete-unscheduled-ends-at-once 'pod "unscheduled" (force )?deleted' k delete pod unscheduled

k apply -f "$tour/objects/deployment.yaml" >/dev/null
for cascade in background foreground orphan; do
  k create deployment "$cascade" --image=nginx >/dev/null
  expect "delete-cascade-$cascade" "deployment.apps \"$cascade\" deleted" k delete deployment "$cascade" --cascade="$cascade" --wait=false
done
refuse delete-background-is-gone NotFound k get deployment background
expect delete-foreground-waits '^\["foregroundDeletion"\]$' k get deployment foreground -o 'jsonpath={.metadata.finalizers}{"\n"}'
expect delete-orphan-waits '^\["orphan"\]$' k get deployment orphan -o 'jsonpath={.metadata.finalizers}{"\n"}'
k patch deployment foreground orphan --type=merge -p '{"metadata":{"finalizers":null}}' >/dev/null 2>&1 || true
for name in foreground orphan; do k patch deployment "$name" --type=merge -p '{"metadata":{"finalizers":null}}' >/dev/null 2>&1 || true; done
refuse delete-ends-with-last-finalizer NotFound k get deployment foreground

cm held
k patch configmap held --type=merge -p '{"metadata":{"finalizers":["tour.example.com/hold"]}}' >/dev/null
refuse delete-finalizer-times-out 'timed out waiting for the condition on configmaps/held' k delete configmap held --timeout=1s
expect delete-finalizer-marks '^20' k get configmap held -o 'jsonpath={.metadata.deletionTimestamp}{"\n"}'
refuse delete-no-new-finalizer 'no new finalizers can be added if the object is being deleted' k patch configmap held --type=merge -p '{"metadata":{"finalizers":["tour.example.com/hold","tour.example.com/more"]}}'
background "$KUBECTL" -v=6 -n "$namespace" wait configmap/held --for=delete --timeout=60s
# It has to see it before it goes: of what was never there nothing is said.
for _ in {1..600}; do ! grep -q '200 OK' "$work/background" || break; sleep 0.1; done
k patch configmap held --type=merge -p '{"metadata":{"finalizers":null}}' >/dev/null
wait "$background_pid" || true
expect wait-delete 'configmap/held condition met' cat "$work/background"

refuse wait-times-out 'timed out waiting for the condition on deployments/web' k wait deployment/web --for=condition=Available --timeout=1s
background "$KUBECTL" -n "$namespace" wait deployment/web --for=condition=Available --timeout=20s
k patch deployment web --subresource=status --type=merge -p '{"status":{"conditions":[{"type":"Available","status":"True"}]}}' >/dev/null
wait "$background_pid" || true
expect wait-condition 'deployment.apps/web condition met' cat "$work/background"
expect wait-condition-value 'condition met' k wait deployment/web --for=condition=Available=True --timeout=5s
expect wait-jsonpath 'condition met' k wait deployment/web --for='jsonpath={.spec.replicas}=2' --timeout=5s
expect wait-jsonpath-exists 'condition met' k wait deployment/web --for='jsonpath={.metadata.uid}' --timeout=5s
if "$KUBECTL" wait --help | grep -q -- --for=create; then
  background "$KUBECTL" -n "$namespace" wait configmap/later --for=create --timeout=20s
  sleep 0.3
  cm later
  wait "$background_pid" || true
  expect wait-create 'configmap/later condition met' cat "$work/background"
fi
expect delete-file 'deployment.apps "web" deleted' k delete -f "$tour/objects/deployment.yaml"
expect delete-namespace 'namespace "tour-short" deleted' bash -c "'$KUBECTL' create namespace tour-short >/dev/null; '$KUBECTL' delete namespace tour-short --wait=false"
refuse delete-namespace-forbidden 'namespaces "default" is forbidden: this namespace may not be deleted' k delete namespace default
