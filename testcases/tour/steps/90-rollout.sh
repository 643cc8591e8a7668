# kubectl rollout, on objects whose status the tour writes itself, and nodes.
in_namespace rollout
status() { k patch "$1" "$2" --subresource=status --type=merge -p "{\"status\":$3}" >/dev/null; }
k apply -f "$tour/objects/deployment.yaml" >/dev/null
generation() { k get "$1" "$2" -o 'jsonpath={.metadata.generation}'; }
done_rolling() {
  status deployment web "{\"observedGeneration\":$(generation deployment web),\"replicas\":2,\"updatedReplicas\":2,\"readyReplicas\":2,\"availableReplicas\":2}"
}
# One replica set of the deployment, as the controller would make it: name, revision, image.
replica_set() {
  local uid
  uid=$(k get deployment web -o 'jsonpath={.metadata.uid}')
  sed -e "s/@name@/$1/" -e "s/@revision@/$2/" -e "s/@image@/$3/" -e "s/@uid@/$uid/" "$tour/objects/replicaset.yaml" | k create -f - >/dev/null
}

refuse rollout-status-times-out 'timed out waiting for the condition|Waiting for deployment' k rollout status deployment/web --timeout=1s
background "$KUBECTL" -n "$namespace" rollout status deployment/web --timeout=20s
done_rolling
wait "$background_pid" || true
expect rollout-status 'deployment "web" successfully rolled out' cat "$work/background"
replica_set web-1 1 nginx:1.24
replica_set web-2 2 nginx:1.25
expect rollout-history '^2 ' k rollout history deployment/web
expect rollout-history-revision 'nginx:1.24' k rollout history deployment/web --revision=1
expect rollout-pause 'deployment.apps/web paused' k rollout pause deployment/web
refuse rollout-pause-again 'deployments.apps "web" is already paused' k rollout pause deployment/web
refuse rollout-restart-paused "can't restart paused deployment" k rollout restart deployment/web
expect rollout-resume 'deployment.apps/web resumed' k rollout resume deployment/web
expect rollout-restart 'deployment.apps/web restarted' k rollout restart deployment/web
expect rollout-restarted 'restartedAt' k get deployment web -o yaml
expect rollout-undo 'deployment.apps/web rolled back' k rollout undo deployment/web --to-revision=1
expect rollout-undone '^nginx:1.24$' k get deployment web -o 'jsonpath={.spec.template.spec.containers[0].image}{"\n"}'
k create -f "$tour/objects/sets.yaml" >/dev/null
status statefulset store '{"observedGeneration":1,"replicas":1,"readyReplicas":1,"updatedReplicas":1,"currentRevision":"a","updateRevision":"a"}'
expect rollout-statefulset 'partitioned roll out complete|rolling update complete 1 pods at revision a' k rollout status statefulset/store --timeout=5s
expect rollout-statefulset-restart 'statefulset.apps/store restarted' k rollout restart statefulset/store
status daemonset agent '{"observedGeneration":1,"desiredNumberScheduled":0,"currentNumberScheduled":0,"numberMisscheduled":0,"numberReady":0}'
expect rollout-daemonset 'daemon set "agent" successfully rolled out' k rollout status daemonset/agent --timeout=5s
expect rollout-daemonset-restart 'daemonset.apps/agent restarted' k rollout restart daemonset/agent
expect scale-statefulset 'statefulset.apps/store scaled' k scale statefulset store --replicas=4
expect scale-replicaset 'replicaset.apps/web-1 scaled' k scale rs web-1 --replicas=0

k create -f "$tour/objects/node.yaml" >/dev/null
status node tour-node '{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"}],"nodeInfo":{"kubeletVersion":"v1.35.0","osImage":"Debian","kernelVersion":"6.12","containerRuntimeVersion":"containerd://2.1","architecture":"amd64","operatingSystem":"linux","machineID":"","systemUUID":"","bootID":"","kubeProxyVersion":""},"addresses":[{"type":"InternalIP","address":"10.0.0.9"}]}'
expect node '^tour-node +Ready +worker +[0-9]+s +v1.35.0$' k get node tour-node
expect node-wide '^tour-node +Ready +worker +[0-9]+s +v1.35.0 +10.0.0.9 +<none> +Debian +6.12 +containerd://2.1$' k get node tour-node -o wide
expect cordon 'node/tour-node cordoned' k cordon tour-node
expect cordoned 'Ready,SchedulingDisabled' k get node tour-node
expect uncordon 'node/tour-node uncordoned' k uncordon tour-node
expect taint 'node/tour-node tainted' k taint node tour-node dedicated=tour:NoSchedule
refuse taint-again 'already has dedicated taint' k taint node tour-node dedicated=tour:NoSchedule
expect taint-remove 'node/tour-node untainted' k taint node tour-node dedicated-
k create -f "$tour/objects/pod.yaml" >/dev/null
refuse drain-refuses 'cannot delete Pods with local storage|declare no controller' k drain tour-node --ignore-daemonsets
expect drain-dry-run 'node/tour-node drained \(server dry run\)' k drain tour-node --force --delete-emptydir-data --dry-run=server
expect describe-node '^Name: +tour-node' k describe node tour-node
k delete pod plain --force >/dev/null 2>&1
expect delete-node 'node "tour-node" deleted' k delete node tour-node
