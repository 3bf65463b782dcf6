/* scheduler.c - decides which texts go through the model in a pass. */
#include "serve/scheduler.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "serve/budget.h"
#include "serve/crowd.h"

enum { PING_SECONDS = 10 };

struct scheduler {
    scheduler_options o;
    dsmoe_engine *engine;
    text_setting setting;
    int32_t eos[10];
    pthread_t thread;

    pthread_mutex_t lock;
    pthread_cond_t wake; /* for the thread: something has arrived */
    pthread_cond_t idle; /* for draining: all jobs have ended */
    /* guarded by the lock */
    job *arrived, **arrived_end;
    http_exchange *watchers_arrived[CROWD_MAX_WATCHERS];
    int n_watchers_arrived;
    int64_t n_jobs, n_waiting;
    int64_t n_free; /* places that the last admit() left free */
    double scales[DSMOE_ADAPTERS_MAX];
    bool closed, stopped;
    scheduler_slot *seen_slots;
    dsmoe_engine_info seen_engine;

    _Atomic bool abort; /* end the current pass */
    _Atomic bool in_pass;
    _Atomic uint64_t beat; /* when the engine last called asked_to_stop, in ms of clock_seconds() */

    /* only for the thread */
    job *jobs;    /* in order of arrival */
    text **slots; /* [n_slots] running texts; NULL: free */
    int64_t n_slots;
    dsmoe_turn *turns; /* [n_slots] of the current pass */
    int64_t n_turns, n_writing, n_prompt;
    int64_t owed; /* tokens of the oldest prompt's half that went to others */
    budget budget;
    crowd crowd;
    double pinged_at;
};

/* ---- heartbeat --------------------------------------------------------------------------------- */

static void beat(scheduler *s) { atomic_store(&s->beat, (uint64_t)(clock_seconds() * 1e3)); }

/* The engine calls this before every layer. */
static bool asked_to_stop(void *context)
{
    scheduler *s = context;
    beat(s);
    return atomic_load(&s->abort);
}

/* ---- ends of texts and jobs ----------------------------------------------------------------------- */

static void free_slot(scheduler *s, const text *t)
{
    for (int64_t i = 0; i < s->n_slots; i++)
        if (s->slots[i] == t) s->slots[i] = NULL;
}

static void count_text(scheduler *s, const text *t)
{
    metrics *m = s->o.metrics;
    if (t->begun_at == 0) return;
    double first = t->first_at > 0 ? t->first_at : clock_seconds();
    atomic_fetch_add(&m->prompt_micros, (uint64_t)((first - t->begun_at) * 1e6));
    if (t->last_at > first)
        atomic_fetch_add(&m->predicted_micros, (uint64_t)((t->last_at - first) * 1e6));
}

static void leave(scheduler *s, text *t)
{
    free_slot(s, t);
    count_text(s, t);
    text_leave(t);
}

/* Takes a job out of the list and ends its answer. */
static void end_job(scheduler *s, job *j)
{
    bool waited = true;
    for (size_t i = 0; i < j->n_texts; i++) {
        waited &= j->texts[i].begun_at == 0;
        if (j->texts[i].sequence) leave(s, &j->texts[i]);
    }
    for (job **at = &s->jobs; *at; at = &(*at)->next)
        if (*at == j) {
            *at = j->next;
            break;
        }
    j->writer->finish(j);
    job_free(j);
    pthread_mutex_lock(&s->lock);
    s->n_jobs--;
    s->n_waiting -= waited;
    if (s->n_jobs == 0) pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
}

static int http_status(dsmoe_status status)
{
    if (status == DSMOE_ERROR_ARGUMENT) return 400;
    return status == DSMOE_ERROR_MEMORY || status == DSMOE_ERROR_STOPPED ? 503 : 500;
}

static void fail_job(job *j, const dsmoe_error *error)
{
    const char *message =
        error->status == DSMOE_ERROR_STOPPED ? "the server is being stopped" : error->message;
    request_refuse(&j->error, http_status(error->status), "", "%s", message);
}

/* ---- new jobs and lost clients ---------------------------------------------------------------------- */

static bool has_work(const scheduler *s)
{
    bool dismisses = s->closed && s->crowd.n_watchers > 0;
    return s->jobs || s->arrived || s->n_watchers_arrived || dismisses;
}

static void wait_until(scheduler *s, double seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t nanos = t.tv_nsec + (int64_t)(seconds * 1e9);
    t.tv_sec += nanos / 1000000000;
    t.tv_nsec = nanos % 1000000000;
    pthread_cond_timedwait(&s->wake, &s->lock, &t);
}

