/* text.c - a running text.
 *
 * A token is picked while its logits are available, but added to the text only after the pass, so that a turn
 * that fails in between changes nothing. */
#include "serve/text.h"

#include <stdlib.h>
#include <string.h>

#include "serve/job.h"

/* ---- beginning --------------------------------------------------------------------------------- */

/* The sampler depends on nothing but the request and the index of the choice. */
static dsmoe_status make_sampler(text *t, const text_setting *setting, dsmoe_error *error)
{
    const request *r = &t->job->request;
    dsmoe_sampler_options o = r->sampling;
    dsmoe_logit_bias biases[DSMOE_LOGIT_BIAS_MAX];
    o.seed += (uint64_t)t->index;
    if (o.repeat_last_n < 0 || o.repeat_last_n > setting->n_ctx) o.repeat_last_n = setting->n_ctx;
    if (r->ignore_eos) { /* end tokens are banned */
        int64_t n = o.n_logit_bias;
        if (n > 0) memcpy(biases, o.logit_bias, (size_t)n * sizeof *biases);
        for (int i = 0; i < setting->n_eos && n < DSMOE_LOGIT_BIAS_MAX; i++)
            biases[n++] = (dsmoe_logit_bias){setting->eos[i], DSMOE_LOGIT_BIAS_BAN};
        o.logit_bias = biases;
        o.n_logit_bias = n;
    }
    STATUS_TRY(dsmoe_sampler_create(&o, setting->n_ids, &t->sampler, error));
    dsmoe_sampler_accept_prompt(t->sampler, t->prompt->ids, (int64_t)t->prompt->n_ids);
    return DSMOE_OK;
}

/* The sequence begins with the part of the prompt that the leader has read, or that earlier texts left. */
static dsmoe_status make_sequence(text *t, const text_setting *setting, dsmoe_error *error)
{
    const request_prompt *p = t->prompt;
    const text *l = t->leader;
    if (l && l->sequence)
        return dsmoe_sequence_fork(l->sequence, (int64_t)p->n_ids - 1, &t->sequence, error);
    const request *r = &t->job->request;
    bool from_pages = r->cache_prompt && r->kind != REQUEST_EMBEDDING;
    return dsmoe_sequence_begin_adapted(setting->engine, p->ids, from_pages ? (int64_t)p->n_ids : 0,
                                        r->has_scales ? r->scales : setting->scales, &t->sequence,
                                        error);
}

static dsmoe_status make_embedding(text *t, dsmoe_error *error)
{
    t->embedding = calloc((size_t)t->job->hidden_size, sizeof *t->embedding);
    return t->embedding ? DSMOE_OK : status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory");
}

dsmoe_status text_begin(text *t, const text_setting *setting, dsmoe_error *error)
{
    const request *r = &t->job->request;
    int64_t n_prompt = (int64_t)t->prompt->n_ids, room = setting->n_ctx - n_prompt;
    t->max_tokens = r->max_tokens < 0 || r->max_tokens > room ? room : r->max_tokens;
    STATUS_TRY(make_sequence(t, setting, error));
    if (r->kind == REQUEST_EMBEDDING)
        STATUS_TRY(make_embedding(t, error));
    else
        STATUS_TRY(make_sampler(t, setting, error));
    t->n_read = t->n_cached = dsmoe_sequence_length(t->sequence);
    if (r->routing) {
        if (!routing_log_create(&t->routing, &setting->shape))
            return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory");
        int64_t last = n_prompt - ROUTING_LOG_ROWS;
        routing_log_begin(&t->routing, t->n_read > last ? t->n_read : last);
    }
    t->state = TEXT_READS;
    return DSMOE_OK;
}

/* ---- a turn ------------------------------------------------------------------------------------ */

static void pick(void *context, int64_t row, const float *logits)
{
    (void)row;
    text *t = context;
    const request *r = &t->job->request;
    t->pick_error = (dsmoe_error){0};
    if (dsmoe_sampler_pick(t->sampler, logits, &t->picked, &t->pick_error)) return;
    if (r->logprobs)
        dsmoe_logprobs_compute(logits, t->job->vocab_size, t->picked, r->n_top_logprobs,
                               &t->picked_logprobs, &t->pick_error);
}

static void add_hidden(void *context, int64_t row, const float *hidden)
{
    (void)row;
    text *t = context;
    for (int64_t i = 0; i < t->job->hidden_size; i++) t->embedding[i] += hidden[i];
    t->n_embedded++;
}

dsmoe_turn text_turn(text *t, int64_t n)
{
    dsmoe_turn turn = {.sequence = t->sequence, .context = t};
    if (t->state == TEXT_WRITES) {
        turn.tokens = &t->picked;
        turn.n_tokens = turn.n_logits = 1;
        turn.visit = pick;
        return turn;
    }
    turn.tokens = t->prompt->ids + t->n_read;
    turn.n_tokens = n;
    if (t->embedding) {
        turn.n_logits = n;
        turn.visit = add_hidden;
        turn.hidden = true;
    } else if (t->n_read + n == (int64_t)t->prompt->n_ids && t->max_tokens > 0) {
        turn.n_logits = 1;
        turn.visit = pick;
    }
    return turn;
}

