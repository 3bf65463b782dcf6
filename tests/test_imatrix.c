/* test_imatrix.c - the inputs of matrices: what is collected, what the file holds, the importance computed
 * from it, and what quantising gains. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "conversions.h"
#include "convert/imatrix.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/mapped_file.h"
#include "made_model.h"
#include "scratch.h"
#include "support.h"
#include "tiny_run.h"

/* ---- a model --------------------------------------------------------------------------------- */

enum { HIDDEN = 256, WIDTH = 64, N_EXPERTS = 6, TOP_K = 2, N_LAYERS = 3 };

/* A dense layer and two MoE layers whose columns differ widely in importance: the embedding and the norms
 * grow along the row. */
static made_model uneven_model(bool tied)
{
    dsmoe_config config = made_config();
    config.vocab_size = 211;
    config.hidden_size = HIDDEN;
    config.intermediate_size = HIDDEN;
    config.moe_intermediate_size = WIDTH;
    config.num_hidden_layers = N_LAYERS;
    config.num_attention_heads = config.num_key_value_heads = 4;
    config.n_routed_experts = N_EXPERTS;
    config.num_experts_per_tok = TOP_K;
    config.n_shared_experts = 4;
    config.first_k_dense_replace = 1;
    config.moe_layer_freq = 1;
    config.norm_topk_prob = config.attention_bias = false;
    config.rope_scaling = DSMOE_ROPE_NONE;
    config.rope_scaling_factor = 1;
    config.tie_word_embeddings = tied;
    made_model made = made_model_create(&config, "F32", 11);
    for (int i = 0; i < made.n_tensors; i++) {
        made_tensor *t = &made.tensors[i];
        for (int64_t j = 0; strstr(t->name, "norm") && j < t->n; j++)
            t->data[j] *= 0.05f + (float)(j % 16) / 8;
    }
    return made;
}

static void write_model(const made_model *made, const char *folder)
{
    assert_int_equal(mkdir(folder, 0777), 0);
    made_model_write(made, folder, false);
}

static void make(const dsmoe_model *model, const int32_t *tokens, int64_t n,
                 const dsmoe_imatrix_options *options, const char *name)
{
    dsmoe_error error = {0};
    must(dsmoe_imatrix_make(model, tokens, n, options, name, &error), &error, name);
}

static gguf *open_gguf(const char *name)
{
    gguf *file;
    dsmoe_error error = {0};
    must(gguf_open(name, &file, &error), &error, name);
    return file;
}

/* The values of a tensor, which must have that shape. */
static const float *numbers(const gguf *file, const char *name, int64_t n_rows, int64_t n)
{
    const gguf_tensor *t = gguf_find(file, name);
    if (!t) fail_msg("there is no %s", name);
    assert_int_equal(t->type, DSMOE_F32);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->shape[0], n_rows);
    assert_int_equal(t->shape[1], n);
    return (const float *)t->data;
}

/* ---- collecting ------------------------------------------------------------------------------ */

/* Checks the inputs of the first layer's attention by plain arithmetic. */
static void assert_first_inputs(const made_model *made, const gguf *file, const int32_t *tokens,
                                int64_t n_tokens)
{
    const float *embedding = made_model_find(made, "model.embed_tokens.weight")->data;
    const float *norm = made_model_find(made, "model.layers.0.input_layernorm.weight")->data;
    double expected[HIDDEN] = {0};
    for (int64_t t = 0; t < n_tokens; t++) {
        const float *x = embedding + (int64_t)tokens[t] * HIDDEN;
        double squares = 0;
        for (int i = 0; i < HIDDEN; i++) squares += (double)x[i] * x[i];
        double scale = 1 / sqrt(squares / HIDDEN + made->config.rms_norm_eps);
        for (int i = 0; i < HIDDEN; i++) {
            double input = x[i] * scale * norm[i];
            expected[i] += input * input;
        }
    }
    static const char *const names[] = {"q", "k", "v"};
    for (size_t i = 0; i < COUNT(names); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.0.attn_%s.weight.in_sum2", names[i]);
        assert_true(worst_difference(numbers(file, name, 1, HIDDEN), expected, HIDDEN) < 1e-5);
    }
}

