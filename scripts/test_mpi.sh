#!/bin/sh
# test_mpi.sh BUILD - the tests that need mpirun: the plugin on one to four ranks of this machine, ranks that fail, and
# the command. BUILD contains dsmoe, dsmoe_mpi.so and tests/test_mpi.
set -eu
build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    echo "test_mpi: $*" >&2
    cat "$scratch/out" "$scratch/err" >&2
    exit 1
}

limit=60 # seconds. Nothing here takes long unless it hangs.

# Works with any number of processors and for any user, including root.
run() { # number of ranks, command and its arguments
    n=$1
    shift
    timeout "$limit" mpirun --allow-run-as-root --oversubscribe --bind-to none -np "$n" "$@" \
        >"$scratch/out" 2>"$scratch/err" && status=0 || status=$?
    what="mpirun -np $n $*"
    [ "$status" != 124 ] || fail "$what hangs"
}

passes() { # arguments of run
    run "$@"
    [ "$status" = 0 ] || fail "$what ended with $status"
}

# The job must end by itself and say why.
fails() { # exit code, the message it must print, then arguments of run
    expected=$1 words=$2
    shift 2
    run "$@"
    [ "$status" = "$expected" ] || fail "$what ended with $status instead of $expected"
    grep -q -- "$words" "$scratch/err" || fail "$what does not say: $words"
}

fails_once() { # the same, and only one rank prints a message
    fails "$@"
    [ "$(grep -c "^dsmoe" "$scratch/err")" = 1 ] || fail "$what has several messages"
}

# ---- the plugin ------------------------------------------------------------------------------
for n in 1 2 3 4; do
    passes "$n" "$build/tests/test_mpi" "$build/dsmoe_mpi.so" cases 200000
    passes "$n" "$build/tests/test_mpi" "$build/tests/dsmoe_mpi_pieces.so" cases 30000
done
passes 3 "$build/tests/test_mpi" "$build/dsmoe_mpi.so" cases 25000000
export OMPI_MCA_btl=self,tcp # as between machines
passes 4 "$build/tests/test_mpi" "$build/dsmoe_mpi.so" cases 200000
unset OMPI_MCA_btl
echo "the plugin passes on 1 to 4 ranks"

# A rank that fails ends the job within seconds.
limit=20
for n in 2 3 4; do
    fails 137 "signal 9" "$n" "$build/tests/test_mpi" "$build/dsmoe_mpi.so" kill
    fails 1 "rank $((n - 1)) on .* has given no sign of life for 3 seconds, and rank [0-9]* on .* waits" "$n" \
        "$build/tests/test_mpi" "$build/dsmoe_mpi.so" stop
    fails 1 "is out of step" "$n" "$build/tests/test_mpi" "$build/dsmoe_mpi.so" step
    fails 1 "has ended while" "$n" "$build/tests/test_mpi" "$build/dsmoe_mpi.so" leave
done
fails 1 "rank 2 on .* has given no sign of life for 3 seconds, and rank 1 on .* waits" 3 \
    "$build/tests/test_mpi" "$build/dsmoe_mpi.so" chain
passes 3 "$build/tests/test_mpi" "$build/dsmoe_mpi.so" long
passes 3 "$build/tests/test_mpi" "$build/tests/dsmoe_mpi_pieces.so" long
echo "a rank that dies, is suspended, leaves or is out of step ends the job; one that is only slow does not"

# ---- a command that joins ranks ----------------------------------------------------------------
prints() { # the whole standard output
    [ "$(cat "$scratch/out")" = "$1" ] || fail "$what prints something else than: $1"
}

passes 1 "$build/tests/test_ranks" well
prints "alone"
"$build/tests/test_ranks" well >"$scratch/out"
prints "alone"
for n in 2 3 4; do
    passes "$n" "$build/tests/test_ranks" well
    grep -q "^rank 0 of $n, [1-9][0-9]* threads$" "$scratch/out" || fail "$what: rank 0 prints nothing"
    [ "$(wc -l <"$scratch/out")" = 1 ] || fail "$what: another rank than 0 prints something"
    [ ! -s "$scratch/err" ] || fail "$what has messages"
    fails_once 2 "^dsmoe test: a wrong word$" "$n" "$build/tests/test_ranks" usage
    fails_once 1 "^dsmoe test: rank $((n - 1)) on .*: the disk is full$" "$n" "$build/tests/test_ranks" agreed
    fails_once 1 "^dsmoe test: rank $((n - 1)) on .* has ended while" "$n" "$build/tests/test_ranks" early
    fails_once 1 "^dsmoe test: rank [0-9]* on .* is out of step" "$n" "$build/tests/test_ranks" apart
done
mkdir "$scratch/bin" # a folder without the plugin
cp "$build/tests/test_ranks" "$scratch/bin"
fails_once 1 "^dsmoe test: 3 ranks were started, but this dsmoe was built without Open MPI" 3 \
    "$scratch/bin/test_ranks" well
