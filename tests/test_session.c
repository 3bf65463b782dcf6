/* test_session.c - sessions as a program uses them: going back, several at once, threads, the end of
 * the context, wrong arguments. */
#include "support.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "made_model.h"
#include "scratch.h"

enum { VOCAB = 61, N_CTX = 40, N_LAYERS = 3, K = 3, N_EXPERTS = 7 };

/* A model, its tokens, and place for what comes out. */
typedef struct fixed {
    made_model made;
    dsmoe_model *model;
    int32_t tokens[N_CTX], others[N_CTX];
} fixed;

static fixed f; /* the same for all tests that do not harm it */

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

/* ---- going back ---------------------------------------------------------------------------- */

static void test_rewind(void **state)
{
    (void)state;
    float straight[2][VOCAB], back[2][VOCAB];
    dsmoe_session *a = make_session(f.model, N_CTX, 8, 2);
    dsmoe_session *b = make_session(f.model, N_CTX, 8, 2);
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
    assert_int_equal(dsmoe_session_rewind(b, 13, &error), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_session_rewind(b, -1, &error), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_session_rewind(NULL, 0, &error), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_session_length(b), 12);
    rewind_to(b, 12); /* nowhere */
    decode(b, f.tokens[12], back[1]);
    assert_same_bits(straight[1], back[1], VOCAB, "after a refused rewind");
    dsmoe_session_free(a);
    dsmoe_session_free(b);
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

static void forward_all(dsmoe_session *session, const int32_t *tokens, int64_t n, all_rows *kept)
{
    dsmoe_error error = {0};
    dsmoe_turn turn = {session, tokens, n, n, keep_row, kept, NULL, NULL};
    kept->n = 0;
    must(dsmoe_session_forward(&turn, 1, &error), &error, "forward");
    assert_int_equal(kept->n, n);
}

static void test_threads(void **state)
{
    (void)state;
    static all_rows one, more;
    static const int n_threads[] = {1, 2, 3, 29}; /* the last has more than there is to do */
    for (size_t t = 0; t < COUNT(n_threads); t++) {
        all_rows *kept = t == 0 ? &one : &more;
        dsmoe_session *session = make_session(f.model, N_CTX, 0, n_threads[t]);
        forward_all(session, f.tokens, 30, kept);
        for (int i = 30; i < N_CTX; i++) decode(session, f.tokens[i], kept->logits[i]);
        if (t > 0)
            assert_same_bits(one.logits[0], more.logits[0], (size_t)N_CTX * VOCAB, "threads");
        dsmoe_session_free(session);
    }
}

/* Two threads of the program, a session each, one model. */
static void *run_alone(void *context)
{
    dsmoe_session *session = make_session(f.model, N_CTX, 0, 1);
    all_rows *kept = context;
    for (int round = 0; round < 5; round++) {
        rewind_to(session, 0);
        forward_all(session, f.tokens, 30, kept);
        for (int i = 30; i < N_CTX; i++) decode(session, f.tokens[i], kept->logits[i]);
    }
    dsmoe_session_free(session);
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

/* ---- several sessions ----------------------------------------------------------------------- */

/* The experts of each token in the order of the pass. */
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

static void test_interleaved(void **state)
{
    (void)state;
    float alone[2][VOCAB], mixed[2][VOCAB];
    const int32_t *const tokens[] = {f.tokens, f.others};
    for (int i = 0; i < 2; i++) {
        dsmoe_session *session = make_session(f.model, N_CTX, 0, 2);
        prefill(session, tokens[i], 9, NULL);
        for (int t = 9; t < 15; t++) decode(session, tokens[i][t], alone[i]);
        dsmoe_session_free(session);
    }
    dsmoe_session *sessions[2];
    for (int i = 0; i < 2; i++) sessions[i] = make_session(f.model, N_CTX, 0, 2);
    for (int i = 0; i < 2; i++) prefill(sessions[i], tokens[i], 9, NULL);
    for (int t = 9; t < 15; t++)
        for (int i = 0; i < 2; i++) decode(sessions[i], tokens[i][t], mixed[i]);
    for (int i = 0; i < 2; i++) {
        assert_same_bits(alone[i], mixed[i], VOCAB, "interleaved");
        dsmoe_session_free(sessions[i]);
    }
}

/* A long piece, a single token and a short piece of three sessions, in pieces of 7 rows. */
static void test_ragged_pass(void **state)
{
    (void)state;
    static all_rows alone[3], together[3];
    static routes apart, joined;
    static const int64_t before[] = {0, 8, 5}, n[] = {20, 1, 6};
    const int32_t *const tokens[] = {f.tokens, f.others, f.tokens + 3};
    dsmoe_error error = {0};
    dsmoe_session *sessions[3];
    dsmoe_turn turns[3];
    memset(&joined, 0, sizeof joined);
    for (int i = 0; i < 3; i++) {
        sessions[i] = make_session(f.model, N_CTX, 7, 2);
        if (before[i]) prefill(sessions[i], tokens[i], before[i], NULL);
        memset(&apart, 0, sizeof apart);
        dsmoe_session_watch(sessions[i], keep_routes, &apart);
        forward_all(sessions[i], tokens[i] + before[i], n[i], &alone[i]);
        dsmoe_session_watch(sessions[i], NULL, NULL);
        for (int layer = 1; layer < N_LAYERS; layer++) {
            assert_int_equal(apart.n_tokens[layer], n[i]);
            memcpy(joined.topk_idx[layer][joined.n_tokens[layer]], apart.topk_idx[layer],
                   (size_t)n[i] * sizeof apart.topk_idx[layer][0]);
            joined.n_tokens[layer] += n[i];
        }
        rewind_to(sessions[i], before[i]);
        together[i].n = 0;
        turns[i] = (dsmoe_turn){sessions[i], tokens[i] + before[i], n[i], n[i],
                                keep_row,    &together[i],          NULL, NULL};
    }
    memset(&apart, 0, sizeof apart);
    dsmoe_session_watch(sessions[0], keep_routes, &apart);
    must(dsmoe_session_forward(turns, 3, &error), &error, "three turns");
    for (int layer = 1; layer < N_LAYERS; layer++) {
        assert_int_equal(apart.n_tokens[layer], joined.n_tokens[layer]);
        assert_memory_equal(apart.topk_idx[layer], joined.topk_idx[layer],
                            (size_t)apart.n_tokens[layer] * sizeof apart.topk_idx[layer][0]);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(together[i].n, n[i]);
        assert_int_equal(dsmoe_session_length(sessions[i]), before[i] + n[i]);
        double worst = worst_distance(together[i].logits[0], alone[i].logits[0], n[i] * VOCAB);
        if (!(worst <= 1e-6)) fail_msg("turn %d: off by %g", i, worst);
        dsmoe_session_free(sessions[i]);
    }
}

/* A token each of more sessions than a batch has rows. */
static void test_many_sessions(void **state)
{
    (void)state;
    enum { N = 20 };
    static all_rows alone[N], together[N];
    dsmoe_error error = {0};
    dsmoe_session *sessions[N];
    dsmoe_turn turns[N];
    for (int i = 0; i < N; i++) {
        sessions[i] = make_session(f.model, N_CTX, i == 0 ? 6 : 1, 2);
        if (i > 0) prefill(sessions[i], f.tokens, i, NULL); /* all at other positions */
        forward_all(sessions[i], &f.others[i], 1, &alone[i]);
        rewind_to(sessions[i], i);
        turns[i] =
            (dsmoe_turn){sessions[i], &f.others[i], 1, 1, keep_row, &together[i], NULL, NULL};
    }
    must(dsmoe_session_forward(turns, N, &error), &error, "twenty turns");
    for (int i = 0; i < N; i++) {
        assert_int_equal(together[i].n, 1);
        assert_int_equal(dsmoe_session_length(sessions[i]), i + 1);
        double worst = worst_distance(together[i].logits[0], alone[i].logits[0], VOCAB);
        if (!(worst <= 1e-6)) fail_msg("session %d: off by %g", i, worst);
        dsmoe_session_free(sessions[i]);
    }
}

/* The MoE layer goes through a long batch in pieces: the watcher sees each token once, in order. */
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
    dsmoe_session *session = make_session(f.model, LONG, BATCH, 2);
    dsmoe_session_watch(session, follow, &seen);
    prefill(session, tokens, LONG, NULL);
    for (int layer = 1; layer < N_LAYERS; layer++) assert_int_equal(seen.next[layer], LONG);
    assert_int_equal(seen.n_calls, 3 * (N_LAYERS - 1)); /* 2048 + 952 and 2000 tokens */
    dsmoe_session_free(session);
}

/* The last rows only, numbered from 0, with their losses. */
static void test_last_logits(void **state)
{
    (void)state;
    static all_rows all, last;
    float loss[3];
    dsmoe_error error = {0};
    dsmoe_session *session = make_session(f.model, N_CTX, 4, 1);
    forward_all(session, f.tokens, 15, &all);
    rewind_to(session, 0);
    dsmoe_turn turn = {session, f.tokens, 15, 3, keep_row, &last, f.others, loss};
    must(dsmoe_session_forward(&turn, 1, &error), &error, "three of fifteen");
    assert_int_equal(last.n, 3);
    assert_same_bits(all.logits[12], last.logits[0], (size_t)3 * VOCAB, "the last rows");
    for (int i = 0; i < 3; i++) {
        double sum = 0;
        for (int j = 0; j < VOCAB; j++)
            sum += exp((double)last.logits[i][j] - last.logits[i][f.others[i]]);
        assert_true(fabs(loss[i] - log(sum)) < 1e-5 * fmax(1, loss[i]));
    }
    rewind_to(session, 0);
    turn = (dsmoe_turn){.session = session, .tokens = f.tokens, .n_tokens = 15}; /* none at all */
    must(dsmoe_session_forward(&turn, 1, &error), &error, "without logits");
    assert_int_equal(dsmoe_session_length(session), 15);
    dsmoe_session_free(session);
}

/* ---- the end of the context ----------------------------------------------------------------- */

static void test_full_context(void **state)
{
    (void)state;
    float logits[VOCAB], right[VOCAB];
    dsmoe_error error = {0};
    dsmoe_session *session = make_session(f.model, 10, 4, 2);
    assert_int_equal(dsmoe_session_capacity(session), 10);
    assert_int_equal(dsmoe_session_prefill(session, f.tokens, 11, logits, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "10"));
    assert_int_equal(dsmoe_session_length(session), 0);
    prefill(session, f.tokens, 9, NULL);
    assert_int_equal(dsmoe_session_prefill(session, f.tokens, 2, logits, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_session_length(session), 9);
    decode(session, f.tokens[9], right);
    assert_int_equal(dsmoe_session_decode(session, f.tokens[10], logits, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_session_length(session), 10);
    rewind_to(session, 9);
    decode(session, f.tokens[9], logits);
    assert_same_bits(right, logits, VOCAB, "after a full context");
    dsmoe_session_free(session);

    session = make_session(f.model, 0, 0, 0); /* the defaults */
    assert_int_equal(dsmoe_session_capacity(session), f.made.config.max_position_embeddings);
    dsmoe_session_free(session);
    assert_int_equal(dsmoe_session_create(f.model, NULL, &session, &error), DSMOE_OK);
    assert_int_equal(dsmoe_session_capacity(session), f.made.config.max_position_embeddings);
    assert_int_equal(dsmoe_session_length(session), 0);
    dsmoe_session_free(session);
}

static void test_memory_size(void **state)
{
    (void)state;
    dsmoe_session_options options = {.n_ctx = 1000, .n_batch = 16, .n_threads = 2};
    dsmoe_session_memory size = dsmoe_session_memory_size(f.model, &options);
    size_t numbers = 2 * N_LAYERS * 42 * 1000; /* keys and values */
    assert_true(size.kv_cache >= 2 * numbers && size.kv_cache < 8 * numbers);
    assert_true(size.workspace > 0);
    options.n_ctx = 2000;
    assert_true(dsmoe_session_memory_size(f.model, &options).kv_cache > size.kv_cache);
    size = dsmoe_session_memory_size(f.model, NULL);
    assert_true(size.kv_cache > 0 && size.workspace > 0);
    options.n_ctx = INT64_MAX;
    size = dsmoe_session_memory_size(f.model, &options);
    assert_int_equal(size.kv_cache, 0);
    assert_int_equal(size.workspace, 0);
    dsmoe_session *session = NULL;
    dsmoe_error error = {0};
    assert_int_not_equal(dsmoe_session_create(f.model, &options, &session, &error), DSMOE_OK);
}

/* ---- stopping -------------------------------------------------------------------------------- */

static bool stop_at_zero(void *left) { return (*(int *)left)-- == 0; }

/* Wherever a prompt is stopped, its session goes on as if nothing had been asked of it. */
static void test_stop(void **state)
{
    (void)state;
    enum { BATCH = 4, N = 10 };
    float stopped[VOCAB], straight[VOCAB];
    dsmoe_error error = {0};
    int left = -1;
    dsmoe_session_options options = {.n_ctx = N_CTX,
                                     .n_batch = BATCH,
                                     .n_threads = 2,
                                     .stop = stop_at_zero,
                                     .stop_context = &left};
    dsmoe_session *session = NULL, *other = make_session(f.model, N_CTX, BATCH, 2);
    assert_int_equal(dsmoe_session_create(f.model, &options, &session, &error), DSMOE_OK);
    prefill(session, f.others, 5, NULL);
    prefill(other, f.others, 5, NULL);
    prefill(other, f.tokens, N, straight);
    int n_asked = N_LAYERS * ((N + BATCH - 1) / BATCH);
    for (int i = 0; i < n_asked; i++) {
        left = i;
        dsmoe_status status = dsmoe_session_prefill(session, f.tokens, N, stopped, &error);
        assert_int_equal(status, DSMOE_ERROR_STOPPED);
        assert_string_equal(error.message, "stopped");
        assert_int_equal(dsmoe_session_length(session), 5);
    }
    left = n_asked;
    prefill(session, f.tokens, N, stopped);
    assert_same_bits(straight, stopped, VOCAB, "after a stop");
    dsmoe_session_free(session);
    dsmoe_session_free(other);
}

/* ---- wrong arguments ------------------------------------------------------------------------- */

static void test_wrong_tokens(void **state)
{
    (void)state;
    static const int32_t wrong[] = {-1, VOCAB, INT32_MAX, INT32_MIN};
    float logits[VOCAB], right[VOCAB];
    dsmoe_error error = {0};
    dsmoe_session *session = make_session(f.model, N_CTX, 4, 1);
    prefill(session, f.tokens, 6, NULL);
    decode(session, f.tokens[6], right);
    rewind_to(session, 6);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        int32_t tokens[6];
        char number[16];
        memcpy(tokens, f.others, sizeof tokens);
        tokens[5] = wrong[i]; /* after the first batch */
        snprintf(number, sizeof number, "%d", wrong[i]);
        assert_int_equal(dsmoe_session_prefill(session, tokens, 6, logits, &error),
                         DSMOE_ERROR_ARGUMENT);
        if (!strstr(error.message, number)) fail_msg("no %s in '%s'", number, error.message);
        assert_int_equal(dsmoe_session_decode(session, wrong[i], logits, &error),
                         DSMOE_ERROR_ARGUMENT);
        assert_int_equal(dsmoe_session_length(session), 6);
    }
    decode(session, f.tokens[6], logits);
    assert_same_bits(right, logits, VOCAB, "after wrong tokens");
    dsmoe_session_free(session);
}

static void test_wrong_calls(void **state)
{
    (void)state;
    float logits[VOCAB];
    dsmoe_error error = {0};
    dsmoe_session *session = make_session(f.model, N_CTX, 4, 1), *none = NULL;
    const dsmoe_status argument = DSMOE_ERROR_ARGUMENT;
    assert_int_equal(dsmoe_session_prefill(session, f.tokens, 0, logits, &error), argument);
    assert_int_equal(dsmoe_session_prefill(session, f.tokens, -1, logits, &error), argument);
    assert_int_equal(dsmoe_session_prefill(session, NULL, 3, logits, &error), argument);
    assert_int_equal(dsmoe_session_prefill(NULL, f.tokens, 3, logits, &error), argument);
    assert_int_equal(dsmoe_session_decode(NULL, 1, logits, &error), argument);
    assert_int_equal(dsmoe_session_create(NULL, NULL, &none, &error), argument);
    assert_int_equal(dsmoe_session_create(f.model, NULL, NULL, &error), argument);
    static const dsmoe_session_options options[] = {
        {.n_ctx = -1},
        {.n_batch = -1},
        {.n_threads = -1},
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
        {.kv_type = DSMOE_Q8_0}, /* heads of 14 */
    };
    for (size_t i = 0; i < COUNT(options); i++)
        assert_int_equal(dsmoe_session_create(f.model, &options[i], &none, &error), argument);
    assert_int_equal(dsmoe_session_forward(NULL, 1, &error), argument);
    assert_int_equal(dsmoe_session_forward(NULL, -1, &error), argument);
    assert_int_equal(dsmoe_session_forward(NULL, 0, &error), DSMOE_OK); /* nothing to do */
    assert_int_equal(dsmoe_session_memory_size(NULL, NULL).workspace, 0);
    assert_int_equal(dsmoe_session_length(session), 0);
    dsmoe_session_free(session);
    dsmoe_session_free(NULL);
}

/* A turn that is wrong leaves the sessions of all turns as they were. */
static void test_wrong_turns(void **state)
{
    (void)state;
    float loss[4];
    dsmoe_error error = {0};
    dsmoe_session *a = make_session(f.model, N_CTX, 4, 1), *b = make_session(f.model, 5, 4, 1);
    dsmoe_model *copy = open_model(directory);
    dsmoe_session *foreign = make_session(copy, N_CTX, 4, 1);
    const int32_t bad[4] = {1, 2, VOCAB, 3};
    const dsmoe_turn good = {.session = a, .tokens = f.tokens, .n_tokens = 4};
    const dsmoe_turn wrong[] = {
        {.session = NULL, .tokens = f.tokens, .n_tokens = 4},
        {.session = a, .tokens = f.tokens, .n_tokens = 4}, /* twice */
        {.session = foreign, .tokens = f.tokens, .n_tokens = 4},
        {.session = b, .tokens = NULL, .n_tokens = 4},
        {.session = b, .tokens = f.tokens, .n_tokens = 0},
        {.session = b, .tokens = f.tokens, .n_tokens = 6}, /* of 5 */
        {.session = b, .tokens = bad, .n_tokens = 4},
        {.session = b, .tokens = f.tokens, .n_tokens = 4, .n_logits = 5},
        {.session = b, .tokens = f.tokens, .n_tokens = 4, .n_logits = -1},
        {.session = b, .tokens = f.tokens, .n_tokens = 4, .n_logits = 4, .targets = f.others},
        {.session = b,
         .tokens = f.tokens,
         .n_tokens = 4,
         .n_logits = 4,
         .targets = bad,
         .loss = loss},
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        dsmoe_turn turns[] = {good, wrong[i]};
        dsmoe_status status = dsmoe_session_forward(turns, 2, &error);
        if (status != DSMOE_ERROR_ARGUMENT) fail_msg("wrong turn %zu: status %d", i, (int)status);
        assert_true(error.message[0] != '\0');
        assert_int_equal(dsmoe_session_length(a), 0);
        assert_int_equal(dsmoe_session_length(b), 0);
    }
    dsmoe_session_free(foreign);
    dsmoe_model_free(copy);
    dsmoe_session_free(a);
    dsmoe_session_free(b);
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
        cmocka_unit_test(test_many_sessions),
        cmocka_unit_test(test_watching_long_batches),
        cmocka_unit_test(test_full_context),
        cmocka_unit_test(test_memory_size),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_wrong_tokens),
        cmocka_unit_test(test_wrong_calls),
        cmocka_unit_test(test_wrong_turns),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
