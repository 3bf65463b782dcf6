/* client_events.h - the client's side of the interface: how an answer is read. An answer arrives as
 * server-sent events, in pieces of any size; each event is a chunk in OpenAI's form. No sockets are used
 * here, so that tests can feed it any bytes. */
#ifndef DSMOE_SERVE_CLIENT_EVENTS_H
#define DSMOE_SERVE_CLIENT_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dsmoe.h"
#include "text/buffer.h"

enum { CLIENT_LONGEST_EVENT = 16 << 20 }; /* bytes; a line or an event with more is refused */

typedef enum client_finish {
    CLIENT_FINISH_NONE,   /* no chunk has given it yet */
    CLIENT_FINISH_STOP,   /* the model or a stop text ended the text */
    CLIENT_FINISH_LENGTH, /* it has max_tokens, or the context is full */
} client_finish;

/* The cost of an answer; -1 where the server does not report it. */
typedef struct client_cost {
    int64_t n_prompt, n_cached, n_predicted; /* tokens; n_prompt includes cached ones */
    double prompt_seconds, predicted_seconds;
} client_cost;

/* Gets the text of a chunk. Returns false to stop. */
typedef bool client_text_fn(void *context, const char *text, size_t length);

/* An answer that is being read. Set the first two fields and zero the rest, then call client_events_begin. */
typedef struct client_events {
    client_text_fn *show;
    void *context;
    byte_buffer line, data; /* incomplete: a line, and the data of an event */
    bool after_return;      /* the last byte was a CR: an LF is skipped */
    size_t n_lines;
    int64_t n_texts; /* chunks with text: usually one for each token */
    client_finish finish;
    client_cost cost;
    bool is_done;    /* [DONE] came: the rest is ignored */
    bool is_stopped; /* `show` returned false */
} client_events;

void client_events_begin(client_events *e);
/* Reads the next bytes of the answer, unless it is done or stopped. Fails on anything that is not a chunk, on
 * an event that is too long, and if the server reports an error. The message does not name the server. */
dsmoe_status client_events_put(client_events *e, const char *bytes, size_t length,
                               dsmoe_error *error);
void client_events_free(client_events *e);

/* The message in the body of a refusal: {"error": {"message": …}} or {"error": "…"}. "" if it is neither. */
enum { CLIENT_MESSAGE = 384 };
typedef struct client_refusal {
    char message[CLIENT_MESSAGE];
    bool is_about_context; /* the prompt does not fit the context */
} client_refusal;
void client_read_refusal(const char *body, size_t length, client_refusal *refusal);

/* The name of the first model in a list; the caller frees it. NULL if there is none, or no memory. */
char *client_read_model(const char *body, size_t length);

#endif
