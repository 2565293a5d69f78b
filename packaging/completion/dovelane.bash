# bash completion for dovelane(1). The program itself says what may come next, by its table of
# commands and by names of the configuration; no node is asked.
_dovelane()
{
    local line=${COMP_LINE:0:COMP_POINT} words cut i
    # Not COMP_WORDS: those are cut at the colons of "lmtp:[10.0.0.5]:24". Without -r: what is
    # escaped below is read as it was.
    read -a words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    local cur=${words[-1]} names=yes
    mapfile -t COMPREPLY < <("${words[0]}" complete "${words[@]:1}" 2> /dev/null | cut -f 1)
    case ${COMPREPLY[0]} in
    :files) names= ; compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    :directories) names= ; compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    :users) mapfile -t COMPREPLY < <(compgen -u -- "$cur") ;;
    esac
    # What readline keeps of the word: all up to its last break.
    cut=${cur%"${cur##*[:=]}"}
    [[ $COMP_WORDBREAKS == *:* ]] || cut=
    COMPREPLY=("${COMPREPLY[@]#"$cut"}")
    # Names of files are escaped by readline itself.
    [[ $names ]] || return
    for i in "${!COMPREPLY[@]}"; do
        printf -v cut %q "${COMPREPLY[i]}"
        cut=${cut//'\['/[}
        COMPREPLY[i]=${cut//'\]'/]}
    done
}
complete -F _dovelane dovelane
