/* data_conversation.h - turns a conversation into tokens, some of which are to be learned. */
#ifndef DSMOE_TRAIN_DATA_CONVERSATION_H
#define DSMOE_TRAIN_DATA_CONVERSATION_H

#include "formats/dialogue.h"
#include "text/chat_form.h"

typedef struct data_chat {
    const dsmoe_tokenizer *tokenizer;
    const dsmoe_chat_form *form; /* may be NULL for plain conversations */
    bool learns_all;             /* questions and frames are learned too */
} data_chat;

/* Answers, and what ends each answer, are to be learned. They are encoded separately from the text before
 * them, as a model produces them. The first token, which has nothing before it, is never learned. A prompt
 * is followed by its completion, with BOS first if prompts have one, and EOS last if there is one.
 * learnt[i] is 1 or 0 for each id. */
dsmoe_status data_conversation_encode(const data_chat *chat, const dialogue *conversation,
                                      id_buffer *ids, byte_buffer *learnt, dsmoe_error *error);

/* A copy in one piece of memory, to be passed to free(); NULL if there is no memory. */
dialogue *data_conversation_copy(const dialogue *conversation);

#endif