static void assert_counts(const gguf *file, const char *matrix, int64_t n_matrices, int64_t n_in,
                          double total)
{
    char name[96];
    snprintf(name, sizeof name, "%s.counts", matrix);
    const float *counts = numbers(file, name, n_matrices, 1);
    snprintf(name, sizeof name, "%s.in_sum2", matrix);
    const float *sums = numbers(file, name, n_matrices, n_in);
    double sum = 0;
    for (int64_t i = 0; i < n_matrices; i++) {
        sum += counts[i];
        double inputs = 0;
        for (int64_t j = 0; j < n_in; j++) inputs += sums[i * n_in + j];
        assert_true(isfinite(inputs) && (inputs > 0) == (counts[i] > 0));
    }
    assert_true(sum == total);
}

/* Quantising the model finds the importance of every matrix, also of a tied head. */
static void assert_all_known(void)
{
    int64_t n_without = -1, n_weighed = -1;
    dsmoe_error error = {0};
    dsmoe_convert_options options = {.type = "q4_0",
                                     .n_threads = 2,
                                     .imatrix = in("m.gguf"),
                                     .n_without_importance = &n_without,
                                     .n_weighed = &n_weighed};
    must(dsmoe_convert(in("a"), in("q.gguf"), &options, &error), &error, "q4_0");
    assert_int_equal(n_without, 0);
    assert_int_equal(n_weighed, 7 + 2 * 10 + 1);
    tiny_remove(in("q.gguf"));
}

static void test_collected(void **state)
{
    (void)state;
    enum { N = 150 };
    for (int tied = 0; tied < 2; tied++) {
        made_model made = uneven_model(tied);
        write_model(&made, in("a"));
        dsmoe_model *model = open_model(in("a"));
        int32_t tokens[N];
        made_tokens(&made, tokens, N, 5);
        int64_t n_unused = -1;
        dsmoe_imatrix_options options = {
            .n_ctx = 64, .n_threads = 2, .dataset = "words", .n_unused_experts = &n_unused};
        make(model, tokens, N, &options, in("m.gguf"));
        gguf *file = open_gguf(in("m.gguf"));
        assert_first_inputs(&made, file, tokens, N);
        assert_counts(file, "blk.0.attn_output.weight", 1, HIDDEN, N);
        assert_counts(file, "blk.0.ffn_down.weight", 1, HIDDEN, N);
        assert_counts(file, "output.weight", 1, HIDDEN, N);
        for (int layer = 1; layer < N_LAYERS; layer++) {
            static const char *const parts[] = {"gate", "up", "down"};
            for (size_t i = 0; i < COUNT(parts); i++) {
                char name[64];
                snprintf(name, sizeof name, "blk.%d.ffn_%s_exps.weight", layer, parts[i]);
                assert_counts(file, name, N_EXPERTS, i == 2 ? WIDTH : HIDDEN, N * TOP_K);
                snprintf(name, sizeof name, "blk.%d.ffn_%s_shexp.weight", layer, parts[i]);
                assert_counts(file, name, 1, i == 2 ? 4 * WIDTH : HIDDEN, N);
            }
        }
        /* 7 matrices of the dense layer, 10 of each MoE layer, and the head: two tensors each. */
        assert_int_equal(gguf_count(file), 2 * (7 + 2 * 10 + 1));
        assert_int_equal(n_unused, 0);
        int64_t value;
        gguf_array datasets;
        assert_int_equal(gguf_get_int(file, "imatrix.chunk_count", &value, NULL, NULL), DSMOE_OK);
        assert_int_equal(value, 3);
        assert_int_equal(gguf_get_int(file, "imatrix.chunk_size", &value, NULL, NULL), DSMOE_OK);
        assert_int_equal(value, 64);
        assert_int_equal(
            gguf_get_array(file, "imatrix.datasets", GGUF_STRING, &datasets, NULL, NULL), DSMOE_OK);
        assert_int_equal(datasets.count, 1);
        gguf_close(file);
        dsmoe_model_free(model);
        assert_all_known();
        /* The same for a GGUF file, where a tied head may be a tensor of its own. */
        convert(in("a"), in("a.gguf"), "f32");
        model = open_model(in("a.gguf"));
        make(model, tokens, N, &options, in("n.gguf"));
        file = open_gguf(in("n.gguf"));
        assert_first_inputs(&made, file, tokens, N);
        assert_counts(file, "output.weight", 1, HIDDEN, N);
        gguf_close(file);
        dsmoe_model_free(model);
        made_model_free(&made);
        static const char *const names[] = {"a", "a.gguf", "m.gguf", "n.gguf"};
        remove_all(names, COUNT(names));
    }
}

