#!/bin/sh
# test_web.sh DSMOE - tests the pages in a real browser and the server with the official OpenAI client, with a small model that
# it makes. Installs the npm packages of tests/web. Screenshots go to $SCREENSHOTS if that is set.
set -eu
dsmoe=$(realpath "$1")
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

mkdir "$scratch/tokenizer"
cp tests/data/text_cli/tokenizer.json "$scratch/tokenizer"
template=$(tr -d '\n' <<'END' # the DeepSeek chat form, which the server recognises; backslashes are escaped for sed
{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ 'User: ' + message['content'] + '\\\\n\\\\n' }}
{% elif message['role'] == 'assistant' %}{{ 'Assistant: ' + message['content'] + eos_token }}
{% else %}{{ message['content'] + '\\\\n\\\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}
END
)
sed "s/^{/{ \"chat_template\": \"$template\",/" tests/data/text_cli/tokenizer_config.json >"$scratch/tokenizer/tokenizer_config.json"
"$dsmoe" init --preset tiny --vocab-size 268 --hidden 64 --heads 2 --ffn 96 --moe 32 --routed 16 --k 3 --layers 4 \
    --dense-layers 1 --tokenizer "$scratch/tokenizer" --type q8_0 "$scratch/web.gguf" >/dev/null
cd tests/web
npm install --no-package-lock --no-audit --no-fund --loglevel=error
DSMOE="$dsmoe" MODEL="$scratch/web.gguf" node --test --test-timeout=120000 .
