# fish completion for dovelane(1). The program itself says what may come next, by its table of
# commands and by names of the configuration; no node is asked.
function __dovelane_complete
    set -l words (commandline -opc)
    set -l cur (commandline -ct)
    set -l said ($words[1] complete $words[2..-1] "$cur" 2>/dev/null)
    switch "$said[1]"
        case :files
            __fish_complete_path "$cur"
        case :directories
            __fish_complete_directories "$cur"
        case :users
            __fish_complete_users
        case '*'
            string join \n -- $said
    end
end
complete -c dovelane -f -a '(__dovelane_complete)'
