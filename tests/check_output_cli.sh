#!/bin/sh
# check_output_cli.sh DSMOE DATA - what commands may overwrite: never an input; a file only with --force and
# only if it is of the same kind; and only new or empty folders are filled. docs/files.md has the rule.
. "$(dirname "$0")/cli_checks.sh"

model=$scratch/model
run 0 init --preset tiny --layers 1 --tokenizer "$data/text_cli" "$model"
i=0
while [ $i -lt 40 ]; do
    echo "the quick brown fox $i jumps over the lazy dog"
    i=$((i + 1))
done >"$scratch/text"
cp "$scratch/text" "$scratch/kept"

unchanged() { # files that must still be the same as "$scratch/kept"
    for file in "$@"; do
        cmp -s "$scratch/kept" "$file" || complain "$file has changed"
    done
}

# The command must refuse to write over one of its inputs, under every name of the file, with and without
# --force. In the arguments OUT stands for its output and IN for the input, which is the first argument here.
never_an_input() {
    given=$1
    shift
    cp "$given" "$scratch/before"
    rm -f "$scratch"/soft* "$scratch"/hard*
    ln -s "$given" "$scratch/soft.gguf"
    ln "$given" "$scratch/hard.gguf"
    for output in "$given" "$scratch/soft.gguf" "$scratch/hard.gguf"; do
        for force in "" --force; do
            # shellcheck disable=SC2086,SC2046
            run 1 $(printf '%s\n' "$@" | sed -e "s|^OUT\$|$output|" -e "s|^IN\$|$given|") $force
            one_message "$output" "is one of the inputs"
            cmp -s "$scratch/before" "$given" || complain "the input has changed"
        done
    done
    rm "$scratch"/soft* "$scratch"/hard*
}

# The command must write its output once, keep it without --force, and replace it with --force. It must keep
# a file of another kind, and anything in the way.
writes_a_file() { # path, arguments with OUT
    path=$1
    shift
    # shellcheck disable=SC2046
    run 0 $(printf '%s\n' "$@" | sed "s|^OUT\$|$path|")
    [ -s "$path" ] || complain "$path is not there"
    cp "$path" "$scratch/first"
    # shellcheck disable=SC2046
    run 1 $(printf '%s\n' "$@" | sed "s|^OUT\$|$path|")
    one_message "$path" "already exists" "--force"
    cmp -s "$path" "$scratch/first" || complain "$path has changed"
    # shellcheck disable=SC2046
    run 0 $(printf '%s\n' "$@" | sed "s|^OUT\$|$path|") --force
    cp "$scratch/text" "$scratch/mine.gguf"
    mkdir "$scratch/folder.gguf"
    for force in "" --force; do
        # shellcheck disable=SC2046,SC2086
        run 1 $(printf '%s\n' "$@" | sed "s|^OUT\$|$scratch/mine.gguf|") $force
        one_message "$scratch/mine.gguf" "choose another name"
        unchanged "$scratch/mine.gguf"
        # shellcheck disable=SC2046,SC2086
        run 1 $(printf '%s\n' "$@" | sed "s|^OUT\$|$scratch/folder.gguf|") $force
        one_message "$scratch/folder.gguf" "not a regular file"
    done
    : >"$scratch/mine.gguf" # an empty file may be replaced
    # shellcheck disable=SC2046
    run 0 $(printf '%s\n' "$@" | sed "s|^OUT\$|$scratch/mine.gguf|")
    # shellcheck disable=SC2046
    run 1 $(printf '%s\n' "$@" | sed "s|^OUT\$|$scratch/nowhere/mine.gguf|")
    one_message "$scratch/nowhere/mine.gguf"
    rm -r "$scratch/mine.gguf" "$scratch/folder.gguf"
    [ -z "$(find "$scratch" -name '*.partial')" ] || complain "a partial file is left"
}

# A folder that contains files of others must not be filled, and nothing must be written to it.
fills_no_foreign_folder() { # arguments with OUT
    mkdir "$scratch/texts"
    cp "$scratch/text" "$scratch/texts/letter.txt"
    # shellcheck disable=SC2046
    run 1 $(printf '%s\n' "$@" | sed "s|^OUT\$|$scratch/texts|")
    one_message "$scratch/texts" "letter.txt" "new or empty"
    unchanged "$scratch/texts/letter.txt"
    [ "$(find "$scratch/texts" | wc -l)" -eq 2 ] || complain "something came into the folder"
    rm -r "$scratch/texts"
}