static void test_threads(void **state)
{
    (void)state;
    enum { N = 70 };
    made_model made = uneven_model(false);
    write_model(&made, in("a"));
    dsmoe_model *model = open_model(in("a"));
    int32_t tokens[N];
    made_tokens(&made, tokens, N, 5);
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        dsmoe_imatrix_options options = {.n_ctx = 33, .n_threads = n_threads};
        make(model, tokens, N, &options, in(n_threads == 1 ? "m.gguf" : "n.gguf"));
        if (n_threads > 1) tiny_assert_same(in("m.gguf"), in("n.gguf"));
        if (n_threads > 1) tiny_remove(in("n.gguf"));
    }
    dsmoe_model_free(model);
    made_model_free(&made);
}

/* An expert that no token chose gets the average of its layer's experts. */
static void test_unused_experts(void **state)
{
    (void)state;
    made_model made = uneven_model(false);
    write_model(&made, in("a"));
    dsmoe_model *model = open_model(in("a"));
    const int32_t token = 3;
    int64_t n_unused = -1;
    dsmoe_imatrix_options options = {.n_threads = 2, .n_unused_experts = &n_unused};
    make(model, &token, 1, &options, in("m.gguf"));
    assert_int_equal(n_unused, (N_LAYERS - 1) * (N_EXPERTS - TOP_K));
    imatrix *m;
    dsmoe_error error = {0};
    must(imatrix_open(in("m.gguf"), &m, &error), &error, "m.gguf");
    float importance[N_EXPERTS * HIDDEN];
    bool found;
    must(imatrix_importance(m, "blk.1.ffn_up_exps.weight", N_EXPERTS, HIDDEN, importance, &found,
                            &error),
         &error, "importance");
    assert_true(found);
    gguf *file = open_gguf(in("m.gguf"));
    const float *sums = numbers(file, "blk.1.ffn_up_exps.weight.in_sum2", N_EXPERTS, HIDDEN);
    const float *counts = numbers(file, "blk.1.ffn_up_exps.weight.counts", N_EXPERTS, 1);
    for (int column = 0; column < HIDDEN; column++) {
        double sum = 0;
        for (int e = 0; e < N_EXPERTS; e++) sum += sums[e * HIDDEN + column];
        for (int e = 0; e < N_EXPERTS; e++) {
            double ours = importance[e * HIDDEN + column];
            assert_true(isfinite(ours));
            if (counts[e] == 0) assert_true(fabs(ours - sum / TOP_K) <= 1e-6 * sum);
        }
    }
    gguf_close(file);
    imatrix_close(m);
    /* The file can be used for quantising. */
    dsmoe_convert_options to = {.type = "q4_k", .imatrix = in("m.gguf"), .n_threads = 2};
    must(dsmoe_convert(in("a"), in("q.gguf"), &to, &error), &error, "q.gguf");
    dsmoe_model_free(model);
    made_model_free(&made);
}

static bool stop_at_once(void *context, double done, double total)
{
    (void)context;
    return done > total;
}

static void test_refusals(void **state)
{
    (void)state;
    made_model made = uneven_model(false);
    write_model(&made, in("a"));
    dsmoe_model *model = open_model(in("a"));
    const int32_t tokens[] = {3, 211};
    dsmoe_imatrix_options stop = {.progress = stop_at_once}, n_ctx = {.n_ctx = -1};
    dsmoe_error error = {0};
    const dsmoe_status bad = DSMOE_ERROR_ARGUMENT;
    assert_int_equal(dsmoe_imatrix_make(model, tokens, 1, &stop, in("m.gguf"), &error),
                     DSMOE_ERROR_STOPPED);
    assert_non_null(strstr(error.message, "stopped"));
    assert_int_equal(dsmoe_imatrix_make(model, tokens, 2, NULL, in("m.gguf"), &error), bad);
    assert_int_equal(dsmoe_imatrix_make(model, tokens, 0, NULL, in("m.gguf"), &error), bad);
    assert_int_equal(dsmoe_imatrix_make(model, tokens, 1, &n_ctx, in("m.gguf"), &error), bad);
    assert_int_equal(dsmoe_imatrix_make(NULL, tokens, 1, NULL, in("m.gguf"), &error), bad);
    assert_false(tiny_exists(in("m.gguf")));
    assert_int_equal(
        dsmoe_imatrix_make(model, tokens, 1, NULL, tiny_path(in("no"), "m.gguf"), &error),
        DSMOE_ERROR_IO);
    dsmoe_model_free(model);
    made_model_free(&made);
}

