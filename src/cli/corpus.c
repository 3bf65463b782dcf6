/* corpus.c - a text file as the tokens a model reads. */
#include "cli/corpus.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/ids.h"

static int too_large(const corpus_source *source, int64_t token, const dsmoe_config *config)
{
    return cli_failure(source->command,
                       "%s: token %" PRId64 " is not below the model's vocab_size %" PRId64,
                       source->text_path, token, config->vocab_size);
}

static int encode_text(const corpus_source *source, const char *bytes, size_t length, corpus *text,
                       size_t *n_tokens)
{
    dsmoe_error error;
    if (dsmoe_tokenizer_open(source->model_path, &text->tokenizer, &error) != DSMOE_OK ||
        dsmoe_tokenizer_encode(text->tokenizer, bytes, length, 0, &text->tokens, n_tokens,
                               &error) != DSMOE_OK)
        return cli_failure(source->command, "%s", error.message);
    if (dsmoe_tokenizer_adds_bos(text->tokenizer)) text->bos = dsmoe_tokenizer_bos(text->tokenizer);
    return CLI_OK;
}

static int check_tokens(const corpus_source *source, const dsmoe_config *config, const corpus *text)
{
    if (text->n_tokens == 0)
        return cli_failure(source->command, "%s: no text in it", source->text_path);
    if (text->bos >= config->vocab_size) return too_large(source, text->bos, config);
    for (int64_t i = 0; i < text->n_tokens; i++)
        if (text->tokens[i] >= config->vocab_size)
            return too_large(source, text->tokens[i], config);
    return CLI_OK;
}

int corpus_read(const corpus_source *source, const dsmoe_config *config, corpus *text)
{
    char *bytes = NULL;
    size_t length = 0, n_tokens = 0;
    *text = (corpus){.bos = -1};
    int exit_code = cli_read_file(source->command, source->text_path, &bytes, &length);
    if (exit_code != CLI_OK) return exit_code;
    exit_code = source->ids ? ids_parse(source->command, bytes, length, &text->tokens, &n_tokens)
                            : encode_text(source, bytes, length, text, &n_tokens);
    free(bytes);
    text->n_tokens = (int64_t)n_tokens;
    if (exit_code == CLI_OK) exit_code = check_tokens(source, config, text);
    if (exit_code != CLI_OK) corpus_free(text);
    return exit_code;
}

void corpus_free(corpus *text)
{
    dsmoe_tokenizer_free(text->tokenizer);
    free(text->tokens);
    *text = (corpus){.bos = -1};
}

int64_t corpus_window(const corpus *text, int64_t start, int32_t *buffer, int64_t n_tokens)
{
    int64_t n_bos = text->bos >= 0, n_text = text->n_tokens - start;
    if (n_text > n_tokens - n_bos) n_text = n_tokens - n_bos;
    if (n_bos) buffer[0] = text->bos;
    memcpy(buffer + n_bos, text->tokens + start, (size_t)n_text * sizeof *buffer);
    return n_bos + n_text;
}

int64_t corpus_context(const char *command, const corpus *text, const dsmoe_config *config,
                       int64_t n_ctx)
{
    int64_t needed = text->n_tokens + (text->bos >= 0);
    if (n_ctx == 0) n_ctx = config->max_position_embeddings;
    if (n_ctx > needed) n_ctx = needed;
    if (n_ctx > config->max_position_embeddings)
        fprintf(stderr,
                "dsmoe %s: warning: the model was made for contexts of %" PRId64 " tokens, not of"
                " %" PRId64 "\n",
                command, config->max_position_embeddings, n_ctx);
    return n_ctx;
}
