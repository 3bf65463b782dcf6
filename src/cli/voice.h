/* voice.h - what writes the texts of `generate` and `chat`: a model in this process, or a server elsewhere.
 * The commands use only this interface, so they do the same with both. */
#ifndef DSMOE_CLI_VOICE_H
#define DSMOE_CLI_VOICE_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/conversation.h"
#include "cli/options.h"
#include "cli/runner.h"
#include "cli/stream.h"
#include "dsmoe.h"

/* What the command line asks for. It must not move while the voice is open. */
typedef struct voice_order {
    const char *command;
    runner_options *options;
    const option_row *rows; /* all rows of the command, and which were given */
    int n_rows;
    const bool *given;
    bool ids;                   /* texts are token ids as decimal numbers */
    const char *tokenizer_hint; /* added to the message if there is no tokenizer */
    bool talks;                 /* conversations, not texts to continue */
    const char *chat_form;      /* their form; NULL: the model's own */
} voice_order;

/* How a text ended. */
typedef struct voice_result {
    runner_end end;
    bool began;        /* some of the text came, even if it is not shown */
    int n_dropped;     /* messages of the conversation that no longer fitted */
    dsmoe_error error; /* RUNNER_FAILED: why; RUNNER_FULL before anything came: what is too long */
} voice_result;

typedef struct voice voice;

typedef struct voice_kind {
    /* Takes the text to continue, and its name in messages. The text must not move. CLI_OK, or an exit code
     * after a message. */
    int (*take_prompt)(voice *v, const char *name, const char *text, size_t length);
    void (*go_on)(voice *v, stream *out, voice_result *result);
    /* Answers the question at the end of a conversation, whose oldest turns are dropped if they do not
     * fit. */
    void (*answer)(voice *v, conversation *talk, stream *out, voice_result *result);
    /* Gives the next texts other random numbers. CLI_OK, or an exit code after a message. */
    int (*reseed)(voice *v);
    /* Prints tokens, speed and seed as one line on stderr. */
    void (*report)(const voice *v);
    void (*close)(voice *v);
} voice_kind;

struct voice {
    const voice_kind *kind;
    const char *command, *name; /* for messages; name: the model's path or the server's address */
    const char *prompt;         /* the prompt as it is shown */
    size_t n_prompt;
    char context[64];         /* "the context of 4096 tokens" */
    const char *context_hint; /* how to get more of it; "": there is no way */
    bool is_greedy;           /* the same question has the same answer */
    bool may_recover;         /* after a failure the next question may be answered */
};

/* Checks the options against each other. CLI_OK, or an exit code after a message. */
int voice_check(const voice_order *order);
/* Opens what the options name, after voice_check. CLI_OK, or an exit code after a message. */
int voice_open(const voice_order *order, voice **v);
void voice_close(voice *v); /* NULL is allowed */
/* Prints why a text failed and returns the exit code. */
int voice_failure(const voice *v, const dsmoe_error *error);

/* The two kinds of voices. The options must have been checked. */
int voice_open_local(const voice_order *order, voice **v);
int voice_open_remote(const voice_order *order, voice **v);

#endif
