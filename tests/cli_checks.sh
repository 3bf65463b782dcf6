# cli_checks.sh - shared by the check_*_cli.sh scripts, which source it with DSMOE and DATA as $1 and $2. A
# check that fails is reported and the script continues; each script ends with: exit $failed
set -u

dsmoe=$1 data=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
out=$scratch/out err=$scratch/err input=/dev/null
failed=0
NO_COLOR=1 HOME=$scratch OMP_WAIT_POLICY=passive # so that waiting threads sleep
export NO_COLOR HOME OMP_WAIT_POLICY
unset XDG_STATE_HOME

complain() {
    echo "dsmoe $arguments: $1" >&2
    sed 's/^/    stdout: /' "$out" | head -n 5 >&2
    sed 's/^/    stderr: /' "$err" | head -n 5 >&2
    failed=1
}

run() { # expected exit code, arguments; the standard input is $input
    expected=$1
    shift
    arguments=$*
    "$dsmoe" "$@" >"$out" 2>"$err" <"$input"
    code=$?
    [ $code -eq "$expected" ] || complain "exit code $code, $expected is expected"
}

shows() { # words that standard output must contain
    for word in "$@"; do
        grep -qF -- "$word" "$out" || complain "no '$word' on the output"
    done
}

says() { # words that standard error must contain
    for word in "$@"; do
        grep -qF -- "$word" "$err" || complain "no '$word' among the messages"
    done
}

silent() { # no message at all
    [ ! -s "$err" ] || complain "messages where there should be none"
}

one_message() { # a failure: one line on stderr that contains these words
    [ "$(wc -l <"$err")" -eq 1 ] || complain "$(wc -l <"$err") lines of messages instead of one"
    says "$@"
}

usage() { # a wrong call: nothing on stdout, a message with these words and a hint to help
    [ ! -s "$out" ] || complain "output of a wrong call"
    says "$@" --help
}

is_json() { # a single object, with as many opening as closing brackets, and without NaN or infinity
    opened=$(tr -cd '{[' <"$out" | wc -c)
    closed=$(tr -cd '}]' <"$out" | wc -c)
    [ "$opened" -eq "$closed" ] || complain "brackets do not match"
    [ "$(head -c 1 "$out")" = "{" ] || complain "the output is no object"
    [ "$(tail -c 2 "$out")" = "}" ] || complain "the object is not the end of the output"
    if grep -qE '[:,] *-?(nan|inf)|,[[:space:]]*[]}]' "$out"; then complain "not JSON"; fi
}

interrupted() { # a process, which Ctrl-C must end with exit code 130
    kill -INT "$1"
    wait "$1"
    code=$?
    [ $code -eq 130 ] || complain "exit code $code, 130 is expected"
}

fails_on_full_disk() { # calls whose output goes to a full disk; each must fail and report it
    [ -w /dev/full ] || return 0
    for call in "$@"; do
        arguments="$call > /dev/full"
        : >"$out"
        # shellcheck disable=SC2086  # several arguments
        "$dsmoe" $call >/dev/full 2>"$err"
        code=$?
        [ $code -eq 1 ] || complain "exit code $code, 1 is expected"
        one_message "cannot write"
    done
}

small_data() { # makes $scratch/text/sums.txt and $scratch/config.json: a text, and the smallest model for it
    mkdir "$scratch/text"
    i=0
    while [ $i -lt 100 ]; do
        echo "$i and $i are $((i + i)), and the cat sat on the mat number $((i * 7 % 50))."
        i=$((i + 1))
    done >"$scratch/text/sums.txt"
    cat >"$scratch/config.json" <<END_OF_CONFIG
{"vocab_size": 320, "hidden_size": 16, "intermediate_size": 24, "moe_intermediate_size": 8,
 "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "n_shared_experts": 1,
 "n_routed_experts": 4, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "hidden_act": "silu",
 "max_position_embeddings": 64, "model_type": "deepseek"}
END_OF_CONFIG
}
