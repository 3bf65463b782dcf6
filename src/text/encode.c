/* encode.c - from text to ids and back.
 *
 * First, added tokens are found in the original text. The text between them is normalised and searched
 * for added tokens again. The rest is cut into pieces, and BPE turns each piece into tokens. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "text/tokenizer.h"

enum { TEXT_MAX = INT32_MAX - 1 }; /* bytes; far more than any context holds */

typedef struct encoder {
    const dsmoe_tokenizer *tokenizer;
    bool special;
    regex_scratch *scratch;
    bpe_workspace work;
    byte_buffer normalized;
    id_buffer ids;
} encoder;

static dsmoe_status encode_piece(void *context, const char *piece, size_t length,
                                 dsmoe_error *error)
{
    encoder *e = context;
    return bpe_encode(&e->tokenizer->bpe, &e->work, piece, length, &e->ids, error);
}

static dsmoe_status encode_plain(encoder *e, const char *text, size_t length, dsmoe_error *error)
{
    return pre_tokenizer_run(&e->tokenizer->pre_tokenizer, e->scratch, text, length, encode_piece,
                             e, error);
}

typedef dsmoe_status between_fn(encoder *e, const char *text, size_t length, dsmoe_error *error);

/* Appends the added tokens of a tree, and encodes the text between them with `between`. */
static dsmoe_status encode_around(encoder *e, const added_tree *tree, const char *text,
                                  size_t length, between_fn *between, dsmoe_error *error)
{
    size_t at = 0;
    added_match match;
    while (added_tokens_find(&e->tokenizer->added, tree, text, length, at, e->special, &match)) {
        if (match.start > at) STATUS_TRY(between(e, text + at, match.start - at, error));
        STATUS_TRY(id_buffer_append(&e->ids, match.id, error));
        at = match.end;
    }
    return at < length ? between(e, text + at, length - at, error) : DSMOE_OK;
}

static dsmoe_status encode_normalized(encoder *e, const char *text, size_t length,
                                      dsmoe_error *error)
{
    const dsmoe_tokenizer *t = e->tokenizer;
    if (t->normalizer.n_steps > 0) {
        e->normalized.length = 0;
        STATUS_TRY(normalizer_run(&t->normalizer, e->scratch, text, length, &e->normalized, error));
        text = e->normalized.bytes;
        length = e->normalized.length;
    }
    return encode_around(e, &t->added.normalized, text, length, encode_plain, error);
}

static dsmoe_status encode_all(encoder *e, const char *text, size_t length, int flags,
                               dsmoe_error *error)
{
    const dsmoe_tokenizer *t = e->tokenizer;
    STATUS_TRY(regex_scratch_create(&e->scratch, error));
    STATUS_TRY(id_buffer_reserve(&e->ids, length / 4 + 1, error));
    if ((flags & DSMOE_ENCODE_BOS) && dsmoe_tokenizer_adds_bos(t))
        STATUS_TRY(id_buffer_append(&e->ids, t->bos, error));
    return encode_around(e, &t->added.raw, text, length, encode_normalized, error);
}

dsmoe_status dsmoe_tokenizer_encode(const dsmoe_tokenizer *tokenizer, const char *text,
                                    size_t length, int flags, int32_t **ids, size_t *n_ids,
                                    dsmoe_error *error)
{
    *ids = NULL;
    *n_ids = 0;
    if (flags & ~(DSMOE_ENCODE_BOS | DSMOE_ENCODE_SPECIAL))
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "unknown flags 0x%x of an encoding", flags);
    if (length > TEXT_MAX)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "a text of %zu bytes, at most %d can be encoded at once", length,
                           TEXT_MAX);
    encoder e = {.tokenizer = tokenizer, .special = (flags & DSMOE_ENCODE_SPECIAL) != 0};
    dsmoe_error reason;
    dsmoe_status status = encode_all(&e, length ? text : "", length, flags, &reason);
    regex_scratch_free(e.scratch);
    bpe_workspace_free(&e.work);
    byte_buffer_free(&e.normalized);
    if (status != DSMOE_OK) {
        id_buffer_free(&e.ids);
        return status_fail(error, status, "%s: %s", tokenizer->source, reason.message);
    }
    *ids = e.ids.ids;
    *n_ids = e.ids.count;
    return DSMOE_OK;
}

dsmoe_status dsmoe_tokenizer_decode(const dsmoe_tokenizer *tokenizer, const int32_t *ids,
                                    size_t n_ids, char **text, size_t *length, dsmoe_error *error)
{
    *text = NULL;
    *length = 0;
    size_t total = 0, piece_length;
    for (size_t i = 0; i < n_ids; i++) {
        if (!dsmoe_tokenizer_piece(tokenizer, ids[i], &piece_length))
            return status_fail(error, DSMOE_ERROR_ARGUMENT, "%s: there is no token %" PRId32,
                               tokenizer->source, ids[i]);
        if (!checked_add_size(total, piece_length, &total) || total == SIZE_MAX)
            return status_fail(error, DSMOE_ERROR_MEMORY, "the text does not fit into memory");
    }
    char *bytes = malloc(total + 1);
    if (!bytes)
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for %zu bytes", total + 1);
    size_t at = 0;
    for (size_t i = 0; i < n_ids; i++) {
        const char *piece = dsmoe_tokenizer_piece(tokenizer, ids[i], &piece_length);
        memcpy(bytes + at, piece, piece_length);
        at += piece_length;
    }
    bytes[total] = '\0';
    *text = bytes;
    *length = total;
    return DSMOE_OK;
}
