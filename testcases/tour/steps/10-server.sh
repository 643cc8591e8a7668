# What the server says of itself: version, discovery, raw paths.
in_namespace server

expect version 'Server Version: v1\.[0-9]+\.' k version
expect version-json '"serverVersion"' k version -o json
expect cluster-info 'Kubernetes control plane.* is running at' k cluster-info
expect api-versions '^apps/v1$' k api-versions
expect api-versions-core '^v1$' k api-versions
expect api-resources '^pods +po +v1 +true +Pod$' k api-resources
expect api-resources-wide '^deployments +deploy +apps/v1 +true +Deployment +create,delete,deletecollection,get,list,patch,update,watch +all$' k api-resources -o wide
expect api-resources-categories '^services +svc +v1 +true +Service' k api-resources --categories=all
absent api-resources-namespaced '^nodes ' k api-resources --namespaced=true
expect api-resources-cluster '^nodes +no +v1 +false +Node' k api-resources --namespaced=false
expect api-resources-group '^ingressclasses +networking\.k8s\.io/v1 +false +IngressClass' k api-resources --api-group=networking.k8s.io
expect api-resources-name '^horizontalpodautoscalers\.autoscaling$' k api-resources -o name
expect api-resources-verbs '^tokenreviews\.authentication\.k8s\.io$' k api-resources --verbs=create -o name
expect api-resources-cached '^pods +po ' k api-resources --cached
expect discovery-cache-on-disk 'serverresources.json|http' find "$HOME/.kube/cache" -type f
for path in healthz livez readyz; do
  expect "raw-$path" '^ok$' k get --raw "/$path"
done
expect raw-readyz-verbose 'readyz check passed' k get --raw '/readyz?verbose'
expect raw-metrics '^apiserver_request_total' k get --raw /metrics
expect raw-apis '"kind": ?"APIGroupList"' k get --raw /apis
expect raw-openapi-v3 '"apis/apps/v1"' k get --raw /openapi/v3
expect raw-namespaces '"kind": ?"NamespaceList"' k get --raw '/api/v1/namespaces?limit=1'
expect raw-create '"name": ?"raw"' k create --raw "/api/v1/namespaces/$namespace/configmaps" -f "$tour/objects/raw.json"
expect raw-replace '"changed"' k replace --raw "/api/v1/namespaces/$namespace/configmaps/raw" -f "$tour/objects/raw-changed.json"
expect raw-delete '"status": ?"Success"' k delete --raw "/api/v1/namespaces/$namespace/configmaps/raw"
refuse raw-not-found 'the server could not find the requested resource' k get --raw /nothing/here
refuse no-such-resource "the server doesn't have a resource type \"nonsense\"" k get nonsense
refuse no-such-object 'Error from server \(NotFound\): pods "none" not found' k get pod none
refuse no-such-kind 'no matches for kind "Nonsense" in version "v1"' k apply -f "$tour/objects/no-such-kind.yaml"
expect config-view '^current-context:' k config view
expect config-current-context . k config current-context

background "$KUBECTL" proxy --port=0
until grep -q 'Starting to serve on' "$work/background"; do kill -0 "$background_pid" && sleep 0.1; done
proxy=$(grep -o '127.0.0.1:[0-9]*' "$work/background")
expect proxy-get '"kind": ?"NamespaceList"' curl -fsS --noproxy '*' "http://$proxy/api/v1/namespaces"
expect proxy-yaml '^kind: NamespaceList' curl -fsS --noproxy '*' -H 'Accept: application/yaml' "http://$proxy/api/v1/namespaces"
expect proxy-table '"kind": ?"Table"' curl -fsS --noproxy '*' -H 'Accept: application/json;as=Table;g=meta.k8s.io;v=v1' "http://$proxy/api/v1/namespaces"
refuse proxy-not-found '404' curl -fsS --noproxy '*' "http://$proxy/api/v1/namespaces/none"
stop_background

refuse unknown-command 'unknown command "gett" for "kubectl"' "$KUBECTL" gett
refuse unknown-flag 'rror: unknown flag: --nope$' k get --nope
refuse flag-without-value 'flag needs an argument: --output' k get --output
refuse no-such-user 'auth info "nobody" does not exist' k get pods --user=nobody
expect complete-commands '^rollout' "$KUBECTL" __complete roll
expect complete-kinds '^namespaces$' "$KUBECTL" __complete get name
expect complete-names '^kube-system$' "$KUBECTL" __complete get namespace kube-
expect complete-flag-values '^kube-public$' "$KUBECTL" __complete get pods -n kube-p
expect completion-bash '__start_kubectl' "$KUBECTL" completion bash
printf '#!/bin/sh\necho "hello $*"\n' >"$work/kubectl-tour-plugin"
chmod +x "$work/kubectl-tour-plugin"
expect plugin '^hello x --y$' env PATH="$work:$PATH" "$KUBECTL" tour plugin x --y
expect plugin-list 'kubectl-tour-plugin$' env PATH="$work:$PATH" "$KUBECTL" plugin list
