#!/bin/sh
# check_text_cli.sh DSMOE DATA - generate, chat, tokenize and detokenize as a person or a script uses them:
# exit codes, what is printed on which stream, and texts and ids that must be there.
. "$(dirname "$0")/cli_checks.sh"
input=$scratch/input

is() { # the exact standard output, without a newline at its end
    printf '%s' "$1" >"$scratch/expected"
    cmp -s "$out" "$scratch/expected" || complain "the output is not '$1'"
}

line() { # the only line of standard output
    printf '%s\n' "$1" >"$scratch/expected"
    cmp -s "$out" "$scratch/expected" || complain "the output is not the line '$1'"
}

give() { printf '%s' "$1" >"$input"; } # the standard input of the next calls

: >"$input"
tiny=$data/text_cli
base=$data/lm/base
model=$scratch/model
run 0 init --preset tiny --layers 1 --seed 1 -t 2 --tokenizer "$tiny" "$model"

# ---- every command has help
for command in generate chat tokenize detokenize; do
    run 0 $command --help
    shows usage: example: "dsmoe $command -m"
    silent
    run 2 $command --no-such-option
    usage no-such-option
    run 2 $command
    usage -m
    run 2 $command -m ""
    usage -m
    run 1 $command -m "$scratch/nowhere" # the prompt is read from standard input
    one_message nowhere
done

# ---- tokenize
run 0 tokenize -m "$tiny" -p 'hello world'
line '265 259 261 263'
silent
run 0 tokenize -m "$tiny/tokenizer.json" --no-bos -p 'hello <|end|>'
line '259 32 60 124 101 110 100 124 62'
run 0 tokenize -m "$tiny" --special -p 'hello<|end|>'
line '265 259 266'
run 0 tokenize -m "$tiny" --no-bos -p ''
line ''
give 'hello
'
run 0 tokenize -m "$tiny" --no-bos
line '259 10'
run 0 tokenize -m "$tiny" --no-bos -f -
line '259 10'
run 0 tokenize -m "$tiny" --no-bos -f "$input"
line '259 10'
run 1 tokenize -m "$tiny" -f "$scratch/none"
one_message none
run 1 tokenize -m "$tiny" -f "$scratch/two
lines" # lines" # even so the message must be one line
one_message "two?lines"
run 2 tokenize -m "$tiny" -p a -f "$input"
usage --file
run 2 tokenize -m "$tiny" -p a --special --no-special
usage --no-special

# ---- detokenize
run 0 detokenize -m "$tiny" -p '265 259,261
263 266'
is 'hello world<|end|>'
silent
run 0 detokenize -m "$tiny" --special -p '265 259'
is '<|begin|>hello'
give '259'
run 0 detokenize -m "$tiny"
is 'hello'
run 1 detokenize -m "$tiny" -p '259 267'
one_message 267
run 1 detokenize -m "$tiny" -p '259 -1'
one_message -1
run 1 detokenize -m "$tiny" -p 'hello'
one_message --prompt hello
give '259
259 x1'
run 1 detokenize -m "$tiny" -f "$input"
one_message "$input" x1 "line 2"
run 1 detokenize -m "$tiny"
one_message "standard input" x1
printf 'any\0bytes \377\376 \303\n\n' >"$input"
"$dsmoe" tokenize -m "$tiny" <"$input" | "$dsmoe" detokenize -m "$tiny" >"$out"
cmp -s "$input" "$out" || complain "bytes do not survive tokenize and detokenize"

# ---- tokenize and detokenize line by line
give '{"text": "hello <|end|>", "id": [1, {"a": null}]}

