/* test_engine.c - an engine as a program uses it: rewinding, several sequences, threads, the end of the
 * context, stopping, wrong arguments. */
#include "support.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "made_model.h"
#include "scratch.h"

enum { VOCAB = 61, N_CTX = 40, N_LAYERS = 3, K = 3, N_EXPERTS = 7 };

/* A model, its tokens, and room for results. */
typedef struct fixed {
    made_model made;
    dsmoe_model *model;
    int32_t tokens[N_CTX], others[N_CTX];
} fixed;

static fixed f; /* shared by all tests that do not damage it */

static int set_up(void **state)
{
    if (make_directory(state)) return -1;
    dsmoe_config config = made_config();
    f.made = made_model_create(&config, "BF16", 11);
    made_model_write(&f.made, directory, false);
    f.model = open_model(directory);
    made_tokens(&f.made, f.tokens, N_CTX, 1);
    made_tokens(&f.made, f.others, N_CTX, 2);
    return 0;
}

static int tear_down(void **state)
{
    dsmoe_model_free(f.model);
    made_model_free(&f.made);
    made_model_remove(directory);
    return remove_directory(state);
}

/* ---- rewinding ----------------------------------------------------------------------------- */

static void test_rewind(void **state)
{
    (void)state;
    float straight[2][VOCAB], back[2][VOCAB];
    dsmoe_sequence *a = make_sequence(f.model, N_CTX, 8, 2);
    dsmoe_sequence *b = make_sequence(f.model, N_CTX, 8, 2);
    prefill(a, f.tokens, 12, straight[0]);
    decode(a, f.tokens[12], straight[1]);

    prefill(b, f.tokens, 12, NULL);
    prefill(b, f.others, 20, NULL);
    rewind_to(b, 12);
    decode(b, f.tokens[12], back[1]);
    assert_same_bits(straight[1], back[1], VOCAB, "decoding after a rewind");
    rewind_to(b, 0);
    prefill(b, f.others, N_CTX, NULL);
    rewind_to(b, 0);
    prefill(b, f.tokens, 12, back[0]);
    assert_same_bits(straight[0], back[0], VOCAB, "a prompt after a rewind");

    dsmoe_error error = {0};
    assert_int_equal(dsmoe_sequence_rewind(b, 13, &error), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_sequence_rewind(b, -1, &error), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_sequence_rewind(NULL, 0, &error), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_sequence_length(b), 12);
    rewind_to(b, 12); /* changes nothing */
    decode(b, f.tokens[12], back[1]);
    assert_same_bits(straight[1], back[1], VOCAB, "after a refused rewind");
    free_sequence(a);
    free_sequence(b);
}

/* ---- threads ------------------------------------------------------------------------------- */

typedef struct all_rows {
    float logits[N_CTX][VOCAB];
    int64_t n;
} all_rows;

static void keep_row(void *context, int64_t row, const float *logits)
{
    all_rows *kept = context;
    assert_true(row < N_CTX);
    memcpy(kept->logits[row], logits, sizeof kept->logits[row]);
    kept->n++;
}

static void forward_all(dsmoe_sequence *sequence, const int32_t *tokens, int64_t n, all_rows *kept)
{
    dsmoe_error error = {0};
    dsmoe_turn turn = {sequence, tokens, n, n, keep_row, kept, NULL, NULL, false, {0}};
    kept->n = 0;
    must(dsmoe_engine_forward(dsmoe_sequence_engine(turn.sequence), &turn, 1, &error), &error,
         "forward");
    assert_int_equal(kept->n, n);
}

static void test_threads(void **state)
{
    (void)state;
    static all_rows one, more;
    static const int n_threads[] = {1, 2, 3, 29}; /* the last is more than the tasks */
    for (size_t t = 0; t < COUNT(n_threads); t++) {
        all_rows *kept = t == 0 ? &one : &more;
        dsmoe_sequence *sequence = make_sequence(f.model, N_CTX, 0, n_threads[t]);
        forward_all(sequence, f.tokens, 30, kept);
        for (int i = 30; i < N_CTX; i++) decode(sequence, f.tokens[i], kept->logits[i]);
        if (t > 0)
            assert_same_bits(one.logits[0], more.logits[0], (size_t)N_CTX * VOCAB, "threads");
        free_sequence(sequence);
    }
}