/* Takes new jobs and watchers; waits if there is nothing to do. False if the scheduler was stopped. */
static bool receive(scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    while (!s->stopped && !has_work(s) && s->crowd.n_watchers == 0)
        pthread_cond_wait(&s->wake, &s->lock);
    if (!s->stopped && !has_work(s)) wait_until(s, 1.0); /* there are only watchers */
    job **end = &s->jobs;
    while (*end) end = &(*end)->next;
    *end = s->arrived;
    s->arrived = NULL;
    s->arrived_end = &s->arrived;
    for (int i = 0; i < s->n_watchers_arrived; i++)
        crowd_add_watcher(&s->crowd, s->watchers_arrived[i]);
    s->n_watchers_arrived = 0;
    if (s->closed) crowd_dismiss(&s->crowd);
    bool goes_on = !s->stopped;
    pthread_mutex_unlock(&s->lock);
    return goes_on;
}

/* Ends the jobs, running or waiting, of clients that disconnected, and jobs that are late. */
static void drop_lost(scheduler *s, double now)
{
    bool ping = now - s->pinged_at > PING_SECONDS;
    if (ping) s->pinged_at = now;
    for (job *j = s->jobs, *next; j; j = next) {
        next = j->next;
        if (!http_alive(j->exchange))
            request_refuse(&j->error, 499, "", "the client disconnected");
        else if (now > j->deadline)
            request_refuse(&j->error, 504, "", "the request took longer than %.0f seconds",
                           s->o.max_seconds);
        if (j->error.status)
            end_job(s, j);
        else if (ping)
            job_ping(j);
    }
}

/* ---- places ------------------------------------------------------------------------------------ */

/* Whether a text can begin. One with a leader waits until the leader has read their prompt. */
static bool may_begin(const text *t)
{
    return t->state == TEXT_WAITS &&
           (!t->leader || t->leader->state == TEXT_WRITES || t->leader->state == TEXT_ENDED);
}

static text *next_waiting(scheduler *s)
{
    for (job *j = s->jobs; j; j = j->next)
        for (size_t i = 0; i < j->n_texts && !j->error.status; i++)
            if (may_begin(&j->texts[i])) return &j->texts[i];
    return NULL;
}

static void begin_text(scheduler *s, text *t, text **slot, double now)
{
    dsmoe_error error;
    bool first = true;
    for (size_t i = 0; i < t->job->n_texts; i++) first &= t->job->texts[i].begun_at == 0;
    t->begun_at = now;
    pthread_mutex_lock(&s->lock);
    s->n_waiting -= first;
    memcpy(s->setting.scales, s->scales, sizeof s->scales);
    pthread_mutex_unlock(&s->lock);
    if (first) metrics_observe(&s->o.metrics->queue, now - t->queued_at);
    if (text_begin(t, &s->setting, &error)) {
        fail_job(t->job, &error);
        return;
    }
    *slot = t;
    atomic_fetch_add(&s->o.metrics->cached_tokens, (uint64_t)t->n_cached);
}

static void admit(scheduler *s, double now)
{
    int64_t n_free = 0;
    for (int64_t i = 0; i < s->n_slots; i++) {
        text *t = s->slots[i] ? NULL : next_waiting(s);
        if (t) begin_text(s, t, &s->slots[i], now);
        n_free += s->slots[i] == NULL;
    }
    pthread_mutex_lock(&s->lock);
    s->n_free = n_free;
    pthread_mutex_unlock(&s->lock);
}

/* ---- a pass ------------------------------------------------------------------------------------ */

static bool is_paused(const scheduler *s, const text *t)
{
    return t->job->request.stream && http_unsent(t->job->exchange) > s->o.max_unsent;
}

static void add_turn(scheduler *s, text *t, int64_t n)
{
    bool watched = t->routing.experts || s->crowd.n_watchers > 0;
    t->crowd = s->crowd.n_watchers > 0 ? &s->crowd.sums : NULL;
    dsmoe_sequence_watch(t->sequence, watched ? text_watch : NULL, t);
    s->turns[s->n_turns++] = text_turn(t, n);
}

static void add_writing(scheduler *s)
{
    for (int64_t i = 0; i < s->n_slots; i++) {
        text *t = s->slots[i];
        if (!t || t->state != TEXT_WRITES || is_paused(s, t)) continue;
        add_turn(s, t, 1);
        s->n_writing++;
    }
}

