/* chat.h - a conversation with a model, as `dsmoe chat` and the commands within it (/regen and others) see
 * it. */
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
    bool answered; /* whether the last chat_answer added an answer */
    bool leaving;  /* /quit */
} chat;

/* Answers the question at the end of the conversation; c->answered says whether there is an answer. CLI_OK,
 * or the exit code that ends the chat. */
int chat_answer(chat *c);

/* Runs the command in c->input, a line that begins with a slash. CLI_OK or an exit code. */
int chat_obey(chat *c);

#endif