echo "only rank 0 prints, and an error is printed once"

# ---- dsmoe --------------------------------------------------------------------------------------
fails_once 2 "^dsmoe plan: it runs on one machine only: start it without mpirun$" 3 "$build/dsmoe" plan

# ---- a model whose experts are divided -----------------------------------------------------------
model=$scratch/model.gguf
"$build/dsmoe" init --preset tiny --hidden 256 --heads 4 --type q4_k --seed 3 "$model" >"$scratch/out" 2>"$scratch/err" ||
    fail "no model could be made"
ids="1 2 3 5 8 13 21 34 55 89 144 233 377 610 987"
generate() { # options for sampling
    "$build/dsmoe" generate -m "$model" --ids -p "$ids" -n 60 --ignore-eos --quiet "$@" >"$scratch/text_alone"
    for n in 2 3 4; do
        passes "$n" "$build/dsmoe" generate -m "$model" --ids -p "$ids" -n 60 --ignore-eos --quiet "$@"
        cmp -s "$scratch/out" "$scratch/text_alone" || fail "$what writes another text than one machine"
        [ ! -s "$scratch/err" ] || fail "$what has messages"
    done
}
generate --temp 0
generate --temp 1 --top-k 0 -s 7
generate --temp 1 --top-k 0 -s 8 --no-repack -b 4
fails_once 1 "^dsmoe generate: $scratch/none.gguf: cannot open" 3 "$build/dsmoe" generate -m "$scratch/none.gguf" -p x
fails_once 1 "^dsmoe generate: $model: there is no tokenizer" 3 "$build/dsmoe" generate -m "$model" -p x
fails_once 1 "^dsmoe generate: the prompt is empty" 3 "$build/dsmoe" generate -m "$model" --ids -p ""
fails_once 2 "^dsmoe generate: --kv-type must be" 3 "$build/dsmoe" generate -m "$model" --ids -p 1 --kv-type q

rank_pid() { # rank, an argument of its command
    for process in /proc/[0-9]*; do
        tr '\0' '\n' <"$process/cmdline" | grep -qx -- "$2" || continue
        tr '\0' '\n' <"$process/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1" && echo "${process#/proc/}"
    done 2>/dev/null || true
}
interrupted() { # signal, the rank that gets it or mpirun, expected exit code
    : >"$scratch/out"
    (run 3 "$build/dsmoe" generate -m "$model" --ids -p "$ids" -n 30000 -c 32000 --ignore-eos --temp 1 \
        --peer-timeout 3
        echo "$status" >"$scratch/status") &
    job=$!
    until [ -s "$scratch/out" ] || ! kill -0 "$job"; do sleep 0.1; done
    pid=$(rank_pid "${2#mpirun}" "$model")
    [ "$2" != mpirun ] || pid=$(sed 's/.*) [A-Z] \([0-9]*\) .*/\1/' "/proc/$(rank_pid 0 "$model")/stat")
    kill "-$1" "$pid" || fail "$2 has ended before $1 could be sent to it"
    wait "$job"
    what="generate, $1 to $2,"
    [ "$(cat "$scratch/status")" = "$3" ] || fail "$what ended with $(cat "$scratch/status") instead of $3"
}
interrupted KILL 2 137
interrupted KILL 0 137
interrupted INT 0 130
interrupted USR1 mpirun 130
interrupted INT 2 130
grep -q "^dsmoe generate: layer [0-9]*: rank 2 on .*: it was told to stop$" "$scratch/err" || fail "$what does not say"
interrupted STOP 1 1
grep -q "rank 1 on .* has given no sign of life for 3 seconds" "$scratch/err" || fail "$what does not say"
echo "generate divides a model over ranks, and ends on all of them"


# A benchmark of ranks prints one result for all batches. The speed is not checked.
small="--hidden 32 --layers 2 --heads 2 --moe 8 --routed 4 --k 2 --vocab 64 --batch 2 --seq 16 -t 1 --seconds 0"
for way in data experts; do
    # shellcheck disable=SC2086  # several arguments
    passes 3 "$build/dsmoe" bench train $small --parallel $way --accumulate 4 --json
    [ "$(grep -c '^{' "$scratch/out")" = 1 ] || fail "$what does not print one result"
    for words in '"ranks":3' "\"parallel\":\"$way\"" '"accumulate":4' '"sending":' '"waiting":'; do
        grep -q -- "$words" "$scratch/out" || fail "$what does not print: $words"
    done
done
fails_once 2 "num_experts_per_tok" 2 "$build/dsmoe" bench train --k 64
echo "ranks are benchmarked together"
sh "$(dirname "$0")/test_mpi_hosts.sh" "$build"