enum { MOST_OWED = 256 }; /* tokens */

static int64_t left_to_read(const text *t) { return (int64_t)t->prompt->n_ids - t->n_read; }

/* A prompt without a turn: the one with the least left to read, or the one that came first. NULL: none. */
static text *next_prompt(const scheduler *s, bool shortest)
{
    text *best = NULL;
    for (int64_t i = 0; i < s->n_slots; i++) {
        text *t = s->slots[i];
        if (!t || t->state != TEXT_READS || t->n_in_pass > 0) continue;
        if (!best ||
            (shortest ? left_to_read(t) < left_to_read(best) : t->queued_at < best->queued_at))
            best = t;
    }
    return best;
}

/* How many tokens of a prompt to read with a share of the budget. Pieces end at multiples of BUDGET_STEP, so
 * that the same prompt is cut in the same places under any load. */
static int64_t piece_of(const text *t, int64_t share)
{
    int64_t left = left_to_read(t);
    if (left <= share) return left;
    int64_t n = share - (t->n_read + share) % BUDGET_STEP;
    return n > 0 ? n : 0;
}

/* Shortest prompts first, unless the oldest prompt has given up so much that it would miss its half. */
static void add_prompts(scheduler *s)
{
    int64_t room = s->seen_engine.n_batch - s->n_writing;
    if (room < 1) room = BUDGET_STEP; /* the batch is too small: the engine takes two steps */
    int64_t all = s->n_writing > 0 ? budget_of(&s->budget, s->n_writing, room) : room, left = all;
    text *oldest = next_prompt(s, false);
    if (!oldest) return;
    if (s->owed >= MOST_OWED) oldest->n_in_pass = piece_of(oldest, left);
    left -= oldest->n_in_pass;
    for (text *t; left > 0 && (t = next_prompt(s, true)); left -= t->n_in_pass) {
        t->n_in_pass = piece_of(t, left);
        if (t->n_in_pass == 0) break;
    }
    if (left > 0) { /* no other prompt needs these */
        left += oldest->n_in_pass;
        bool tiny = left == all && piece_of(oldest, left) == 0; /* no piece fits */
        oldest->n_in_pass = tiny ? left : piece_of(oldest, left);
    }
    s->owed += all / 2 - oldest->n_in_pass;
    if (s->owed < 0) s->owed = 0;
    for (int64_t i = 0; i < s->n_slots; i++) {
        text *t = s->slots[i];
        if (!t || t->n_in_pass == 0) continue;
        add_turn(s, t, t->n_in_pass);
        s->n_prompt += t->n_in_pass;
    }
}

static void compose(scheduler *s)
{
    s->n_turns = s->n_writing = s->n_prompt = 0;
    add_writing(s);
    add_prompts(s);
}

/* Handles the result of a turn. */
static void take_turn(scheduler *s, const dsmoe_turn *turn, double now)
{
    text *t = turn->context;
    job *j = t->job;
    dsmoe_error error = turn->error;
    double before = t->last_at;
    t->n_in_pass = 0;
    if (error.status == DSMOE_OK) text_advance(t, &s->setting, turn->n_tokens, now, &error);
    if (error.status) {
        fail_job(j, &error);
        return;
    }
    if (t->last_at == now) {
        if (t->n_predicted == 1 && !t->leader)
            metrics_observe(&s->o.metrics->first_token, now - t->queued_at);
        else if (t->n_predicted > 1)
            metrics_observe(&s->o.metrics->inter_token, now - before);
        if (t->n_predicted > 0) atomic_fetch_add(&s->o.metrics->predicted_tokens, 1);
    }
    if (t->state == TEXT_ENDED) {
        leave(s, t);
        j->n_ended++;
    }
    if (j->writer->show) j->writer->show(j, t);
}

static void run_pass(scheduler *s)
{
    metrics *m = s->o.metrics;
    double began = clock_seconds();
    beat(s);
    atomic_store(&s->in_pass, true);
    dsmoe_engine_forward(s->engine, s->turns, s->n_turns, NULL); /* each turn has its own error */
    atomic_store(&s->in_pass, false);
    double now = clock_seconds();
    budget_learn(&s->budget, s->n_writing, s->n_prompt, now - began);
    atomic_fetch_add(&m->passes, 1);
    atomic_fetch_add(&m->prompt_tokens, (uint64_t)s->n_prompt);
    metrics_observe(&m->pass_tokens, (double)(s->n_writing + s->n_prompt));
    crowd_end_pass(&s->crowd, s->n_writing + s->n_prompt);
    for (int64_t i = 0; i < s->n_turns; i++) take_turn(s, &s->turns[i], now);
    for (job *j = s->jobs, *next; j; j = next) {
        next = j->next;
        if (j->error.status || j->n_ended == j->n_texts) end_job(s, j);
    }
}

