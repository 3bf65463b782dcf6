/* fuzz_documents.c - any bytes as a file to learn from, in each of its forms: refused, or every document
 * is text or tokens within those bytes. */
#include "fuzz.h"

#include <string.h>

#include "formats/documents.h"
#include "formats/token_shard.h"

typedef struct fuzz_input {
    size_t size;
    document_form form;
    size_t n_documents;
} fuzz_input;

/* Reads all that a user of the document would read, so that the sanitizers see it. */
static dsmoe_status look(void *context, const document *d, dsmoe_error *error)
{
    fuzz_input *in = context;
    (void)error;
    in->n_documents++;
    if (in->form == DOCUMENT_SHARD) {
        require(!d->text && d->n_tokens > 0 && (d->token_size == 2 || d->token_size == 4));
        require(d->n_tokens <= in->size / (size_t)d->token_size);
        token_shard shard = {d->tokens, d->n_tokens, d->token_size};
        size_t above = token_shard_find_above(&shard, 1000);
        for (size_t i = 0; i < d->n_tokens && i <= above; i++)
            require((token_shard_token(&shard, i) < 1000) == (i < above));
        return DSMOE_OK;
    }
    if (d->conversation) {
        require(in->form == DOCUMENT_JSONL && !d->text && !d->tokens && d->line > 0);
        return DSMOE_OK;
    }
    require(d->text && d->length > 0 && !d->tokens);
    require(in->form != DOCUMENT_JSONL || !memchr(d->text, '\0', d->length));
    return DSMOE_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const document_form forms[] = {DOCUMENT_TEXT, DOCUMENT_JSONL, DOCUMENT_SHARD};
    enum { N_FORMS = sizeof forms / sizeof *forms };
    for (size_t i = 0; i < 2 * N_FORMS; i++) { /* bad bytes kept, then replaced */
        document_form form = forms[i % N_FORMS];
        fuzz_input in = {.size = size, .form = form};
        char name[] = "fuzz";
        document_source source = {
            .path = name, .form = form, .size = size, .replace = i >= N_FORMS};
        dsmoe_error error = {0};
        dsmoe_status status = document_each_in(&source, bytes, size, look, &in, &error);
        if (status != DSMOE_OK) require_error(status, &error);
        require(form != DOCUMENT_TEXT || (status == DSMOE_OK && in.n_documents <= 1));
    }
    return 0;
}
