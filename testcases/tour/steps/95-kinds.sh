# Every kind: made, shown in a table, described, applied twice, removed. objects/kinds/ has one file for each.
in_namespace kinds
minor=$(k version --client -o json | sed -n 's/^ *"minor": "\([0-9]*\).*/\1/p' | head -1)
for file in "$tour"/objects/kinds/*.yaml; do
  kind=$(basename "$file" .yaml)
  expect "$kind-apply" '(created|configured)$' k apply -f "$file"
  expect "$kind-apply-again" '(unchanged|configured)$' k apply -f "$file"
  expect "$kind-apply-server-side" 'serverside-applied$' k apply --server-side --force-conflicts -f "$file"
  expect "$kind-get" '^(NAME|LAST SEEN)' k get -f "$file"
  expect "$kind-get-wide" '^(NAME|LAST SEEN)' k get -f "$file" -o wide
  # Before 1.33 kubectl describes these two by a version of their API that servers of today do not have.
  case $kind in
    ipaddress | servicecidr) [ "$minor" -lt 33 ] || expect "$kind-describe" '^Name: ' k describe -f "$file" ;;
    *) expect "$kind-describe" '^Name: ' k describe -f "$file" ;;
  esac
  expect "$kind-diff" '^$' bash -c "'$KUBECTL' -n $namespace diff --server-side --force-conflicts -f '$file'; echo"
  expect "$kind-replace" 'replaced$' bash -c "'$KUBECTL' -n $namespace get -f '$file' -o yaml | '$KUBECTL' -n $namespace replace -f -"
  expect "$kind-label" 'labeled$' k label -f "$file" tour=yes
  expect "$kind-delete" 'deleted' k delete -f "$file" --wait=false --grace-period=0 --force
done
