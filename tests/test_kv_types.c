/* test_kv_types.c - a KV cache of every type: its kernels against sums in double and the specification
 * (scalar_cache.c), at odd sizes, and engines compared with float32 caches. */
#include "operands.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "made_model.h"
#include "scratch.h"

static const dsmoe_dtype types[] = {DSMOE_F32, DSMOE_F16, DSMOE_Q8_0};

/* ---- rows of a cache ------------------------------------------------------------------------- */

/* n rows at an odd address (for float32 a multiple of 4), with nothing after them that a sanitizer would
 * allow to be read, and the same numbers as float32. */
typedef struct kept_rows {
    unsigned char *memory, *at;
    floats numbers;
} kept_rows;

static kept_rows kept_make(dsmoe_dtype type, int64_t n, int64_t width, int offset, uint64_t seed)
{
    int64_t row = dtype_bytes(type, width);
    if (type == DSMOE_F32) offset *= (int)sizeof(float);
    kept_rows k = {.memory = malloc((size_t)(offset + n * row)),
                   .numbers = floats_random(n * width, 0, seed)};
    if (offset + n * row > 0) assert_non_null(k.memory);
    k.at = k.memory + offset;
    kernels_scalar.caches[type].narrow(n * width, k.numbers.at, k.at);
    kernels_scalar.dtypes[type].widen(n * width, k.at, k.numbers.at);
    return k;
}

static void kept_free(kept_rows *k)
{
    free(k->memory);
    floats_free(k->numbers);
}

/* A test for each set of kernels and each type, with a width that the type allows. */
typedef void width_test(const kernels *set, dsmoe_dtype type, int64_t width);

static void for_each_width(width_test *test)
{
    static const int64_t widths[] = {1,  2,  6,  7,  8,  10, 14, 15, 16,  17,  24,
                                     31, 32, 33, 40, 64, 72, 96, 97, 128, 131, 160};
    const kernels *const *list;
    int n = kernels_all(&list);
    for (int s = 0; s < n; s++)
        for (size_t t = 0; t < COUNT(types); t++)
            for (size_t w = 0; w < COUNT(widths); w++)
                if (widths[w] % dtype_table[types[t]].block == 0)
                    test(list[s], types[t], widths[w]);
}

/* ---- narrowing ------------------------------------------------------------------------------ */

/* Must give the same bytes as the specification, for numbers of every size. */
static void narrow_width(const kernels *set, dsmoe_dtype type, int64_t width)
{
    static const float sizes[] = {1.0f, 1e-3f, 1e-7f, 1e-9f, 1e-40f, 3e4f, 1e6f, 1e38f, 0.0f};
    size_t size = (size_t)dtype_bytes(type, width);
    unsigned char *ours = malloc(size), *spec = malloc(size);
    assert_non_null(ours);
    assert_non_null(spec);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        floats x = floats_random(width, (int)i % 4, 31 + i);
        for (int64_t j = 0; j < width; j++) x.at[j] *= sizes[i];
        set->caches[type].narrow(width, x.at, ours);
        kernels_scalar.caches[type].narrow(width, x.at, spec);
        if (memcmp(ours, spec, size) != 0)
            fail_msg("narrow of %s: other bytes for %d numbers about %g as %s", set->name,
                     (int)width, (double)sizes[i], dsmoe_dtype_name(type));
        floats_free(x);
    }
    free(spec);
    free(ours);
}

static void test_narrow(void **state) { (void)state, for_each_width(narrow_width); }

/* Widened again, a number is at most half a step from the original. */
static void test_narrow_error(void **state)
{
    (void)state;
    enum { N = 320 };
    unsigned char bytes[N * sizeof(float)];
    float x[N], back[N];
    for (int i = 0; i < N; i++) x[i] = (float)((i * 37 % 101) - 50) * 0.013f * (float)(1 + i / 32);
    for (size_t t = 0; t < COUNT(types); t++) {
        kernels_scalar.caches[types[t]].narrow(N, x, bytes);
        kernels_scalar.dtypes[types[t]].widen(N, bytes, back);
        for (int i = 0; i < N; i++) {
            double largest = 0;
            for (int j = i / 32 * 32; j < i / 32 * 32 + 32; j++)
                largest = fmax(largest, fabsf(x[j]));
            double most = types[t] == DSMOE_F32   ? 0
                          : types[t] == DSMOE_F16 ? fabs((double)x[i]) * 0x1p-11
                                                  : largest / 127 * 0.51 + largest * 0x1p-11;
            if (!(fabs((double)back[i] - x[i]) <= most))
                fail_msg("%s: %g comes back as %g", dsmoe_dtype_name(types[t]), (double)x[i],
                         (double)back[i]);
        }
    }
}

