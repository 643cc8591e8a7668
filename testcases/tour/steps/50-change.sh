# Changes to what is there: edit, patch, replace, label, annotate, scale, set.
in_namespace change
k apply -f "$tour/objects/deployment.yaml" >/dev/null
k create -f "$tour/objects/kept.yaml" >/dev/null
path() { k get "$1" -o "jsonpath={$2}{'\n'}"; }

expect edit 'configmap/k-plain edited' env EDITOR="sed -i s/value/edited/" "$KUBECTL" -n "$namespace" edit configmap k-plain
expect edit-took '^edited$' path configmap/k-plain .data.key
expect edit-nothing 'Edit cancelled, no changes made' env EDITOR=true "$KUBECTL" -n "$namespace" edit configmap k-plain
refuse edit-invalid 'is invalid|Invalid value|cannot be handled' env EDITOR="sed -i s/containerPort:.80/containerPort:\ 99999/" "$KUBECTL" -n "$namespace" edit deployment web
expect edit-subresource 'deployment.apps/web edited' env EDITOR="sed -i s/^status:.*/status:\ {observedGeneration:\ 1}/" "$KUBECTL" -n "$namespace" edit deployment web --subresource=status
expect patch-strategic 'deployment.apps/web patched' k patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:1.26"}]}}}}'
expect patch-strategic-merged '^nginx:1.26 busybox:1.36$' path deployment/web '.spec.template.spec.containers[*].image'
expect patch-strategic-delete 'patched' k patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"sidecar","$patch":"delete"}]}}}}'
expect patch-strategic-deleted '^nginx$' path deployment/web '.spec.template.spec.containers[*].name'
expect patch-merge 'patched' k patch deployment web --type=merge -p '{"metadata":{"annotations":{"m":"1"}},"spec":{"replicas":4}}'
expect patch-merge-took '^4 1$' path deployment/web '.spec.replicas} {.metadata.annotations.m'
expect patch-json 'patched' k patch deployment web --type=json -p '[{"op":"test","path":"/spec/replicas","value":4},{"op":"replace","path":"/spec/replicas","value":5}]'
refuse patch-json-test 'The request is invalid: (the server rejected our request due to an error in our request|patch: testing value /spec/replicas failed)' k patch deployment web --type=json -p '[{"op":"test","path":"/spec/replicas","value":4}]'
expect patch-no-change 'patched \(no change\)' k patch deployment web --type=merge -p '{"spec":{"replicas":5}}'
expect patch-status 'patched' k patch deployment web --subresource=status --type=merge -p '{"status":{"replicas":5}}'
expect patch-status-took '^5$' path deployment/web .status.replicas
expect patch-scale 'scale.autoscaling/web patched' k patch deployment web --subresource=scale --type=merge -p '{"spec":{"replicas":2}}'
expect patch-scale-took '^2$' path deployment/web .spec.replicas
refuse patch-immutable 'field is immutable' k patch deployment web --type=merge -p '{"spec":{"selector":{"matchLabels":{"app":"x"}}}}'
refuse patch-invalid 'spec.replicas: Invalid value: -1: must be greater than or equal to 0' k patch deployment web --type=merge -p '{"spec":{"replicas":-1}}'
refuse patch-bad-json 'error decoding patch: unexpected end of JSON input' k patch deployment web --type=merge -p '{'
printf '{"spec":{"replicas":3}}' >"$work/patch.json"
expect patch-file 'patched' k patch deployment web --type=merge --patch-file="$work/patch.json"
expect patch-local '^  replicas: 9$' k patch -f "$tour/objects/deployment.yaml" --local --type=merge -p '{"spec":{"replicas":9}}' -o yaml

expect replace 'configmap/k-plain replaced' k replace -f "$tour/objects/kept.yaml"
expect replace-took '^value$' path configmap/k-plain .data.key
expect replace-force 'configmap/k-plain replaced' k replace --force -f "$tour/objects/kept.yaml"
refuse replace-not-there 'Error from server \(NotFound\).*configmaps "changed-name" not found' k replace -f "$tour/objects/edit.yaml"
k get configmap k-plain -o yaml >"$work/old.yaml"
k label configmap k-plain turn=1 >/dev/null
refuse replace-conflict 'Error from server \(Conflict\).*the object has been modified; please apply your changes to the latest version and try again' k replace -f "$work/old.yaml"

expect label 'configmap/k-plain labeled' k label configmap k-plain colour=red
refuse label-no-overwrite "'colour' already has a value \(red\), and --overwrite is false" k label configmap k-plain colour=blue
expect label-overwrite 'labeled' k label configmap k-plain colour=blue --overwrite
expect label-remove 'unlabeled' k label configmap k-plain colour-
expect label-list 'from=kustomize' k label configmap k-plain --list
expect label-all 'labeled' k label configmaps --all all=yes
refuse label-bad 'invalid label value|Invalid value' k label configmap k-plain 'colour=not ok'
expect annotate 'configmap/k-plain annotated' k annotate configmap k-plain note=hello
expect annotate-remove 'annotated' k annotate configmap k-plain note-
expect scale 'deployment.apps/web scaled' k scale deployment web --replicas=6
expect scale-took '^6$' path deployment/web .spec.replicas
refuse scale-precondition 'Expected replicas to be 1, was 6' k scale deployment web --current-replicas=1 --replicas=2
expect set-image 'deployment.apps/web image updated' k set image deployment/web nginx=nginx:1.27
expect set-image-took '^nginx:1.27$' path deployment/web '.spec.template.spec.containers[0].image'
expect set-env 'deployment.apps/web env updated' k set env deployment/web C=3 A-
expect set-env-list '^C=3$' k set env deployment/web --list
expect set-env-from 'env updated' k set env deployment/web --from=configmap/k-plain
expect set-resources 'resource requirements updated' k set resources deployment web --limits=cpu=200m,memory=512Mi
expect set-serviceaccount 'serviceaccount updated' k set serviceaccount deployment web default
k create service clusterip web --tcp=80 >/dev/null
expect set-selector 'service/web selector updated' k set selector service web app=other
k create rolebinding rb --clusterrole=view --user=ada >/dev/null
expect set-subject 'rolebinding.rbac.authorization.k8s.io/rb subjects updated' k set subject rolebinding rb --user=bob
expect generation-counts-spec-changes '^[0-9]+$' path deployment/web .metadata.generation
