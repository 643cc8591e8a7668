# kubectl apply and diff: the three-way merge of the client, and the server's own.
in_namespace apply
names() { k get deployment web -o "jsonpath={.spec.template.spec.containers[*].name}/{.spec.template.spec.containers[0].env[*].name}/{.spec.template.spec.containers[0].ports[*].containerPort}{'\n'}"; }
without() { sed "$@" "$tour/objects/deployment.yaml" >"$work/changed.yaml"; }

expect apply-creates 'deployment.apps/web created' k apply -f "$tour/objects/deployment.yaml"
expect apply-unchanged 'deployment.apps/web unchanged' k apply -f "$tour/objects/deployment.yaml"
expect apply-dry-run 'deployment.apps/web unchanged \(server dry run\)' k apply -f "$tour/objects/deployment.yaml" --dry-run=server
expect apply-all-there '^nginx sidecar/A B/80 443$' names
without -e '/name: B, value/d' -e '/containerPort: 443/d'
refuse diff-shows '^-.*name: B' k diff -f "$work/changed.yaml"
expect apply-removes-elements 'deployment.apps/web configured' k apply -f "$work/changed.yaml"
expect apply-removed-only-those '^nginx sidecar/A/80$' names
expect diff-nothing '^$' bash -c "'$KUBECTL' -n $namespace diff -f '$work/changed.yaml'; echo"
without -e '/name: sidecar/,$d'
expect apply-removes-container 'configured' k apply -f "$work/changed.yaml"
expect apply-removed-container '^nginx/A B/80 443$' names
k scale deployment web --replicas=7 >/dev/null
without -e '/replicas:/d'
expect apply-drops-field 'configured' k apply -f "$work/changed.yaml"
expect apply-dropped-field-defaults '^1$' k get deployment web -o 'jsonpath={.spec.replicas}{"\n"}'
expect apply-view-last-applied 'image: nginx:1.25' k apply view-last-applied deployment/web
expect apply-set-last-applied 'deployment.apps/web configured' k apply set-last-applied -f "$tour/objects/deployment.yaml"
expect apply-edit-last-applied 'edited|Edit cancelled|no changes' env EDITOR="sed -i s/nginx:1.25/nginx:1.26/" "$KUBECTL" -n "$namespace" apply edit-last-applied deployment/web
refuse apply-immutable 'spec.selector: Invalid value: .*: field is immutable' k apply -f <(sed 's/app: web/app: other/' "$tour/objects/deployment.yaml")
expect apply-keeps-foreign-label 'configured|unchanged' bash -c "'$KUBECTL' -n $namespace label deployment web foreign=yes >/dev/null; '$KUBECTL' -n $namespace apply -f '$tour/objects/deployment.yaml'"
expect apply-kept-foreign-label '^yes$' k get deployment web -o 'jsonpath={.metadata.labels.foreign}{"\n"}'
expect apply-prune-creates 'configmap/k-plain created' k apply -k "$tour/objects/kustomize"
expect apply-prune 'configmap/k-generated pruned' k apply -f "$tour/objects/kept.yaml" --prune -l from=kustomize --prune-allowlist=core/v1/ConfigMap
expect kustomize 'name: k-generated' k kustomize "$tour/objects/kustomize"
expect apply-kustomize 'configmap/k-generated created' k apply -k "$tour/objects/kustomize"
expect delete-kustomize 'configmap "k-generated" deleted' k delete -k "$tour/objects/kustomize"

manifest() { printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {%s}\n' "$1" >"$work/shared.yaml"; }
manifest 'a: "1", b: "1"'
expect ssa-creates 'configmap/shared serverside-applied' k apply --server-side --field-manager=one -f "$work/shared.yaml"
expect ssa-managed-fields '^one Apply$' k get configmap shared -o 'jsonpath={.metadata.managedFields[0].manager} {.metadata.managedFields[0].operation}{"\n"}'
manifest 'b: "2", c: "2"'
refuse ssa-conflict 'Apply failed with 1 conflict: conflict with "one": \.data\.b' k apply --server-side --field-manager=two -f "$work/shared.yaml"
expect ssa-force 'serverside-applied' k apply --server-side --field-manager=two --force-conflicts -f "$work/shared.yaml"
expect ssa-forced '^\{"a":"1","b":"2","c":"2"\}$' k get configmap shared -o 'jsonpath={.data}{"\n"}'
manifest 'a: "1"'
expect ssa-gives-up 'serverside-applied' k apply --server-side --field-manager=one -f "$work/shared.yaml"
manifest 'b: "2"'
expect ssa-removes 'serverside-applied' k apply --server-side --field-manager=two -f "$work/shared.yaml"
expect ssa-removed '^\{"a":"1","b":"2"\}$' k get configmap shared -o 'jsonpath={.data}{"\n"}'
expect ssa-migrates-client-side 'deployment.apps/web serverside-applied' k apply --server-side -f "$tour/objects/deployment.yaml" --force-conflicts
expect ssa-dry-run 'serverside-applied \(server dry run\)' k apply --server-side --dry-run=server -f "$tour/objects/deployment.yaml"
refuse ssa-diff 'nginx:1.27' k diff --server-side -f <(sed 's/nginx:1.25/nginx:1.27/' "$tour/objects/deployment.yaml")
