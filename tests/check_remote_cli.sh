#!/bin/sh
# check_remote_cli.sh DSMOE DATA PTY_RUN - `dsmoe generate` and `dsmoe chat` with a running `dsmoe serve`, over the
# loopback address and a Unix socket.
pty_run=$3
. "$(dirname "$0")/cli_checks.sh"
unset http_proxy https_proxy all_proxy HTTPS_PROXY ALL_PROXY DSMOE_API_KEY
input=$scratch/input
: >"$input"
servers=
trap 'kill $servers 2>/dev/null; rm -rf "$scratch"' EXIT
model=$scratch/model
run 0 init --preset tiny --layers 1 --seed 1 -t 2 --tokenizer "$data/text_cli" "$model"

wait_for() { # a command that will soon succeed
    i=0
    until "$@" || [ $i -ge 600 ]; do
        sleep 0.1
        i=$((i + 1))
    done
}

serve() { # name, options: starts a server and writes its address to $scratch/NAME.url when it is ready
    name=$1
    shift
    arguments="serve $*"
    "$dsmoe" serve -m "$model" -t 1 "$@" >"$scratch/$name.url" 2>"$scratch/$name.err" </dev/null &
    servers="$servers $!"
    wait_for test -s "$scratch/$name.url"
    [ -s "$scratch/$name.url" ] || { cat "$scratch/$name.err" >&2; complain "no server"; exit 1; }
}
serve small --port 0 -c 120
serve large --port 0 -c 400000
serve locked --unix "$scratch/socket" --api-key s3cret
small=$(cat "$scratch/small.url") large=$(cat "$scratch/large.url")

# Favours letters, so that texts of this untrained model can be compared.
printf 'abcdefg ' >"$input"
run 0 tokenize -m "$model"
read -r _ ids <"$out" # without BOS
letters=
for id in $ids; do letters="$letters -l $id+60"; done

same() { # local and remote calls wrote the same
    cmp -s "$scratch/here" "$scratch/there" || complain "not what the model writes here"
}

# ---- generate: the same text as locally, and the same options
: >"$input"
# shellcheck disable=SC2086  # several arguments
for options in "--temp 0 -n 20" "-s 3 -n 40" "-s 3 -n 40 --stop ab --echo" "-s 4 --top-k 3 --temp 2 -n 30" "-n 0"; do
    run 0 generate -m "$model" -t 1 -p "hello you" $letters $options --quiet
    cp "$out" "$scratch/here"
    run 0 generate --url "$small" -p "hello you" $letters $options --quiet
    silent
    cp "$out" "$scratch/there"
    same
done
run 0 generate --url "$small" -p "hello" -s 5 -n 12 --ignore-eos
says "prompt: " "decode: 12 tokens" "seed: 5"
# shellcheck disable=SC2086
run 0 generate --url "$small/v1/" -p "hello you" $letters --temp 0 -n 20 --quiet
cp "$out" "$scratch/here"
printf 'hello you\n' >"$input"
# shellcheck disable=SC2086
run 0 generate --url "$small" $letters --temp 0 -n 20 --quiet
cp "$out" "$scratch/there"
same
# shellcheck disable=SC2086
run 0 generate --url "$small" -f "$input" $letters --temp 0 -n 20 --quiet
cp "$out" "$scratch/there"
same
run 0 generate --url "$small" -n -1 --ignore-eos -p "hello"
says "the server's context is full"
printf '\377\376' >"$input"
run 1 generate --url "$small" -f "$input"
one_message "not UTF-8"

# ---- generate: errors are one line with the address
: >"$input"
run 1 generate --url http://127.0.0.1:1 -p hello
one_message "http://127.0.0.1:1: cannot connect: Connection refused"
i=0
while [ $i -lt 300 ]; do i=$((i + 1)); printf 'word '; done >"$input"
run 1 generate --url "$small" -f "$input"
one_message "$small: " "context"
: >"$input"
run 1 generate --url "$small/elsewhere" -p hello
one_message "$small/elsewhere: status 404"
run 1 generate --url "https${small#http}" -p hello
one_message "https${small#http}: TLS: "