void text_watch(void *context, int64_t layer, int64_t position, int64_t n_tokens,
                const dsmoe_routing *routing)
{
    text *t = context;
    if (t->routing.experts) routing_log_add(&t->routing, layer, position, n_tokens, routing);
    if (t->crowd) routing_crowd_add(t->crowd, layer, n_tokens, routing);
}

/* ---- a token ----------------------------------------------------------------------------------- */

static bool ends_text(const text *t, const text_setting *setting)
{
    for (int i = 0; i < setting->n_eos; i++)
        if (t->picked == setting->eos[i]) return !t->job->request.ignore_eos;
    return false;
}

/* Makes room for the logprobs of one more token. */
static dsmoe_status grow_logprobs(text *t, dsmoe_error *error)
{
    const request *r = &t->job->request;
    if (!r->stream) t->job->n_logprobs += 1 + r->n_top_logprobs;
    if (t->job->n_logprobs > REQUEST_MAX_LOGPROBS)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "the answer has more than %d logprobs: ask for fewer, or for a stream",
                           REQUEST_MAX_LOGPROBS);
    return buffer_grow((void **)&t->logprobs, &t->logprobs_capacity, t->n_tokens + 1,
                       sizeof *t->logprobs, error);
}

static dsmoe_status keep_token(text *t, const text_setting *setting, dsmoe_error *error)
{
    size_t length = 0;
    const char *piece = "";
    /* Special tokens add no text. */
    if (setting->tokenizer && !dsmoe_tokenizer_is_special(setting->tokenizer, t->picked))
        piece = dsmoe_tokenizer_piece(setting->tokenizer, t->picked, &length);
    STATUS_TRY(byte_buffer_append(&t->bytes, piece, length, error));
    STATUS_TRY(
        buffer_grow((void **)&t->tokens, &t->capacity, t->n_tokens + 1, sizeof *t->tokens, error));
    if (t->job->request.logprobs) {
        STATUS_TRY(grow_logprobs(t, error));
        t->logprobs[t->n_tokens] = t->picked_logprobs;
    }
    t->tokens[t->n_tokens++] = (text_token){t->picked, t->bytes.length};
    return DSMOE_OK;
}

/* Cuts the text where a stop text begins, and drops tokens that begin after the cut. */
static void cut_at(text *t, size_t length)
{
    t->bytes.length = length;
    while (t->n_tokens > 1 && t->n_tokens > t->n_tokens_told &&
           t->tokens[t->n_tokens - 2].end >= length)
        t->n_tokens--;
    if (t->n_tokens == 1 && length == 0) t->n_tokens = 0;
    if (t->n_tokens > 0) t->tokens[t->n_tokens - 1].end = length;
}

/* Finds the bytes that can be shown now, and a stop text that ends the text. */
static void find_shown(text *t)
{
    const request *r = &t->job->request;
    int stopped = -1;
    size_t end = dsmoe_stop_find(t->bytes.bytes, t->bytes.length, t->shown,
                                 (const char *const *)r->stops, (int)r->n_stops, &stopped);
    if (stopped >= 0) {
        cut_at(t, end);
        t->stop = stopped;
        t->end = TEXT_END_STOP;
    }
    t->shown += dsmoe_utf8_complete(t->bytes.bytes + t->shown, end - t->shown);
}

static void end_text(text *t, text_end end)
{
    t->end = end;
    t->shown = t->bytes.length; /* nothing is held back any more */
    t->state = TEXT_ENDED;
}

static dsmoe_status take_token(text *t, const text_setting *setting, double now, dsmoe_error *error)
{
    if (t->pick_error.status)
        return status_fail(error, t->pick_error.status, "%s", t->pick_error.message);
    if (t->n_predicted == 0) t->first_at = now;
    t->last_at = now;
    t->n_predicted++;
    t->state = TEXT_WRITES;
    if (ends_text(t, setting)) {
        end_text(t, TEXT_END_EOS);
        return DSMOE_OK;
    }
    dsmoe_sampler_accept(t->sampler, t->picked);
    STATUS_TRY(keep_token(t, setting, error));
    find_shown(t);
    if (t->end == TEXT_END_STOP)
        end_text(t, TEXT_END_STOP);
    else if (t->n_predicted >= t->max_tokens)
        end_text(t, TEXT_END_LENGTH);
    return DSMOE_OK;
}

dsmoe_status text_advance(text *t, const text_setting *setting, int64_t n, double now,
                          dsmoe_error *error)
{
    if (t->state == TEXT_READS) {
        t->n_read += n;
        if (t->n_read < (int64_t)t->prompt->n_ids) return DSMOE_OK;
        if (t->embedding || t->max_tokens == 0) { /* nothing is written */
            t->first_at = t->last_at = now;
            end_text(t, TEXT_END_LENGTH);
            return DSMOE_OK;
        }
    }
    return take_token(t, setting, now, error);
}

/* ---- leaving ----------------------------------------------------------------------------------- */

void text_leave(text *t)
{
    dsmoe_sequence_free(t->sequence);
    dsmoe_sampler_free(t->sampler);
    t->sequence = NULL;
    t->sampler = NULL;
    t->state = TEXT_ENDED;
}

void text_free(text *t)
{
    text_leave(t);
    free(t->tokens);
    free(t->logprobs);
    free(t->embedding);
    byte_buffer_free(&t->bytes);
    byte_buffer_free(&t->routed);
    routing_log_free(&t->routing);
}