/* NaN, infinity and numbers too large for the type stay visible: they are not finite after widening. */
static void narrow_nan_set(const kernels *set)
{
    static const float wrong[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t w = 0; w < COUNT(wrong); w++)
            for (int at = 0; at < 64; at++) {
                unsigned char bytes[64 * sizeof(float)];
                float x[64], back[64];
                for (int i = 0; i < 64; i++) x[i] = (float)(i - 30);
                x[at] = wrong[w];
                set->caches[types[t]].narrow(64, x, bytes);
                kernels_scalar.dtypes[types[t]].widen(64, bytes, back);
                assert_false(isfinite(back[at]));
                assert_true(isfinite(back[(at + 32) % 64]));
            }
    float huge[32] = {3e38f}, back[32];
    unsigned char bytes[32 * sizeof(float)];
    for (size_t t = 1; t < COUNT(types); t++) {
        set->caches[types[t]].narrow(32, huge, bytes);
        kernels_scalar.dtypes[types[t]].widen(32, bytes, back);
        assert_false(isfinite(back[0]));
    }
}

static void test_narrow_nan(void **state) { (void)state, for_each_set(narrow_nan_set); }

/* Only three types have the functions of a cache. */
static void types_set(const kernels *set)
{
    for (int t = 0; t < N_DTYPES; t++) {
        bool kept = t == DSMOE_F32 || t == DSMOE_F16 || t == DSMOE_Q8_0;
        assert_int_equal(set->caches[t].narrow != NULL, kept);
        assert_int_equal(set->caches[t].put_key != NULL, kept);
        assert_int_equal(set->caches[t].score != NULL, kept);
        assert_int_equal(set->caches[t].add != NULL, kept);
    }
}

static void test_types(void **state) { (void)state, for_each_set(types_set); }

/* ---- scores --------------------------------------------------------------------------------- */

enum { MAX_ROWS = 131 };

/* How many of n keys each row of queries sees: all of them for the last token, one fewer for each token
 * before it. A token has `heads` rows. With heads 0 all rows see all keys. */
static void see(int32_t *seen, int64_t m, int64_t n, int64_t heads)
{
    for (int64_t i = 0; i < m; i++) {
        int64_t later = heads ? (m - 1) / heads - i / heads : 0;
        seen[i] = (int32_t)(n > later ? n - later : 0);
    }
}

/* The rows as groups of keys; incomplete groups are filled with NaN. */
static unsigned char *grouped(const kernels *set, dsmoe_dtype type, const kept_rows *keys,
                              int64_t n, int64_t width, int offset)
{
    int64_t n_groups = (n + KEY_GROUP - 1) / KEY_GROUP, row = dtype_bytes(type, width);
    unsigned char *memory = malloc((size_t)(offset + n_groups * KEY_GROUP * row + 1));
    assert_non_null(memory);
    float *nothing = malloc((size_t)width * sizeof *nothing);
    assert_non_null(nothing);
    for (int64_t k = 0; k < width; k++) nothing[k] = NAN;
    for (int64_t j = 0; j < n_groups * KEY_GROUP; j++)
        set->caches[type].put_key(width, j < n ? keys->numbers.at + j * width : nothing,
                                  memory + offset + j / KEY_GROUP * KEY_GROUP * row,
                                  (int)(j % KEY_GROUP));
    free(nothing);
    return memory;
}

