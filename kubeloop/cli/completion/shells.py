"""Scripts of shells that complete kubeloop's command lines, and the candidates that they show.

A script calls `kubeloop completion SHELL --line TEXT` with the command line up to the cursor. Each line of the output
is a candidate for the last word, in zsh and fish with a description after a tab, or `:file` or `:dir` alone, which
leaves the candidates to the shell.
"""

from __future__ import annotations

import os

import click
import msgspec
from click.shell_completion import ShellComplete, split_arg_string

from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.user_error import UserError

_BASH = r"""# bash completion for kubeloop: source <(kubeloop completion bash)
_kubeloop_completion() {
    local candidate
    COMPREPLY=()
    while IFS= read -r candidate; do
        case $candidate in
            :file) compopt -o default 2>/dev/null ;;
            :dir) compopt -o dirnames 2>/dev/null ;;
            *) COMPREPLY+=("$(printf %q "$candidate")") ;;
        esac
        case $candidate in
            */ | *=) compopt -o nospace 2>/dev/null ;;
        esac
    done < <(COMP_WORDBREAKS="$COMP_WORDBREAKS" "${1/#\~/$HOME}" completion bash \
        --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
}
complete -o nosort -F _kubeloop_completion kubeloop 2>/dev/null || complete -F _kubeloop_completion kubeloop
"""
_ZSH = r"""#compdef kubeloop
# zsh completion for kubeloop: source <(kubeloop completion zsh)
_kubeloop_completion() {
    local -a candidates names
    candidates=("${(@f)$(${~words[1]} completion zsh --line "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)}")
    case $candidates[1] in
        '') ;;
        :file) compset -P '--*='; _files ;;
        :dir) compset -P '--*='; _files -/ ;;
        *)
            names=("${(@)candidates%%$'\t'*}")
            candidates=("${(@)candidates/$'\t'/  -- }")
            if [[ $names[1] == */ ]]; then
                compadd -V kubeloop -S '' -d candidates -a names
            else
                compadd -V kubeloop -l -d candidates -a names
            fi
            ;;
    esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _kubeloop_completion "$@"
else
    compdef _kubeloop_completion kubeloop
fi
"""
_FISH = r"""# fish completion for kubeloop: kubeloop completion fish | source
function __kubeloop_completion
    set -l tokens (commandline -opc)
    set -l command (string replace -r '^~' $HOME $tokens[1])
    set -l candidates (env $command completion fish --line (commandline -cp) 2>/dev/null)
    switch "$candidates[1]"
        case :file
            __fish_complete_path (commandline -ct)
        case :dir
            __fish_complete_directories (commandline -ct)
        case '*'
            string join \n -- $candidates
    end
end
complete --command kubeloop --no-files --keep-order --arguments '(__kubeloop_completion)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
"""Scripts by shell."""


def candidates(root: click.Command, shell: str, line: str) -> list[str]:
    """Return what completes the last word of a command line, as the script of the shell reads it."""
    words = split_arg_string(line)
    incomplete = words.pop() if words and not line.endswith((" ", "\t")) else ""
    try:
        items = ShellComplete(root, {}, "kubeloop", "").get_completions(words[1:], incomplete)
    except (UserError, ApiError, ServerUnreachable, msgspec.MsgspecError, OSError, TimeoutError):
        return []  # a message would be printed into the line that the user types
    if items and items[0].type != "plain":
        return [f":{items[0].type}"]
    option, equals, _ = incomplete.partition("=")
    prefix = option + equals if option.startswith("--") and equals else ""  # click completes the value alone
    if shell != "bash":
        return [f"{prefix}{item.value}" + (f"\t{item.help.splitlines()[0]}" if item.help else "") for item in items]
    breaks = [character for character in ":=" if character in os.environ.get("COMP_WORDBREAKS", ":=")]
    start = max((incomplete.rfind(character) + 1 for character in breaks), default=0)  # of bash's word
    return [f"{prefix}{item.value}"[start:] for item in items]
