#!/bin/sh
# check_inspect_cli.sh DSMOE DATA - `dsmoe eval` and `dsmoe inspect` as a person or a script uses them.
. "$(dirname "$0")/cli_checks.sh"

number() { # prints the value of a member of the JSON output
    sed -n "s/.*\"$1\": \([0-9.e+-]*\).*/\1/p" "$out" | head -n 1
}

close() { # two numbers that must nearly agree
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a != "" && d < 2e-6 && d > -2e-6) }' ||
        complain "$1 where $2 is expected"
}

base=$data/lm/base
ids=$scratch/ids
row0="64 112 85 105 87 73 4 20 26 99 51 88 21 14 28 88 83 38 112 3 77 83 3 124 127 23 66 29 78
56 9 16 6 15 66 36 52 55 27 91"
row1="12 122 39 98 66 120 28 122 123 77 54 6 118 22 60 68 45 61 75 42 114 73 20 61 78 29 76 91
110 28 38 124 95 78 42 127 97 78 34 109"

for command in eval inspect; do
    run 0 $command --help
    shows usage: example "dsmoe $command"
    silent
    run 2 $command --no-such-option
    usage no-such-option
    run 2 $command
    usage -m
    run 2 $command -m ""
    usage -m
    run 2 $command -m "$base" surplus
    usage surplus
done

# ---- eval: the two sequences of the reference give its mean loss
echo "$row0" >"$ids"
run 0 eval -m "$base" -f "$ids" --ids --json
is_json
silent
shows '"tokens": 40' '"scored": 39' '"windows": 1' '"bos": false' '"interrupted": false'
first=$(number cross_entropy)
echo "$row1" >"$ids"
run 0 eval -m "$base" -f "$ids" --ids --json -t 1
close "$(echo "$first $(number cross_entropy)" | awk '{ printf "%.9f", ($1 + $2) / 2 }')" 5.145800114
run 0 eval -m "$base" -f "$ids" --ids
shows "cross entropy" perplexity "39 of 40" tokens/s
silent
if grep -q 'bits per byte' "$out"; then complain "bytes of a text that is not known"; fi

# windows of two tokens with stride one see pairs
pairs=
for pair in "64 112" "112 85" "85 105"; do
    echo "$pair" >"$ids"
    run 0 eval -m "$base" -f "$ids" --ids --json
    pairs="$pairs $(number cross_entropy)"
done
echo 64 112 85 105 >"$ids"
run 0 eval -m "$base" -f "$ids" --ids --json -c 2 --stride 1
shows '"windows": 3' '"scored": 3'
close "$(number cross_entropy)" "$(echo "$pairs" | awk '{ printf "%.9f", ($1 + $2 + $3) / 3 }')"
# every token counts once, for any stride
echo "$row0 $row1" >"$ids"
for stride in 1 5 14 15; do
    run 0 eval -m "$base" -f "$ids" --ids --json -c 16 --stride $stride
    shows '"scored": 79' "\"stride\": $stride"
done
run 2 eval -m "$base" -f "$ids" --ids -c 16 --stride 16
usage stride
run 2 eval -m "$base" -f "$ids" --ids --stride 512
usage stride
run 2 eval -m "$base"
usage -f
for wrong in 0 1 -1 abc ''; do
    run 2 eval -m "$base" -f "$ids" --ids -c "$wrong"
    usage ctx-size
done

# wrong calls
: >"$scratch/empty"
echo 5 >"$scratch/one"
echo 5 128 >"$scratch/large"
echo 5 x1 >"$scratch/wrong"
echo 5 99999999999999999999 >"$scratch/huge"
for text in empty one large wrong:x1 huge:99999999999999999999 nowhere; do
    run 1 eval -m "$base" -f "$scratch/${text%:*}" --ids
    one_message "${text#*:}"
done
echo 5 x1 | "$dsmoe" eval -m "$base" -f - --ids >"$out" 2>"$err"
one_message "standard input: 'x1' in line 1"
run 1 eval -m "$base" -f "$scratch/large" --ids
one_message "token 128, number 2"
run 1 eval -m "$scratch" -f "$ids" --ids
one_message config.json
run 1 eval -m "$base" -f "$ids"
one_message "tokenizer.json: cannot open"
one_message --ids

# longer than the model's maximum: allowed, with a warning
awk -v row="$row0" 'BEGIN { for (i = 0; i < 14; i++) print row }' >"$scratch/long"
run 0 eval -m "$base" -f "$scratch/long" --ids -c 540 --json
one_message 512
shows '"n_ctx": 540' '"scored": 559'