/* Computes row i alone, with only the keys that it sees. */
static void score_alone(const kernels *set, dsmoe_dtype type, const float *q, int32_t seen,
                        const kept_rows *keys, int64_t width, const float *expected)
{
    unsigned char *own = grouped(set, type, keys, seen, width, 0);
    float *alone = malloc((size_t)(seen + KEY_GROUP) * sizeof *alone);
    assert_non_null(alone);
    set->caches[type].score(1, q, &seen, own, width, alone, seen + KEY_GROUP, own);
    assert_same_bits(alone, expected, (size_t)seen, "scores alone and in company");
    free(alone);
    free(own);
}

static void score_case(const kernels *set, dsmoe_dtype type, int64_t m, int64_t n, int64_t heads,
                       int64_t width)
{
    int offset = (int)(m + n) % 3 * (type == DSMOE_F32 ? (int)sizeof(float) : 1);
    kept_rows keys = kept_make(type, n, width, 0, 41);
    unsigned char *groups = grouped(set, type, &keys, n, width, offset);
    floats q = floats_random(m * width, (int)n % 4, 42);
    int64_t ld = n + KEY_GROUP;
    floats ours = floats_random(m * ld, 1, 43);
    int32_t seen[MAX_ROWS];
    see(seen, m, n, heads);
    set->caches[type].score(m, q.at, seen, groups + offset, width, ours.at, ld, NULL);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < seen[i]; j++) {
            exact sum = {0, 0};
            for (int64_t k = 0; k < width; k++)
                sum = exact_add(sum, (double)q.at[i * width + k] * keys.numbers.at[j * width + k]);
            assert_near("score", set, ours.at[i * ld + j], sum);
        }
        score_alone(set, type, q.at + i * width, seen[i], &keys, width, ours.at + i * ld);
    }
    floats_free(ours);
    floats_free(q);
    free(groups);
    kept_free(&keys);
}

static const int64_t row_counts[] = {1, 2, 3, 4, 5, 6, 7, 12, 13};

static void score_width(const kernels *set, dsmoe_dtype type, int64_t width)
{
    static const int64_t counts[] = {0, 1, 7, 15, 16, 17, 33, 49, 64, 127, 128};
    for (size_t i = 0; i < COUNT(counts); i++)
        for (size_t r = 0; r < COUNT(row_counts); r++)
            if (counts[i] < 30 || row_counts[r] < 4 || row_counts[r] == 7)
                score_case(set, type, row_counts[r], counts[i], (int64_t)(i + r) % 4, width);
}

static void test_score(void **state) { (void)state, for_each_width(score_width); }

/* Wider rows than heads have, and as many rows as a task has. */
static void large_set(const kernels *set)
{
    for (size_t t = 0; t < COUNT(types); t++) {
        score_case(set, types[t], 3, 40, 1, 576);
        score_case(set, types[t], 9, 130, 2, 576);
        score_case(set, types[t], MAX_ROWS, 140, 1, 64);
    }
}

static void test_score_large(void **state) { (void)state, for_each_set(large_set); }

/* ---- weighted values ------------------------------------------------------------------------ */

/* Computes row i alone, with a copy of only the values that it sees. */
static void add_alone(const kernels *set, dsmoe_dtype type, const float *weights, int32_t seen,
                      const kept_rows *values, int64_t width, const float *before,
                      const float *expected)
{
    size_t size = (size_t)(seen * dtype_bytes(type, width));
    unsigned char *own = malloc(size + 1);
    float *alone = malloc((size_t)width * sizeof *alone);
    assert_true(own && alone);
    memcpy(own, values->at, size);
    memcpy(alone, before, (size_t)width * sizeof *alone);
    set->caches[type].add(1, weights, seen, &seen, own, width, alone, own);
    assert_same_bits(alone, expected, (size_t)width, "values alone and in company");
    free(alone);
    free(own);
}

