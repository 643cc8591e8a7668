# Says what jobs say of themselves. Standard input: lines "root uid" of the jobs to begin with. Arguments: "once"; or the
# node's mark and all roots: then it goes on, and says what happens to any of its jobs until nobody listens.
tell() {
  [ -r "$1/$2/journal" ] || return
  while read -r line; do printf '%s %s\n' "$2" "$line"; done < "$1/$2/journal"
  printf '%s .\n' "$2"
}
while read -r root uid; do tell "$root" "$uid"; done
[ "$1" = once ] && exit 0
mark=$1
shift
beat=0
while :; do
  for root in "$@"; do
    for hint in "$root/.events/$mark"/*; do
      [ -e "$hint" ] || continue
      # Who writes to nobody ends here, and leaves the hint to the next.
      printf '\n'
      rm -f "$hint"
      tell "$root" "${hint##*/}"
    done
  done
  beat=$((beat + 1))
  if [ "$beat" -ge 10 ]; then beat=0; printf '\n'; fi
  sleep 0.2
done
