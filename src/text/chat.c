/* chat.c - the ids of a conversation. Everything between two special tokens is encoded as one text, since
 * tokens may reach across the border of frame and content. Content is always text, even if it spells a
 * special token. */
#include <stdlib.h>
#include <string.h>

#include "text/chat_form.h"

typedef struct encoding {
    const dsmoe_tokenizer *tokenizer;
    byte_buffer text; /* since the last special token or border */
    bool answer;      /* the text is part of an answer */
    id_buffer *ids;
    byte_buffer *answers; /* NULL: not asked for */
} encoding;

static dsmoe_status put_id(encoding *e, int32_t id, bool answer, dsmoe_error *error)
{
    const char flag = answer;
    if (e->answers) STATUS_TRY(byte_buffer_append(e->answers, &flag, 1, error));
    return id_buffer_append(e->ids, id, error);
}

static dsmoe_status flush_text(encoding *e, dsmoe_error *error)
{
    int32_t *ids;
    size_t n_ids;
    if (e->text.length == 0) return DSMOE_OK;
    STATUS_TRY(dsmoe_tokenizer_encode(e->tokenizer, e->text.bytes, e->text.length, 0, &ids, &n_ids,
                                      error));
    e->text.length = 0;
    dsmoe_status status = DSMOE_OK;
    for (size_t i = 0; i < n_ids && status == DSMOE_OK; i++)
        status = put_id(e, ids[i], e->answer, error);
    free(ids);
    return status;
}

static dsmoe_status encode_piece(encoding *e, const chat_piece *piece, dsmoe_error *error)
{
    bool is_border = e->answers && piece->answer != e->answer;
    if (!piece->text || is_border) STATUS_TRY(flush_text(e, error));
    e->answer = piece->answer;
    if (!piece->text) return put_id(e, piece->id, piece->answer, error);
    return byte_buffer_append(&e->text, piece->text, piece->length, error);
}

dsmoe_status chat_pieces_encode(const dsmoe_tokenizer *tokenizer, const chat_pieces *pieces,
                                id_buffer *ids, byte_buffer *answers, dsmoe_error *error)
{
    encoding e = {.tokenizer = tokenizer, .ids = ids, .answers = answers};
    dsmoe_status status = DSMOE_OK;
    for (size_t i = 0; i < pieces->count && status == DSMOE_OK; i++)
        status = encode_piece(&e, &pieces->at[i], error);
    if (status == DSMOE_OK) status = flush_text(&e, error);
    byte_buffer_free(&e.text);
    return status;
}

dsmoe_status dsmoe_chat_encode(const dsmoe_tokenizer *tokenizer, const dsmoe_chat_form *form,
                               const dsmoe_message *messages, size_t n_messages,
                               bool add_generation_prompt, int32_t **ids, size_t *n_ids,
                               dsmoe_error *error)
{
    *ids = NULL;
    *n_ids = 0;
    chat_pieces pieces;
    id_buffer encoded = {0};
    dsmoe_status status = chat_form_pieces(tokenizer, form, messages, n_messages,
                                           add_generation_prompt, &pieces, error);
    if (status == DSMOE_OK) status = id_buffer_reserve(&encoded, 1, error);
    if (status == DSMOE_OK) status = chat_pieces_encode(tokenizer, &pieces, &encoded, NULL, error);
    chat_pieces_free(&pieces);
    if (status != DSMOE_OK) {
        id_buffer_free(&encoded);
        return status;
    }
    *ids = encoded.ids;
    *n_ids = encoded.count;
    return DSMOE_OK;
}
