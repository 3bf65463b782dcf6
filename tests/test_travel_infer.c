/* test_travel_infer.c - inference with experts divided over ranks: weights of any type, tokens in several
 * pieces, ranks without tokens; the same bits as the layer on one machine. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/quantize.h"
#include "moe/moe.h"
#include "moe/wave.h"
#include "socket_peers.h"
#include "support.h"

enum { MOST_RANKS = 4, MOST_EXPERTS = 13 };

typedef struct story {
    dsmoe_layer_config config;
    dsmoe_dtype type; /* of the experts */
    int n_ranks, n_threads;
    int64_t most_tokens;
    int64_t n_tokens[MOST_RANKS];
    bool same_bits;
    /* Made before the ranks start: */
    moe_weights weights;
    moe_expert experts[MOST_EXPERTS];
    float *x[MOST_RANKS], *y[MOST_RANKS];
} story;

/* ---- the layer on one machine ------------------------------------------------------------------- */

static void *allocate(size_t size)
{
    void *memory = malloc(size + 1);
    assert_non_null(memory);
    memset(memory, 0xa5, size);
    return memory;
}

static matrix random_matrix(dsmoe_dtype type, int64_t n_out, int64_t n_in, uint64_t seed)
{
    matrix m = {.stride = dtype_bytes(type, n_in), .type = type};
    floats numbers = floats_random(n_out * n_in, 0, seed);
    unsigned char *data = allocate((size_t)(n_out * m.stride));
    for (int64_t i = 0; i < n_out; i++)
        quantize_row(type, n_in, numbers.at + i * n_in, NULL, data + i * m.stride);
    floats_free(numbers);
    m.data = data;
    return m;
}

static moe_expert random_expert(dsmoe_dtype type, int64_t hidden, int64_t width, uint64_t seed)
{
    return (moe_expert){random_matrix(type, width, hidden, seed),
                        random_matrix(type, width, hidden, seed + 1),
                        random_matrix(type, hidden, width, seed + 2)};
}

static void free_expert(const moe_expert *e)
{
    free((void *)e->gate_proj.data);
    free((void *)e->up_proj.data);
    free((void *)e->down_proj.data);
}

static dsmoe_status run(const dsmoe_layer *layer, const story *s, int64_t n_most, const float *x,
                        int64_t n_tokens, float *y, int n_threads, const layer_manner *manner,
                        dsmoe_error *error)
{
    size_t size = dsmoe_layer_workspace_size(layer, n_most, n_threads);
    dsmoe_workspace workspace = {allocate(size), size, n_threads};
    layer_manner with = manner ? *manner : (layer_manner){0};
    with.same_bits = s->same_bits;
    dsmoe_status status = layer_forward(layer, x, n_tokens, y, &workspace, &with, error);
    free(workspace.memory);
    return status;
}

/* Runs the layer piece by piece, as an expert gets the rows of one piece together. */
static void run_alone(story *s)
{
    dsmoe_layer *layer;
    int64_t hidden = s->config.hidden_size;
    assert_int_equal(layer_create(&s->config, &s->weights, kernels_get(), &layer, NULL), DSMOE_OK);
    for (int rank = 0; rank < s->n_ranks; rank++) {
        size_t size = (size_t)(s->n_tokens[rank] * hidden) * sizeof(float);
        s->x[rank] = allocate(size);
        s->y[rank] = allocate(size);
        fill_random(s->x[rank], s->n_tokens[rank] * hidden, 100 + (uint64_t)rank, 1.0);
        for (int64_t t = 0; t < s->n_tokens[rank]; t += s->most_tokens) {
            int64_t n = moe_min(s->most_tokens, s->n_tokens[rank] - t);
            assert_int_equal(run(layer, s, n, s->x[rank] + t * hidden, n, s->y[rank] + t * hidden,
                                 1, NULL, NULL),
                             DSMOE_OK);
        }
    }
    dsmoe_layer_free(layer);
}

static void prepare(story *s)
{
    const dsmoe_layer_config *c = &s->config;
    s->weights = (moe_weights){.experts = s->experts};
    s->weights.gate = random_matrix(DSMOE_F32, c->n_routed_experts, c->hidden_size, 1);
    for (int64_t i = 0; i < c->n_routed_experts; i++)
        s->experts[i] =
            random_expert(s->type, c->hidden_size, c->moe_intermediate_size, 10 + 10 * (uint64_t)i);
    if (c->n_shared_experts > 0)
        s->weights.shared_experts = random_expert(s->type, c->hidden_size, moe_shared_width(c), 5);
    run_alone(s);
}