# ---- convert and quantize
writes_a_file "$scratch/a.gguf" convert "$model" OUT
writes_a_file "$scratch/q.gguf" quantize "$model" OUT --type q8_0
never_an_input "$scratch/a.gguf" convert IN OUT
never_an_input "$scratch/a.gguf" quantize IN OUT --type q8_0
fills_no_foreign_folder convert "$model" OUT
run 1 convert "$model" "$model"
one_message "$model"
mkdir "$scratch/empty"
run 0 convert "$scratch/a.gguf" "$scratch/empty"

ln -s a.gguf "$scratch/link.gguf" # a link is replaced, its target is kept
cp "$scratch/a.gguf" "$scratch/first"
run 0 quantize "$model" "$scratch/link.gguf" --type q8_0 --force
[ ! -L "$scratch/link.gguf" ] || complain "the link is still there"
cmp -s "$scratch/a.gguf" "$scratch/first" || complain "what the link led to has changed"

# ---- imatrix
writes_a_file "$scratch/i.gguf" imatrix -m "$model" -f "$scratch/text" -o OUT -c 64 --chunks 1
never_an_input "$scratch/text" imatrix -m "$model" -f IN -o OUT
never_an_input "$scratch/a.gguf" imatrix -m IN -f "$scratch/text" -o OUT
never_an_input "$scratch/i.gguf" quantize "$model" OUT --type q8_0 --imatrix IN
run 1 imatrix -m "$model" -f "$scratch/text" -o "$scratch/a.gguf" --force # a model is a file of another kind
one_message "$scratch/a.gguf" "choose another name"
run 1 quantize "$model" "$scratch/i.gguf" --type q8_0 --force
one_message "$scratch/i.gguf" "choose another name"
cp "$scratch/a.gguf" "$scratch/b.gguf.partial" # the partial file must not replace an input either
run 1 convert "$scratch/b.gguf.partial" "$scratch/b.gguf"
one_message "$scratch/b.gguf" "inputs"
cmp -s "$scratch/a.gguf" "$scratch/b.gguf.partial" || complain "the input has changed"
echo "a letter" >"$scratch/b.gguf.partial" # nor any other file with that name
cp "$scratch/b.gguf.partial" "$scratch/letter"
for force in "" --force; do
    # shellcheck disable=SC2086
    run 1 convert "$scratch/a.gguf" "$scratch/b.gguf" $force
    one_message "$scratch/b.gguf.partial: already exists"
done
cmp -s "$scratch/letter" "$scratch/b.gguf.partial" || complain "somebody's file has changed"
rm "$scratch/b.gguf.partial"
echo "GGUF is a form of files" >"$scratch/b.gguf"
run 1 convert "$scratch/a.gguf" "$scratch/b.gguf" --force
one_message "$scratch/b.gguf: already exists and is not"
rm "$scratch/b.gguf"
mkdir "$scratch/precious"
echo '{"precious": 1}' >"$scratch/precious/tokenizer.json"
run 1 tokenizer train --data "$scratch/text" --out "$scratch/precious" --vocab-size 270 --force
one_message "$scratch/precious/tokenizer.json: already exists and is not a tokenizer"
grep -q precious "$scratch/precious/tokenizer.json" || complain "somebody's file has changed"

# ---- the output is checked before anything else
for call in "imatrix -m $scratch/none -f $scratch/text -o" "convert $scratch/none" \
    "quantize $scratch/none --type q8_0" "inspect -m $scratch/none --routing $scratch/text --html"; do
    # shellcheck disable=SC2086
    run 1 $call "$scratch/nowhere/x.gguf"
    one_message "$scratch/nowhere/x.gguf"
done

# ---- init
writes_a_file "$scratch/fresh.gguf" init --preset tiny --layers 1 OUT
never_an_input "$scratch/a.gguf" init --preset tiny --layers 1 --tokenizer IN OUT
fills_no_foreign_folder init --preset tiny --layers 1 OUT
run 1 init --preset tiny --layers 1 "$model"
one_message "$model" "new or empty"

