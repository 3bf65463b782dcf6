/* demo_routing.c - which experts the tokens of each kind of the demo's text choose. */
#include "study/demo_routing.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

enum { N_WATCHED = 200, MIN_OCCURRENCES = 20 }; /* examples of a kind; of a token in a kind */

/* ---- numbers --------------------------------------------------------------------------------- */

static const int64_t *counts_of(const demo_routing *r, int64_t place, int kind)
{
    return r->counts + (place * DEMO_N_KINDS + kind) * r->n_experts;
}

double demo_relative_load(const demo_routing *r, int64_t place, int kind, int64_t expert)
{
    const int64_t *counts = counts_of(r, place, kind);
    int64_t sum = 0;
    for (int64_t e = 0; e < r->n_experts; e++) sum += counts[e];
    return sum ? (double)counts[expert] * (double)r->n_experts / (double)sum : 0;
}

/* The kind that sends the largest share of its choices to an expert. */
static int owner_of(const demo_routing *r, int64_t place, int64_t expert)
{
    int best = 0;
    for (int kind = 1; kind < DEMO_N_KINDS; kind++)
        if (demo_relative_load(r, place, kind, expert) > demo_relative_load(r, place, best, expert))
            best = kind;
    return best;
}

double demo_guess_rate(const demo_routing *r, int64_t place)
{
    double sum = 0;
    for (int64_t e = 0; e < r->n_experts; e++)
        sum += demo_relative_load(r, place, owner_of(r, place, e), e);
    return sum / (double)r->n_experts / DEMO_N_KINDS;
}

/* The kinds in which a token occurs often enough to be counted, and the experts it chose there. */
typedef struct shared_token {
    const uint32_t *counts[DEMO_N_KINDS]; /* [n_experts] */
    double n_choices[DEMO_N_KINDS], n_all;
    int n_kinds;
} shared_token;

static shared_token find_shared(const demo_routing *r, int64_t place, int64_t token)
{
    shared_token found = {.n_kinds = 0};
    for (int kind = 0; kind < DEMO_N_KINDS; kind++) {
        const uint32_t *counts =
            r->by_token + ((place * DEMO_N_KINDS + kind) * r->vocab_size + token) * r->n_experts;
        double sum = 0;
        for (int64_t e = 0; e < r->n_experts; e++) sum += counts[e];
        if (sum < (double)(MIN_OCCURRENCES * r->k)) continue;
        found.counts[found.n_kinds] = counts;
        found.n_choices[found.n_kinds++] = sum;
        found.n_all += sum;
    }
    return found;
}

double demo_shared_guess_rate(const demo_routing *r, int64_t place, double *chance)
{
    double rate = 0, by_token_alone = 0, n_all = 0;
    for (int64_t token = 0; token < r->vocab_size; token++) {
        shared_token t = find_shared(r, place, token);
        if (t.n_kinds < 2) continue;
        double guessed = 0;
        for (int64_t e = 0; e < r->n_experts; e++) {
            double most = 0;
            for (int i = 0; i < t.n_kinds; i++) most = fmax(most, t.counts[i][e] / t.n_choices[i]);
            guessed += most;
        }
        rate += t.n_all * guessed / t.n_kinds;
        by_token_alone += t.n_all / t.n_kinds;
        n_all += t.n_all;
    }
    *chance = n_all > 0 ? by_token_alone / n_all : 0;
    return n_all > 0 ? rate / n_all : 0;
}

static int compare_loads(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a < b) - (a > b);
}

double demo_concentration(const demo_routing *r, int64_t place)
{
    double sum = 0, *loads = malloc((size_t)r->n_experts * sizeof *loads);
    if (!loads) return 0;
    for (int kind = 0; kind < DEMO_N_KINDS; kind++) {
        for (int64_t e = 0; e < r->n_experts; e++) loads[e] = demo_relative_load(r, place, kind, e);
        qsort(loads, (size_t)r->n_experts, sizeof *loads, compare_loads);
        for (int64_t i = 0; i < r->k; i++) sum += loads[i];
    }
    free(loads);
    return sum / (double)r->n_experts / DEMO_N_KINDS;
}

int64_t demo_best_layer(const demo_routing *r)
{
    int64_t best = 0;
    for (int64_t place = 1; place < r->n_layers; place++)
        if (demo_guess_rate(r, place) > demo_guess_rate(r, best)) best = place;
    return best;
}

void demo_order_experts(const demo_routing *r, int64_t place, int32_t *order, int *owner)
{
    for (int32_t e = 0; e < r->n_experts; e++) {
        owner[e] = owner_of(r, place, e);
        double load = demo_relative_load(r, place, owner[e], e);
        int32_t at = e;
        for (; at > 0; at--) {
            int32_t before = order[at - 1];
            if (owner[before] < owner[e]) break;
            if (owner[before] == owner[e] &&
                demo_relative_load(r, place, owner[before], before) >= load)
                break;
            order[at] = before;
        }
        order[at] = e;
    }
}

/* ---- counting -------------------------------------------------------------------------------- */

