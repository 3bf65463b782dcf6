/* team.c - orders of rank 0, and how the others follow them. */
#include "train/team.h"

#include <stdlib.h>
#include <string.h>

#include "model/serve_experts.h"
#include "train/arrival.h"

typedef enum order_kind {
    ORDER_END,
    ORDER_INIT,
    ORDER_READ,
    ORDER_FILL,
    ORDER_BACKWARD,
    ORDER_UPDATE,
    ORDER_WEIGHTS, /* sends all weights everywhere, as all orders except BACKWARD do */
    ORDER_SERVE,
} order_kind;

typedef struct order {
    int32_t kind;
    int32_t n; /* a trainer_row, a number of units, or a status */
    uint64_t seed;
    double lr;
    int64_t n_updates; /* so far */
    int32_t has_positions;
    double n_targets, n_tokens; /* of a unit, on average */
    double beta;
} order;

/* Any order except another batch needs all weights on all ranks. */
static dsmoe_status finish_arrival(dsmoe_trainer *t, order_kind kind, dsmoe_error *error)
{
    return kind == ORDER_BACKWARD ? DSMOE_OK : arrival_finish(t, error);
}

static dsmoe_status send_order(dsmoe_trainer *t, order o, dsmoe_error *error)
{
    STATUS_TRY(peers_broadcast(t->options.peers, 0, &o, sizeof o, error));
    return finish_arrival(t, (order_kind)o.kind, error);
}

/* ---- numbers ------------------------------------------------------------------------------------- */

dsmoe_status team_init(dsmoe_trainer *t, uint64_t seed, dsmoe_error *error)
{
    STATUS_TRY(send_order(t, (order){.kind = ORDER_INIT, .seed = seed}, error));
    dsmoe_trainer_init(t, seed);
    return DSMOE_OK;
}

/* All ranks make this walk. Only a lost rank ends it early; `use` is not called again after it has failed. */
static dsmoe_status walk_read(const dsmoe_trainer *t, trainer_row row, team_read_fn *use,
                              void *context, dsmoe_error *error)
{
    dsmoe_status result = DSMOE_OK;
    float *room = t->fold.others; /* no unit is running */
    int64_t most = t->shares.n_most < SPREAD_PIECE ? t->shares.n_most : SPREAD_PIECE;
    for (size_t i = 0; i < t->n_parameters; i++)
        for (int64_t first = 0, n; first < t->parameters[i].n; first += n) {
            const float *numbers;
            dsmoe_error lost;
            n = moe_min(most, t->parameters[i].n - first);
            dsmoe_status status = spread_read(t, row, i, first, n, room, &numbers, &lost);
            if (status != DSMOE_OK) return status_fail(error, status, "%s", lost.message);
            if (use && result == DSMOE_OK) result = use(context, i, numbers, n, error);
        }
    return result;
}

static dsmoe_status walk_fill(dsmoe_trainer *t, trainer_row row, team_fill_fn *give, void *context,
                              dsmoe_error *error)
{
    for (size_t i = 0; i < t->n_parameters; i++) {
        const char *numbers = give ? give(context, i) : NULL;
        for (int64_t first = 0, n; first < t->parameters[i].n; first += n) {
            n = moe_min(SPREAD_PIECE, t->parameters[i].n - first);
            STATUS_TRY(spread_write(t, row, i, first, n, numbers, error));
            if (numbers) numbers += (size_t)n * sizeof(float);
        }
    }
    return DSMOE_OK;
}

dsmoe_status team_read(dsmoe_trainer *t, trainer_row row, team_read_fn *use, void *context,
                       dsmoe_error *error)
{
    STATUS_TRY(send_order(t, (order){.kind = ORDER_READ, .n = (int32_t)row}, error));
    return walk_read(t, row, use, context, error);
}

dsmoe_status team_fill(dsmoe_trainer *t, trainer_row row, team_fill_fn *give, void *context,
                       dsmoe_error *error)
{
    STATUS_TRY(send_order(t, (order){.kind = ORDER_FILL, .n = (int32_t)row}, error));
    return walk_fill(t, row, give, context, error);
}

