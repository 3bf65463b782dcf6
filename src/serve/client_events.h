/* client_events.h - the other side of the interface: what a client makes of an answer. An answer comes as server-sent
 * events in pieces of any size; each event is a chunk of OpenAI's form. Nothing here knows of sockets, so that bytes
 * of any kind can be tried on it. */
#ifndef DSMOE_SERVE_CLIENT_EVENTS_H
#define DSMOE_SERVE_CLIENT_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dsmoe.h"
#include "text/buffer.h"

enum { CLIENT_LONGEST_EVENT = 16 << 20 }; /* bytes; a line or an event with more is refused */

typedef enum client_finish {
    CLIENT_FINISH_NONE,   /* no chunk has said it yet */
    CLIENT_FINISH_STOP,   /* the model or a stop text ended the text */
    CLIENT_FINISH_LENGTH, /* as many tokens as were asked for, or as fit */
} client_finish;

/* What an answer cost, as far as the server tells; -1 where it does not. */
typedef struct client_cost {
    int64_t n_prompt, n_cached, n_predicted; /* tokens; n_prompt with those found in the cache */
    double prompt_seconds, predicted_seconds;
} client_cost;

/* Gets the text of a chunk; false: that was enough. */
typedef bool client_text_fn(void *context, const char *text, size_t length);

/* An answer on its way; zeroed but for the first two, then client_events_begin. */
typedef struct client_events {
    client_text_fn *show;
    void *context;
    byte_buffer line, data; /* not complete yet: a line, and the data of an event */
    bool after_return;      /* the last byte was a CR: an LF belongs to it */
    size_t n_lines;
    int64_t n_texts; /* chunks with text: usually one for each token */
    client_finish finish;
    client_cost cost;
    bool is_done;    /* [DONE] came: whatever follows does not matter */
    bool is_stopped; /* `show` had enough */
} client_events;

void client_events_begin(client_events *e);
/* The next bytes of the answer, until it is done or stopped. Fails on what is not a chunk, on an event without end, and
 * if the server tells of an error; the message says what is wrong with the answer, not whose answer it is. */
dsmoe_status client_events_put(client_events *e, const char *bytes, size_t length,
                               dsmoe_error *error);
void client_events_free(client_events *e);

/* What the body of a refusal says: {"error": {"message": …}} or {"error": "…"}. "" if it is none of these. */
enum { CLIENT_MESSAGE = 384 };
typedef struct client_refusal {
    char message[CLIENT_MESSAGE];
    bool is_about_context; /* the prompt does not fit the context */
} client_refusal;
void client_read_refusal(const char *body, size_t length, client_refusal *refusal);

/* The first name of a list of models, to be freed; NULL if there is none, or no memory. */
char *client_read_model(const char *body, size_t length);

#endif