{"x": "text", "text": "h\u00fc\ud83d\ude00\n"}'
run 0 tokenize -m "$tiny" --jsonl
line '{"ids":[265,259,32,266]}
{"ids":[265,104,264,240,159,152,128,10]}'
run 0 tokenize -m "$tiny" --jsonl --no-bos --no-special -f "$input"
shows '{"ids":[259,32,60,124,101,110,100,124,62]}'
give '{"ids": [265, 259, 34, 10], "n": 4}
{"ids":[195]}
{"ids":[]}
'
run 0 detokenize -m "$tiny" --jsonl
line '{"text":"hello\"\n"}
{"text":"�"}
{"text":""}'
printf '\357\273\277{"text": "hello"}\r\n' >"$input"
run 0 tokenize -m "$tiny" --jsonl
line '{"ids":[265,259]}'
for wrong in '{"text": 1}' '{"text": "a"' '{"txt": "a"}' '{"text": "\ud800"}' 'hello' '{"ids": [1]}'; do
    printf '{"text": "hello"}\n%s\n{"text": "no more"}\n' "$wrong" >"$input"
    run 1 tokenize -m "$tiny" --jsonl
    line '{"ids":[265,259]}'
    one_message "line 2"
done
give '{"ids": [259, 300]}'
run 1 detokenize -m "$tiny" --jsonl
one_message "line 1" 300
awk 'BEGIN { printf "{\"text\":\""; for (i = 0; i < 200000; i++) printf "hello world "; print "\"}" }' \
    >"$input"
"$dsmoe" tokenize -m "$tiny" --jsonl <"$input" | "$dsmoe" detokenize -m "$tiny" --jsonl >"$out"
cmp -s "$input" "$out" || complain "a long line does not survive"
if [ -f "$data/tokenizer/cases.jsonl" ]; then
    sed 's/.*"ids":/{"ids":/' "$data/tokenizer/cases.jsonl" >"$scratch/expected"
    run 0 tokenize -m "$data/tokenizer" --jsonl --no-bos -f "$data/tokenizer/cases.jsonl"
    cmp -s "$out" "$scratch/expected" || complain "not the public tokenizer's ids"
fi
: >"$input"

# ---- generate, ids
prompt="64 112 85 105 87 73 4 20"
greedy="120 100 59 120 100 59 59 59 59 59 19 93 59 19 93 59 19 93 59 19 93 2 100 59"
run 0 generate -m "$base" --ids -p "$prompt" -n 24 --temp 0 --ignore-eos
line "$greedy"
says "tokens/s" "memory:" "seed:" "prompt: 8 tokens"
run 0 generate -m "$base" --ids --echo --quiet -p "$prompt" -n 24 --temp 0 --ignore-eos -b 3 -t 2
line "$prompt $greedy"
silent
give "$prompt
"
run 0 generate -m "$base" --ids --quiet -n 3 --temp 0
line "120 100 59"
run 0 generate -m "$base" --ids --quiet -n 0 -f "$input"
line ""
: >"$input"
run 1 generate -m "$base" --ids -p "1 2 128"
one_message --prompt "token 128" "vocab_size 128"
run 1 generate -m "$base" --ids -p "1 two"
one_message --prompt two
run 1 generate -m "$base" --ids
one_message empty
run 1 generate -m "$base" --ids -c 7 -p "$prompt"
one_message "8 tokens" 7
run 0 generate -m "$base" --ids -c 12 -n -1 --ignore-eos -p "$prompt"
[ "$(wc -w <"$out")" -eq 4 ] || complain "the context has room for 4 tokens"
says "12 tokens is full"
run 1 generate -m "$base" -p hello
one_message tokenizer.json --ids
run 0 generate -m "$base" --ids -p "$prompt" -n3 --temp 0 --quiet
line "120 100 59"
# biased scores: by given biases, and by penalties, which do not count the prompt
run 0 generate -m "$base" --ids -p "$prompt" -n 3 --temp 0 --quiet --logit-bias 7:100
line "7 7 7"
for form in 120:-100 120-100 120-inf; do
    run 0 generate -m "$base" --ids -p "$prompt" -n 24 --temp 0 --ignore-eos --quiet -l $form
    ! grep -qw 120 "$out" || complain "a token that is banned"
    [ "$(wc -w <"$out")" -eq 24 ] || complain "not 24 tokens"
