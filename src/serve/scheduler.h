/* scheduler.h - decides which texts go through the model in a pass. One thread owns the engine; all other
 * threads hand it jobs.
 *
 * Every text that is being written gets a token in every pass. Prompts fill the rest of the pass's budget
 * (budget.h). Prompts with the least left to read come first, so that a long prompt cannot hold up a short
 * one. But over time half of the tokens belong to the prompt that came first, so that short prompts cannot
 * hold it up for ever. */
#ifndef DSMOE_SERVE_SCHEDULER_H
#define DSMOE_SERVE_SCHEDULER_H

#include "serve/job.h"
#include "serve/metrics.h"

typedef struct scheduler scheduler;

typedef struct scheduler_options {
    const dsmoe_model *model;
    const dsmoe_tokenizer *tokenizer; /* may be NULL */
    const dsmoe_chat_form *chat_form; /* how conversations are framed; NULL without a tokenizer */
    dsmoe_engine_options engine;      /* n_sequences texts at a time; `stop` is replaced */
    int64_t max_waiting;              /* requests that may wait for a place */
    double max_seconds;               /* from a request to the end of its answer */
    double hang_seconds;              /* that a layer may take before the engine hangs */
    size_t max_unsent;                /* bytes waiting for a client at which its text pauses */
    metrics *metrics;
} scheduler_options;

/* Starts the thread. */
dsmoe_status scheduler_create(const scheduler_options *options, scheduler **s, dsmoe_error *error);

typedef enum scheduler_answer {
    SCHEDULER_TAKEN,
    SCHEDULER_FULL,
    SCHEDULER_CLOSED, /* it is draining or stopped */
} scheduler_answer;
/* Hands over a job. If it is not taken, it stays the caller's. */
scheduler_answer scheduler_submit(scheduler *s, job *j);
/* Adds a watcher (crowd.h). If the exchange is not taken, it stays the caller's. */
scheduler_answer scheduler_watch(scheduler *s, http_exchange *exchange);

/* The scales of the engine's adapters for texts that begin after this and whose requests give none. */
void scheduler_set_scales(scheduler *s, const double *scales);
void scheduler_scales(scheduler *s, double scales[DSMOE_ADAPTERS_MAX]);

/* Takes no more jobs, and ends the streams of watchers. */
void scheduler_close(scheduler *s);
/* Waits for all jobs to end, for at most `seconds`; true if they have. */
bool scheduler_drain(scheduler *s, double seconds);
/* Ends the thread immediately; unfinished jobs fail. The functions below still work, but no job is taken. */
void scheduler_stop(scheduler *s);
/* Call it after scheduler_stop. `s` may be NULL. */
void scheduler_free(scheduler *s);

/* ---- state, for any thread ------------------------------------------------------------------------- */

typedef struct scheduler_slot {
    text_state state;
    bool paused; /* its client is slow to take what was sent */
    int64_t n_prompt, n_read, n_cached, n_written;
} scheduler_slot;

typedef struct scheduler_view {
    int64_t n_slots, n_running, n_waiting; /* places; requests */
    int64_t n_ctx;
    dsmoe_engine_info engine;
    bool hangs, closed;
} scheduler_view;
scheduler_view scheduler_look(scheduler *s);
/* Copies the first n slots, at most n_slots. */
void scheduler_slots(scheduler *s, scheduler_slot *slots, int64_t n);

#endif
