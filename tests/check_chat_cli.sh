#!/bin/sh
# check_chat_cli.sh DSMOE DATA PTY_RUN - the commands within `dsmoe chat`, through a pipe, and its history on
# a terminal.
pty_run=$3
. "$(dirname "$0")/cli_checks.sh"
input=$scratch/input
: >"$input"
model=$scratch/model
run 0 init --preset tiny --layers 1 --seed 1 -t 2 --tokenizer "$data/text_cli" "$model"

chat() { # the lines of $1, with further options; expects exit code 0
    printf '%s\n' "$1" >"$input"
    shift
    run 0 chat -m "$model" -n 5 --quiet "$@"
}

roles() { # of a file of messages, in order
    sed -n 's/.*"role": "\([a-z]*\)".*/\1/p' "$1" | tr '\n' ' '
}

# ---- /save does not overwrite
chat "hello
/save $scratch/talk.json"
one_message "2 messages saved to $scratch/talk.json"
cp "$scratch/talk.json" "$scratch/kept.json"
chat "another
more
/save $scratch/talk.json
/save $scratch/other.json"
says "$scratch/talk.json" --force "4 messages saved to $scratch/other.json"
cmp -s "$scratch/talk.json" "$scratch/kept.json" || complain "a file is overwritten"
chat "another
more
/save --force $scratch/talk.json"
one_message "4 messages saved to $scratch/talk.json"
chat "/save
/save --force
/save -
/load"
[ "$(grep -c "needs the name of a file" "$err")" -eq 4 ] || complain "a missing name is not said"

# ---- --force before or after the name, and no other option
cd "$scratch" || exit 1
cp kept.json "with blank.json"
chat "another
more
/save talk.json --froce
/save --froce talk.json
/save --force --froce talk.json
/save --force with blank.json
/save talk.json --force"
says "no option --froce" "4 messages saved to talk.json" "4 messages saved to with blank.json"
[ "$(grep -c "no option --froce" "$err")" -eq 3 ] || complain "an option that does not exist is taken"
for name in *--*; do
    [ ! -e "$name" ] || complain "a file called $name"
done
cd "$OLDPWD" || exit 1

# ---- commands without an argument
chat "hello
/undo x
/regen now
/reset please
/save $scratch/alone.json
/quit really
/quit"
[ "$(grep -c "takes no argument" "$err")" -eq 4 ] || complain "a word too many is ignored"
says "takes no argument, but has 'now'"
[ "$(roles "$scratch/alone.json")" = "user assistant " ] || complain "a word too many is ignored"

# ---- a loaded conversation is replaced only with --force
chat "/load $scratch/alone.json
more
/save $scratch/alone.json
/save --force $scratch/alone.json"
says "$scratch/alone.json: already exists; --force" "4 messages saved to $scratch/alone.json"

# ---- /undo
chat "hello
two
/undo
/save $scratch/undone.json
/undo
/undo
/save $scratch/nothing.json" --system "Be brief."
says "nothing to take back" "3 messages saved" "1 messages saved"
[ "$(roles "$scratch/undone.json")" = "system user assistant " ] || complain "not what is left"
grep -q '"hello"' "$scratch/undone.json" || complain "the wrong exchange is taken back"
chat "hello
mistake
/undo
two" --temp 0
tail -n 1 "$out" >"$scratch/first"
chat "hello
two" --temp 0
tail -n 1 "$out" >"$scratch/second"
cmp -s "$scratch/first" "$scratch/second" || complain "what was taken back has an effect"

# ---- /regen: another answer to the same question
chat "hello
/regen
/regen
/save $scratch/again.json" -s 3 --ignore-eos
[ "$(wc -l <"$out")" -ge 3 ] || complain "no three answers"
[ "$(sort -u "$out" | wc -l)" -ge 2 ] || complain "the answers are all the same"
[ "$(roles "$scratch/again.json")" = "user assistant " ] || complain "more than the last answer is kept"
cp "$out" "$scratch/first"
rm "$scratch/again.json"
chat "hello
/regen
/regen
/save $scratch/again.json" -s 3 --ignore-eos
cmp -s "$out" "$scratch/first" || complain "other answers of the same seed"
chat "hello
/regen" --temp 0
says "temperature 0"
[ "$(sort -u "$out" | wc -l)" -eq 1 ] || complain "two answers at temperature 0"
chat "/regen"
one_message "no answer to repeat yet"
chat "hello
/regen
two
/regen
/save $scratch/long.json" -s 3
[ "$(roles "$scratch/long.json")" = "user assistant user assistant " ] || complain "the conversation is not whole"

# ---- penalties start again with every answer
printf 'ab' >"$input"
run 0 tokenize -m "$model"
read -r _ first second <"$out" # without BOS
chat "hello
hello
hello" --temp 0 -n 2 -l "$first+60" -l "$second+50" --presence-penalty 20
[ "$(wc -l <"$out")" -eq 3 ] || complain "not three answers"
[ "$(sort -u "$out")" = ab ] || complain "an earlier answer counts"