/* Two threads of the program, each with a sequence, share one model. */
static void *run_alone(void *context)
{
    dsmoe_sequence *sequence = make_sequence(f.model, N_CTX, 0, 1);
    all_rows *kept = context;
    for (int round = 0; round < 5; round++) {
        rewind_to(sequence, 0);
        forward_all(sequence, f.tokens, 30, kept);
        for (int i = 30; i < N_CTX; i++) decode(sequence, f.tokens[i], kept->logits[i]);
    }
    free_sequence(sequence);
    return NULL;
}

static void test_callers_threads(void **state)
{
    (void)state;
    static all_rows kept[3];
    pthread_t threads[2];
    run_alone(&kept[2]);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_alone, &kept[i]), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 2; i++)
        assert_same_bits(kept[2].logits[0], kept[i].logits[0], (size_t)N_CTX * VOCAB, "callers");
}

/* ---- several sequences ----------------------------------------------------------------------- */

/* The experts of each token, by position. */
typedef struct routes {
    int32_t topk_idx[N_LAYERS][2 * N_CTX][K];
    int64_t n_tokens[N_LAYERS], last_layer;
} routes;

static void keep_routes(void *context, int64_t layer, int64_t first, int64_t n_tokens,
                        const dsmoe_routing *routing)
{
    routes *kept = context;
    assert_true(layer > 0 && layer < N_LAYERS); /* layer 0 is dense */
    assert_int_equal(first, kept->n_tokens[layer]);
    assert_true(first + n_tokens <= 2 * N_CTX);
    memcpy(kept->topk_idx[layer][first], routing->topk_idx, (size_t)n_tokens * K * sizeof(int32_t));
    kept->n_tokens[layer] += n_tokens;
    for (int64_t t = 0; t < n_tokens; t++) {
        double sum = 0;
        for (int i = 0; i < N_EXPERTS; i++) sum += routing->scores[t * N_EXPERTS + i];
        assert_true(fabs(sum - 1) < 1e-5);
        for (int s = 0; s < K; s++) {
            int32_t expert = routing->topk_idx[t * K + s];
            assert_true(expert >= 0 && expert < N_EXPERTS);
            assert_true(routing->topk_weight[t * K + s] == routing->scores[t * N_EXPERTS + expert]);
        }
    }
}

/* Tokens before that position were not watched. */
static void routes_from(routes *kept, int64_t position)
{
    for (int layer = 0; layer < N_LAYERS; layer++) kept->n_tokens[layer] = position;
}

static void test_interleaved(void **state)
{
    (void)state;
    float alone[2][VOCAB], mixed[2][VOCAB];
    const int32_t *const tokens[] = {f.tokens, f.others};
    for (int i = 0; i < 2; i++) {
        dsmoe_sequence *sequence = make_sequence(f.model, N_CTX, 0, 2);
        prefill(sequence, tokens[i], 9, NULL);
        for (int t = 9; t < 15; t++) decode(sequence, tokens[i][t], alone[i]);
        free_sequence(sequence);
    }
    dsmoe_sequence *sequences[2];
    for (int i = 0; i < 2; i++) sequences[i] = make_sequence(f.model, N_CTX, 0, 2);
    for (int i = 0; i < 2; i++) prefill(sequences[i], tokens[i], 9, NULL);
    for (int t = 9; t < 15; t++)
        for (int i = 0; i < 2; i++) decode(sequences[i], tokens[i][t], mixed[i]);
    for (int i = 0; i < 2; i++) {
        assert_same_bits(alone[i], mixed[i], VOCAB, "interleaved");
        free_sequence(sequences[i]);
    }
}

/* An engine with n empty sequences. */
static dsmoe_engine *make_engine(int64_t n, int64_t n_batch, dsmoe_sequence *sequences[])
{
    dsmoe_error error = {0};
    dsmoe_engine *engine;
    dsmoe_engine_options options = {
        .n_ctx = N_CTX, .n_sequences = n, .n_batch = n_batch, .n_threads = 2};
    must(dsmoe_engine_create(f.model, &options, &engine, &error), &error, "an engine");
    for (int64_t i = 0; i < n; i++)
        must(dsmoe_sequence_create(engine, &sequences[i], &error), &error, "a sequence");
    return engine;
}

/* Three sequences with a long piece, a single token and a short piece, in passes of 7 rows. A watcher sees
 * the routing of its own sequence only, by position. */