# Ctrl-C: the results so far are printed
awk -v row="$row0" 'BEGIN { for (i = 0; i < 2000; i++) print row }' >"$scratch/endless"
arguments="eval, interrupted"
"$dsmoe" eval -m "$base" -f "$scratch/endless" --ids -c 256 --stride 1 --json >"$out" 2>"$err" &
sleep 1
interrupted $!
one_message interrupted
is_json
shows '"interrupted": true'
arguments="eval --probes, interrupted"
"$dsmoe" eval -m "$base" -f "$scratch/endless" --ids -c 256 --stride 1 --json --probes >"$out" 2>"$err" &
sleep 1
interrupted $!
one_message "of 8 probes"
is_json

# ---- eval: types of the KV cache
echo "$row0 $row1" >"$ids"
run 0 eval -m "$base" -f "$ids" --ids --json
exact=$(number cross_entropy)
run 0 eval -m "$base" -f "$ids" --ids --json --kv-type f32
[ "$(number cross_entropy)" = "$exact" ] || complain "not the same as without --kv-type"
run 0 eval -m "$base" -f "$ids" --ids --json --kv-type f16
awk -v a="$(number cross_entropy)" -v b="$exact" \
    'BEGIN { d = a - b; exit !(d != 0 && d < 0.01 && d > -0.01) }' || complain "f16 is not near f32"
for wrong in bf16 q4_0 f17 ''; do
    run 2 eval -m "$base" -f "$ids" --ids --kv-type "$wrong"
    usage --kv-type
done

# ---- eval: compared with another model
run 0 eval -m "$base" --against "$base" -f "$ids" --ids --json
is_json
silent
shows '"scored": 79' '"kl": 0,' '"kl_max": 0,' '"same_top": 1,' '"perplexity_ratio": 1,' \
    '"bytes_ratio": 1,'
close "$(echo "$(number perplexity)" | awk '{ printf "%.9f", log($1) }')" "$exact"
run 0 eval -m "$data/lm/bf16" --against "$base" -f "$ids" --ids --json -c 20
is_json
shows '"tokens": 80' '"scored": 76' '"n_ctx": 20' '"bytes_ratio": 0.5'
awk -v kl="$(number kl)" -v most="$(number kl_max)" 'BEGIN { exit !(kl > 0 && kl <= most) }' ||
    complain "no divergence from another model"
run 0 eval -m "$data/lm/bf16" --against "$base" -f "$ids" --ids
shows perplexity weights ratio "KL divergence" "99th percentile" "same top token" "79 of 80"
silent
run 1 eval -m "$base" --against "$scratch/nowhere" -f "$ids" --ids
one_message nowhere
for beside in --probes "--experts 2" "--stride 4" "--kv-type f16"; do
    # shellcheck disable=SC2086  # an option and its value
    run 2 eval -m "$base" --against "$base" -f "$ids" --ids $beside
    usage --against
done
arguments="eval --against, interrupted"
"$dsmoe" eval -m "$base" --against "$base" -f "$scratch/endless" --ids -c 256 --json >"$out" 2>"$err" &
sleep 1
interrupted $!
one_message interrupted

# ---- eval: the paper's probes
echo "$row0 $row1" >"$ids"
run 0 eval -m "$base" -f "$ids" --ids --json
plain=$(number cross_entropy)
run 0 eval -m "$base" -f "$ids" --ids --json --experts 4 # the model's own number
close "$(number cross_entropy)" "$plain"
shows '"num_experts_per_tok": 4' '"n_shared_experts": 2' '"n_masked": 0'
run 0 eval -m "$base" -f "$ids" --ids --probes
shows difference "2 + 4 of 12" "2 + 4 of 11" "2 + 4 of 10" "2 + 4 of 9" "0 + 6 of 12" "2 + 3 of 12" \
    "2 + 1 of 12" "top 1/16 masked" "top 4/16 masked" "shared replaced" "3 active" "79 tokens"