static void clean(story *s)
{
    free((void *)s->weights.gate.data);
    for (int64_t i = 0; i < s->config.n_routed_experts; i++) free_expert(&s->experts[i]);
    free_expert(&s->weights.shared_experts);
    for (int rank = 0; rank < s->n_ranks; rank++) {
        free(s->x[rank]);
        free(s->y[rank]);
    }
}

/* ---- ranks --------------------------------------------------------------------------------------- */

static dsmoe_layer *open_rank(const story *s, const dsmoe_peers *peers)
{
    expert_range held = wave_held(s->config.n_routed_experts, peers->rank, peers->size);
    moe_expert table[MOST_EXPERTS] = {0};
    for (int64_t i = 0; i < s->config.n_routed_experts; i++) {
        bool is_held = held.first <= i && i < held.end;
        if (is_held) table[i] = s->experts[i];
    }
    moe_weights weights = s->weights;
    weights.experts = table;
    dsmoe_layer *layer;
    assert_int_equal(layer_create(&s->config, &weights, kernels_get(), &layer, NULL), DSMOE_OK);
    layer_join(layer, peers, s->most_tokens);
    return layer;
}

static int infer_body(const dsmoe_peers *peers, void *context)
{
    const story *s = context;
    int64_t n = s->n_tokens[peers->rank];
    size_t size = (size_t)(n * s->config.hidden_size) * sizeof(float);
    dsmoe_layer *layer = open_rank(s, peers);
    float *y = allocate(size);
    dsmoe_error error;
    for (int i = 0; i < 2; i++) {
        if (run(layer, s, n, n ? s->x[peers->rank] : NULL, n, n ? y : NULL, s->n_threads, NULL,
                &error) != DSMOE_OK)
            fail_msg("%s", error.message);
        assert_memory_equal(y, s->y[peers->rank], size);
        memset(y, 0xa5, size);
    }
    free(y);
    dsmoe_layer_free(layer);
    return 0;
}

static void tell(story s)
{
    prepare(&s);
    bool good = socket_peers_run(s.n_ranks, infer_body, &s, NULL, NULL);
    clean(&s);
    assert_true(good);
}

static const dsmoe_dtype types[] = {DSMOE_F32, DSMOE_BF16, DSMOE_Q8_0, DSMOE_Q4_K};

static void test_types(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(types); i++)
        for (int n_ranks = 1; n_ranks <= MOST_RANKS; n_ranks++) {
            int64_t block = types[i] == DSMOE_Q4_K ? 256 : 64;
            tell((story){.config = small_config(block, block, 13, 3, (n_ranks + (int)i) % 3),
                         .type = types[i],
                         .n_ranks = n_ranks,
                         .n_threads = 2,
                         .most_tokens = 40,
                         .n_tokens = {40, 13, 1, 30}});
        }
}

/* A rank serves the other ranks' pieces after its own are done, or if it has none. */
static void test_pieces(void **state)
{
    (void)state;
    static const int64_t n_tokens[][MOST_RANKS] = {{12, 0, 7, 3}, {0, 0, 0, 16}, {0, 0, 0, 0},
                                                   {5, 5, 5, 5},  {1, 0, 0, 0},  {0, 11, 6, 0}};
    for (size_t i = 0; i < COUNT(n_tokens); i++)
        for (int same_bits = 0; same_bits < 2; same_bits++) {
            story s = {.config = small_config(64, 32, 12, 6, 1),
                       .type = types[i % 3],
                       .n_ranks = MOST_RANKS,
                       .n_threads = 1,
                       .most_tokens = 5,
                       .same_bits = same_bits};
            memcpy(s.n_tokens, n_tokens[i], sizeof s.n_tokens);
            tell(s);
        }
}

/* ---- tokens with NaN ----------------------------------------------------------------------------- */

static void count_spoilt(void *context, int64_t token) { *(int64_t *)context += token; }