# ---- a Unix socket; and keys, which no message shows
run 1 generate --unix "$scratch/socket" -p hello
one_message "$scratch/socket: status 401"
run 1 generate --unix "$scratch/socket" --api-key s3crat -p hello
one_message "status 401"
if grep -q s3crat "$err"; then complain "a key is shown"; fi
run 0 generate --unix "$scratch/socket" --api-key s3cret -p hello -n 4 --quiet
silent
DSMOE_API_KEY=s3cret run 0 generate --unix "$scratch/socket" -p hello -n 4 --quiet
silent

# ---- TLS, with a self-signed certificate that was made for this test and protects nothing
cat >"$scratch/cert.pem" <<'CERT'
-----BEGIN CERTIFICATE-----
MIIBmzCCAUGgAwIBAgIUYR9QeyMJczG5iM43l/BhzQ1LGQ4wCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTExNzA2MjAyM1oYDzIxMjYxMDI0
MDYyMDIzWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQBcJ2igyMFtFZHZZl0NWbkbz6P9lOrQx3kXGV/vFdKBZLsSdwcc+c/
wQEJthye2+9cgiWJDebHd3ZEE/yWov0fo28wbTAdBgNVHQ4EFgQUQ0qSn/KnQJv6
WgmRuS3M1vlyryowHwYDVR0jBBgwFoAUQ0qSn/KnQJv6WgmRuS3M1vlyryowDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSAAwRQIgNQj5lTsFsVuHq+HA0+q1qUL2D8g3dcsxi2DlBA1RLoECIQC9
R7vIz6bO/aLu4Qwzbc/PLKlXUan/rB4S6Nc2+G15Yg==
-----END CERTIFICATE-----
CERT
cat >"$scratch/key.pem" <<'KEY'
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgFFClhLv9DsBsFwv4
xdyR2n8tuYAyjhK3q+fud8VwH5qhRANCAAQBcJ2igyMFtFZHZZl0NWbkbz6P9lOr
Qx3kXGV/vFdKBZLsSdwcc+c/wQEJthye2+9cgiWJDebHd3ZEE/yWov0f
-----END PRIVATE KEY-----
KEY
serve tls --port 0 --cert "$scratch/cert.pem" --key "$scratch/key.pem"
tls=$(cat "$scratch/tls.url")
run 0 generate --url "$tls" --cacert "$scratch/cert.pem" -p hello -n 4 --quiet
silent
run 1 generate --url "$tls" -p hello
one_message "$tls: TLS: "
run 1 generate --url "$tls" --cacert "$scratch/key.pem" -p hello
one_message "$tls: TLS: "
run 1 generate --url "http${tls#https}" -p hello
one_message "http${tls#https}: "

# ---- wrong calls
for options in "-m model" "-c 64" "-b 4" "-t 1" "--kv-type f32" --no-repack --special --ids; do
    # shellcheck disable=SC2086
    run 2 generate --url "$small" -p hello $options
    usage "cannot be used together" --url
    # shellcheck disable=SC2086
    [ "$options" = --ids ] || run 2 chat --unix "$scratch/socket" $options
    usage "cannot be used together"
done
run 2 generate --url ftp://127.0.0.1 -p hello
usage --url
run 2 generate --url http://me:word@127.0.0.1 -p hello
usage --api-key
run 2 generate -m "$model" --api-key s3cret -p hello
usage "--api-key has no effect without --url"
run 2 generate -m "$model" --cacert "$scratch/cert.pem" -p hello
usage "--cacert has no effect without --url"
for command in generate chat; do
    run 0 $command --help
    shows --url --api-key DSMOE_API_KEY --unix --cacert "dsmoe $command --url http"
done

