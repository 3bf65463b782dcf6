/* data_conversation.c - turns a conversation into tokens, some of which are to be learned. */
#include "train/data_conversation.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

/* ---- prompt and completion ------------------------------------------------------------------ */

static dsmoe_status append(id_buffer *ids, byte_buffer *learnt, int32_t id, bool is_learnt,
                           dsmoe_error *error)
{
    const char mark = is_learnt;
    STATUS_TRY(id_buffer_append(ids, id, error));
    return byte_buffer_append(learnt, &mark, 1, error);
}

static dsmoe_status encode_plain(const data_chat *chat, const dialogue *c, id_buffer *ids,
                                 byte_buffer *learnt, dsmoe_error *error)
{
    dsmoe_status status = DSMOE_OK;
    for (size_t i = 0; i < c->n_messages && status == DSMOE_OK; i++) {
        const dialogue_message *m = &c->messages[i];
        int32_t *own;
        size_t n;
        STATUS_TRY(dsmoe_tokenizer_encode(chat->tokenizer, m->text, m->length,
                                          i == 0 ? DSMOE_ENCODE_BOS : 0, &own, &n, error));
        for (size_t j = 0; j < n && status == DSMOE_OK; j++)
            status = append(ids, learnt, own[j], m->is_answer, error);
        free(own);
    }
    int32_t eos = dsmoe_tokenizer_eos(chat->tokenizer);
    if (status != DSMOE_OK || eos < 0) return status;
    return append(ids, learnt, eos, c->messages[c->n_messages - 1].is_answer, error);
}

/* ---- in the model's form --------------------------------------------------------------------- */

static dsmoe_status encode_pieces(const data_chat *chat, const dialogue *c, chat_pieces *pieces,
                                  id_buffer *ids, byte_buffer *learnt, dsmoe_error *error)
{
    for (size_t i = 0; i < pieces->count; i++) {
        chat_piece *p = &pieces->at[i];
        p->answer = p->answer && c->messages[p->message].is_answer;
    }
    return chat_pieces_encode(chat->tokenizer, pieces, ids, learnt, error);
}

static dsmoe_status encode_framed(const data_chat *chat, const dialogue *c, id_buffer *ids,
                                  byte_buffer *learnt, dsmoe_error *error)
{
    size_t size;
    dsmoe_message *messages =
        checked_mul_size(c->n_messages, sizeof *messages, &size) ? malloc(size) : NULL;
    if (!messages) return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for its messages");
    for (size_t i = 0; i < c->n_messages; i++)
        messages[i] = (dsmoe_message){c->messages[i].role, c->messages[i].text};
    chat_pieces pieces = {0};
    dsmoe_status status = chat_form_pieces(chat->tokenizer, chat->form, messages, c->n_messages,
                                           false, &pieces, error);
    if (status == DSMOE_OK) status = encode_pieces(chat, c, &pieces, ids, learnt, error);
    chat_pieces_free(&pieces);
    free(messages);
    return status;
}

dsmoe_status data_conversation_encode(const data_chat *chat, const dialogue *c, id_buffer *ids,
                                      byte_buffer *learnt, dsmoe_error *error)
{
    if (c->n_messages == 0) return DSMOE_OK;
    STATUS_TRY((c->is_plain ? encode_plain : encode_framed)(chat, c, ids, learnt, error));
    if (chat->learns_all && learnt->length > 0) memset(learnt->bytes, 1, learnt->length);
    if (learnt->length > 0) learnt->bytes[0] = 0;
    return DSMOE_OK;
}

/* ---- a copy ---------------------------------------------------------------------------------- */

dialogue *data_conversation_copy(const dialogue *c)
{
    size_t size;
    if (!checked_mul_size(c->n_messages, sizeof *c->messages, &size) ||
        !checked_add_size(size, sizeof *c, &size))
        return NULL;
    for (size_t i = 0; i < c->n_messages; i++)
        if (!checked_add_size(size, c->messages[i].length, &size) ||
            !checked_add_size(size, 1, &size))
            return NULL;
    dialogue *copy = malloc(size);
    if (!copy) return NULL;
    *copy = (dialogue){.messages = (dialogue_message *)(copy + 1),
                       .n_messages = c->n_messages,
                       .is_plain = c->is_plain,
                       .n_chosen = c->n_chosen};
    char *text = (char *)(copy->messages + c->n_messages);
    for (size_t i = 0; i < c->n_messages; i++) {
        copy->messages[i] = c->messages[i];
        copy->messages[i].text = memcpy(text, c->messages[i].text, c->messages[i].length + 1);
        text += c->messages[i].length + 1;
    }
    return copy;
}