static void test_ragged_pass(void **state)
{
    (void)state;
    static all_rows alone[3], together[3];
    static routes apart[3], joined[3];
    static const int64_t before[] = {0, 8, 5}, n[] = {20, 1, 6};
    const int32_t *const tokens[] = {f.tokens, f.others, f.tokens + 3};
    dsmoe_error error = {0};
    dsmoe_sequence *sequences[3];
    dsmoe_turn turns[3];
    dsmoe_engine *engine = make_engine(3, 7, sequences);
    memset(apart, 0, sizeof apart);
    memset(joined, 0, sizeof joined);
    for (int i = 0; i < 3; i++) {
        if (before[i]) prefill(sequences[i], tokens[i], before[i], NULL);
        routes_from(&apart[i], before[i]);
        routes_from(&joined[i], before[i]);
        dsmoe_sequence_watch(sequences[i], keep_routes, &apart[i]);
        forward_all(sequences[i], tokens[i] + before[i], n[i], &alone[i]);
        dsmoe_sequence_watch(sequences[i], i == 1 ? NULL : keep_routes, &joined[i]);
        rewind_to(sequences[i], before[i]);
        together[i].n = 0;
        turns[i] = (dsmoe_turn){.sequence = sequences[i],
                                .tokens = tokens[i] + before[i],
                                .n_tokens = n[i],
                                .n_logits = n[i],
                                .visit = keep_row,
                                .context = &together[i]};
    }
    must(dsmoe_engine_forward(engine, turns, 3, &error), &error, "three turns");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(together[i].n, n[i]);
        assert_int_equal(dsmoe_sequence_length(sequences[i]), before[i] + n[i]);
        double worst = worst_distance(together[i].logits[0], alone[i].logits[0], n[i] * VOCAB);
        if (!(worst <= 1e-6)) fail_msg("turn %d: off by %g", i, worst);
        if (i == 1)
            assert_int_equal(joined[i].n_tokens[1], before[i]);
        else
            assert_memory_equal(&joined[i], &apart[i], sizeof joined[i]);
    }
    dsmoe_engine_free(engine);
}

/* One token each from more sequences than a batch has rows. */
static void test_many_sequences(void **state)
{
    (void)state;
    enum { N = 20 };
    static all_rows alone[N], together[N];
    dsmoe_error error = {0};
    dsmoe_sequence *sequences[N];
    dsmoe_turn turns[N];
    dsmoe_engine *engine = make_engine(N, 6, sequences);
    for (int i = 0; i < N; i++) {
        if (i > 0) prefill(sequences[i], f.tokens, i, NULL); /* all at different positions */
        forward_all(sequences[i], &f.others[i], 1, &alone[i]);
        rewind_to(sequences[i], i);
        turns[i] = (dsmoe_turn){.sequence = sequences[i],
                                .tokens = &f.others[i],
                                .n_tokens = 1,
                                .n_logits = 1,
                                .visit = keep_row,
                                .context = &together[i]};
    }
    must(dsmoe_engine_forward(engine, turns, N, &error), &error, "twenty turns");
    for (int i = 0; i < N; i++) {
        assert_int_equal(together[i].n, 1);
        assert_int_equal(dsmoe_sequence_length(sequences[i]), i + 1);
        double worst = worst_distance(together[i].logits[0], alone[i].logits[0], VOCAB);
        if (!(worst <= 1e-6)) fail_msg("sequence %d: off by %g", i, worst);
    }
    dsmoe_engine_free(engine);
}

/* A MoE layer takes a long batch in pieces; the watcher sees each token once, in order. */
typedef struct progress {
    int64_t next[N_LAYERS], n_calls;
} progress;

static void follow(void *context, int64_t layer, int64_t first, int64_t n_tokens,
                   const dsmoe_routing *routing)
{
    progress *p = context;
    assert_non_null(routing->topk_idx);
    assert_int_equal(first, p->next[layer]);
    p->next[layer] += n_tokens;
    p->n_calls++;
}

static void test_watching_long_batches(void **state)
{
    (void)state;
    enum { LONG = 5000, BATCH = 3000 };
    static int32_t tokens[LONG];
    progress seen = {0};
    made_tokens(&f.made, tokens, LONG, 3);
    dsmoe_sequence *sequence = make_sequence(f.model, LONG, BATCH, 2);
    dsmoe_sequence_watch(sequence, follow, &seen);
    prefill(sequence, tokens, LONG, NULL);
    for (int layer = 1; layer < N_LAYERS; layer++) assert_int_equal(seen.next[layer], LONG);
    assert_int_equal(seen.n_calls, 3 * (N_LAYERS - 1)); /* 2048 + 952 and 2000 tokens */
    free_sequence(sequence);
}

