# Who may do what, and certificates.
in_namespace identity
token() { k create token "$1"; }

expect whoami 'Username' k auth whoami
expect whoami-groups 'system:authenticated' k auth whoami
expect can-i '^yes$' k auth can-i create deployments
expect can-i-everything '^yes$' k auth can-i '*' '*'
expect can-i-list 'Resources +Non-Resource URLs +Resource Names +Verbs' k auth can-i --list
refuse can-i-as-nobody '^no$' k auth can-i get pods --as=nobody
expect can-i-as-list 'selfsubjectreviews.authentication.k8s.io' k auth can-i --list --as=nobody
expect can-i-nonresource '^yes$' k auth can-i get /healthz
expect can-i-subresource '^yes$' k auth can-i get pods --subresource=log
refuse forbidden 'Error from server \(Forbidden\): pods is forbidden: User "nobody" cannot list resource "pods" in API group "" in the namespace "tour-identity"' k get pods --as=nobody
refuse forbidden-cluster 'nodes is forbidden: User "nobody" cannot list resource "nodes" in API group "" at the cluster scope' k get nodes --as=nobody

k create serviceaccount robot >/dev/null
k create role views --verb=get,list,watch --resource=pods >/dev/null
k create rolebinding robot-views --role=views --serviceaccount="$namespace:robot" >/dev/null
eventually sa-may '^yes$' k auth can-i list pods --as="system:serviceaccount:$namespace:robot"
refuse sa-may-not '^no$' k auth can-i create pods --as="system:serviceaccount:$namespace:robot"
k config view --raw --minify >"$work/robot.kubeconfig"
KUBECONFIG=$work/robot.kubeconfig k config set-credentials robot --token="$(token robot)" >/dev/null
KUBECONFIG=$work/robot.kubeconfig k config set-context --current --user=robot >/dev/null
expect sa-token-whoami "system:serviceaccount:$namespace:robot" env KUBECONFIG="$work/robot.kubeconfig" "$KUBECTL" auth whoami
expect sa-token-reads 'No resources found' env KUBECONFIG="$work/robot.kubeconfig" "$KUBECTL" -n "$namespace" get pods
refuse sa-token-no-secrets 'secrets is forbidden' env KUBECONFIG="$work/robot.kubeconfig" "$KUBECTL" -n "$namespace" get secrets
KUBECONFIG=$work/robot.kubeconfig k config set-credentials robot --token=nonsense >/dev/null
refuse bad-token 'Unauthorized|You must be logged in to the server' env KUBECONFIG="$work/robot.kubeconfig" "$KUBECTL" -n "$namespace" get pods

expect reconcile-creates 'role.rbac.authorization.k8s.io/reconciled reconciled' k auth reconcile -f "$tour/objects/role.yaml"

openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=ada -keyout "$work/ada.key" -out "$work/ada.csr" >/dev/null 2>&1
for name in tour-yes tour-no; do
  printf 'apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {name: %s}\nspec:\n  request: %s\n  signerName: example.com/tour\n  usages: [client auth]\n' \
    "$name" "$(base64 -w0 "$work/ada.csr")" >"$work/$name.yaml"
  expect "csr-create-$name" "certificatesigningrequest.certificates.k8s.io/$name created" k create -f "$work/$name.yaml"
done
expect csr-pending '^tour-yes +[0-9]+s +example.com/tour +.* +Pending$' k get csr tour-yes
expect csr-approve 'certificatesigningrequest.certificates.k8s.io/tour-yes approved' k certificate approve tour-yes
expect csr-approved 'Approved$' k get csr tour-yes
expect csr-deny 'certificatesigningrequest.certificates.k8s.io/tour-no denied' k certificate deny tour-no
expect csr-denied 'Denied$' k get csr tour-no
expect csr-describe '^Requesting User:' k describe csr tour-yes
expect csr-delete 'certificatesigningrequest.certificates.k8s.io "tour-no" deleted' k delete csr tour-yes tour-no

k create role makes-roles --verb=create --resource=roles >/dev/null
k create rolebinding robot-makes-roles --role=makes-roles --serviceaccount="$namespace:robot" >/dev/null
eventually escalation-setup '^yes$' k auth can-i create roles --as="system:serviceaccount:$namespace:robot"
refuse escalation 'is attempting to grant RBAC permissions not currently held' k create role more --verb=delete --resource=secrets --as="system:serviceaccount:$namespace:robot"
