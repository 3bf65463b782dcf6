/* divide.c - rank 0 of a model whose experts are divided over ranks: it has the files, and sends the other
 * ranks their experts. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/division.h"
#include "model/greet.h"

enum { DEFAULT_BATCH = 512, BATCH_MAX = 1 << 16 };

/* Sends experts. While one buffer is sent the other is filled, which may have to wait for a disk. */
typedef struct sender {
    division division;
    const dsmoe_divide_options *options;
    unsigned char *buffers[2];
    int next;
    bool is_travelling, is_stopped;
    double done, total; /* bytes */
} sender;

/* ---- the terms ----------------------------------------------------------------------------------- */

static dsmoe_status check(const dsmoe_model *model, const dsmoe_divide_options *o,
                          dsmoe_error *error)
{
    if (!model)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "rank 0 on %s has no model to divide",
                           o->peers->host);
    if (!model->files && !model->gguf)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "only a model that was opened from files can be divided");
    if (o->n_batch < 0 || o->n_batch > BATCH_MAX)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "a batch is 1 to %d tokens, not %lld",
                           BATCH_MAX, (long long)o->n_batch);
    return DSMOE_OK;
}

/* Sends the terms to the other ranks, even if there is no model. */
static dsmoe_status tell_terms(sender *s, const dsmoe_model *model, dsmoe_error *error)
{
    division_terms *t = &s->division.terms;
    const dsmoe_divide_options *o = s->options;
    if (check(model, o, &t->failure) == DSMOE_OK) {
        t->config = model->config;
        t->most_tokens = o->n_batch > 0 ? o->n_batch : DEFAULT_BATCH;
        t->keeps_octets = model->octets.memory != NULL;
    }
    STATUS_TRY(peers_broadcast(o->peers, 0, t, sizeof *t, error));
    if (t->failure.status != DSMOE_OK && error) *error = t->failure;
    return t->failure.status;
}

/* ---- sending ------------------------------------------------------------------------------------- */

static dsmoe_status settle(sender *s, dsmoe_error *error)
{
    const dsmoe_peers *p = s->division.peers;
    if (!s->is_travelling) return DSMOE_OK;
    s->is_travelling = false;
    return p->exchange_end(p->context, error);
}

/* Copies from the mapped file, so that a lost page is noticed here, by the file's guard, and not inside a
 * system call. */
static void fill(const sender *s, unsigned char *to, const unsigned char *from, size_t size)
{
    const size_t part = 1 << 17;
    for (size_t at = 0; at < size; at += part) {
        const dsmoe_peers *p = s->division.peers;
        if (s->is_travelling && p->poll) p->poll(p->context);
        memcpy(to + at, from + at, size - at < part ? size - at : part);
    }
}

static dsmoe_status send_piece(sender *s, int to, const unsigned char *from, size_t size,
                               dsmoe_error *error)
{
    const division *d = &s->division;
    const dsmoe_peers *p = d->peers;
    unsigned char *buffer = s->buffers[s->next];
    s->next = !s->next;
    fill(s, buffer, from, size);
    STATUS_TRY(settle(s, error));
    memset(d->send, 0, (size_t)p->size * sizeof *d->send);
    memset(d->receive, 0, (size_t)p->size * sizeof *d->receive);
    d->send[to] = (dsmoe_bytes){buffer, size};
    STATUS_TRY(p->exchange_begin(p->context, d->send, d->receive, error));
    s->is_travelling = true;
    s->done += (double)size;
    const dsmoe_divide_options *o = s->options;
    if (o->progress && !o->progress(o->context, s->done, s->total)) s->is_stopped = true;
    return DSMOE_OK;
}

static dsmoe_status agree(sender *s, dsmoe_status mine, dsmoe_error *error)
{
    if (s->is_stopped && mine == DSMOE_OK)
        mine = status_fail(error, DSMOE_ERROR_STOPPED, "it was told to stop");
    return peers_agree(s->division.peers, mine, error);
}