/* Only the last rows, numbered from 0, with their losses. */
static void test_last_logits(void **state)
{
    (void)state;
    static all_rows all, last;
    float loss[3];
    dsmoe_error error = {0};
    dsmoe_sequence *sequence = make_sequence(f.model, N_CTX, 4, 1);
    forward_all(sequence, f.tokens, 15, &all);
    rewind_to(sequence, 0);
    dsmoe_turn turn = {sequence, f.tokens, 15, 3, keep_row, &last, f.others, loss, false, {0}};
    must(dsmoe_engine_forward(dsmoe_sequence_engine(turn.sequence), &turn, 1, &error), &error,
         "three of fifteen");
    assert_int_equal(last.n, 3);
    assert_same_bits(all.logits[12], last.logits[0], (size_t)3 * VOCAB, "the last rows");
    for (int i = 0; i < 3; i++) {
        double sum = 0;
        for (int j = 0; j < VOCAB; j++)
            sum += exp((double)last.logits[i][j] - last.logits[i][f.others[i]]);
        assert_true(fabs(loss[i] - log(sum)) < 1e-5 * fmax(1, loss[i]));
    }
    rewind_to(sequence, 0);
    turn = (dsmoe_turn){.sequence = sequence, .tokens = f.tokens, .n_tokens = 15}; /* no logits */
    must(dsmoe_engine_forward(dsmoe_sequence_engine(turn.sequence), &turn, 1, &error), &error,
         "without logits");
    assert_int_equal(dsmoe_sequence_length(sequence), 15);
    free_sequence(sequence);
}

/* ---- the end of the context ----------------------------------------------------------------- */

static int64_t capacity_of(const dsmoe_sequence *sequence)
{
    return dsmoe_engine_get_info(dsmoe_sequence_engine(sequence)).n_ctx;
}

