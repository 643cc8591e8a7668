# Completion of kubectl's command lines in fish: kubectl completion fish | source

function __kubectl_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l directive 0
    for line in (command kubectl __complete $words[2..-1] 2>/dev/null)
        switch $line
            case ':*'
                set directive (string sub -s 2 -- $line)
            case '*'
                echo $line
        end
    end
    if test (math "bitand($directive, 4)") -eq 0
        __fish_complete_path (commandline -ct)
    end
end

complete -c kubectl -e
complete -c kubectl -f -a '(__kubectl_complete)'
