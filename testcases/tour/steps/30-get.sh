# kubectl get: how to choose objects and how to print them.
in_namespace get
k create -f "$tour/objects/pod.yaml" >/dev/null
k create deployment web --image=nginx:1.25 --replicas=2 >/dev/null
k create service clusterip web --tcp=80 >/dev/null
for i in 1 2 3 4 5; do k create configmap "c$i" --from-literal="n=$((10 - i))" >/dev/null; done
k label configmap c1 c2 colour=red >/dev/null
k label configmap c3 colour=blue >/dev/null

expect get '^NAME +READY +STATUS +RESTARTS +AGE$' k get pods
expect get-row '^plain +0/1 +Pending +0 +[0-9]+s$' k get pods
expect get-wide '^NAME +READY +STATUS +RESTARTS +AGE +IP +NODE +NOMINATED NODE +READINESS GATES$' k get pods -o wide
expect get-wide-row '^plain .* <none> +tour-node +<none> +<none>$' k get pods -o wide
expect get-deployment-wide '^web +0/2 +0 +0 +[0-9]+s +nginx +nginx:1.25 +app=web$' k get deployment -o wide
expect get-yaml '^kind: Pod$' k get pod plain -o yaml
absent get-yaml-hides-managed-fields 'managedFields' k get pod plain -o yaml
expect get-yaml-managed-fields 'manager: kubectl-create' k get pod plain -o yaml --show-managed-fields
expect get-json '"kind": "Pod"' k get pod plain -o json
expect get-name '^pod/plain$' k get pods -o name
expect get-jsonpath '^busybox:1.36$' k get pod plain -o 'jsonpath={.spec.containers[0].image}{"\n"}'
expect get-jsonpath-range '^c1=9$' k get configmaps -l colour=red -o 'jsonpath={range .items[*]}{.metadata.name}={.data.n}{"\n"}{end}'
expect get-go-template '^c1 c2 $' k get configmaps -l colour=red -o 'go-template={{range .items}}{{.metadata.name}} {{end}}{{"\n"}}'
expect get-custom-columns '^plain +busybox:1.36$' k get pods -o 'custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[0].image'
expect get-no-headers '^plain ' k get pods --no-headers
expect get-show-labels 'app=plain,tier=back$' k get pods --show-labels
expect get-label-columns '^NAME +READY +STATUS +RESTARTS +AGE +APP$' k get pods -L app
expect get-show-kind '^pod/plain ' k get pods --show-kind
expect get-all-namespaces '^kube-system +default ' k get serviceaccounts -A
expect get-selector '^configmap/c1 configmap/c2 $' bash -c "'$KUBECTL' -n $namespace get configmaps -l colour=red -o name | tr '\n' ' '; echo"
expect get-selector-set '^configmap/c3$' k get configmaps -l 'colour in (blue,green)' -o name
expect get-selector-not '^configmap/c4$' k get configmaps -l '!colour' -o name
refuse get-selector-bad 'unable to parse requirement|found' k get configmaps -l 'colour=(('
expect get-field-selector '^configmap/c2$' k get configmaps --field-selector=metadata.name=c2 -o name
expect get-field-selector-pod '^pod/plain$' k get pods --field-selector=status.phase=Pending,spec.nodeName=tour-node -o name
expect get-field-selector-none 'No resources found' k get pods --field-selector=status.phase=Running
refuse get-field-selector-unknown 'field label not supported: spec.colour' k get pods --field-selector=spec.colour=red
expect get-chunks '^c5 ' k get configmaps --chunk-size=2
expect get-chunks-count '^[56]$' bash -c "'$KUBECTL' -n $namespace get configmaps --chunk-size=2 -o name | wc -l"
expect get-sort-by '^configmap/c5 configmap/c4 configmap/c3 configmap/c2 configmap/c1 $' bash -c "'$KUBECTL' -n $namespace get configmaps -o name --sort-by='{.data.n}' | grep /c | tr '\n' ' '; echo"
expect get-sort-by-age '^NAME' k get configmaps --sort-by=.metadata.creationTimestamp
expect get-several 'configmap/c1' k get configmap/c1 service/web deployment/web
expect get-kinds 'service/web' k get configmaps,services
expect get-all 'deployment.apps/web' k get all
expect get-group-version '^web ' k get deployments.v1.apps
expect get-short-name '^web ' k get deploy
expect get-ignore-not-found '^$' bash -c "'$KUBECTL' -n $namespace get pod none --ignore-not-found; echo"
expect get-file '^plain ' k get -f "$tour/objects/pod.yaml"
expect get-subresource-status '^kind: Deployment' k get deployment web --subresource=status -o yaml
expect get-subresource-scale '^kind: Scale' k get deployment web --subresource=scale -o yaml
expect get-server-print-off '^plain +' k get pods --server-print=false
expect get-events 'LAST SEEN|No (resources|events) found' k get events
expect events 'No events found' k events

background "$KUBECTL" -n "$namespace" get configmaps -w -o name
until grep -q configmap/c5 "$work/background"; do kill -0 "$background_pid" && sleep 0.1; done
k create configmap watched >/dev/null
eventually get-watch '^configmap/watched$' cat "$work/background"
stop_background
background "$KUBECTL" -n "$namespace" get configmaps --watch-only --output-watch-events
# Nothing shows when it has begun to watch, so it gets several to see.
for _ in {1..100}; do
  k delete configmap watched >/dev/null
  ! grep -q DELETED "$work/background" || break
  k create configmap watched >/dev/null
done
eventually get-watch-events '^DELETED +watched ' cat "$work/background"
stop_background
background "$KUBECTL" -n "$namespace" get pods -w --field-selector=spec.nodeName=tour-node
until grep -q plain "$work/background"; do kill -0 "$background_pid" && sleep 0.1; done
k patch pod plain --subresource=status --type=merge -p '{"status":{"phase":"Running","podIP":"10.0.0.9","containerStatuses":[{"name":"main","image":"busybox:1.36","imageID":"","ready":true,"restartCount":2,"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}}]}}' >/dev/null
eventually get-watch-table '^plain +1/1 +Running +2 ' cat "$work/background"
stop_background

expect get-jsonpath-as-json '"plain"' k get pods -o jsonpath-as-json='{.items[*].metadata.name}'
expect get-columns-of-maps 'map\[colour:red\]' k get configmap c1 -o custom-columns=L:.metadata.labels
refuse get-file-and-words 'you may not specify resource arguments as well' k get pods -f "$tour/objects/pod.yaml"
k annotate configmap c1 long="$(printf 'word %.0s' {1..30})" >/dev/null
expect get-yaml-folds '^ +word word' k get configmap c1 -o yaml
expect describe-configmap '^====$' k describe configmap c1
expect describe-service 'IP Families: +IPv4' k describe service web
expect describe-namespace 'No LimitRange resource' "$KUBECTL" describe namespace "$namespace"
expect describe-role 'Non-Resource URLs' "$KUBECTL" describe clusterrole view