# ---- training: checkpoints of any number of ranks equal those of one process, byte for byte -----
limit=120
cat "$source"/docs/*.md >"$scratch/text.txt"
shape="--data $scratch/text.txt --vocab-size 512 --batch 2 --seq 64 --accumulate 3 --layers 3 --hidden 64 --heads 4
    --routed 12 --k 3 --moe 32 --device-groups 4 --steps 6 --eval-every 3 --sample-every 3 --save-every 3 --quiet"
same() { # name of a run: its checkpoint must equal that of the run `alone`
    for file in model.safetensors training.safetensors config.json evaluation.json; do
        cmp "$scratch/alone/latest/$file" "$scratch/$1/latest/$file" || fail "$what: $file differs"
    done
}

# shellcheck disable=SC2086  # the options are meant to be split
"$build/dsmoe" train $shape --out "$scratch/alone" -t 2 >"$scratch/out" 2>"$scratch/err" || fail "training alone"
for n in 1 2 3 4; do
    for way in data experts; do
        # shellcheck disable=SC2086
        passes "$n" "$build/dsmoe" train $shape --out "$scratch/$way$n" --parallel "$way" -t $((1 + n % 2))
        same "$way$n"
    done
done
# shellcheck disable=SC2086
passes 3 "$build/dsmoe" train $shape --out "$scratch/parts" --stop-after 2
passes 2 "$build/dsmoe" train --resume "$scratch/parts" --parallel experts --stop-after 4 --quiet
passes 4 "$build/dsmoe" train --resume "$scratch/parts" --quiet
same parts
echo "1 to 4 ranks, data or experts divided, stopped and resumed: the same checkpoints"

# Ranks that do not fit together, and a rank with too little memory: one message, and no run is left.
refused() { # expected message, mpirun options for the first rank or "", shell command before the other rank, options
    first=$2 before=$3 words=$1
    shift 3
    # shellcheck disable=SC2086
    fails_once 1 "$words" 1 $first "$build/dsmoe" train "$@" --out "$scratch/refused" : \
        -np 1 sh -c "$before"' exec "$@"' sh "$build/dsmoe" train "$@" --out "$scratch/refused"
    [ ! -e "$scratch/refused" ] || fail "$what leaves a run"
}
if ! "$build/dsmoe" --version | grep -q scalar; then
    # shellcheck disable=SC2086
    refused "rank 1 on .* uses .* kernels, but rank 0 on .* uses scalar" "-x DSMOE_KERNELS=scalar" "" $shape
fi
# shellcheck disable=SC2086
refused "^dsmoe train: rank 1 on .* memory" "" "ulimit -v 500000;" $shape --hidden 512 --moe 512 --layers 6 --routed 16 -t 1
echo "ranks that do not fit together are refused"

# A rank that is killed ends the job. The resumed run gives the same bits.
# shellcheck disable=SC2086
(sleep 1; pkill -9 -f "$scratch/killed" -n || true) &
run 3 "$build/dsmoe" train $shape --out "$scratch/killed" --parallel experts
wait
if [ -f "$scratch/killed/settings.json" ]; then
    passes 2 "$build/dsmoe" train --resume "$scratch/killed" --quiet
    same killed
fi
echo "a run with a killed rank resumes to the same bits"

# Signals that end training. The message must be printed once, and --resume must accept the run.
disturbed() { # signal, the rank that gets it or mpirun, expected exit code, expected message
    # shellcheck disable=SC2086
    (run 3 "$build/dsmoe" train $shape --steps 100000 --keep 2 --out "$scratch/disturbed" --peer-timeout 3
        echo "$status" >"$scratch/status") &
    job=$!
    until [ -e "$scratch/disturbed/latest" ] || ! kill -0 "$job"; do sleep 0.1; done
    pid=$(rank_pid "${2#mpirun}" "$scratch/disturbed")
    [ "$2" != mpirun ] || pid=$(sed 's/.*) [A-Z] \([0-9]*\) .*/\1/' "/proc/$(rank_pid 0 "$scratch/disturbed")/stat")
    kill "-$1" "$pid" || fail "$2 has ended before $1 could be sent to it"
    wait "$job"
    what="training, $1 to $2,"
    [ "$(cat "$scratch/status")" = "$3" ] || fail "$what ended with $(cat "$scratch/status") instead of $3"
    [ "$(cat "$scratch/out" "$scratch/err" | grep -c "$4")" = 1 ] || fail "$what does not print once: $4"
    passes 2 "$build/dsmoe" train --resume "$scratch/disturbed" --stop-after 1 --quiet
    rm -rf "$scratch/disturbed"
}
disturbed STOP 0 1 "^dsmoe train: rank 0 on .* has given no sign of life for 3 seconds"
disturbed STOP 2 1 "^dsmoe train: rank 2 on .* has given no sign of life for 3 seconds"
disturbed USR1 mpirun 130 "^stopped after step .*, saved as"
disturbed INT 0 130 "^stopped after step .*, saved as"
disturbed INT 2 130 "^dsmoe train: rank 2 on .*: it was told to stop$"
disturbed TERM 1 130 "^dsmoe train: rank 1 on .*: it was told to stop$"
echo "a suspended rank ends the job; a rank that is told to end saves first"