static void test_full_context(void **state)
{
    (void)state;
    float logits[VOCAB], right[VOCAB];
    dsmoe_error error = {0};
    dsmoe_sequence *sequence = make_sequence(f.model, 10, 4, 2);
    assert_int_equal(capacity_of(sequence), 10);
    assert_int_equal(dsmoe_sequence_append(sequence, f.tokens, 11, logits, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "10"));
    assert_int_equal(dsmoe_sequence_length(sequence), 0);
    prefill(sequence, f.tokens, 9, NULL);
    assert_int_equal(dsmoe_sequence_append(sequence, f.tokens, 2, logits, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_sequence_length(sequence), 9);
    decode(sequence, f.tokens[9], right);
    assert_int_equal(dsmoe_sequence_append(sequence, &f.tokens[10], 1, logits, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_sequence_length(sequence), 10);
    rewind_to(sequence, 9);
    decode(sequence, f.tokens[9], logits);
    assert_same_bits(right, logits, VOCAB, "after a full context");
    free_sequence(sequence);

    sequence = make_sequence(f.model, 0, 0, 0); /* the defaults */
    assert_int_equal(capacity_of(sequence), f.made.config.max_position_embeddings);
    free_sequence(sequence);
}

static void test_memory_size(void **state)
{
    (void)state;
    dsmoe_engine_options options = {.n_ctx = 1000, .n_batch = 16, .n_threads = 2};
    dsmoe_engine_memory size = dsmoe_engine_memory_size(f.model, &options);
    size_t numbers = 2 * N_LAYERS * 42 * 1000; /* keys and values */
    assert_true(size.kv_cache >= 2 * numbers && size.kv_cache < 8 * numbers);
    assert_true(size.workspace > 0);
    options.n_ctx = 2000;
    assert_true(dsmoe_engine_memory_size(f.model, &options).kv_cache > size.kv_cache);
    size = dsmoe_engine_memory_size(f.model, NULL);
    assert_true(size.kv_cache > 0 && size.workspace > 0);
    options.n_ctx = INT64_MAX;
    size = dsmoe_engine_memory_size(f.model, &options);
    assert_int_equal(size.kv_cache, 0);
    assert_int_equal(size.workspace, 0);
    dsmoe_engine *engine = NULL;
    dsmoe_error error = {0};
    assert_int_not_equal(dsmoe_engine_create(f.model, &options, &engine, &error), DSMOE_OK);
}

/* ---- stopping -------------------------------------------------------------------------------- */

static bool stop_at_zero(void *left) { return (*(int *)left)-- == 0; }

/* Wherever a prompt is stopped, its sequence continues as if the prompt had never been given. */
static void test_stop(void **state)
{
    (void)state;
    enum { BATCH = 4, N = 10 };
    float stopped[VOCAB], straight[VOCAB];
    dsmoe_error error = {0};
    int left = -1;
    dsmoe_engine_options options = {.n_ctx = N_CTX,
                                    .n_batch = BATCH,
                                    .n_threads = 2,
                                    .stop = stop_at_zero,
                                    .stop_context = &left};
    dsmoe_engine *engine;
    dsmoe_sequence *sequence, *other = make_sequence(f.model, N_CTX, BATCH, 2);
    must(dsmoe_engine_create(f.model, &options, &engine, &error), &error, "an engine");
    must(dsmoe_sequence_create(engine, &sequence, &error), &error, "a sequence");
    prefill(sequence, f.others, 5, NULL);
    prefill(other, f.others, 5, NULL);
    prefill(other, f.tokens, N, straight);
    int n_asked = N_LAYERS * ((N + BATCH - 1) / BATCH);
    for (int i = 0; i < n_asked; i++) {
        left = i;
        dsmoe_status status = dsmoe_sequence_append(sequence, f.tokens, N, stopped, &error);
        assert_int_equal(status, DSMOE_ERROR_STOPPED);
        assert_string_equal(error.message, "stopped");
        assert_int_equal(dsmoe_sequence_length(sequence), 5);
    }
    left = n_asked;
    prefill(sequence, f.tokens, N, stopped);
    assert_same_bits(straight, stopped, VOCAB, "after a stop");
    free_sequence(sequence);
    free_sequence(other);
}

/* ---- wrong arguments ------------------------------------------------------------------------- */

static void test_wrong_tokens(void **state)
{
    (void)state;
    static const int32_t wrong[] = {-1, VOCAB, INT32_MAX, INT32_MIN};
    float logits[VOCAB], right[VOCAB];
    dsmoe_error error = {0};
    dsmoe_sequence *sequence = make_sequence(f.model, N_CTX, 4, 1);
    prefill(sequence, f.tokens, 6, NULL);
    decode(sequence, f.tokens[6], right);
    rewind_to(sequence, 6);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        int32_t tokens[6];
        char number[16];
        memcpy(tokens, f.others, sizeof tokens);
        tokens[5] = wrong[i]; /* in the second batch */
        snprintf(number, sizeof number, "%d", wrong[i]);
        assert_int_equal(dsmoe_sequence_append(sequence, tokens, 6, logits, &error),
                         DSMOE_ERROR_ARGUMENT);
        if (!strstr(error.message, number)) fail_msg("no %s in '%s'", number, error.message);
        assert_int_equal(dsmoe_sequence_append(sequence, &wrong[i], 1, logits, &error),
                         DSMOE_ERROR_ARGUMENT);
        assert_int_equal(dsmoe_sequence_length(sequence), 6);
    }
    decode(sequence, f.tokens[6], logits);
    assert_same_bits(right, logits, VOCAB, "after wrong tokens");
    free_sequence(sequence);
}

static void test_wrong_calls(void **state)
{
    (void)state;
    float logits[VOCAB];
    dsmoe_error error = {0};
    dsmoe_sequence *sequence = make_sequence(f.model, N_CTX, 4, 1), *no_sequence = NULL;
    dsmoe_engine *engine = dsmoe_sequence_engine(sequence), *none = NULL;
    const int32_t token = 1;
    const dsmoe_status argument = DSMOE_ERROR_ARGUMENT;
    assert_int_equal(dsmoe_sequence_append(sequence, f.tokens, 0, logits, &error), argument);
    assert_int_equal(dsmoe_sequence_append(sequence, f.tokens, -1, logits, &error), argument);
    assert_int_equal(dsmoe_sequence_append(sequence, NULL, 3, logits, &error), argument);
    assert_int_equal(dsmoe_sequence_append(NULL, f.tokens, 3, logits, &error), argument);
    assert_int_equal(dsmoe_sequence_append(NULL, &token, 1, logits, &error), argument);
    assert_int_equal(dsmoe_engine_create(NULL, NULL, &none, &error), argument);
    assert_int_equal(dsmoe_engine_create(f.model, NULL, NULL, &error), argument);
    static const dsmoe_engine_options options[] = {
        {.n_ctx = -1},
        {.n_batch = -1},
        {.n_threads = -1},
        {.n_sequences = -1},
        {.n_kv = -1},
        {.n_sequences = INT64_MAX},
        {.n_kv = INT64_MAX},
        {.n_ctx = INT64_MIN},
        {.n_batch = INT64_MIN},
        {.n_threads = INT32_MIN},
        {.n_ctx = INT64_MAX},
        {.n_batch = INT64_MAX},
        {.n_threads = INT32_MAX},
        {.n_batch = 1 << 17},
        {.kv_type = DSMOE_BF16},
        {.kv_type = DSMOE_Q4_0},
        {.kv_type = (dsmoe_dtype)-1},
        {.kv_type = (dsmoe_dtype)99},
        {.kv_type = DSMOE_Q8_0}, /* heads have 14 numbers */
    };
    for (size_t i = 0; i < COUNT(options); i++)
        assert_int_equal(dsmoe_engine_create(f.model, &options[i], &none, &error), argument);
    assert_int_equal(dsmoe_engine_forward(engine, NULL, 1, &error), argument);
    assert_int_equal(dsmoe_engine_forward(engine, NULL, -1, &error), argument);
    assert_int_equal(dsmoe_engine_forward(NULL, NULL, 0, &error), argument);
    assert_int_equal(dsmoe_engine_forward(engine, NULL, 0, &error), DSMOE_OK); /* nothing to do */
    assert_int_equal(dsmoe_sequence_create(NULL, &no_sequence, &error), argument);
    assert_int_equal(dsmoe_sequence_create(engine, NULL, &error), argument);
    assert_int_equal(dsmoe_sequence_create(engine, &no_sequence, &error), DSMOE_ERROR_MEMORY);
    assert_int_equal(dsmoe_sequence_fork(NULL, 0, &no_sequence, &error), argument);
    assert_int_equal(dsmoe_sequence_fork(sequence, 1, &no_sequence, &error), argument);
    assert_int_equal(dsmoe_sequence_begin(engine, NULL, 1, &no_sequence, &error), argument);
    assert_int_equal(dsmoe_sequence_begin(engine, f.tokens, -1, &no_sequence, &error), argument);
    assert_int_equal(dsmoe_engine_memory_size(NULL, NULL).workspace, 0);
    assert_int_equal(dsmoe_sequence_length(sequence), 0);
    free_sequence(sequence);
    dsmoe_engine_free(NULL);
    dsmoe_sequence_free(NULL);
}

/* A wrong turn fails alone; the other turns are run. */
static void test_wrong_turns(void **state)
{
    (void)state;
    static all_rows right, kept;
    float loss[4];
    dsmoe_error error = {0};
    dsmoe_sequence *both[2], *foreign = make_sequence(f.model, N_CTX, 4, 1);
    dsmoe_engine *engine = make_engine(2, 4, both);
    dsmoe_sequence *a = both[0], *b = both[1];
    prefill(b, f.others, N_CTX - 5, NULL);
    const int32_t bad[4] = {1, 2, VOCAB, 3};
    const dsmoe_turn good = {.sequence = a,
                             .tokens = f.tokens,
                             .n_tokens = 4,
                             .n_logits = 4,
                             .visit = keep_row,
                             .context = &kept};
    const dsmoe_turn wrong[] = {
        {.sequence = NULL, .tokens = f.tokens, .n_tokens = 4},
        {.sequence = a, .tokens = f.tokens, .n_tokens = 4}, /* its second turn */
        {.sequence = foreign, .tokens = f.tokens, .n_tokens = 4},
        {.sequence = b, .tokens = NULL, .n_tokens = 4},
        {.sequence = b, .tokens = f.tokens, .n_tokens = 0},
        {.sequence = b, .tokens = f.tokens, .n_tokens = 6}, /* only 5 are left */
        {.sequence = b, .tokens = bad, .n_tokens = 4},
        {.sequence = b, .tokens = f.tokens, .n_tokens = 4, .n_logits = 5},
        {.sequence = b, .tokens = f.tokens, .n_tokens = 4, .n_logits = -1},
        {.sequence = b, .tokens = f.tokens, .n_tokens = 4, .n_logits = 4, .targets = f.others},
        {.sequence = b,
         .tokens = f.tokens,
         .n_tokens = 4,
         .n_logits = 4,
         .targets = bad,
         .loss = loss},
    };
    forward_all(a, f.tokens, 4, &right);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        rewind_to(a, 0);
        memset(&kept, 0, sizeof kept);
        dsmoe_turn turns[] = {good, wrong[i]};
        dsmoe_status status = dsmoe_engine_forward(engine, turns, 2, &error);
        if (status != DSMOE_ERROR_ARGUMENT) fail_msg("wrong turn %zu: status %d", i, (int)status);
        assert_int_equal(turns[0].error.status, DSMOE_OK);
        assert_int_equal(turns[1].error.status, DSMOE_ERROR_ARGUMENT);
        assert_true(error.message[0] != '\0');
        assert_string_equal(error.message, turns[1].error.message);
        assert_int_equal(dsmoe_sequence_length(a), 4);
        assert_int_equal(dsmoe_sequence_length(b), N_CTX - 5);
        assert_same_bits(kept.logits[0], right.logits[0], (size_t)4 * VOCAB, "beside a wrong turn");
    }
    free_sequence(foreign);
    dsmoe_engine_free(engine);
}