static void add_case(const kernels *set, dsmoe_dtype type, int64_t m, int64_t n, int64_t heads,
                     int64_t width)
{
    kept_rows values = kept_make(type, n, width, (int)(n + width) % 3, 45);
    floats weights = floats_random(m * n, 1, 46), y = floats_random(m * width, (int)n % 4, 47);
    floats before = floats_random(m * width, 0, 47);
    int32_t seen[MAX_ROWS];
    see(seen, m, n, heads);
    set->caches[type].add(m, weights.at, n, seen, values.at, width, y.at, NULL);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < width; j++) {
            exact sum = exact_add((exact){0, 0}, before.at[i * width + j]);
            for (int64_t s = 0; s < seen[i]; s++)
                sum = exact_add(sum,
                                (double)weights.at[i * n + s] * values.numbers.at[s * width + j]);
            assert_near("add", set, y.at[i * width + j], sum);
        }
        add_alone(set, type, weights.at + i * n, seen[i], &values, width, before.at + i * width,
                  y.at + i * width);
    }
    floats_free(before);
    floats_free(y);
    floats_free(weights);
    kept_free(&values);
}

static void add_width(const kernels *set, dsmoe_dtype type, int64_t width)
{
    static const int64_t counts[] = {0, 1, 3, 7, 15, 16, 17, 31, 33, 127, 128};
    for (size_t i = 0; i < COUNT(counts); i++)
        for (size_t r = 0; r < COUNT(row_counts); r++)
            if (counts[i] < 30 || row_counts[r] < 4 || row_counts[r] == 7)
                add_case(set, type, row_counts[r], counts[i], (int64_t)(i + r) % 4, width);
}

static void test_add(void **state) { (void)state, for_each_width(add_width); }

static void large_add_set(const kernels *set)
{
    for (size_t t = 0; t < COUNT(types); t++) {
        add_case(set, types[t], 3, 40, 1, 576);
        add_case(set, types[t], 9, 130, 2, 576);
        add_case(set, types[t], MAX_ROWS, 140, 1, 64);
    }
}

static void test_add_large(void **state) { (void)state, for_each_set(large_add_set); }

/* A NaN in a value affects exactly the rows that see it. */
static void unseen_set(const kernels *set)
{
    enum { M = 14, N = 40, WIDTH = 64 };
    for (size_t t = 0; t < COUNT(types); t++)
        for (int64_t wrong = N - M; wrong < N; wrong++) {
            kept_rows values = kept_make(types[t], N, WIDTH, 0, 48);
            float nothing[WIDTH];
            for (int64_t k = 0; k < WIDTH; k++) nothing[k] = NAN;
            set->caches[types[t]].narrow(WIDTH, nothing,
                                         values.at + wrong * dtype_bytes(types[t], WIDTH));
            floats weights = floats_random(M * N, 1, 49), y = floats_random(M * WIDTH, 0, 50);
            int32_t seen[M];
            see(seen, M, N, 1);
            set->caches[types[t]].add(M, weights.at, N, seen, values.at, WIDTH, y.at, NULL);
            for (int64_t i = 0; i < M; i++)
                for (int64_t k = 0; k < WIDTH; k++)
                    assert_int_equal(isfinite(y.at[i * WIDTH + k]) == 0, seen[i] > wrong);
            floats_free(y);
            floats_free(weights);
            kept_free(&values);
        }
}

static void test_unseen(void **state) { (void)state, for_each_set(unseen_set); }

/* ---- engines --------------------------------------------------------------------------------- */

enum { VOCAB = 61, N_TOKENS = 265 }; /* three pages */

/* A model of some shape in the scratch folder, and tokens for it. All its layers are dense: a router could
 * flip a close choice because of the last digit, which says nothing about a cache. */
typedef struct fixed {
    made_model made;
    dsmoe_model *model;
    int32_t tokens[N_TOKENS], others[N_TOKENS];
} fixed;

static fixed open_fixed(int64_t n_heads, int64_t n_kv_heads, int64_t head_dim)
{
    fixed f;
    dsmoe_config config = made_config();
    config.hidden_size = n_heads * head_dim;
    config.num_attention_heads = n_heads;
    config.num_key_value_heads = n_kv_heads;
    config.max_position_embeddings = N_TOKENS;
    config.num_hidden_layers = 2;
    config.first_k_dense_replace = config.num_hidden_layers;
    f.made = made_model_create(&config, "F32", 21);
    made_model_write(&f.made, directory, false);
    f.model = open_model(directory);
    made_tokens(&f.made, f.tokens, N_TOKENS, 1);
    made_tokens(&f.made, f.others, N_TOKENS, 2);
    return f;
}

