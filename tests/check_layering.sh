#!/bin/sh
# check_layering.sh SOURCE - dependencies between the folders of SOURCE/src point one way: each folder
# includes only what it may, and each external library is used by one file only.
set -eu

cd "$1/src"
failed=0

complain() { # lines of file:line:include, what is wrong with them
    printf '%s\n' "$1" | sed -e 's|^\(\./\)\{0,1\}|src/|' -e "s|\$|  <- $2|" >&2
    failed=1
}

# a folder, and the folders it may include in addition to the public header
may_include() {
    module=$1
    shift
    allowed=$(printf '%s|' "$module" "$@")
    found=$(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' --include='*.[ch]' "$module" |
        grep -vE "\"((${allowed%|})/[a-z0-9_]+\\.h|dsmoe\\.h)\"" || true)
    [ -z "$found" ] || complain "$found" "may include only:$(printf ' %s' "$module" "$@")"
}

may_include base
may_include kernels base
may_include formats base
may_include text base formats
may_include peers base
may_include moe base kernels peers
may_include model base formats kernels peers moe
may_include report base formats
may_include adapt base formats kernels text moe model
may_include engine base kernels moe model adapt
may_include convert base formats kernels text moe model adapt engine
may_include train base formats kernels text peers moe model adapt engine report
may_include study base formats kernels moe model engine train report
may_include probe base kernels
may_include verify base kernels formats moe model engine train probe
may_include serve base formats text
may_include cli base formats model study report serve peers # the command loads the plugin that joins ranks

# a folder that is not in the list above would not be checked
for module in */; do
    case ${module%/} in
    base | kernels | formats | text | peers | moe | model | adapt | engine | convert | train | study | report | probe | verify | serve | cli) ;;
    *) complain "$module" "a module without a rule in tests/check_layering.sh" ;;
    esac
done

# a pattern, and the only file that may contain it
only_in() {
    found=$(grep -rnE "$1" --include='*.[ch]' . | grep -v "^\\./$2:" || true)
    [ -z "$found" ] || complain "$found" "belongs into src/$2"
}

only_in '#[[:space:]]*include[[:space:]]*<pthread\.h>' '\(base/threads\.c\|serve/http\.c\|serve/http_links\.c\|serve/scheduler\.c\)'
only_in '#[[:space:]]*include[[:space:]]*<mpi\.h>' peers/mpi.c
only_in '#[[:space:]]*include[[:space:]]*<jansson\.h>' formats/json.c
only_in '#[[:space:]]*include[[:space:]]*<pcre2\.h>' text/regex.c
only_in '#[[:space:]]*include[[:space:]]*<utf8proc\.h>' text/unicode.c
only_in '#[[:space:]]*include[[:space:]]*<xxhash\.h>' base/hash.c
only_in '#[[:space:]]*include[[:space:]]*<microhttpd\.h>' serve/http.c
only_in '#[[:space:]]*include[[:space:]]*<curl/' cli/remote.c
only_in '#[[:space:]]*include[[:space:]]*<(histedit|editline/readline)\.h>' cli/line_edit.c
only_in '#[[:space:]]*include[[:space:]]*<[a-z]*intrin\.h>' 'kernels/avx2\.h'

exit $failed
