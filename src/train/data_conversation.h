/* data_conversation.h - a conversation becomes tokens, some of which are to be learnt. */
#ifndef DSMOE_TRAIN_DATA_CONVERSATION_H
#define DSMOE_TRAIN_DATA_CONVERSATION_H

#include "formats/dialogue.h"
#include "text/chat_form.h"

typedef struct data_chat {
    const dsmoe_tokenizer *tokenizer;
    const dsmoe_chat_form *form; /* may be NULL for conversations that are plain */
    bool learns_all;             /* questions and frames too */
} data_chat;

/* Answers, and what ends each, are to be learnt. They are encoded apart from what comes before, as a model that writes
 * them has it. The first token, which nothing comes before, never is. A prompt and its completion follow each other, BOS
 * first if prompts have one, EOS last if there is one. learnt[i] is 1 or 0 for each id. */
dsmoe_status data_conversation_encode(const data_chat *chat, const dialogue *conversation,
                                      id_buffer *ids, byte_buffer *learnt, dsmoe_error *error);

/* A copy in one piece of memory, to free(); NULL without memory. */
dialogue *data_conversation_copy(const dialogue *conversation);

#endif
