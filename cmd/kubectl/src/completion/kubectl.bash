# Completion of kubectl's command lines in bash: source <(kubectl completion bash)
# For an alias: complete -o default -F __start_kubectl k

__start_kubectl() {
    local -a words
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    [[ ${COMP_LINE:COMP_POINT-1:1} == [[:space:]] ]] && words+=('')
    local program=${words[0]} word=${words[-1]} candidate directive=0
    type -P "$program" >/dev/null || program=kubectl
    # What stands before one of these is a word of its own to bash.
    local before=${word%"${word##*[=:]}"}
    COMPREPLY=()
    while IFS= read -r candidate; do
        case $candidate in
        :*) directive=${candidate#:} ;;
        *)
            candidate=${candidate%%$'\t'*}
            COMPREPLY+=("${candidate#"$before"}")
            ;;
        esac
    done < <("$program" __complete "${words[@]:1}" 2>/dev/null)
    if ((directive & 2)); then compopt -o nospace 2>/dev/null; fi
    if ((directive & 4)); then compopt +o default 2>/dev/null; fi
}

complete -o default -F __start_kubectl kubectl