/* ---- checking the output file first ----------------------------------------------------------- */

static bool not_reached(void *context, double done, double total)
{
    (void)context, (void)done, (void)total;
    fail_msg("the work began before all was known to be in order");
    return false;
}

static void test_output_first(void **state)
{
    (void)state;
    made_model made = uneven_model(false);
    write_model(&made, in("a"));
    dsmoe_model *model = open_model(in("a"));
    static const int32_t tokens[] = {1, 2, 3};
    dsmoe_imatrix_options early = {.progress = not_reached, .replace = true}, first = {0},
                          again = {.replace = true};
    dsmoe_error error = {0};
    copy_file(in("a/config.json"), in("text"));
    static const char *const places[] = {"text", "a", "no/m.gguf"};
    for (size_t i = 0; i < COUNT(places); i++) {
        assert_int_equal(dsmoe_imatrix_make(model, tokens, 3, &early, in(places[i]), &error),
                         DSMOE_ERROR_IO);
        assert_non_null(strstr(error.message, in(places[i])));
    }
    make(model, tokens, 3, &first, in("m.gguf"));
    early.replace = false;
    assert_int_equal(dsmoe_imatrix_make(model, tokens, 3, &early, in("m.gguf"), &error),
                     DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "--force"));
    make(model, tokens, 3, &again, in("m.gguf"));
    dsmoe_model_free(model);
    made_model_free(&made);
}

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct made_entry {
    const char *name; /* a tensor's name with the suffix */
    int n_dims;
    int64_t shape[2];
    const float *data;
} made_entry;

static void write_file(const char *name, const char *kind, const made_entry *entries, size_t n)
{
    gguf_writer *writer;
    dsmoe_error error = {0};
    must(gguf_writer_create(name, &writer, &error), &error, name);
    if (kind) gguf_writer_string(writer, "general.type", kind, strlen(kind));
    for (size_t i = 0; i < n; i++)
        must(gguf_writer_declare(writer, entries[i].name, DSMOE_F32, entries[i].n_dims,
                                 entries[i].shape, &error),
             &error, name);
    for (size_t i = 0; i < n; i++) {
        size_t size = sizeof(float);
        for (int j = 0; j < entries[i].n_dims; j++) size *= (size_t)entries[i].shape[j];
        must(gguf_writer_write(writer, entries[i].data, size, &error), &error, name);
    }
    must(gguf_writer_finish(writer, &error), &error, name);
}

/* Also as llama.cpp writes it: the tensors of a single matrix have one dimension less. */
static void test_importance(void **state)
{
    (void)state;
    static const float sums[] = {10, 20, 30, 0, 0, 0, 100, 200, 300}, counts[] = {10, 0, 40},
                       zeros[9] = {0}, huge[] = {3e38f, 0, 1}, tiny[] = {1e-30f};
    static const made_entry entries[] = {
        {"a.in_sum2", 2, {3, 3}, sums},  {"a.counts", 2, {3, 1}, counts},
        {"b.in_sum2", 1, {3}, sums},     {"b.counts", 1, {1}, counts},
        {"c.in_sum2", 2, {3, 3}, zeros}, {"c.counts", 2, {3, 1}, zeros},
        {"e.in_sum2", 1, {3}, huge},     {"e.counts", 1, {1}, tiny},
    };
    write_file(in("m.gguf"), "imatrix", entries, COUNT(entries));
    imatrix *m;
    dsmoe_error error = {0};
    must(imatrix_open(in("m.gguf"), &m, &error), &error, "m.gguf");
    assert_int_equal(imatrix_count(m), 4);
    float out[9];
    bool found;
    must(imatrix_importance(m, "a", 3, 3, out, &found, &error), &error, "a");
    assert_true(found);
    for (int column = 0; column < 3; column++) {
        double mean = (sums[column] + sums[6 + column]) / 50.0, prior = IMATRIX_PRIOR_TOKENS;
        double first = (sums[column] + prior * mean) / (10 + prior);
        double last = (sums[6 + column] + prior * mean) / (40 + prior);
        assert_true(fabs(out[column] - first) < 1e-6 * first);
        assert_true(fabs(out[3 + column] - mean) < 1e-6 * mean);
        assert_true(fabs(out[6 + column] - last) < 1e-6 * last);
    }
    must(imatrix_importance(m, "b", 1, 3, out, &found, &error), &error, "b");
    assert_true(found && out[0] == 1 && out[1] == 2 && out[2] == 3);
    must(imatrix_importance(m, "c", 3, 3, out, &found, &error), &error, "c");
    assert_false(found);
    must(imatrix_importance(m, "e", 1, 3, out, &found, &error), &error, "e");
    assert_true(found && isfinite(out[0]) && out[1] == 0 && out[2] > 0);
    must(imatrix_importance(m, "d", 3, 3, out, &found, &error), &error, "d");
    assert_false(found);
    assert_int_equal(imatrix_importance(m, "a", 1, 9, out, &found, &error), DSMOE_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "another model"));
    imatrix_close(m);
}