# ---- /load
cat >"$scratch/talk.json" <<'TALK'
[
  {"role": "user", "content": "hello"},
  {"role": "assistant", "content": "world \"quoted\" \u00fc", "time": 5}
]
TALK
chat "/load $scratch/talk.json
two" --temp 0
cp "$out" "$scratch/expected"
chat "forget this
/load $scratch/talk.json
two
/save $scratch/loaded.json" --temp 0 --system "Be brief."
says "2 messages loaded from $scratch/talk.json" "4 messages saved"
tail -n 1 "$out" >"$scratch/second"
cmp -s "$scratch/expected" "$scratch/second" || complain "a loaded conversation goes on differently"
[ "$(roles "$scratch/loaded.json")" = "user assistant user assistant " ] || complain "not what was loaded"
chat "/load $scratch/loaded.json
/regen"
says "4 messages loaded"
n=0
while IFS='|' read -r content problem; do
    n=$((n + 1))
    printf '%b' "$content" >"$scratch/bad.json"
    chat "/load $scratch/bad.json
/regen"
    says "$scratch/bad.json" "$problem" "no answer to repeat yet"
    [ "$(wc -l <"$err")" -eq 2 ] || complain "more than one line about a bad file"
done <<'BAD'
|is empty
{"role": "user"}|array
[]|no messages
[{"role": "user", "content": "a"}]|has no answer
[{"role": "user", "content": "a"},|line 1
[{"role": "user", "content": "a"},\n{"role": "assistant", "content": 5}]|message 2 has no string "content"
[{"role": "user"}, {"role": "assistant", "content": "b"}]|content
[{"role": "robot", "content": "a"}, {"role": "assistant", "content": "b"}]|robot
[{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]|message 1
[{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]|message 2
[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] x|line 1
BAD
[ $n -eq 11 ] || complain "not all bad files were tried"
chat "/load $scratch/none.json
/load $scratch
/load /dev/zero"
says "$scratch/none.json" "$scratch: cannot read the file: Is a directory" "/dev/zero: not a regular file"

# ---- the form of conversations: from the model's template, or by name
cp -r "$model" "$scratch/strange"
sed 's/^{/{"chat_template": "{{ messages }}",/' "$data/text_cli/tokenizer_config.json" \
    >"$scratch/strange/tokenizer_config.json"
run 1 chat -m "$scratch/strange" -n 5 --quiet
one_message "chat_template is not a known one" "moonlight, chatml, alpaca and none" "(--chat-form)"
run 0 chat -m "$scratch/strange" -n 5 --quiet --chat-form alpaca
run 1 chat -m "$model" -n 5 --quiet --chat-form vicuna
one_message "no chat form \"vicuna\"" deepseek
run 1 chat -m "$model" -n 5 --quiet --chat-form chatml
one_message "needs the token <|im_start|>"
cp "$data/text_cli/tokenizer_config.json" "$scratch/strange/tokenizer_config.json"
echo '{{ messages }}' >"$scratch/strange/chat_template.jinja" # newer folders have it there
run 1 chat -m "$scratch/strange" -n 5 --quiet
one_message "chat_template is not a known one"
run 2 chat --url http://127.0.0.1:9 --chat-form alpaca
usage "--chat-form" "--url"
run 1 serve -m "$scratch/strange" --port 0
says "chat_template is not a known one" "(--chat-form)"
chat "hello" -s 3
cp "$out" "$scratch/as-it-is"
chat "hello" -s 3 --chat-form DeepSeek
cmp -s "$out" "$scratch/as-it-is" || complain "deepseek is not the form of a model without a template"
chat "hello" -s 3 --chat-form none
! cmp -s "$out" "$scratch/as-it-is" || complain "another form makes no difference"

# ---- the other commands
chat "/help"
says /help /regen /undo /reset "/save FILE" "/save --force FILE" "/load FILE" /quit
chat "/regne"
one_message "no command /regne" "did you mean /regen?"
run 0 chat --help
shows /regen /undo /load --no-history history XDG_STATE_HOME

# ---- on a terminal: the history is kept between sessions
history=$scratch/.local/state/dsmoe/history
on_terminal() { # lines, then options
    printf '%s\n' "$1" >"$input"
    shift
    arguments="chat $* on a terminal"
    TERM=dumb "$pty_run" "> " "$dsmoe" chat -m "$model" -n 2 "$@" <"$input" >"$out" 2>"$err"
    code=$?
    [ $code -eq 0 ] || complain "exit code $code, 0 is expected"
}
on_terminal "a question for the history" --no-history
[ ! -e "$history" ] || complain "a history in spite of --no-history"
on_terminal "a question for the history"
[ -e "$history" ] || complain "no history"
case $(ls -l "$history") in -rw-------*) ;; *) complain "others may read the history" ;; esac
grep -q "question" "$history" || complain "the history does not have the question"
on_terminal "$(printf '\020')" # Ctrl-P and Enter repeat the question
[ "$(grep -c "question for the history" "$out")" -ge 1 ] || complain "the history is not there the next time"
XDG_STATE_HOME=$scratch/state on_terminal "elsewhere"
[ -s "$scratch/state/dsmoe/history" ] || complain "XDG_STATE_HOME is not honoured"
mkdir "$scratch/state2"
: >"$scratch/state2/dsmoe" # a file in place of the folder
XDG_STATE_HOME=$scratch/state2 on_terminal "nowhere"
i=0
while [ $i -lt 1100 ]; do
    echo "line $i"
    i=$((i + 1))
done >"$scratch/lines"
{ head -n 1 "$history"; sed 's/ /\\040/g' "$scratch/lines"; } >"$scratch/long"
cp "$scratch/long" "$history"
on_terminal "one more"
[ "$(wc -l <"$history")" -le 1001 ] || complain "the history has no end"

exit $failed