/* ---- a step ---------------------------------------------------------------------------------------- */

/* Sends one of the arrays of each unit from rank 0: tokens, then targets, then positions, if there are
 * any. */
static dsmoe_status send_units(const dsmoe_trainer *t, int n_units, const int32_t *numbers,
                               dsmoe_error *error)
{
    const dsmoe_peers *p = t->options.peers;
    if (!p) return DSMOE_OK;
    size_t size = (size_t)(t->options.n_sequences * t->options.sequence_length) * sizeof *numbers;
    dsmoe_bytes *send = t->fold.lists, *receive = send + p->size;
    memset(send, 0, 2 * (size_t)p->size * sizeof *send);
    for (int r = 1; r < n_units; r++)
        send[r] = (dsmoe_bytes){(char *)numbers + (size_t)r * size, size};
    return peers_exchange(p, send, receive, error);
}

static dsmoe_status receive_unit(const dsmoe_trainer *t, int n_units, int32_t *numbers,
                                 dsmoe_error *error)
{
    const dsmoe_peers *p = t->options.peers;
    size_t size = (size_t)(t->options.n_sequences * t->options.sequence_length) * sizeof *numbers;
    dsmoe_bytes *send = t->fold.lists, *receive = send + p->size;
    memset(send, 0, 2 * (size_t)p->size * sizeof *send);
    if (p->rank < n_units) receive[0] = (dsmoe_bytes){numbers, size};
    return peers_exchange(p, send, receive, error);
}

dsmoe_status team_backward(dsmoe_trainer *t, int n_units, const dsmoe_batch *b, dsmoe_error *error)
{
    const order o = {.kind = ORDER_BACKWARD,
                     .n = n_units,
                     .has_positions = b->positions != NULL,
                     .n_targets = b->n_targets,
                     .n_tokens = b->n_tokens,
                     .beta = b->beta};
    STATUS_TRY(send_order(t, o, error));
    STATUS_TRY(send_units(t, n_units, b->tokens, error));
    STATUS_TRY(send_units(t, n_units, b->targets, error));
    if (b->positions) STATUS_TRY(send_units(t, n_units, b->positions, error));
    return dsmoe_trainer_backward(t, b, NULL, error);
}

/* Before the call `stop` says whether this rank wants to stop, afterwards which rank does. */
static dsmoe_status update_all(dsmoe_trainer *t, double lr, dsmoe_update *update, dsmoe_error *stop,
                               dsmoe_error *error)
{
    dsmoe_status status = trainer_update(t, lr, update, error);
    if (status == DSMOE_ERROR_PEER) return status;
    STATUS_TRY(peers_agree(t->options.peers, status, error));
    status = peers_agree(t->options.peers, stop->status, stop);
    t->times.waiting += timed_peers_take(&t->timed);
    return status == DSMOE_ERROR_PEER ? status_fail(error, status, "%s", stop->message) : DSMOE_OK;
}

dsmoe_status team_update(dsmoe_trainer *t, double lr, dsmoe_update *update, dsmoe_error *stop,
                         dsmoe_error *error)
{
    *stop = (dsmoe_error){0};
    STATUS_TRY(
        send_order(t, (order){.kind = ORDER_UPDATE, .lr = lr, .n_updates = t->n_updates}, error));
    return update_all(t, lr, update, stop, error);
}

/* ---- measuring the model ----------------------------------------------------------------------------- */

dsmoe_status team_begin_serving(dsmoe_trainer *t, dsmoe_error *error)
{
    order_kind kind = trainer_divides_experts(t) ? ORDER_SERVE : ORDER_WEIGHTS;
    return send_order(t, (order){.kind = (int32_t)kind}, error);
}

dsmoe_status team_end_serving(const dsmoe_trainer *t, dsmoe_error *error)
{
    return trainer_divides_experts(t) ? serve_experts_end(t->options.peers, error) : DSMOE_OK;
}

/* ---- the end ------------------------------------------------------------------------------------------- */