/* Sends a matrix to its holder. Its pages are then not needed here any more and leave this process. */
static dsmoe_status send_visit(void *context, const cargo *c, dsmoe_error *error)
{
    sender *s = context;
    const unsigned char *from = c->matrix->data;
    size_t size = cargo_size(c);
    if (c->holder == 0) return DSMOE_OK;
    for (size_t at = 0, n; at < size; at += n) {
        n = size - at < DIVISION_PIECE ? size - at : DIVISION_PIECE;
        STATUS_TRY(send_piece(s, c->holder, from + at, n, error));
    }
    memory_forget(from, size);
    if (!division_is_due(&s->division, size)) return DSMOE_OK;
    STATUS_TRY(settle(s, error));
    return agree(s, DSMOE_OK, error);
}

static dsmoe_status send_all(sender *s, const dsmoe_model *model, dsmoe_error *error)
{
    STATUS_TRY(division_each(&s->division, send_visit, s, error));
    STATUS_TRY(settle(s, error));
    return agree(s, model_intact(model, error), error);
}

/* ---- all steps ----------------------------------------------------------------------------------- */

typedef struct measure {
    uint64_t held, sent; /* bytes */
} measure;

static dsmoe_status measure_visit(void *context, const cargo *c, dsmoe_error *error)
{
    measure *m = context;
    (void)error;
    *(c->holder == 0 ? &m->held : &m->sent) += cargo_size(c);
    return DSMOE_OK;
}

static dsmoe_status open_sender(sender *s, dsmoe_error *error)
{
    STATUS_TRY(division_open(&s->division, error));
    for (int i = 0; i < 2; i++)
        if (!(s->buffers[i] = malloc(DIVISION_PIECE)))
            return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory to send experts from");
    return DSMOE_OK;
}

static dsmoe_status divide(sender *s, const dsmoe_model *model, dsmoe_error *error)
{
    division *d = &s->division;
    measure m = {0};
    STATUS_TRY(peers_agree(d->peers, open_sender(s, error), error));
    STATUS_TRY(division_share_types(d, error));
    STATUS_TRY(peers_agree(d->peers, DSMOE_OK, error)); /* whether the others are ready */
    STATUS_TRY(division_each(d, measure_visit, &m, error));
    STATUS_TRY(division_share_claims(d, (division_claim){.experts = m.held}, error));
    s->total = (double)m.sent;
    return send_all(s, model, error);
}

static dsmoe_status drop_visit(void *context, const cargo *c, dsmoe_error *error)
{
    (void)error;
    if (c->holder != 0) octet_stores_drop(context, c->matrix);
    return DSMOE_OK;
}

static void join(const sender *s, dsmoe_model *model)
{
    const division *d = &s->division;
    for (int64_t i = 0; i < model->config.num_hidden_layers; i++)
        if (model->layers[i]) layer_join(model->layers[i], d->peers, d->terms.most_tokens);
    division_each(d, drop_visit, &model->octets, NULL);
    model->peers = d->peers;
    for (int i = 0; s->options->memory && i < d->peers->size; i++)
        s->options->memory[i] = (dsmoe_rank_memory){.experts = (size_t)d->claims[i].experts,
                                                    .workspace = (size_t)d->claims[i].workspace};
}

dsmoe_status dsmoe_model_divide(dsmoe_model *model, const dsmoe_divide_options *options,
                                dsmoe_error *error)
{
    if (!options || peers_rank(options->peers) != 0 || (model && model->peers))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "no options, not rank 0, or a model that is divided already");
    if (!options->peers) return DSMOE_OK;
    sender s = {.division = {.peers = options->peers, .weights = model ? model->weights : NULL},
                .options = options};
    dsmoe_error own, *why = error ? error : &own;
    STATUS_TRY(greet_ranks(options->peers, GREET_TO_DIVIDE, why));
    STATUS_TRY(tell_terms(&s, model, why));
    dsmoe_status status = divide(&s, model, why);
    if (status == DSMOE_OK) join(&s, model);
    for (int i = 0; i < 2; i++) free(s.buffers[i]);
    division_close(&s.division);
    return status;
}
