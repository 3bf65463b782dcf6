/* scheduler.h - which text goes through the model when. One thread owns the engine; all others hand it jobs.
 *
 * Every text that is being written gets a token in every pass. Prompts fill what is left of the pass's budget
 * (budget.h), those with the least left to read first, so that a long prompt cannot hold up a short one; but half of
 * what is read over time belongs to the prompt that came first, so that short ones cannot hold it up for ever. */
#ifndef DSMOE_SERVE_SCHEDULER_H
#define DSMOE_SERVE_SCHEDULER_H

#include "serve/job.h"
#include "serve/metrics.h"

typedef struct scheduler scheduler;

typedef struct scheduler_options {
    const dsmoe_model *model;
    const dsmoe_tokenizer *tokenizer; /* may be NULL */
    const dsmoe_chat_form *chat_form; /* of conversations; NULL without a tokenizer */
    dsmoe_engine_options engine;      /* n_sequences texts at a time; stop is the scheduler's own */
    int64_t max_waiting;              /* requests that wait for a place */
    double max_seconds;               /* from a request to the end of its answer */
    double hang_seconds;              /* that a layer may take before something is wrong */
    size_t
        max_unsent; /* bytes of an answer that its client may leave untaken before its text has to wait */
    metrics *metrics;
} scheduler_options;

/* Starts the thread. */
dsmoe_status scheduler_create(const scheduler_options *options, scheduler **s, dsmoe_error *error);

typedef enum scheduler_answer {
    SCHEDULER_TAKEN,
    SCHEDULER_FULL,
    SCHEDULER_CLOSED, /* it drains or is stopped */
} scheduler_answer;
/* Hands a job over. If it is not taken it stays the caller's. */
scheduler_answer scheduler_submit(scheduler *s, job *j);
/* Sends what the crowd does to this client until it leaves. If it is not taken it stays the caller's. */
scheduler_answer scheduler_watch(scheduler *s, http_exchange *exchange);

/* The scales of the engine's adapters for texts that begin from now on and whose requests ask for none. */
void scheduler_set_scales(scheduler *s, const double *scales);
void scheduler_scales(scheduler *s, double scales[DSMOE_ADAPTERS_MAX]);

/* Takes no more jobs, and ends the streams of those who watch. */
void scheduler_close(scheduler *s);
/* Waits until all jobs have ended, at most so many seconds; whether they have. */
bool scheduler_drain(scheduler *s, double seconds);
/* Ends at once: what is left of the jobs fails. It can still be asked, and takes nothing. */
void scheduler_stop(scheduler *s);
/* After scheduler_stop. May be NULL. */
void scheduler_free(scheduler *s);

/* ---- what can be seen from outside, from any thread ------------------------------------------------ */

typedef struct scheduler_slot {
    text_state state;
    bool paused; /* its client does not take what was sent */
    int64_t n_prompt, n_read, n_cached, n_written;
} scheduler_slot;

typedef struct scheduler_view {
    int64_t n_slots, n_running, n_waiting; /* places; requests */
    int64_t n_ctx;
    dsmoe_engine_info engine;
    bool hangs, closed;
} scheduler_view;
scheduler_view scheduler_look(scheduler *s);
/* At most n_slots of them. */
void scheduler_slots(scheduler *s, scheduler_slot *slots, int64_t n);

#endif
