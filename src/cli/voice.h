/* voice.h - the writer of the texts of `generate` and `chat`: a model in this process, or a server elsewhere. The
 * commands know only this, so whatever they do with a text they do with both. */
#ifndef DSMOE_CLI_VOICE_H
#define DSMOE_CLI_VOICE_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/conversation.h"
#include "cli/options.h"
#include "cli/runner.h"
#include "cli/stream.h"
#include "dsmoe.h"

/* What the command line asks for. It stays where it is while the voice is open. */
typedef struct voice_order {
    const char *command;
    runner_options *options;
    const option_row *rows; /* all of the command, and which were given */
    int n_rows;
    const bool *given;
    bool ids;                   /* texts are token ids as decimal numbers */
    const char *tokenizer_hint; /* added to the message if there is no tokenizer */
    bool talks;                 /* conversations, not texts to continue */
    const char *chat_form;      /* their form; NULL: the model's own */
} voice_order;

/* How a text came out. */
typedef struct voice_result {
    runner_end end;
    bool began;        /* something came, even if it is not shown */
    int n_dropped;     /* messages of the conversation that no longer fitted */
    dsmoe_error error; /* RUNNER_FAILED: why; RUNNER_FULL before anything came: what is too long */
} voice_result;

typedef struct voice voice;

typedef struct voice_kind {
    /* The text that is to be continued, and what messages call it. It stays where it is. CLI_OK, or an exit code
     * after a message. */
    int (*take_prompt)(voice *v, const char *name, const char *text, size_t length);
    void (*go_on)(voice *v, stream *out, voice_result *result);
    /* Answers the question at the end of a conversation, whose oldest turns are dropped if they do not fit. */
    void (*answer)(voice *v, conversation *talk, stream *out, voice_result *result);
    /* What follows gets other random numbers. CLI_OK, or an exit code after a message. */
    int (*reseed)(voice *v);
    /* Tokens, speed and seed as one line on stderr. */
    void (*report)(const voice *v);
    void (*close)(voice *v);
} voice_kind;

struct voice {
    const voice_kind *kind;
    const char *command,
        *name;          /* for messages; the name is the model's path or the server's address */
    const char *prompt; /* the prompt as it is shown */
    size_t n_prompt;
    char context[64];         /* "the context of 4096 tokens" */
    const char *context_hint; /* how to get more of it; "": there is no way */
    bool is_greedy;           /* the same question has the same answer */
    bool may_recover;         /* a failure need not be the end: the next question may be answered */
};

/* Checks the options against each other. CLI_OK, or an exit code after a message. */
int voice_check(const voice_order *order);
/* Then opens what they name; the same. */
int voice_open(const voice_order *order, voice **v);
void voice_close(voice *v); /* NULL is allowed */
/* Prints why a text failed and returns the exit code. */
int voice_failure(const voice *v, const dsmoe_error *error);

/* The two there are; options have been checked. */
int voice_open_local(const voice_order *order, voice **v);
int voice_open_remote(const voice_order *order, voice **v);

#endif