static void close_fixed(fixed *f)
{
    dsmoe_model_free(f->model);
    made_model_free(&f->made);
    made_model_remove(directory);
}

static dsmoe_sequence *sequence_of(const dsmoe_model *model, dsmoe_dtype type, int n_threads)
{
    dsmoe_error error = {0};
    dsmoe_sequence *sequence;
    dsmoe_engine_options options = {
        .n_ctx = N_TOKENS, .n_batch = 100, .n_threads = n_threads, .kv_type = type};
    dsmoe_engine *engine;
    must(dsmoe_engine_create(model, &options, &engine, &error), &error, "an engine");
    must(dsmoe_sequence_create(engine, &sequence, &error), &error, "a sequence");
    return sequence;
}

typedef struct all_rows {
    float logits[N_TOKENS][VOCAB];
} all_rows;

static void keep_row(void *context, int64_t row, const float *logits)
{
    memcpy(((all_rows *)context)->logits[row], logits, VOCAB * sizeof *logits);
}

/* Logits of every token: `n_prompt` tokens in one call, then `step` at a time. */
static void run_all(dsmoe_sequence *sequence, const int32_t *tokens, int64_t n_prompt, int64_t step,
                    all_rows *rows_of)
{
    dsmoe_error error = {0};
    for (int64_t at = 0, n; at < N_TOKENS; at += n) {
        n = at == 0 ? n_prompt : step < N_TOKENS - at ? step : N_TOKENS - at;
        dsmoe_turn turn = {.sequence = sequence,
                           .tokens = tokens + at,
                           .n_tokens = n,
                           .n_logits = n,
                           .visit = keep_row,
                           .context = rows_of->logits[at]};
        must(dsmoe_engine_forward(dsmoe_sequence_engine(turn.sequence), &turn, 1, &error), &error,
             "forward");
    }
}

static all_rows exact_rows, ours_rows, more_rows;

/* Close to float32, and all ways much closer to each other: the whole text in one call, from float32
 * pages; token by token, directly from the cache; and a few tokens at a time after a prompt. */
static void near_shape(int64_t n_heads, int64_t n_kv_heads, int64_t head_dim)
{
    static const double bounds[N_DTYPES] = {[DSMOE_F16] = 6e-3, [DSMOE_Q8_0] = 6e-2};
    static const double ways[N_DTYPES] = {[DSMOE_F16] = 1e-3, [DSMOE_Q8_0] = 4e-3};
    static const int64_t prompts[] = {N_TOKENS, 1, 131}, steps[] = {1, 1, 5};
    fixed f = open_fixed(n_heads, n_kv_heads, head_dim);
    dsmoe_sequence *sequence = sequence_of(f.model, DSMOE_F32, 2);
    run_all(sequence, f.tokens, N_TOKENS, 1, &exact_rows);
    free_sequence(sequence);
    for (size_t t = 1; t < COUNT(types); t++) {
        if (head_dim % dtype_table[types[t]].block != 0) continue;
        for (int way = 0; way < 3; way++) {
            all_rows *ours = way == 0 ? &ours_rows : &more_rows;
            sequence = sequence_of(f.model, types[t], 2);
            run_all(sequence, f.tokens, prompts[way], steps[way], ours);
            free_sequence(sequence);
            double wrong = worst_distance(*ours->logits, *exact_rows.logits, N_TOKENS * VOCAB);
            double apart = worst_distance(*ours->logits, *ours_rows.logits, N_TOKENS * VOCAB);
            if (!(wrong > 0 && wrong < bounds[types[t]] && apart < ways[types[t]]))
                fail_msg("%s, heads of %d, way %d: off by %g, by %g from the first way",
                         dsmoe_dtype_name(types[t]), (int)head_dim, way, wrong, apart);
        }
    }
    close_fixed(&f);
}

static void test_near_float32(void **state)
{
    (void)state;
    near_shape(3, 3, 32);
    near_shape(2, 1, 64);
    near_shape(1, 1, 128);
}

static void test_odd_heads(void **state)
{
    (void)state;
    near_shape(3, 3, 6);
    near_shape(4, 2, 10);
    near_shape(2, 2, 42);
}

