#!/bin/sh
# check_tokenizer_cli.sh DSMOE DATA - `dsmoe tokenizer train` as a person or a script uses it: exit codes,
# what is printed on which stream, and files that other commands can use.
. "$(dirname "$0")/cli_checks.sh"

# ---- help, and wrong calls
run 0 tokenizer --help
shows usage: example: "dsmoe tokenizer train"
silent
run 0 tokenizer train --help
shows usage: example: --data --out --held-out --bad-bytes --vocab-size --max-bytes --threads
silent
run 2 tokenizer
usage "dsmoe tokenizer train"
run 2 tokenizer learn
usage "dsmoe tokenizer learn" train
run 2 tokenizer train
usage --data
run 2 tokenizer train --data "$data"
usage --out
run 2 tokenizer train --data "$data" --out ""
usage --out
run 2 tokenizer train --data "$data" --out "$scratch/t" --vocab-size 257
usage --vocab-size 258
run 2 tokenizer train --data "$data" --out "$scratch/t" --held-out 1
usage --held-out
run 2 tokenizer train --data "$data" --out "$scratch/t" --max-bytes 0
usage --max-bytes
run 2 tokenizer train --data "$data" --out "$scratch/t" -t 0
usage --threads

# ---- text from files, words, a folder and JSON Lines
mkdir "$scratch/text"
i=0
while [ $i -lt 300 ]; do
    echo "the quick brown fox $i jumps over the lazy dog; naïve café, 你好世界"
    i=$((i + 1))
done >"$scratch/text/fox.txt"
sed 's/.*/{"text": "&\\n"}/' "$scratch/text/fox.txt" >"$scratch/fox.jsonl"
run 0 tokenizer train --data "$scratch/text" --out "$scratch/one/deep" --vocab-size 300 -t 1
shows "300 tokens" "bytes per token" "first learned" "try: dsmoe tokenize -m $scratch/one/deep"
silent
run 0 tokenizer train --vocab-size 300 -t 2 --out "$scratch/two" "$scratch/text/fox.txt"
run 0 tokenizer train --data="$scratch/fox.jsonl" --vocab-size 300 --out "$scratch/three"
for folder in two three; do
    cmp -s "$scratch/one/deep/tokenizer.json" "$scratch/$folder/tokenizer.json" ||
        complain "$folder/tokenizer.json differs"
done
run 1 tokenizer train --data "$scratch/text" --out "$scratch/two" --vocab-size 310
one_message "$scratch/two/tokenizer.json" --force
run 0 tokenizer train --data "$scratch/text" "$scratch/fox.jsonl" --data "$scratch/text/fox.txt" \
    --out "$scratch/two" --vocab-size 310 --max-bytes 20000 --force
shows "310 tokens" "20.0 kB looked at"

# ---- files that are not text are left out and reported; a bad byte or a link does not exclude a file
mkdir "$scratch/mixed"
cp "$scratch/text/fox.txt" "$scratch/mixed/latin.txt"
printf 'caf\351\n' >>"$scratch/mixed/latin.txt"
ln -s ../text/fox.txt "$scratch/mixed/link.txt"
printf '\211PNG\0\0' >"$scratch/mixed/picture.png"
run 0 tokenizer train --data "$scratch/mixed" --out "$scratch/mixed.out" --vocab-size 300
one_message "1 of 3 files left out (6 bytes)" "1 not text" "$scratch/mixed/picture.png" \
    "1 byte is not UTF-8 and read as U+FFFD" latin.txt
run 0 tokenizer train --data "$scratch/mixed" --bad-bytes skip --out "$scratch/skipped" --vocab-size 300
one_message "2 of 3 files left out" "1 not UTF-8 throughout"
cmp -s "$scratch/one/deep/tokenizer.json" "$scratch/skipped/tokenizer.json" ||
    complain "a link is not read as the file it leads to"
run 2 tokenizer train --data "$scratch/mixed" --bad-bytes drop --out "$scratch/none"
usage --bad-bytes drop

# ---- the trained tokenizer works
run 0 tokenize -m "$scratch/one/deep" -p "the quick brown fox, and more"
tokens=$(cat "$out")
[ "${tokens%% *}" = 298 ] || complain "BOS is not the last id but one"
run 0 detokenize -m "$scratch/one/deep" -p "$tokens"
shows "the quick brown fox, and more"
run 0 init --preset tiny --layers 1 --tokenizer "$scratch/one/deep" "$scratch/model"
run 1 tokenizer train --data "$scratch/text" --out "$scratch/model" --vocab-size 300 --force
one_message "$scratch/model" "new or empty"
run 0 train --data "$scratch/text" --vocab-size 300 --layers 1 --hidden 64 --seq 8 --batch 1 --steps 1 \
    --out "$scratch/run" --quiet -t 1
cp "$scratch/run/tokenizer.json" "$scratch/its.json"
run 1 tokenizer train --data "$scratch/text" --out "$scratch/run" --vocab-size 290 --force
one_message "$scratch/run" "new or empty"
cmp -s "$scratch/its.json" "$scratch/run/tokenizer.json" || complain "the tokenizer of a run is replaced"

# ---- refused calls
printf 'a\377b' >"$scratch/garbage"
: >"$scratch/empty"
for name in garbage empty nowhere; do
    run 1 tokenizer train --data "$scratch/$name" --out "$scratch/none"
    one_message "$scratch/$name"
done
run 1 tokenizer train --data "$scratch/text" --out "$scratch/none" --vocab-size 100000
one_message "tokens at most, not 100000"
run 1 tokenizer train --data "$scratch/text" --out "$scratch/empty" --vocab-size 300
one_message "$scratch/empty"
[ ! -e "$scratch/none" ] || complain "a folder is left behind"
fails_on_full_disk "tokenizer train --data $scratch/text --out $scratch/two --vocab-size 300 --force"

# ---- Ctrl-C while some 90 MB are read
i=0
while [ $i -lt 12 ]; do
    i=$((i + 1))
    cat "$scratch/text/fox.txt" "$scratch/text/fox.txt" >>"$scratch/text/fox.txt.new"
    mv "$scratch/text/fox.txt.new" "$scratch/text/fox.txt"
done
arguments="tokenizer train, interrupted"
"$dsmoe" tokenizer train -t 1 --data "$scratch/text" --out "$scratch/none" --vocab-size 400 >"$out" 2>"$err" &
sleep 1
interrupted $!
one_message interrupted
[ ! -e "$scratch/none" ] || complain "a folder is left behind"

# ---- a failure leaves no folder, and none above it
run 1 tokenizer train --data "$scratch/nowhere" --out "$scratch/new/deep"
one_message nowhere
run 1 tokenizer train --data "$scratch/text" --out "$scratch/new/deep" --vocab-size 1000000
one_message "at most"
[ ! -e "$scratch/new" ] || complain "debris of a tokenizer that could not be trained"

exit $failed