silent
[ "$(grep -c ' of 1*[0-9] ' "$out")" -eq 8 ] || complain "not eight probes"
run 0 eval -m "$base" -f "$ids" --ids --probes --json
is_json
silent
shows '"scored": 79' '"interrupted": false'
cp "$out" "$scratch/probes"
probe_row() { # prints the cross entropy of a probe
    sed -n "/\"name\": \"$1\"/{n;s/.*\"cross_entropy\": \([0-9.]*\).*/\1/p;}" "$scratch/probes"
}
close "$(probe_row none)" "$plain"
for probe in "top 2.16 masked:--mask-top 0.125" "shared replaced:--replace-shared" "1 active:--experts 1"; do
    # shellcheck disable=SC2086  # an option and its value
    run 0 eval -m "$base" -f "$ids" --ids --json ${probe#*:}
    is_json
    shows '"probe": {'
    close "$(number cross_entropy)" "$(probe_row "${probe%:*}")"
    awk -v a="$(number cross_entropy)" -v b="$plain" 'BEGIN { exit a == b }' ||
        complain "the probe changes nothing"
done
run 0 eval -m "$base" -f "$ids" --ids --mask-top 0.25 --replace-shared --experts 2
shows "0 + 4 of 9"
for wrong in -0.1 1.1 nan x ''; do
    run 2 eval -m "$base" -f "$ids" --ids --mask-top "$wrong"
    usage --mask-top
done
for wrong in 0 -1 1.5; do
    run 2 eval -m "$base" -f "$ids" --ids --experts "$wrong"
    usage --experts
done
run 2 eval -m "$base" -f "$ids" --ids --probes --experts 2
usage --probes
for wrong in "--mask-top 1" "--mask-top 0.8" "--experts 13" "--experts 11 --replace-shared"; do
    # shellcheck disable=SC2086  # several arguments
    run 2 eval -m "$base" -f "$ids" --ids $wrong
    usage "${wrong%% *}"
done
for probe in --probes --replace-shared "--mask-top 0.1" "--experts 1"; do
    # shellcheck disable=SC2086  # an option and its value
    run 1 eval -m "$data/lm/dense" -f "$ids" --ids $probe
    one_message dense
done

# ---- inspect: a model's properties
run 0 inspect -m "$base"
shows "3 layers" "routed experts" 137,040 90,960 f32 "KV cache" workspace "a token reads" \
    "sequence of 512"
silent
run 0 inspect -m "$base" -c 100 --json
is_json
silent
shows '"total": 137040' '"n_ctx": 100' '"f32"' '"extra": []' '"kv_cache"' '"bytes_per_token"'
run 0 inspect -m "$data/lm/bf16"
shows bf16
run 0 inspect -m "$data/lm/sharded" --json
is_json
run 1 inspect -m "$scratch/nowhere"
one_message nowhere
for option in "--html x" --ids "--layer 1"; do
    # shellcheck disable=SC2086  # several arguments
    run 2 inspect -m "$base" $option
    usage --routing
done

# ---- inspect: which experts a text uses
echo "$row0 $row1" >"$ids"
run 0 inspect -m "$base" --routing "$ids" --ids
shows "2 MoE layers, top-4 of 12" "80 tokens" "most used" "least used" "fire together" \
    specialised '#'
silent
wide=$(awk '{ gsub(/[^ -~]/, "", $0) } length($0) > 80' "$out" | wc -l)
[ "$wide" -eq 0 ] || complain "$wide lines are wider than 80 columns"
run 0 inspect -m "$base" --routing "$ids" --ids --layer 2
shows "experts of layer 2"
run 2 inspect -m "$base" --routing "$ids" --ids --layer 0
usage "--layer 0"
usage "1 to 2"
run 0 inspect -m "$base" --routing "$ids" --ids --json
is_json
silent
shows '"routing"' '"counted": 80' '"entropy"' '"imbalance"' '"pairs"' '"favourites"' '"together"'
# every token chooses four experts in each of two layers, in contexts of any size
for context in 80 7 1; do
    run 0 inspect -m "$base" --routing "$ids" --ids --json -c $context
    chosen=$(grep '"load"' "$out" | sed 's/.*"count": \([0-9]*\), "load".*/\1/' |
        awk '{ sum += $1 } END { print sum }')
    [ "$chosen" -eq 640 ] || complain "$chosen choices of experts instead of 640"
done
run 1 inspect -m "$data/lm/dense" --routing "$ids" --ids
one_message dense
run 1 inspect -m "$base" --routing "$scratch/empty" --ids
one_message empty
run 1 inspect -m "$base" --routing "$ids"
one_message tokenizer.json

# the page
mkdir "$scratch/pages"
page=$scratch/pages/page.html
run 0 inspect -m "$base" --routing "$ids" --ids --html "$page"
silent
arguments="the page"
[ "$(head -n 1 "$page")" = "<!DOCTYPE html>" ] || complain "no page"
[ "$(tail -n 1 "$page")" = "</html>" ] || complain "the page has no end"
[ "$(ls "$scratch/pages")" = page.html ] || complain "files beside the page"
[ "$(grep -o '<rect class="[a-z0-9]*" x="[0-9]*" y' "$page" | wc -l)" -eq 24 ] ||
    complain "not one cell for each expert of each layer"
if grep -qE 'https?:|src=|<link|@import|url\(' "$page"; then complain "the page needs other files"; fi
if grep -qE '[" (]-?(nan|inf)[" ,]' "$page"; then complain "a number that is none"; fi
for part in '<html lang="en">' '<title>Experts of base</title>' 'name="viewport"' '>layer</text>' '>expert</text>' \
    '>share of the choices</text>' '>entropy</text>' ' of 80 tokens' 'data-name="chosen by"' '% of '; do
    grep -qF -- "$part" "$page" || complain "no '$part' on it"
done
# rows and columns of a matrix are the chosen experts, each once, with a count for each pair of them
sed -n 's/.*data-experts="\([0-9,]*\)".*data-pairs="\([0-9a-z,]*\)".*/\1 \2/p' "$page" >"$scratch/matrices"
chosen=$(grep -o 'class="hit" x="[0-9]*" y="[01]"[^>]*><title>layer [12], expert [0-9]*: chosen by [1-9]' "$page" | wc -l)
awk -v chosen="$chosen" '
    { n = split($1, experts, ","); all += n; sorted = 1; delete seen
      for (i = 1; i <= n; i++) {
          if (seen[experts[i]]++) { print "expert " experts[i] " twice"; exit 1 }
          if (i > 1 && experts[i] + 0 < experts[i - 1] + 0) sorted = 0
      }
      if (sorted) { print "experts by number"; exit 1 }
      pairs = split($2, counts, ",")
      if (pairs != n * (n - 1) / 2) { print pairs " pairs of " n " experts"; exit 1 } }
    END { if (NR != 2 || all != chosen) print NR " matrices of " all " experts, of which " chosen " were chosen" }
' "$scratch/matrices" >"$scratch/wrong_matrices"
[ ! -s "$scratch/wrong_matrices" ] || complain "$(cat "$scratch/wrong_matrices")"
run 1 inspect -m "$base" --routing "$ids" --ids --html "$scratch/none/page.html"
one_message none/page.html
run 1 inspect -m "$base" --routing "$ids" --ids --html "$scratch/pages"
one_message pages
run 2 inspect -m "$base" --routing "$ids" --ids --html ""
usage --html
[ ! -s "$out" ] || complain "work that was in vain"

# a narrow terminal: the map and the lines for the layers fit
if command -v script >/dev/null; then
    arguments="inspect on 40 columns"
    call="stty cols 40; '$dsmoe' inspect -m '$base' --routing '$ids' --ids"
    script -qec "$call" /dev/null </dev/null >"$out" 2>"$err"
    shows "most used"
    # counts one byte of each character, by leaving out continuation bytes
    wide=$(LC_ALL=C tr -d '\r\200-\277' <"$out" | LC_ALL=C grep -aE '^ +[12] ' |
        LC_ALL=C awk 'length($0) > 40' | wc -l)
    [ "$wide" -eq 0 ] || complain "$wide lines are wider than 40 columns"
fi

# ---- with texts
model=$scratch/tiny
run 0 init --preset tiny --layers 1 --seed 1 -t 2 --tokenizer "$data/text_cli" "$model"
printf 'Any <b>bold</b> text & more, the more the \303 merrier\n' >"$scratch/text"
run 0 eval -m "$model" -f "$scratch/text" --json
is_json
shows '"bos": true' '"bits_per_byte"' "\"bytes\": $(wc -c <"$scratch/text")"
[ "$(number tokens)" = "$(number scored)" ] || complain "the first token does not count"
printf A >"$scratch/letter"
run 0 eval -m "$model" -f "$scratch/letter"
shows "1 of 1"
if grep -q "moved by" "$out"; then complain "one window does not move"; fi
run 0 inspect -m "$model" --routing "$scratch/text" --layer 0 --html "$page" --force
shows ␣
arguments="the page of a text"
for word in '&lt; <b>' '&amp; <b>' '\xC3 <b>'; do
    grep -qF -- "$word" "$page" || complain "no '$word' on it"
done
run 0 inspect -m "$model" --routing "$scratch/text" --json
shows '"text": "<"' '"text": "�"'

# ---- a full disk is reported
fails_on_full_disk "eval -m $base -f $ids --ids" "eval -m $base -f $ids --ids --probes" "inspect -m $base" \
    "inspect -m $base --routing $ids --ids --json"

exit $failed
