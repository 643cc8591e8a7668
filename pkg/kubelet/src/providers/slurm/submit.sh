# Puts a job's files in their place and submits it, once. Arguments: the job's folder, the folder of hints,
# and "again" if it is known that an earlier call submitted nothing. Standard input: the files.
umask 077
folder=$1
mkdir -p "$folder" "$2" && cd "$folder" || exit 120
if [ -s jobid ]; then cat jobid; exit 0; fi
if [ -e submitting ] && [ "$3" != again ]; then exit 121; fi
tar --no-same-owner -xpf - || exit 120
: > submitting
sbatch --parsable --export=NIL script > answer
code=$?
if [ "$code" = 0 ]; then mv answer jobid; cat jobid; fi
exit "$code"