# ---- tokenizer train, and a model made for the tokenizer
fills_no_foreign_folder tokenizer train --data "$scratch/text" --out OUT
run 0 tokenizer train --data "$scratch/text" --out "$scratch/tokenizer"
cp "$scratch/tokenizer/tokenizer.json" "$scratch/first"
run 1 tokenizer train --data "$scratch/text" --out "$scratch/tokenizer" --vocab-size 258
one_message "$scratch/tokenizer" tokenizer "--force"
cmp -s "$scratch/tokenizer/tokenizer.json" "$scratch/first" || complain "the tokenizer has changed"
run 0 tokenizer train --data "$scratch/text" --out "$scratch/tokenizer" --vocab-size 258 --force
cmp -s "$scratch/tokenizer/tokenizer.json" "$scratch/first" && complain "the tokenizer has not changed"
run 1 tokenizer train --data "$scratch/tokenizer/tokenizer.json" --out "$scratch/tokenizer" --force
one_message "is one of the inputs"
run 0 init --preset tiny --layers 1 "$scratch/tokenizer"
run 1 tokenizer train --data "$scratch/text" --out "$scratch/tokenizer" --force
one_message "$scratch/tokenizer" "new or empty"

# ---- train, report, ablate
fills_no_foreign_folder train --data "$scratch/text" --steps 1 --out OUT
fills_no_foreign_folder ablate --data "$scratch/text" --out OUT
mkdir "$scratch/own" # a config.json alone is not a model: the run trains its tokenizer in the same folder
cp "$model/config.json" "$scratch/own"
run 0 train --data "$scratch/text" --steps 1 --batch 1 --seq 8 --out "$scratch/own" --config "$scratch/own/config.json" \
    --quiet
mkdir "$scratch/run"
cp "$model/config.json" "$scratch/run" # files that the run reads may be in its folder
cp "$model/tokenizer.json" "$scratch/run"
run 0 train --data "$scratch/text" --steps 1 --batch 1 --seq 8 --out "$scratch/run" --config "$scratch/run/config.json" \
    --tokenizer "$scratch/run/tokenizer.json" --quiet
cp "$scratch/run/metrics.jsonl" "$scratch/first"
echo old >"$scratch/run/report.html"
run 0 report "$scratch/run" # the run's own page is replaced without --force
grep -q DOCTYPE "$scratch/run/report.html" || complain "the page is not made again"
rm "$scratch/run/report.html"
ln "$scratch/run/metrics.jsonl" "$scratch/run/report.html"
run 0 report "$scratch/run"
cmp -s "$scratch/first" "$scratch/run/metrics.jsonl" || complain "the metrics have changed"

# ---- inspect --html
writes_a_file "$scratch/page.html" inspect -m "$model" --routing "$scratch/text" --html OUT
never_an_input "$scratch/text" inspect -m "$model" --routing IN --html OUT
never_an_input "$scratch/a.gguf" inspect -m IN --routing "$scratch/text" --html OUT
input=$scratch/text
run 1 inspect -m "$model" --routing - --html "$scratch/text" --force
one_message "is one of the inputs"
unchanged "$scratch/text"

# ---- chat: /save
save() { # lines to type
    printf '%s\n' "$@" >"$scratch/typed"
    input=$scratch/typed
    run 0 chat -m "$model" -n 1 --temp 0 --quiet
    input=/dev/null
}
save hello "/save $scratch/talk.json" again "/save $scratch/talk.json" # the chat may replace its own file
says "2 messages saved" "4 messages saved"
cp "$scratch/talk.json" "$scratch/first"
save hello "/save $scratch/talk.json"
says "$scratch/talk.json" "already exists" --force
cmp -s "$scratch/talk.json" "$scratch/first" || complain "the conversation has changed"
save hello "/save --force $scratch/talk.json"
says "2 messages saved"
for force in "" "--force "; do
    save "/save $force$scratch/text"
    says "$scratch/text" "choose another name"
    unchanged "$scratch/text"
    save "/save $force$scratch/typed" # standard input is an input, too
    says "is one of the inputs"
done

exit $failed
