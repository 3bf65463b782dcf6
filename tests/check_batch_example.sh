#!/bin/sh
# check_batch_example.sh DSMOE DATA EXAMPLE - the example that generates many texts together writes the same
# as each text alone.
. "$(dirname "$0")/cli_checks.sh"
example=$3

small_data
run 0 train --data "$scratch/text" --config "$scratch/config.json" --out "$scratch/run" --steps 5 --batch 2 --seq 32 \
    --vocab-size 270
model=$scratch/run/latest
i=0
while [ $i -lt 20 ]; do
    echo "the cat $i sat on"
    i=$((i + 1))
done >"$scratch/prompts"

arguments="example batch"
"$example" "$model" 12 <"$scratch/prompts" >"$out" 2>"$err" || complain "fails"
silent
[ "$(wc -l <"$out")" -ge 20 ] || complain "fewer texts than prompts"
cp "$out" "$scratch/together"
i=0
while [ $i -lt 20 ]; do
    "$example" "$model" 12 <<END >"$out" 2>"$err" || complain "fails"
the cat $i sat on
END
    alone=$(sed 's/^1: //' "$out")
    grep -qF -- "$alone" "$scratch/together" || complain "text $i is another one alone"
    i=$((i + 7))
done
exit $failed