# ---- Ctrl-C
arguments="generate --url and Ctrl-C"
: >"$out" >"$err"
"$dsmoe" generate --url "$large" -p hello -n -1 --ignore-eos >"$out" 2>"$err" </dev/null &
wait_for test -s "$out"
interrupted $!
says "decode: "
arguments="chat --url and Ctrl-C"
: >"$out" >"$err"
mkfifo "$scratch/lines"
"$dsmoe" chat --url "$large" --ignore-eos >"$out" 2>"$err" <"$scratch/lines" &
exec 3>"$scratch/lines"
echo "go on for ever" >&3
wait_for test -s "$out"
kill -INT $!
wait_for grep -qF "(stopped)" "$err"
printf '/save %s\n' "$scratch/stopped.json" >&3
exec 3>&-
wait $!
code=$?
[ $code -eq 0 ] || complain "exit code $code, 0 is expected"
says "(stopped)" "2 messages saved"

# ---- chat
chat() { # the lines of $1, with further options; expects exit code 0
    printf '%s\n' "$1" >"$input"
    shift
    run 0 chat --url "$small" -n 5 --quiet "$@"
}

roles() { # of a file of messages, in order
    sed -n 's/.*"role": "\([a-z]*\)".*/\1/p' "$1" | tr '\n' ' '
}

printf 'hello\nwhat else\n' >"$input"
# shellcheck disable=SC2086
run 0 chat -m "$model" -t 1 -n 12 --quiet $letters --temp 0 --system "Be brief."
cp "$out" "$scratch/here"
# shellcheck disable=SC2086
run 0 chat --url "$small" -n 12 --quiet $letters --temp 0 --system "Be brief."
silent
cp "$out" "$scratch/there"
same
chat "hello
two
/undo
/save $scratch/undone.json
/regen
/regen
/save $scratch/again.json
/reset
/save $scratch/nothing.json
/load $scratch/again.json
three
/save $scratch/three.json" --system "Be brief." -s 3 --ignore-eos
says "messages left: 3" "3 messages saved" "the conversation is forgotten" "1 messages saved" "3 messages loaded" \
    "5 messages saved"
[ "$(roles "$scratch/three.json")" = "system user assistant user assistant " ] || complain "not the conversation"
if cmp -s "$scratch/undone.json" "$scratch/again.json"; then complain "/regen gives the same answer"; fi
chat "hello
/regen" --temp 0
says "temperature 0"
printf 'hello\n' >"$input"
run 0 chat --url "$small" -n 5 -s 8 --ignore-eos
says "prompt: " "decode: 5 tokens" "seed: 8"

# ---- a conversation that has become too long
i=0
while [ $i -lt 12 ]; do
    i=$((i + 1))
    echo "question number $i"
done >"$scratch/many"
chat "$(cat "$scratch/many")
/save $scratch/long.json" --ignore-eos
says "the server's context is full: the oldest 2 messages are forgotten"
grep -q '"question number 12"' "$scratch/long.json" || complain "the newest question is lost"
if grep -q '"question number 1"' "$scratch/long.json"; then complain "the oldest question is still there"; fi
i=0
while [ $i -lt 100 ]; do i=$((i + 1)); printf 'word '; done >"$scratch/words"
chat "hello
$(cat "$scratch/words")
/save $scratch/forgotten.json"
says "too long: " "context" "the message is dropped"

# ---- a refusal ends a chat that reads from a pipe, but not one at a terminal
long=$(printf '%0300d' 0) # longer than the server accepts
printf 'hello\nagain\n' >"$input"
run 1 chat --url "$small" --stop "$long"
one_message "$small: status 400: "
arguments="chat --url on a terminal"
TERM=dumb "$pty_run" "> " "$dsmoe" chat --url "$small" --no-history --stop "$long" <"$input" >"$out" 2>"$err"
code=$?
[ $code -eq 0 ] || complain "exit code $code, 0 is expected"
[ "$(grep -c "status 400" "$out")" -eq 2 ] || complain "the chat does not go on"

exit $failed