done
run 0 generate -m "$base" --ids -p "7 7 7 9" -n 4 --temp 0 --quiet -l 7+60 -l 9+50 --presence-penalty 20
line "7 9 7 7"
run 0 generate -m "$base" --ids -p "7 7 7 9" -n 4 --temp 0 --quiet -l 7+60 -l 9+50 --frequency-penalty 20
line "7 9 7 9"
run 2 generate -m "$base" --ids -p "$prompt" -l 128:1
usage logit_bias "token 128"
# shellcheck disable=SC2046  # one argument for each token
run 1 generate -m "$base" --ids -p "$prompt" $(i=0; while [ $i -lt 128 ]; do echo "-l$i-100"; i=$((i + 1)); done)
one_message "no token is left" logit_bias
# a tokenizer and a model that do not fit together
mkdir "$scratch/mixed"
cp "$base/config.json" "$base/model.safetensors" "$tiny"/* "$scratch/mixed"
give 'hello
'
for command in generate chat; do
    run 1 $command -m "$scratch/mixed"
    one_message "$scratch/mixed" 265 "vocab_size is 128"
done
# weights that are NaN
LC_ALL=C awk 'BEGIN { for (i = 0; i < 600000; i++) printf "%c", 255 }' >"$scratch/ones"
size=$(wc -c <"$base/model.safetensors")
head -c 11296 "$base/model.safetensors" >"$scratch/mixed/model.safetensors"
head -c $((size - 11296)) "$scratch/ones" >>"$scratch/mixed/model.safetensors"
run 1 generate -m "$scratch/mixed" --ids -p "1 2"
one_message "$scratch/mixed" NaN
is ''
: >"$input"
run 2 generate -m "$base" --ids -p 1 --stop a
usage --stop

# ---- generate, text
run 0 generate -m "$model" -p "hello world" -n 30 -s 7 --quiet
silent
cp "$out" "$scratch/first"
run 0 generate -m "$model" -p "hello world" -n 30 -s 7 -t 1
cmp -s "$out" "$scratch/first" || complain "another text of the same seed"
says "seed: 7"
run 0 generate -m "$model" -p "hello world" -n 30 -s 8 --quiet
! cmp -s "$out" "$scratch/first" || complain "the same text of another seed"
run 0 generate -m "$model" -p "hello world" -n 30 -s 7 --echo --quiet
{ printf 'hello world'; cat "$scratch/first"; } >"$scratch/expected"
cmp -s "$out" "$scratch/expected" || complain "the prompt does not come first"
echo "hello world" >"$input"
run 0 generate -m "$model" -n 30 -s 7 --quiet
cmp -s "$out" "$scratch/first" || complain "the prompt of the standard input is not that of -p"
: >"$input"
run 0 generate -m "$model" -p "hello world" -n 30 --temp 0
cp "$out" "$scratch/first"
seed=$(sed 's/.*seed: //' "$err")
run 0 generate -m "$model" -p "hello world" -n 30 --temp 0 -s "$((seed + 1))"
cmp -s "$out" "$scratch/first" || complain "greedy depends on the seed"
run 0 generate -m "$model" -p "hello" -n 1 --top-k 5 --top-p 0.5 --min-p 0.1 --repeat-penalty 1.1 \
    --repeat-last-n -1 --stop a --stop b
for wrong in "--temp -1" "--temp nan" "--top-k -1" "--top-p 1.5" "--min-p x" "--repeat-penalty 0" \
    "--presence-penalty 101" "--frequency-penalty x" "--logit-bias 5" "--logit-bias 5:x" \
    "-n -2" "-c -1" "-t 0" "-t 1025" "-s 1.5" "-b 0" "-b 65537"; do
    # shellcheck disable=SC2086  # an option and its value
    run 2 generate -m "$model" -p a $wrong
    usage "${wrong#* }"
done
run 2 generate -m "$model" -p a --stop ""
usage --stop
run 2 generate -m "$model" -p a surplus
usage surplus

# ---- chat
give 'hello
/help
/nonsense
two\
lines
/save '"$scratch/talk.json"'
/reset
/save '"$scratch/none.json"'
/save '"$scratch/no/such/place"'
/quit
never asked'
run 0 chat -m "$model" -n 5 --temp 0 --system "Be brief."
[ -s "$out" ] || complain "no answers"
says /reset "no command /nonsense" "5 messages" "1 messages" "no/such/place" "tokens/s"
for word in '{"role": "system", "content": "Be brief."}' '{"role": "user", "content": "hello"}' \
    '"two\nlines"' '"role": "assistant"'; do
    grep -qF -- "$word" "$scratch/talk.json" || complain "no '$word' in what was saved"
done
run 0 chat -m "$model" -n 5 --temp 0 --system "Be brief." --quiet
cp "$out" "$scratch/first"
run 0 chat -m "$model" -n 5 --temp 0 --system "Be brief." --quiet -b 1
cmp -s "$out" "$scratch/first" || complain "other answers if prompts come in pieces"
give 'hello
hello again
and again
'
run 0 chat -m "$model" -n 12 -c 80 --quiet --ignore-eos
says "80 tokens is full" "messages are forgotten"
run 0 chat -m "$model" -c 8 --quiet
says "too long"
printf 'hello\r\n/save %s\r\n/quit\r\nnever asked\r\n' "$scratch/lines.json" >"$input"
run 0 chat -m "$model" -n 5 --temp 0 --quiet
one_message "2 messages saved"
grep -qF '"content": "hello"}' "$scratch/lines.json" || complain "an end of line became text"
give "the end is near\\"
run 0 chat -m "$model" -n 5 --temp 0 --quiet
[ -s "$out" ] || complain "a line is lost that ends with a backslash"
run 2 chat -m "$model" surplus
usage surplus

# ---- a signal stops the text, but the report is still printed
: >"$input"
arguments="generate ... and SIGTERM"
"$dsmoe" generate -m "$model" -p hello -n -1 --ignore-eos -c 100000 >"$out" 2>"$err" <"$input" &
process=$!
tries=0
while [ ! -s "$out" ] && [ $tries -lt 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -TERM $process
wait $process
code=$?
[ $code -eq 130 ] || complain "exit code $code, 130 is expected"
says "tokens/s"

# ---- a model that is truncated while it is in use
arguments="chat with a model that becomes shorter"
cp -r "$model" "$scratch/shrinking"
mkfifo "$scratch/questions"
: >"$out"
"$dsmoe" chat -m "$scratch/shrinking" -n 3 --ignore-eos <"$scratch/questions" >"$out" 2>"$err" &
process=$!
exec 3>"$scratch/questions"
echo hello >&3
tries=0
while [ ! -s "$out" ] && [ $tries -lt 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
: >"$scratch/shrinking/model.safetensors"
echo hello again >&3
wait $process
code=$?
exec 3>&-
[ $code -eq 1 ] || complain "exit code $code, 1 is expected"
one_message "the file changed"

# ---- closed streams: nothing is written to another file that got the same descriptor
arguments="init with closed streams"
"$dsmoe" init --preset tiny --layers 1 --seed 1 -t 2 --tokenizer "$tiny" "$scratch/closed" \
    <&- >&- 2>&-
code=$?
[ $code -eq 1 ] || complain "exit code $code, 1 is expected"
cmp -s "$model/model.safetensors" "$scratch/closed/model.safetensors" ||
    complain "not the model that it should be"
arguments="tokenize with closed streams"
"$dsmoe" tokenize -m "$tiny" -p hello >&- 2>"$err"
code=$?
: >"$out"
[ $code -eq 1 ] || complain "exit code $code, 1 is expected"
one_message "cannot write"
"$dsmoe" tokenize -m "$tiny" <&- >"$out" 2>"$err"
code=$?
[ $code -eq 1 ] || complain "exit code $code, 1 is expected"
one_message "standard input"

# ---- a full disk is reported
fails_on_full_disk "generate -m $model -p hello -n 5" "tokenize -m $tiny -p hello" \
    "detokenize -m $tiny -p 259" "generate --help"

exit $failed