dsmoe_status team_end(const dsmoe_peers *p, dsmoe_status status, const dsmoe_error *reason)
{
    dsmoe_error said = reason ? *reason : (dsmoe_error){0};
    order o = {.kind = ORDER_END, .n = (int32_t)status};
    STATUS_TRY(peers_broadcast(p, 0, &o, sizeof o, NULL));
    return peers_broadcast(p, 0, &said, sizeof said, NULL);
}

static dsmoe_status hear_end(const dsmoe_peers *p, dsmoe_status status, dsmoe_error *error)
{
    dsmoe_error said;
    STATUS_TRY(peers_broadcast(p, 0, &said, sizeof said, error));
    if (error && status != DSMOE_OK) *error = said;
    return status;
}

/* ---- following ----------------------------------------------------------------------------------------- */

/* A step that is not finite is not a failure: rank 0 knows it, and the update is skipped. */
static dsmoe_status follow_backward(const team_follower *f, order o, dsmoe_error *error)
{
    dsmoe_trainer *t = f->trainer;
    const dsmoe_batch batch = {.tokens = f->tokens,
                               .targets = f->targets,
                               .positions = o.has_positions ? f->positions : NULL,
                               .n_targets = o.n_targets,
                               .n_tokens = o.n_tokens,
                               .beta = o.beta};
    STATUS_TRY(receive_unit(t, o.n, f->tokens, error));
    STATUS_TRY(receive_unit(t, o.n, f->targets, error));
    if (o.has_positions) STATUS_TRY(receive_unit(t, o.n, f->positions, error));
    bool is_there = t->options.peers->rank < o.n;
    dsmoe_status status = dsmoe_trainer_backward(t, is_there ? &batch : NULL, NULL, error);
    return status == DSMOE_ERROR_NONFINITE ? DSMOE_OK : status;
}

static dsmoe_status follow_update(const team_follower *f, order o, dsmoe_error *error)
{
    dsmoe_error stop = {0};
    if (f->stop && f->stop(f->context))
        status_fail(&stop, DSMOE_ERROR_STOPPED, "it was told to stop");
    f->trainer->n_updates = o.n_updates;
    return update_all(f->trainer, o.lr, NULL, &stop, error);
}

/* Runs experts while rank 0 measures the model. */
static dsmoe_status follow_serving(const dsmoe_trainer *t, dsmoe_error *error)
{
    int n_threads = t->options.n_threads;
    size_t size = serve_experts_size(t->model, n_threads);
    expert_server server = {
        .model = t->model, .peers = t->options.peers, .workspace = {malloc(size), size, n_threads}};
    dsmoe_status status = DSMOE_OK;
    if (!server.workspace.memory)
        status =
            status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory to run experts for rank 0");
    if (status == DSMOE_OK) status = serve_experts(&server, error);
    free(server.workspace.memory);
    return status;
}

static dsmoe_status obey(const team_follower *f, order o, dsmoe_error *error)
{
    dsmoe_trainer *t = f->trainer;
    switch ((order_kind)o.kind) {
    case ORDER_INIT: dsmoe_trainer_init(t, o.seed); return DSMOE_OK;
    case ORDER_READ: return walk_read(t, (trainer_row)o.n, NULL, NULL, error);
    case ORDER_FILL: return walk_fill(t, (trainer_row)o.n, NULL, NULL, error);
    case ORDER_BACKWARD: return follow_backward(f, o, error);
    case ORDER_UPDATE: return follow_update(f, o, error);
    case ORDER_WEIGHTS: return DSMOE_OK;
    case ORDER_SERVE: return follow_serving(t, error);
    case ORDER_END: break;
    }
    return status_fail(error, DSMOE_ERROR_PEER, "rank 0 sent an unknown order");
}

dsmoe_status team_follow(const team_follower *f, dsmoe_error *error)
{
    const dsmoe_peers *p = f->trainer->options.peers;
    for (;;) {
        order o;
        STATUS_TRY(peers_broadcast(p, 0, &o, sizeof o, error));
        if (o.kind == ORDER_END) return hear_end(p, (dsmoe_status)o.n, error);
        STATUS_TRY(finish_arrival(f->trainer, (order_kind)o.kind, error));
        STATUS_TRY(obey(f, o, error));
    }
}