typedef struct watcher {
    demo_routing *r;
    const dsmoe_tokenizer *tokenizer;
    dsmoe_sequence *sequence;
    int64_t *place;         /* [num_hidden_layers] of a layer among the MoE layers */
    int kind;               /* of the example that is running */
    const int32_t *running; /* its tokens */
} watcher;

static void count_choices(void *context, int64_t layer, int64_t first, int64_t n_tokens,
                          const dsmoe_routing *routing)
{
    watcher *w = context;
    demo_routing *r = w->r;
    int64_t row = w->place[layer] * DEMO_N_KINDS + w->kind;
    int64_t *counts = r->counts + row * r->n_experts;
    int32_t bos = dsmoe_tokenizer_bos(w->tokenizer);
    for (int64_t i = 0; i < n_tokens; i++) {
        int32_t token = w->running[first + i];
        if (token == bos) continue; /* it is the same in every kind */
        uint32_t *by_token = r->by_token + (row * r->vocab_size + token) * r->n_experts;
        for (int64_t j = 0; j < r->k; j++) {
            int32_t expert = routing->topk_idx[i * r->k + j];
            counts[expert]++;
            by_token[expert]++;
        }
    }
}

static dsmoe_status make_counts(watcher *w, const dsmoe_config *config, dsmoe_error *error)
{
    demo_routing *r = w->r;
    size_t n_layers = (size_t)config->num_hidden_layers;
    size_t n_counts = n_layers * DEMO_N_KINDS * (size_t)config->n_routed_experts;
    r->n_experts = config->n_routed_experts;
    r->k = config->num_experts_per_tok;
    r->vocab_size = config->vocab_size;
    w->place = calloc(n_layers, sizeof *w->place);
    r->layers = calloc(n_layers, sizeof *r->layers);
    r->counts = calloc(n_counts + 1, sizeof *r->counts);
    r->by_token = calloc(n_counts * (size_t)r->vocab_size + 1, sizeof *r->by_token);
    if (!w->place || !r->layers || !r->counts || !r->by_token) {
        *error = (dsmoe_error){DSMOE_ERROR_MEMORY, "not enough memory to count choices"};
        return error->status;
    }
    for (int64_t layer = 0; layer < config->num_hidden_layers; layer++) {
        if (!dsmoe_config_layer_is_moe(config, layer)) continue;
        w->place[layer] = r->n_layers;
        r->layers[r->n_layers++] = layer;
    }
    return DSMOE_OK;
}

/* Runs an example by itself, and writes its tokens to the file as if it were a document of the corpus. */
static dsmoe_status watch_example(watcher *w, const demo_example *example, FILE *file,
                                  dsmoe_error *error)
{
    int32_t *ids = NULL;
    size_t n_ids = 0;
    dsmoe_status status = dsmoe_sequence_rewind(w->sequence, 0, error);
    if (status == DSMOE_OK)
        status = dsmoe_tokenizer_encode(w->tokenizer, example->text, example->length,
                                        DSMOE_ENCODE_BOS, &ids, &n_ids, error);
    w->running = ids;
    if (status == DSMOE_OK)
        status = dsmoe_sequence_append(w->sequence, ids, (int64_t)n_ids, NULL, error);
    for (size_t i = 0; file && i < n_ids; i++) fprintf(file, "%" PRId32 " ", ids[i]);
    if (file) fprintf(file, "%" PRId32 "\n", dsmoe_tokenizer_eos(w->tokenizer));
    free(ids);
    return status;
}

/* Runs the examples that would come next in the corpus. Training never has prompts of the examination. */
static dsmoe_status watch_kind(watcher *w, const demo_routing_options *o, dsmoe_error *error)
{
    for (int i = 0; i < N_WATCHED && !(o->stop && o->stop(o->context)); i++) {
        demo_example example;
        demo_make(w->kind, o->seed, false, demo_kinds[w->kind].n_examples + i, &example);
        STATUS_TRY(watch_example(w, &example, o->ids, error));
    }
    return DSMOE_OK;
}

dsmoe_status demo_routing_collect(const dsmoe_model *model, const dsmoe_tokenizer *tokenizer,
                                  const demo_routing_options *options, demo_routing *r,
                                  dsmoe_error *error)
{
    watcher w = {.r = r, .tokenizer = tokenizer};
    dsmoe_engine_options wanted = {
        .n_ctx = DEMO_TEXT, .n_batch = DEMO_TEXT, .n_threads = options->n_threads};
    memset(r, 0, sizeof *r);
    dsmoe_engine *engine = NULL;
    dsmoe_status status = dsmoe_engine_create(model, &wanted, &engine, error);
    if (status == DSMOE_OK) status = dsmoe_sequence_create(engine, &w.sequence, error);
    if (status == DSMOE_OK) status = make_counts(&w, dsmoe_model_config(model), error);
    if (status == DSMOE_OK) dsmoe_sequence_watch(w.sequence, count_choices, &w);
    for (w.kind = 0; w.kind < DEMO_N_KINDS && status == DSMOE_OK; w.kind++)
        status = watch_kind(&w, options, error);
    dsmoe_engine_free(engine);
    free(w.place);
    return status;
}

void demo_routing_free(demo_routing *r)
{
    free(r->layers);
    free(r->counts);
    free(r->by_token);
    memset(r, 0, sizeof *r);
}
