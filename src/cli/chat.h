/* chat.h - a conversation with a model, as `dsmoe chat` and the commands within it (/regen and others) see it. */
#ifndef DSMOE_CLI_CHAT_H
#define DSMOE_CLI_CHAT_H

#include "cli/conversation.h"
#include "cli/line_edit.h"
#include "cli/runner.h"
#include "cli/stream.h"
#include "cli/voice.h"

typedef struct chat {
    runner_options *options;
    voice *voice;
    conversation talk;
    line_edit *lines;
    char *input; /* a question, perhaps of several lines */
    size_t n_input;
    stream answer;
    char *saved;   /* the file that was written last; NULL: none */
    bool answered; /* whether something came of the last chat_answer */
    bool leaving;  /* /quit */
} chat;

/* Answers the question at the end of the conversation; `answered` says whether there is an answer at its end
 * then. CLI_OK, or the exit code that ends the chat. */
int chat_answer(chat *c);

/* A line that begins with a slash, at c->input. CLI_OK or an exit code. */
int chat_obey(chat *c);

#endif
