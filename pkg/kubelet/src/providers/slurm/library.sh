umask 077
if ! cd "$D" 2>/dev/null; then exit 0; fi

# One pod is one job: of several that were submitted for it the first to start is the one.
if ! ln -s "$SLURM_JOB_ID" claim 2>/dev/null && [ "$(readlink claim)" != "$SLURM_JOB_ID" ]; then
  echo "job $(readlink claim) runs this pod already: job $SLURM_JOB_ID has nothing to do"
  exit 0
fi

now() { printf '%(%s)T' -1; }
# Tells what happened, and that something did.
say() { printf '%s\n' "$*" >> journal; : > "$HINT"; }

stopped=
pids=
stop() {
  stopped=1
  for pid in $pids; do kill -TERM "$pid" 2>/dev/null; done
}
trap stop TERM

# Waits for a process, whatever signals come meanwhile, and answers with its exit code.
await() {
  local code again
  wait "$1"
  code=$?
  while kill -0 "$1" 2>/dev/null; do
    wait "$1"
    code=$?
  done
  if [ "$code" -gt 128 ]; then
    # The signal may have been ours, just when it ended; bash does not always remember more.
    wait "$1" 2>/dev/null
    again=$?
    [ "$again" -lt 0 ] || [ "$again" = 127 ] || code=$again
  fi
  return "$code"
}

# Runs one container to its end: its number, its name.
container() {
  local told=
  trap 'told=told; kill -TERM "$pid" 2>/dev/null' TERM
  say start "$R" "$2" "$(now)"
  "run_$1" > "logs/$2.$R" 2>&1 < /dev/null &
  pid=$!
  await "$pid"
  code=$?
  measure
  say end "$R" "$2" "$(now)" "$code" $told
  exit "$code"
}

# How long each log is now, for who asks for what was written since.
measure() {
  local log size
  for log in logs/*; do
    size=$(stat -c %s "$log" 2>/dev/null) || continue
    [ "${sizes[$log]:-0}" = "$size" ] || printf '%s %s\n' "$(now)" "$size" >> "times/${log#logs/}"
    sizes[$log]=$size
  done
}
clock() {
  trap - TERM
  while :; do
    measure
    sleep 1
  done
}

R=${SLURM_RESTART_COUNT:-0}
declare -A sizes
say boot "$R" "$SLURM_JOB_ID" "$(now)" "${SLURM_JOB_NODELIST:-}"
clock > /dev/null 2>&1 &
clock=$!
result=0

# An init container: the next one starts only after it has ended well.
init() {
  [ "$result" = 0 ] && [ -z "$stopped" ] || return
  container "$1" "$2" &
  pids=$!
  await "$pids"
  result=$?
}

start() {
  [ "$result" = 0 ] && [ -z "$stopped" ] || return
  container "$1" "$2" &
  pids="$pids $!"
}

finish() {
  for pid in $pids; do
    await "$pid"
    code=$?
    [ "$result" != 0 ] || result=$code
  done
  kill "$clock" 2>/dev/null
  if [ -n "$stopped" ]; then
    # Somebody ended it: whether it will start again is SLURM's to say, so all that it needs stays.
    say stopped "$R" "$(now)"
  else
    rm -rf enter volumes roots
    say "done" "$R" "$(now)" "$result"
  fi
  exit "$result"
}