static void test_bad_files(void **state)
{
    (void)state;
    static const float good[] = {1, 2, 3}, nan_in[] = {1, NAN, 3}, negative[] = {1, -2, 3},
                       infinite[] = {1, INFINITY, 3}, count[] = {7}, counts[] = {7, 8};
    static const struct {
        const char *kind, *word;
        made_entry entries[2];
        size_t n;
    } cases[] = {
        {NULL, "general.type", {{"a.in_sum2", 1, {3}, good}, {"a.counts", 1, {1}, count}}, 2},
        {"model", "general.type", {{"a.in_sum2", 1, {3}, good}, {"a.counts", 1, {1}, count}}, 2},
        {"imatrix", "a.in_sum2", {{"a.in_sum2", 1, {3}, nan_in}, {"a.counts", 1, {1}, count}}, 2},
        {"imatrix", "a.in_sum2", {{"a.in_sum2", 1, {3}, negative}, {"a.counts", 1, {1}, count}}, 2},
        {"imatrix", "a.in_sum2", {{"a.in_sum2", 1, {3}, infinite}, {"a.counts", 1, {1}, count}}, 2},
        {"imatrix", "a.counts", {{"a.in_sum2", 1, {3}, good}, {"a.counts", 1, {3}, negative}}, 2},
        {"imatrix", "no tensor of counts", {{"a.in_sum2", 1, {3}, good}}, 1},
        {"imatrix", "divide", {{"a.in_sum2", 1, {3}, good}, {"a.counts", 1, {2}, counts}}, 2},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        write_file(in("m.gguf"), cases[i].kind, cases[i].entries, cases[i].n);
        imatrix *m;
        dsmoe_error error = {0};
        assert_int_equal(imatrix_open(in("m.gguf"), &m, &error), DSMOE_ERROR_FORMAT);
        assert_null(m);
        if (!strstr(error.message, cases[i].word))
            fail_msg("no '%s' in: %s", cases[i].word, error.message);
        tiny_remove(in("m.gguf"));
    }
}

/* The same from bytes in memory; damaged bytes are refused with the given name. */
static void test_parse(void **state)
{
    (void)state;
    static const float sums[3] = {1, 2, 3}, count[] = {2};
    static const made_entry entries[] = {{"a.in_sum2", 1, {3}, sums}, {"a.counts", 1, {1}, count}};
    write_file(in("m.gguf"), "imatrix", entries, COUNT(entries));
    mapped_file file;
    imatrix *m;
    dsmoe_error error = {0};
    must(mapped_file_open(&file, in("m.gguf"), &error), &error, "m.gguf");
    must(imatrix_parse(file.bytes, file.size, "bytes", &m, &error), &error, "bytes");
    assert_int_equal(imatrix_count(m), 1);
    assert_string_equal(imatrix_path(m), "bytes");
    float importance[3];
    bool found = false;
    must(imatrix_importance(m, "a", 1, 3, importance, &found, &error), &error, "a");
    assert_true(found && importance[2] == 1.5f);
    must(imatrix_check_intact(m, &error), &error, "bytes");
    imatrix_close(m);
    /* After the last value there is only padding. */
    for (size_t size = 0; size < file.size - GGUF_ALIGNMENT; size += 7) {
        assert_int_equal(imatrix_parse(file.bytes, size, "bytes", &m, &error), DSMOE_ERROR_FORMAT);
        assert_null(m);
        assert_non_null(strstr(error.message, "bytes"));
    }
    mapped_file_close(&file);
}

/* ---- benefit --------------------------------------------------------------------------------- */