/* Updates the state for other threads. */
static void publish(scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    for (int64_t i = 0; i < s->n_slots; i++) {
        const text *t = s->slots[i];
        s->seen_slots[i] = (scheduler_slot){0};
        if (t)
            s->seen_slots[i] =
                (scheduler_slot){t->state,  is_paused(s, t), (int64_t)t->prompt->n_ids,
                                 t->n_read, t->n_cached,     t->n_predicted};
    }
    s->seen_engine = dsmoe_engine_get_info(s->engine);
    s->crowd.n_running = s->n_jobs - s->n_waiting;
    s->crowd.n_waiting = s->n_waiting;
    /* All running texts are paused for slow clients: look again soon. */
    if (s->n_turns == 0 && s->jobs && !s->arrived && !s->stopped) wait_until(s, 0.005);
    pthread_mutex_unlock(&s->lock);
}

static void *work(void *context)
{
    scheduler *s = context;
    while (receive(s)) {
        double now = clock_seconds();
        drop_lost(s, now);
        admit(s, now);
        compose(s);
        if (s->n_turns > 0) run_pass(s);
        crowd_tell(&s->crowd, clock_seconds());
        publish(s);
    }
    const dsmoe_error stopped = {.status = DSMOE_ERROR_STOPPED};
    while (s->jobs) {
        fail_job(s->jobs, &stopped);
        end_job(s, s->jobs);
    }
    crowd_free(&s->crowd);
    return NULL;
}

/* ---- functions for other threads --------------------------------------------------------------- */

static void list_eos(scheduler *s)
{
    const dsmoe_generation_config *g = dsmoe_model_generation_config(s->o.model);
    int n = 0;
    for (; n < g->n_eos_token_ids; n++) s->eos[n] = (int32_t)g->eos_token_id[n];
    if (n == 0) {
        s->eos[n++] = (int32_t)dsmoe_model_config(s->o.model)->eos_token_id;
        if (s->o.tokenizer) s->eos[n++] = dsmoe_tokenizer_eos(s->o.tokenizer);
    }
    if (s->o.tokenizer) s->eos[n++] = dsmoe_chat_form_end(s->o.tokenizer, s->o.chat_form);
    s->setting.eos = s->eos;
    s->setting.n_eos = n;
}

static dsmoe_status make_engine(scheduler *s, dsmoe_error *error)
{
    dsmoe_engine_options o = s->o.engine;
    o.stop = asked_to_stop;
    o.stop_context = s;
    STATUS_TRY(dsmoe_engine_create(s->o.model, &o, &s->engine, error));
    s->seen_engine = dsmoe_engine_get_info(s->engine);
    const dsmoe_config *config = dsmoe_model_config(s->o.model);
    int64_t n_ids = config->vocab_size;
    if (s->o.tokenizer && dsmoe_tokenizer_size(s->o.tokenizer) < n_ids)
        n_ids = dsmoe_tokenizer_size(s->o.tokenizer); /* the tokenizer has no others */
    s->setting = (text_setting){.engine = s->engine,
                                .tokenizer = s->o.tokenizer,
                                .n_ids = n_ids,
                                .n_ctx = s->seen_engine.n_ctx,
                                .shape = routing_shape_of(config)};
    list_eos(s);
    for (int i = 0; i < o.n_adapters; i++)
        s->scales[i] = o.adapter_scales ? o.adapter_scales[i] : 1;
    s->n_slots = s->n_free = s->seen_engine.n_sequences;
    return DSMOE_OK;
}

static dsmoe_status make_memory(scheduler *s, dsmoe_error *error)
{
    size_t n = (size_t)s->n_slots;
    s->slots = calloc(n, sizeof *s->slots);
    s->turns = calloc(n, sizeof *s->turns);
    s->seen_slots = calloc(n, sizeof *s->seen_slots);
    if (!s->slots || !s->turns || !s->seen_slots || !crowd_create(&s->crowd, &s->setting.shape))
        return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory");
    return DSMOE_OK;
}

