/* corpus.c - a text file as the tokens a model reads. */
#include "cli/corpus.h"

#include <stdlib.h>

#include "cli/cli.h"
#include "cli/ids.h"
#include "cli/progress.h"

static int encode_text(const corpus_source *source, const char *bytes, size_t length, corpus *text,
                       size_t *n_tokens)
{
    dsmoe_error error;
    if (dsmoe_tokenizer_open(source->model_path, &text->tokenizer, &error) != DSMOE_OK)
        return cli_failure(source->command, "%s%s", error.message,
                           error.status == DSMOE_ERROR_IO ? "; token ids (--ids) need no tokenizer"
                                                          : "");
    progress notice = progress_wait("tokenizing", length);
    dsmoe_status status =
        dsmoe_tokenizer_encode(text->tokenizer, bytes, length, 0, &text->tokens, n_tokens, &error);
    progress_finish(&notice);
    if (status != DSMOE_OK) return cli_failure(source->command, "%s", error.message);
    if (dsmoe_tokenizer_adds_bos(text->tokenizer)) text->bos = dsmoe_tokenizer_bos(text->tokenizer);
    return CLI_OK;
}

static int check_tokens(const corpus_source *source, const dsmoe_config *config, const corpus *text)
{
    const char *name = cli_input_name(source->text_path);
    dsmoe_error error;
    if (text->n_tokens == 0) return cli_failure(source->command, "%s: no text in it", name);
    if (ids_check(&text->bos, text->bos >= 0, config->vocab_size, true, &error) ||
        ids_check(text->tokens, (size_t)text->n_tokens, config->vocab_size, !source->ids, &error))
        return cli_failure(source->command, "%s: %s", source->ids ? name : source->model_path,
                           error.message);
    return CLI_OK;
}

int corpus_read(const corpus_source *source, const dsmoe_config *config, corpus *text)
{
    char *bytes = NULL;
    size_t length = 0, n_tokens = 0;
    ids_source ids = {source->command, cli_input_name(source->text_path)};
    *text = (corpus){.bos = -1};
    int exit_code = cli_read_file(source->command, source->text_path, &bytes, &length);
    if (exit_code != CLI_OK) return exit_code;
    exit_code = source->ids ? ids_parse(ids, bytes, length, &text->tokens, &n_tokens)
                            : encode_text(source, bytes, length, text, &n_tokens);
    free(bytes);
    text->n_tokens = (int64_t)n_tokens;
    if (!source->ids) text->n_bytes = (int64_t)length;
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

token_text corpus_text(const corpus *text)
{
    return (token_text){text->tokens, text->n_tokens, text->bos};
}

int64_t corpus_window(const corpus *text, int64_t start, int32_t *buffer, int64_t n_tokens)
{
    const token_text tokens = corpus_text(text);
    return token_text_window(&tokens, start, buffer, n_tokens);
}

int64_t corpus_context(const char *command, const corpus *text, const dsmoe_config *config,
                       int64_t n_ctx)
{
    int64_t needed = text->n_tokens + (text->bos >= 0);
    if (n_ctx == 0) n_ctx = config->max_position_embeddings;
    if (n_ctx > needed) n_ctx = needed;
    cli_warn_of_context(command, config, n_ctx);
    return n_ctx;
}
