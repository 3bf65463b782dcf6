/* chat.c - a conversation as the DeepSeek chat models were trained on it:
 *
 *   BOS {system}\n\n User: {user}\n\n Assistant: {assistant} EOS User: …
 *
 * without the spaces between the parts. All that lies between two special tokens is encoded as one
 * text, since tokens may reach across the border of frame and content. What a content says is text
 * and nothing else, even if it spells a special token. */
#include <stdlib.h>
#include <string.h>

#include "text/buffer.h"

/* What stands around a content. */
typedef struct chat_frame {
    const char *role, *before, *after;
    bool ends; /* with EOS */
} chat_frame;

static const chat_frame frames[] = {
    {"system", "", "\n\n", false},
    {"user", "User: ", "\n\n", false},
    {"assistant", "Assistant: ", "", true},
};
enum { N_FRAMES = sizeof frames / sizeof *frames };

static const char generation_prompt[] = "Assistant:";

typedef struct chat {
    const dsmoe_tokenizer *tokenizer;
    byte_buffer text; /* since the last special token */
    id_buffer ids;
} chat;

static dsmoe_status append_text(chat *c, const char *text, dsmoe_error *error)
{
    return byte_buffer_append(&c->text, text, strlen(text), error);
}

static dsmoe_status flush_text(chat *c, dsmoe_error *error)
{
    int32_t *ids;
    size_t n_ids;
    STATUS_TRY(dsmoe_tokenizer_encode(c->tokenizer, c->text.bytes, c->text.length, 0, &ids, &n_ids,
                                      error));
    c->text.length = 0;
    dsmoe_status status = DSMOE_OK;
    for (size_t i = 0; i < n_ids && status == DSMOE_OK; i++)
        status = id_buffer_append(&c->ids, ids[i], error);
    free(ids);
    return status;
}

static dsmoe_status append_message(chat *c, const dsmoe_message *message, size_t number,
                                   dsmoe_error *error)
{
    if (!message->role || !message->content)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "message %zu has no %s", number,
                           message->role ? "content" : "role");
    const chat_frame *frame = frames;
    while (frame < frames + N_FRAMES && strcmp(frame->role, message->role)) frame++;
    if (frame == frames + N_FRAMES)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "message %zu: role \"%.64s\" is none of system, user and assistant",
                           number, message->role);
    STATUS_TRY(append_text(c, frame->before, error));
    STATUS_TRY(append_text(c, message->content, error));
    STATUS_TRY(append_text(c, frame->after, error));
    if (!frame->ends) return DSMOE_OK;
    int32_t eos = dsmoe_tokenizer_eos(c->tokenizer);
    if (eos < 0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "message %zu: the tokenizer has no EOS to end an answer with", number);
    STATUS_TRY(flush_text(c, error));
    return id_buffer_append(&c->ids, eos, error);
}

static dsmoe_status encode_chat(chat *c, const dsmoe_message *messages, size_t n_messages,
                                bool add_generation_prompt, dsmoe_error *error)
{
    int32_t bos = dsmoe_tokenizer_bos(c->tokenizer);
    STATUS_TRY(id_buffer_reserve(&c->ids, 1, error));
    if (bos >= 0) STATUS_TRY(id_buffer_append(&c->ids, bos, error));
    for (size_t i = 0; i < n_messages; i++) STATUS_TRY(append_message(c, &messages[i], i, error));
    if (add_generation_prompt) STATUS_TRY(append_text(c, generation_prompt, error));
    return flush_text(c, error);
}

dsmoe_status dsmoe_chat_encode(const dsmoe_tokenizer *tokenizer, const dsmoe_message *messages,
                               size_t n_messages, bool add_generation_prompt, int32_t **ids,
                               size_t *n_ids, dsmoe_error *error)
{
    *ids = NULL;
    *n_ids = 0;
    chat c = {.tokenizer = tokenizer};
    dsmoe_status status = encode_chat(&c, messages, n_messages, add_generation_prompt, error);
    byte_buffer_free(&c.text);
    if (status != DSMOE_OK) {
        id_buffer_free(&c.ids);
        return status;
    }
    *ids = c.ids.ids;
    *n_ids = c.ids.count;
    return DSMOE_OK;
}