void scheduler_free(scheduler *s)
{
    if (!s) return;
    dsmoe_engine_free(s->engine);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    pthread_cond_destroy(&s->idle);
    free(s->slots);
    free(s->turns);
    free(s->seen_slots);
    free(s);
}

dsmoe_status scheduler_create(const scheduler_options *options, scheduler **out, dsmoe_error *error)
{
    scheduler *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, &monotonic);
    pthread_cond_init(&s->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
    s->o = *options;
    s->arrived_end = &s->arrived;
    s->pinged_at = clock_seconds();
    dsmoe_status status = make_engine(s, error);
    if (status == DSMOE_OK) status = make_memory(s, error);
    if (status == DSMOE_OK && pthread_create(&s->thread, NULL, work, s) != 0)
        status = status_fail(error, DSMOE_ERROR_MEMORY, "cannot start a thread");
    if (status != DSMOE_OK) {
        crowd_free(&s->crowd);
        scheduler_free(s);
        return status;
    }
    *out = s;
    return DSMOE_OK;
}

scheduler_answer scheduler_submit(scheduler *s, job *j)
{
    double now = clock_seconds();
    const dsmoe_config *config = dsmoe_model_config(s->o.model);
    j->deadline = now + s->o.max_seconds;
    j->tokenizer = s->o.tokenizer;
    j->vocab_size = config->vocab_size;
    j->hidden_size = config->hidden_size;
    for (size_t i = 0; i < j->n_texts; i++) j->texts[i].queued_at = now;
    scheduler_answer answer = SCHEDULER_TAKEN;
    pthread_mutex_lock(&s->lock);
    if (s->closed) {
        answer = SCHEDULER_CLOSED;
    } else if (s->n_waiting >= s->o.max_waiting + s->n_free) {
        answer = SCHEDULER_FULL;
    } else {
        *s->arrived_end = j;
        s->arrived_end = &j->next;
        s->n_jobs++;
        s->n_waiting++;
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    return answer;
}

scheduler_answer scheduler_watch(scheduler *s, http_exchange *exchange)
{
    scheduler_answer answer = SCHEDULER_TAKEN;
    pthread_mutex_lock(&s->lock);
    if (s->closed)
        answer = SCHEDULER_CLOSED;
    else if (s->n_watchers_arrived == CROWD_MAX_WATCHERS)
        answer = SCHEDULER_FULL;
    else
        s->watchers_arrived[s->n_watchers_arrived++] = exchange;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    return answer;
}

void scheduler_set_scales(scheduler *s, const double *scales)
{
    pthread_mutex_lock(&s->lock);
    memcpy(s->scales, scales, sizeof s->scales);
    pthread_mutex_unlock(&s->lock);
}

void scheduler_scales(scheduler *s, double scales[DSMOE_ADAPTERS_MAX])
{
    pthread_mutex_lock(&s->lock);
    memcpy(scales, s->scales, sizeof s->scales);
    pthread_mutex_unlock(&s->lock);
}

void scheduler_close(scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->closed = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

bool scheduler_drain(scheduler *s, double seconds)
{
    double until = clock_seconds() + seconds;
    struct timespec t = {(time_t)until, (long)((until - (double)(time_t)until) * 1e9)};
    int late = 0;
    pthread_mutex_lock(&s->lock);
    while (s->n_jobs > 0 && !late) late = pthread_cond_timedwait(&s->idle, &s->lock, &t);
    bool drained = s->n_jobs == 0;
    pthread_mutex_unlock(&s->lock);
    return drained;
}

void scheduler_stop(scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->closed = s->stopped = true;
    atomic_store(&s->abort, true);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
}

scheduler_view scheduler_look(scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    scheduler_view view = {.n_slots = s->n_slots,
                           .n_running = s->n_jobs - s->n_waiting,
                           .n_waiting = s->n_waiting,
                           .n_ctx = s->seen_engine.n_ctx,
                           .engine = s->seen_engine,
                           .closed = s->closed};
    pthread_mutex_unlock(&s->lock);
    double silent = clock_seconds() - (double)atomic_load(&s->beat) / 1e3;
    view.hangs = atomic_load(&s->in_pass) && silent > s->o.hang_seconds;
    return view;
}

void scheduler_slots(scheduler *s, scheduler_slot *slots, int64_t n)
{
    pthread_mutex_lock(&s->lock);
    memcpy(slots, s->seen_slots, (size_t)n * sizeof *slots);
    pthread_mutex_unlock(&s->lock);
}