/* ---- hidden states ----------------------------------------------------------------------------- */

typedef struct hidden_rows {
    float at[N_CTX][64];
    int64_t n;
} hidden_rows;

static void keep_hidden(void *context, int64_t row, const float *hidden)
{
    hidden_rows *kept = context;
    memcpy(kept->at[row], hidden, (size_t)f.made.config.hidden_size * sizeof *hidden);
    kept->n++;
}

/* One turn wants hidden states, another one logits. Multiplied by the head, the hidden states give the
 * same logits. */
static void test_hidden_states(void **state)
{
    (void)state;
    static all_rows all, beside;
    static hidden_rows hidden;
    dsmoe_error error = {0};
    int64_t width = f.made.config.hidden_size;
    assert_true(width <= 64);
    dsmoe_engine *engine;
    dsmoe_sequence *a, *b;
    dsmoe_engine_options options = {
        .n_ctx = N_CTX, .n_sequences = 2, .n_batch = 7, .n_threads = 2, .same_bits = true};
    must(dsmoe_engine_create(f.model, &options, &engine, &error), &error, "engine");
    must(dsmoe_sequence_create(engine, &a, &error), &error, "sequence");
    must(dsmoe_sequence_create(engine, &b, &error), &error, "sequence");
    forward_all(a, f.tokens, 15, &all);
    rewind_to(a, 0);
    dsmoe_turn turns[] = {
        {a, f.tokens, 15, 15, keep_hidden, &hidden, NULL, NULL, true, {0}},
        {b, f.tokens, 15, 15, keep_row, &beside, NULL, NULL, false, {0}},
    };
    must(dsmoe_engine_forward(engine, turns, 2, &error), &error, "both");
    assert_int_equal(hidden.n, 15);
    assert_same_bits(all.logits[14], beside.logits[14], VOCAB, "logits beside hidden states");
    const float *head = made_model_find(&f.made, "lm_head.weight")->data;
    for (int row = 0; row < 15; row++)
        for (int token = 0; token < VOCAB; token++) {
            double sum = 0;
            for (int64_t i = 0; i < width; i++)
                sum += (double)hidden.at[row][i] * head[token * width + i];
            assert_true(fabs(sum - all.logits[row][token]) < 1e-4 * fmax(1, fabs(sum)));
        }
    rewind_to(a, 0);
    float loss[15];
    turns[0] = (dsmoe_turn){a, f.tokens, 15, 15, keep_hidden, &hidden, f.others, loss, true, {0}};
    assert_int_equal(dsmoe_engine_forward(engine, turns, 1, &error), DSMOE_ERROR_ARGUMENT);
    dsmoe_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rewind),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_callers_threads),
        cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_ragged_pass),
        cmocka_unit_test(test_last_logits),
        cmocka_unit_test(test_many_sequences),
        cmocka_unit_test(test_watching_long_batches),
        cmocka_unit_test(test_full_context),
        cmocka_unit_test(test_memory_size),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_wrong_tokens),
        cmocka_unit_test(test_wrong_calls),
        cmocka_unit_test(test_wrong_turns),
        cmocka_unit_test(test_hidden_states),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