/* Σ importance·(w - quantised)² over the experts' up_proj, with the file's importance. */
static double weighted_error(const made_model *made, const char *quantised, const imatrix *m)
{
    dsmoe_convert_options options = {.type = "f32", .n_threads = 2};
    dsmoe_error error = {0};
    must(dsmoe_convert(quantised, in("floats"), &options, &error), &error, quantised);
    made_model floats_of = made_model_read(in("floats"));
    float importance[N_EXPERTS * HIDDEN];
    double sum = 0;
    for (int layer = 1; layer < N_LAYERS; layer++) {
        char name[96];
        bool found;
        snprintf(name, sizeof name, "blk.%d.ffn_up_exps.weight", layer);
        must(imatrix_importance(m, name, N_EXPERTS, HIDDEN, importance, &found, &error), &error,
             name);
        for (int e = 0; e < N_EXPERTS; e++) {
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.up_proj.weight", layer, e);
            const made_tensor *w = made_model_find(made, name),
                              *q = made_model_find(&floats_of, name);
            for (int64_t i = 0; i < w->n; i++) {
                double off = (double)w->data[i] - q->data[i];
                sum += importance[e * HIDDEN + i % HIDDEN] * off * off;
            }
        }
    }
    made_model_free(&floats_of);
    tiny_remove(in("floats"));
    return sum;
}

static void test_gain(void **state)
{
    (void)state;
    enum { N = 200 };
    made_model made = uneven_model(false);
    write_model(&made, in("a"));
    dsmoe_model *model = open_model(in("a"));
    int32_t tokens[N];
    made_tokens(&made, tokens, N, 5);
    make(model, tokens, N, NULL, in("m.gguf"));
    imatrix *m;
    dsmoe_error error = {0};
    must(imatrix_open(in("m.gguf"), &m, &error), &error, "m.gguf");
    static const char *const types[] = {"q4_k", "q4_0", "q5_k"};
    for (size_t i = 0; i < COUNT(types); i++) {
        dsmoe_convert_options careless = {.type = types[i], .n_threads = 2},
                              careful = {.type = types[i], .imatrix = in("m.gguf"), .n_threads = 2};
        must(dsmoe_convert(in("a"), in("plain.gguf"), &careless, &error), &error, types[i]);
        must(dsmoe_convert(in("a"), in("careful.gguf"), &careful, &error), &error, types[i]);
        double without = weighted_error(&made, in("plain.gguf"), m);
        double with = weighted_error(&made, in("careful.gguf"), m);
        if (!(with < 0.9 * without)) fail_msg("%s: %g with, %g without", types[i], with, without);
        tiny_remove(in("plain.gguf"));
        tiny_remove(in("careful.gguf"));
    }
    imatrix_close(m);
    dsmoe_model_free(model);
    made_model_free(&made);
}

/* The file of another model is refused, even if some of it fits. */
static void test_other_model(void **state)
{
    (void)state;
    made_model made = uneven_model(false);
    write_model(&made, in("a"));
    static const float sums[3] = {1, 2, 3}, count[] = {7};
    static const made_entry entries[] = {{"blk.0.attn_q.weight.in_sum2", 1, {3}, sums},
                                         {"blk.0.attn_q.weight.counts", 1, {1}, count}};
    write_file(in("m.gguf"), "imatrix", entries, COUNT(entries));
    static const made_entry strange[] = {{"blk.9.attn_q.weight.in_sum2", 1, {3}, sums},
                                         {"blk.9.attn_q.weight.counts", 1, {1}, count}};
    write_file(in("n.gguf"), "imatrix", strange, COUNT(strange));
    const char *const files[] = {in("m.gguf"), in("n.gguf")};
    dsmoe_error error = {0};
    for (size_t i = 0; i < COUNT(files); i++) {
        dsmoe_convert_options options = {
            .type = "q4_k", .imatrix = files[i], .progress = not_reached};
        assert_int_equal(dsmoe_convert(in("a"), in("q.gguf"), &options, &error),
                         DSMOE_ERROR_FORMAT);
        assert_non_null(strstr(error.message, "another model"));
    }
    assert_false(tiny_exists(in("q.gguf")));
    assert_false(tiny_exists(in("q.gguf.partial")));
    made_model_free(&made);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, clean_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_collected),   TEST(test_threads),      TEST(test_unused_experts),
        TEST(test_refusals),    TEST(test_importance),   TEST(test_bad_files),
        TEST(test_parse),       TEST(test_output_first), TEST(test_gain),
        TEST(test_other_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
