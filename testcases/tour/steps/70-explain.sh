# kubectl explain, and kinds that the server learns: custom resources.
in_namespace explain

expect explain '^KIND: +Pod' k explain pod
expect explain-field 'FIELD: containers <\[\]Container>' k explain pod.spec.containers
expect explain-deep 'containerPort' k explain pod.spec.containers.ports
expect explain-required 'required' k explain deployment.spec
expect explain-enum 'ENUM' k explain pod.spec.restartPolicy
expect explain-recursive 'imagePullPolicy' k explain deployment --recursive
expect explain-api-version '^VERSION: +v2' k explain hpa --api-version=autoscaling/v2
expect explain-openapiv2 'DESCRIPTION' k explain pod.spec --output=plaintext-openapiv2
refuse explain-no-such-field 'field "colour" does not exist' k explain pod.spec.colour
for kind in $(k api-resources --verbs=list -o name | grep -v -e metrics.k8s.io -e events.events); do
  expect "explain-$kind" '^KIND: ' k explain "$kind"
done

expect crd-create 'customresourcedefinition.apiextensions.k8s.io/shelves.tour.example.com created' k create -f "$tour/objects/crd.yaml"
expect crd-established 'condition met' k wait crd/shelves.tour.example.com --for=condition=Established --timeout=20s
eventually crd-in-discovery '^shelves +shf +tour.example.com/v1 +true +Shelf' k api-resources --api-group=tour.example.com
eventually crd-explain 'Shelf holds books' k explain shelves
expect crd-explain-field 'How large the shelf is' k explain shelf.spec.size
expect crd-explain-recursive 'title' k explain shelf --recursive
expect cr-apply 'shelf.tour.example.com/oak created' k apply -f "$tour/objects/shelf.yaml"
expect cr-default '^1$' k get shelf oak -o 'jsonpath={.spec.replicas}{"\n"}'
expect cr-columns '^NAME +SIZE +AGE$' k get shelves
expect cr-columns-wide '^NAME +SIZE +REPLICAS +AGE$' k get shf -o wide
expect cr-get-all 'shelf.tour.example.com/oak' k get all
expect cr-apply-again 'unchanged' k apply -f "$tour/objects/shelf.yaml"
expect cr-apply-change 'configured' k apply -f <(sed /Emma/d "$tour/objects/shelf.yaml")
expect cr-apply-changed '^Walden$' k get shelf oak -o 'jsonpath={.spec.books[*].title}{"\n"}'
refuse cr-enum 'spec.size: Unsupported value: "huge": supported values: "small", "large"' k patch shelf oak --type=merge -p '{"spec":{"size":"huge"}}'
refuse cr-minimum 'spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0' k patch shelf oak --type=merge -p '{"spec":{"replicas":-1}}'
refuse cr-required 'spec.size: Required value' k patch shelf oak --type=merge -p '{"spec":{"size":null}}'
refuse cr-unknown-field 'unknown field "spec.colour"|spec.colour: field not declared in schema' k apply -f <(sed 's/size: small/&\n  colour: red/' "$tour/objects/shelf.yaml")
expect cr-scale 'shelf.tour.example.com/oak scaled' k scale shelf oak --replicas=3
expect cr-status 'patched' k patch shelf oak --subresource=status --type=merge -p '{"status":{"phase":"Full","replicas":3}}'
expect cr-status-took '^Full$' k get shelf oak -o 'jsonpath={.status.phase}{"\n"}'
expect cr-status-only-there '^Full$' bash -c "'$KUBECTL' -n $namespace patch shelf oak --type=merge -p '{\"status\":{\"phase\":\"Empty\"}}' >/dev/null; '$KUBECTL' -n $namespace get shelf oak -o 'jsonpath={.status.phase}{\"\\n\"}'"
expect cr-server-side 'serverside-applied' k apply --server-side --force-conflicts -f "$tour/objects/shelf.yaml"
expect cr-label 'labeled' k label shelf oak kind=wood
expect cr-edit 'edited' env EDITOR="sed -i s/small/large/" "$KUBECTL" -n "$namespace" edit shelf oak
expect cr-wait 'condition met' k wait shelf/oak --for='jsonpath={.spec.size}=large' --timeout=5s
expect cr-describe '^Kind: +Shelf' k describe shelf oak
expect cr-can-i '^yes$' k auth can-i create shelves.tour.example.com
expect cr-delete 'shelf.tour.example.com "oak" deleted' k delete shelf oak
expect crd-describe 'Established' k describe crd shelves.tour.example.com
expect crd-delete 'customresourcedefinition.apiextensions.k8s.io "shelves.tour.example.com" deleted' k delete -f "$tour/objects/crd.yaml"
eventually crd-gone-from-discovery '^$' bash -c "'$KUBECTL' api-resources --api-group=tour.example.com --no-headers; echo"
refuse crd-invalid 'must be spec.names.plural\+"\."\+spec.group|Invalid value' k create -f <(sed 's/name: shelves.tour/name: wrong.tour/' "$tour/objects/crd.yaml")
