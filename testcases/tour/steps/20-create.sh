# kubectl create and run: every generator.
in_namespace create
printf 'from=file\n' >"$work/plain.txt"
printf 'X=1\nY=2\n' >"$work/some.env"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=tour \
  -keyout "$work/tls.key" -out "$work/tls.crt" >/dev/null 2>&1

expect create-configmap-literal 'configmap/literal created' k create configmap literal --from-literal=a=1 --from-literal=b=2
expect create-configmap-file 'configmap/file created' k create configmap file --from-file="$work/plain.txt"
expect create-configmap-env 'configmap/env created' k create configmap env --from-env-file="$work/some.env"
expect configmap-data '^1 2$' k get configmap literal -o 'jsonpath={.data.a} {.data.b}{"\n"}'
expect configmap-file-data '^from=file$' k get configmap file -o 'jsonpath={.data.plain\.txt}'
refuse create-again 'configmaps "literal" already exists' k create configmap literal
expect create-secret-generic 'secret/generic created' k create secret generic generic --from-literal=password=geheim
expect secret-is-base64 '^Z2VoZWlt$' k get secret generic -o 'jsonpath={.data.password}{"\n"}'
expect create-secret-tls 'secret/tls created' k create secret tls tls --cert="$work/tls.crt" --key="$work/tls.key"
openssl ecparam -name prime256v1 -genkey -noout -out "$work/other.key" 2> /dev/null
refuse create-secret-tls-mismatch 'private key does not match public key' \
  k create secret tls other --cert="$work/tls.crt" --key="$work/other.key"
expect secret-tls-type '^kubernetes.io/tls$' k get secret tls -o 'jsonpath={.type}{"\n"}'
expect create-secret-docker-registry 'secret/registry created' k create secret docker-registry registry \
  --docker-server=registry.example.com --docker-username=u --docker-password=p
expect create-serviceaccount 'serviceaccount/robot created' k create serviceaccount robot
expect create-token '^ey[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$' k create token robot --duration=10m
expect create-token-audience '^ey' k create token robot --audience=somebody
refuse create-token-nobody 'serviceaccounts "nobody" not found' k create token nobody
expect create-role 'role.rbac.authorization.k8s.io/reader created' k create role reader --verb=get,list,watch --resource=pods,deployments.apps
expect role-rules '^get list watch$' k get role reader -o 'jsonpath={.rules[0].verbs[*]}{"\n"}'
refuse create-role-no-resource "the server doesn't have a resource type \"nonsense\"" k create role r2 --verb=get --resource=nonsense
expect create-rolebinding 'rolebinding.rbac.authorization.k8s.io/robot-reads created' k create rolebinding robot-reads --role=reader --serviceaccount="$namespace:robot"
expect create-clusterrole 'clusterrole.rbac.authorization.k8s.io/tour-url created' k create clusterrole tour-url --verb=get --non-resource-url=/logs/*
expect create-clusterrole-aggregated 'clusterrole.rbac.authorization.k8s.io/tour-sum created' k create clusterrole tour-sum --aggregation-rule=tour=yes
expect create-clusterrolebinding 'clusterrolebinding.rbac.authorization.k8s.io/tour-url created' k create clusterrolebinding tour-url --clusterrole=tour-url --user=ada --group=authors
expect create-deployment 'deployment.apps/made created' k create deployment made --image=nginx:1.25 --replicas=3 --port=80
expect create-deployment-dry-run-client 'dry \(client dry run\)|^deployment.apps/dry created \(dry run\)' k create deployment dry --image=nginx --dry-run=client
expect create-deployment-dry-run-server 'deployment.apps/dry created \(server dry run\)' k create deployment dry --image=nginx --dry-run=server
refuse dry-run-left-nothing 'deployments.apps "dry" not found' k get deployment dry
expect create-job 'job.batch/once created' k create job once --image=busybox:1.36 -- true
expect create-cronjob 'cronjob.batch/often created' k create cronjob often --image=busybox:1.36 --schedule='*/5 * * * *' -- true
expect create-job-from-cronjob 'job.batch/manual created' k create job manual --from=cronjob/often
refuse create-cronjob-bad-schedule 'spec.schedule: Invalid value: "x"' k create cronjob bad --image=busybox --schedule=x
expect create-ingress 'ingress.networking.k8s.io/front created' k create ingress front --class=none --rule='example.com/path*=svc:80,tls=my-cert'
expect create-quota 'resourcequota/limits created' k create quota limits --hard=configmaps=100,secrets=100
expect create-pdb 'poddisruptionbudget.policy/keep created' k create poddisruptionbudget keep --selector=app=none --min-available=1
expect create-priorityclass 'priorityclass.scheduling.k8s.io/tour-high created' k create priorityclass tour-high --value=1000 --description='For tours'
expect create-service-clusterip 'service/inside created' k create service clusterip inside --tcp=80:8080
expect create-service-headless 'service/headless created' k create service clusterip headless --clusterip=None --tcp=80
expect create-service-nodeport 'service/outside created' k create service nodeport outside --tcp=80
expect create-service-loadbalancer 'service/balanced created' k create service loadbalancer balanced --tcp=80
expect create-service-externalname 'service/elsewhere created' k create service externalname elsewhere --external-name=example.com
expect create-namespace 'namespace/tour-created created' k create namespace tour-created
expect create-from-file 'pod/plain created' k create -f "$tour/objects/pod.yaml"
expect create-from-file-save-config '"apiVersion":"v1"' bash -c "'$KUBECTL' -n $namespace create -f '$tour/objects/raw.json' --save-config -o yaml | grep last-applied -A1"
expect create-edit 'configmap/edited-at-create created' env EDITOR="sed -i s/changed-name/edited-at-create/" "$KUBECTL" -n "$namespace" create --edit -f "$tour/objects/edit.yaml"
expect run 'pod/ran created' k run ran --image=nginx:1.25 --port=80 --labels=app=ran --env=A=b
expect run-expose 'service/shown created' k run shown --image=nginx:1.25 --port=80 --expose
expect run-dry-run-yaml '^kind: Pod$' k run nothing --image=nginx --dry-run=client -o yaml
refuse run-bad-name 'metadata.name: Invalid value: "Bad_Name"|Invalid value' k run Bad_Name --image=nginx
refuse create-validation-unknown-field 'strict decoding error: unknown field "spec.colour"' k create -f "$tour/objects/unknown-field.yaml"
expect create-validation-warn 'Warning: unknown field "spec.colour"' k create --validate=warn -f "$tour/objects/unknown-field.yaml"
expect create-validation-ignore 'pod/unknown2 created' bash -c "sed s/unknown/unknown2/ '$tour/objects/unknown-field.yaml' | sed s/unknown2-field/unknown/ | '$KUBECTL' -n $namespace create --validate=ignore -f -"
expect create-generate-name 'configmap/generated-[a-z0-9]{5} created' k create -f "$tour/objects/generate-name.yaml"

expect expose 'service/made exposed' k expose deployment made --port=80 --target-port=8080 --name=made
expect expose-selector '^made$' k get service made -o 'jsonpath={.spec.selector.app}{"\n"}'
expect autoscale 'horizontalpodautoscaler.autoscaling/made autoscaled' k autoscale deployment made --min=1 --max=5
expect autoscale-shows '^made +Deployment/made ' k get hpa

expect dry-run-needs-no-server '^status: \{\}$' env KUBECONFIG=/dev/null "$KUBECTL" create deployment none --image=nginx --dry-run=client -o yaml

k delete clusterrole,clusterrolebinding,priorityclass tour-url tour-sum tour-high --ignore-not-found >/dev/null 2>&1
