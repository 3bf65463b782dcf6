#!/bin/sh
# check_report_cli.sh DSMOE DATA - `dsmoe report` as a person or a script uses it.
. "$(dirname "$0")/cli_checks.sh"

run 0 report --help
shows usage: example "dsmoe report"
silent
run 2 report
usage "no run"
run 2 report a b
usage b
run 2 report --no-such-option
usage no-such-option

mkdir "$scratch/run"
run 1 report "$scratch/run"
one_message metrics.jsonl
echo 'no metrics at all' >"$scratch/run/metrics.jsonl"
run 1 report "$scratch/run"
one_message metrics.jsonl "not the metrics of a run"
[ ! -e "$scratch/run/report.html" ] || complain "a page of nothing"

for step in 1 2 3 4; do
    echo "{\"type\":\"step\",\"step\":$step,\"loss\":$((9 - step)).5}"
done >"$scratch/run/metrics.jsonl"
run 0 report "$scratch/run"
silent
[ "$(cat "$out")" = "$scratch/run/report.html" ] || complain "not the path of the page"
grep -q '<h2>Loss</h2>' "$scratch/run/report.html" || complain "a page without the loss"
run 0 report "$scratch/run/"
[ "$(cat "$out")" = "$scratch/run/report.html" ] || complain "not the path of the page"

exit $failed