/* Rewinding, several turns, and more threads than key-value heads give the same bits. */
static void rewind_shape(int64_t n_heads, int64_t n_kv_heads)
{
    fixed f = open_fixed(n_heads, n_kv_heads, 32);
    for (size_t t = 0; t < COUNT(types); t++) {
        dsmoe_sequence *a = sequence_of(f.model, types[t], 1),
                       *b = sequence_of(f.model, types[t], 3);
        float straight[2][VOCAB], back[2][VOCAB];
        prefill(a, f.tokens, 132, straight[0]);
        for (int i = 132; i < 140; i++) decode(a, f.tokens[i], straight[1]);
        prefill(b, f.others, 140, NULL);
        rewind_to(b, 0);
        prefill(b, f.tokens, 132, back[0]);
        prefill(b, f.others, 130, NULL); /* into a third page */
        rewind_to(b, 132);
        for (int i = 132; i < 140; i++) decode(b, f.tokens[i], back[1]);
        assert_same_bits(straight[0], back[0], VOCAB, "a prompt after a rewind");
        assert_same_bits(straight[1], back[1], VOCAB, "decoding after a rewind");
        free_sequence(a);
        free_sequence(b);
    }
    close_fixed(&f);
}

static void test_rewind(void **state)
{
    (void)state;
    rewind_shape(3, 3);
    rewind_shape(5, 1);
    rewind_shape(20, 1); /* too many rows for the kernels of few rows */
}

static void test_sizes(void **state)
{
    (void)state;
    fixed f = open_fixed(3, 3, 32);
    size_t sizes[3];
    for (int t = 0; t < 3; t++) {
        dsmoe_engine_options options = {.n_ctx = 1000, .kv_type = types[t]};
        sizes[t] = dsmoe_engine_memory_size(f.model, &options).kv_cache;
    }
    assert_int_equal(sizes[0], (size_t)2 * 2 * 96 * 1024 * 4); /* keys and values of two layers */
    assert_int_equal(sizes[1], sizes[0] / 2);
    assert_int_equal(sizes[2], sizes[0] / 128 * 34);
    close_fixed(&f);

    f = open_fixed(3, 3, 14);
    dsmoe_engine_options options = {.n_ctx = 100, .kv_type = DSMOE_Q8_0};
    dsmoe_engine *engine = NULL;
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_engine_create(f.model, &options, &engine, &error), DSMOE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "32"));
    assert_non_null(strstr(error.message, "14"));
    assert_int_equal(dsmoe_engine_memory_size(f.model, &options).kv_cache, 0);
    options.kv_type = DSMOE_Q4_K;
    assert_int_equal(dsmoe_engine_create(f.model, &options, &engine, &error), DSMOE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "q4_k"));
    close_fixed(&f);
}

/* A NaN in a value is reported with every type of cache. */
static void test_not_finite(void **state)
{
    (void)state;
    fixed f = open_fixed(3, 3, 32);
    made_tensor *v = made_model_find(&f.made, "model.layers.1.self_attn.v_proj.weight");
    v->data[5] = NAN;
    dsmoe_model_free(f.model);
    made_model_write(&f.made, directory, false);
    f.model = open_model(directory);
    for (size_t t = 0; t < COUNT(types); t++)
        for (int64_t n = 1; n <= 40; n += 39) {
            dsmoe_sequence *sequence = sequence_of(f.model, types[t], 2);
            float logits[VOCAB];
            dsmoe_error error = {0};
            assert_int_equal(dsmoe_sequence_append(sequence, f.tokens, n, logits, &error),
                             DSMOE_ERROR_NONFINITE);
            free_sequence(sequence);
        }
    close_fixed(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),        cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_narrow_error), cmocka_unit_test(test_narrow_nan),
        cmocka_unit_test(test_score),        cmocka_unit_test(test_score_large),
        cmocka_unit_test(test_add),          cmocka_unit_test(test_add_large),
        cmocka_unit_test(test_unseen),       cmocka_unit_test(test_near_float32),
        cmocka_unit_test(test_odd_heads),    cmocka_unit_test(test_rewind),
        cmocka_unit_test(test_sizes),        cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
