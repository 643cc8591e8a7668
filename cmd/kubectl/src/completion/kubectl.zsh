#compdef kubectl
# Completion of kubectl's command lines in zsh: source <(kubectl completion zsh)
compdef _kubectl kubectl

_kubectl() {
    local line directive=0
    local -a candidates options
    for line in "${(@f)$(command kubectl __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        case $line in
        '') ;;
        :*) directive=${line#:} ;;
        *$'\t'*) candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
        *) candidates+=("${line//:/\\:}") ;;
        esac
    done
    (( directive & 2 )) && options=(-S '')
    if (( $#candidates )); then
        _describe kubectl candidates $options
    elif (( !(directive & 4) )); then
        _files
    fi
}

# Where it is a file of $fpath, this is its first call.
[ "$funcstack[1]" = "_kubectl" ] && _kubectl