/* Token 7 of rank 2, in its second piece: an error for all ranks or, on request, for that token alone. */
static int nan_body(const dsmoe_peers *peers, void *context)
{
    const story *s = context;
    int64_t hidden = s->config.hidden_size, n = s->n_tokens[peers->rank], sum = 0;
    size_t size = (size_t)(n * hidden) * sizeof(float), good = (size_t)(7 * hidden) * sizeof(float);
    dsmoe_layer *layer = open_rank(s, peers);
    float *y = allocate(size);
    dsmoe_error error;
    if (peers->rank == 2) s->x[2][7 * hidden] = NAN;
    assert_int_equal(run(layer, s, n, s->x[peers->rank], n, y, 1, NULL, &error),
                     DSMOE_ERROR_NONFINITE);
    assert_non_null(strstr(error.message, "rank 2 on machine2: token 7 "));
    layer_manner manner = {.spoilt = count_spoilt, .context = &sum};
    assert_int_equal(run(layer, s, n, s->x[peers->rank], n, y, 1, &manner, &error), DSMOE_OK);
    assert_int_equal(sum, peers->rank == 2 ? 7 : 0);
    assert_memory_equal(y, s->y[peers->rank], peers->rank == 2 ? good : size);
    if (peers->rank == 2) assert_true(isnan(y[7 * hidden]));
    free(y);
    dsmoe_layer_free(layer);
    return 0;
}

static void test_nan(void **state)
{
    (void)state;
    /* quantised, so that the sums of other tokens do not change */
    story s = {.config = small_config(64, 32, 12, 1, 1),
               .type = DSMOE_Q8_0,
               .n_ranks = 3,
               .n_threads = 1,
               .most_tokens = 5,
               .n_tokens = {9, 12, 10}};
    prepare(&s);
    bool good = socket_peers_run(s.n_ranks, nan_body, &s, NULL, NULL);
    clean(&s);
    assert_true(good);
}

/* ---- watching ------------------------------------------------------------------------------------ */

typedef struct tally {
    int64_t n_tokens, n_rows;
} tally;

static void count_tokens(void *context, int64_t first, int64_t n_tokens, const dsmoe_routing *r)
{
    (void)r;
    tally *t = context;
    assert_int_equal(first, t->n_tokens);
    assert_true(n_tokens > 0);
    t->n_tokens += n_tokens;
}

static void count_rows(void *context, matrix weight, rows x, int64_t n_rows, int64_t n_in)
{
    (void)x;
    (void)n_in;
    assert_non_null(weight.data);
    ((tally *)context)->n_rows += n_rows;
}

/* Routing is seen by the rank that has the tokens, inputs by the rank that has the weights: three matrices
 * for each row, counted once over all ranks. */
static int watch_body(const dsmoe_peers *peers, void *context)
{
    const story *s = context;
    int64_t n = s->n_tokens[peers->rank], total = 0, shared = 3 * n;
    int64_t seen[MOST_RANKS] = {0};
    dsmoe_bytes parts[MOST_RANKS];
    dsmoe_layer *layer = open_rank(s, peers);
    float *y = allocate((size_t)(n * s->config.hidden_size) * sizeof(float));
    tally t = {0};
    input_watch inputs = {count_rows, &t};
    layer_manner manner = {.routing = count_tokens, .context = &t, .inputs = &inputs};
    assert_int_equal(run(layer, s, n, s->x[peers->rank], n, y, 1, &manner, NULL), DSMOE_OK);
    assert_int_equal(t.n_tokens, n);
    seen[peers->rank] = t.n_rows - shared;
    for (int i = 0; i < peers->size; i++) parts[i] = (dsmoe_bytes){&seen[i], sizeof seen[i]};
    assert_int_equal(peers->gather(peers->context, parts, NULL), DSMOE_OK);
    for (int i = 0; i < peers->size; i++)
        total += seen[i] - 3 * s->n_tokens[i] * s->config.num_experts_per_tok;
    assert_int_equal(total, 0);
    free(y);
    dsmoe_layer_free(layer);
    return 0;
}

static void test_watched(void **state)
{
    (void)state;
    story s = {.config = small_config(64, 32, 12, 4, 1),
               .n_ranks = 3,
               .n_threads = 1,
               .most_tokens = 5,
               .n_tokens = {9, 0, 14}};
    prepare(&s);
    bool good = socket_peers_run(s.n_ranks, watch_body, &s, NULL, NULL);
    clean(&s);
    assert_true(good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_watched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
