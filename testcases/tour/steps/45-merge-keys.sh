# For every list with a merge key: an apply that removes one element removes exactly that one.
in_namespace merge-keys

# The document of the manifest that has a line, and the document without it.
document() { awk -v line="$1" 'BEGIN { RS = "---\n" } index($0, line) { print; exit }' "$tour/objects/merge-keys.yaml"; }

while IFS= read -r line; do
  note=${line##* # }
  name=${note%%:*}
  path=${note#*: }
  path=${path%% = *}
  document "$line" >"$work/with.yaml"
  grep -vF -- "$line" "$work/with.yaml" >"$work/without.yaml"
  expect "merge-$name-apply" '(created|configured|unchanged)$' k apply -f "$work/with.yaml"
  expect "merge-$name-remove" 'configured$' k apply -f "$work/without.yaml"
  expect "merge-$name-left" "^${note##* = }\$" k get -f "$work/without.yaml" -o "jsonpath={$path}{'\n'}"
  expect "merge-$name-again" '(configured|unchanged)$' k apply -f "$work/with.yaml"
done < <(grep -E ' # [A-Za-z-]+: \S+ = ' "$tour/objects/merge-keys.yaml" | grep -v '^#')
k patch deployment keyed --type=merge -p '{"metadata":{"finalizers":null}}' >/dev/null
k delete csinode tour-keyed >/dev/null

# Lists in status are merged by strategic merge patches: KIND NAME LIST KEY.
k run keyed --image=busybox >/dev/null
k create -f "$tour/objects/node.yaml" >/dev/null
while read -r kind name list first second; do
  expect "status-$kind-$list-fill" 'patched$' k patch "$kind" "$name" --subresource=status -p "{\"status\":{\"$list\":[$first]}}"
  expect "status-$kind-$list-add" 'patched$' k patch "$kind" "$name" --subresource=status -p "{\"status\":{\"$list\":[$second]}}"
  expect "status-$kind-$list-count" '^2$' bash -c "'$KUBECTL' -n $namespace get $kind $name -o json | python3 -c 'import json,sys; print(len(json.load(sys.stdin)[\"status\"][\"$list\"]))'"
  expect "status-$kind-$list-delete" 'patched$' k patch "$kind" "$name" --subresource=status -p "{\"status\":{\"$list\":[${first%\}},\"\$patch\":\"delete\"}]}}"
  expect "status-$kind-$list-left" '^1$' bash -c "'$KUBECTL' -n $namespace get $kind $name -o json | python3 -c 'import json,sys; print(len(json.load(sys.stdin)[\"status\"][\"$list\"]))'"
done <<'LISTS'
pod keyed conditions {"type":"Ready","status":"True"} {"type":"Initialized","status":"True"}
deployment keyed conditions {"type":"Available","status":"True"} {"type":"Progressing","status":"True"}
node tour-node conditions {"type":"Ready","status":"True"} {"type":"DiskPressure","status":"True"}
node tour-node addresses {"type":"InternalIP","address":"10.0.0.1"} {"type":"Hostname","address":"h"}
LISTS
k delete node tour-node >/dev/null
