/* test_convert.c - conversions between folders and GGUF files, types of matrices, quantised and newly
 * initialised models. */
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
#include "convert/mixture.h"
#include "formats/gguf.h"
#include "formats/shards.h"
#include "made_model.h"
#include "scratch.h"
#include "support.h"
#include "tiny_run.h"

/* ---- help ----------------------------------------------------------------------------------- */

static gguf *open_gguf(const char *name)
{
    gguf *file;
    dsmoe_error error = {0};
    must(gguf_open(name, &file, &error), &error, name);
    return file;
}

static const gguf_tensor *tensor_of(const gguf *file, const char *name)
{
    const gguf_tensor *t = gguf_find(file, name);
    if (!t) fail_msg("there is no %s", name);
    return t;
}

enum { N_TOKENS = 24 };

/* The logits after some tokens, to be freed. */
static float *scores(const char *name)
{
    dsmoe_model *model = open_model(name);
    int64_t n = dsmoe_model_config(model)->vocab_size;
    float *logits = malloc((size_t)n * sizeof *logits);
    assert_non_null(logits);
    int32_t tokens[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) tokens[i] = (int32_t)(i * 37 % n);
    dsmoe_sequence *sequence = make_sequence(model, N_TOKENS, N_TOKENS, 2);
    prefill(sequence, tokens, N_TOKENS, logits);
    free_sequence(sequence);
    dsmoe_model_free(model);
    return logits;
}

/* |a - b| / |a|. */
static double distance(const float *a, const float *b, int64_t n)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)a[i] * a[i];
    }
    return sqrt(difference / size);
}

/* ---- there and back -------------------------------------------------------------------------- */

static void there_and_back(const dsmoe_config *config, dsmoe_dtype dtype)
{
    init(in("a"), config, dtype);
    convert(in("a"), in("b.gguf"), NULL);
    convert(in("b.gguf"), in("c"), NULL);
    static const char *const files[] = {"config.json", "generation_config.json",
                                        "model.safetensors"};
    for (size_t i = 0; i < COUNT(files); i++) {
        char other[TINY_PATH];
        snprintf(other, sizeof other, "%s", tiny_path(in("a"), files[i]));
        tiny_assert_same(other, tiny_path(in("c"), files[i]));
    }
    float *a = scores(in("a")), *b = scores(in("b.gguf"));
    assert_true(distance(a, b, config->vocab_size) < 1e-5);
    free(a);
    free(b);
    REMOVE("a", "b.gguf", "c");
}

static void test_there_and_back(void **state)
{
    (void)state;
    static const dsmoe_dtype types[] = {DSMOE_F32, DSMOE_F16, DSMOE_BF16};
    for (size_t i = 0; i < COUNT(types); i++) {
        dsmoe_config config = small();
        there_and_back(&config, types[i]);
        config.tie_word_embeddings = true;
        there_and_back(&config, types[i]);
        config.n_shared_experts = 0;
        config.rope_scaling = DSMOE_ROPE_NONE;
        config.rope_scaling_factor = 1;
        config.bos_token_id = config.eos_token_id = -1;
        there_and_back(&config, types[i]);
        config.n_routed_experts = config.num_experts_per_tok = config.moe_intermediate_size = 0;
        there_and_back(&config, types[i]);
    }
}

/* A router in a more precise type than the matrices keeps that type. */
static void test_mixed_types(void **state)
{
    (void)state;
    dsmoe_config config = small();
    made_model made = made_model_create(&config, "BF16", 3);
    made_tensor *router = made_model_find(&made, "model.layers.1.mlp.gate.weight");
    router->dtype = "F32";
    router->data[3] = 0.123456789f;
    assert_int_equal(mkdir(in("a"), 0777), 0);
    made_model_write(&made, in("a"), false);
    convert(in("a"), in("b.gguf"), NULL);
    convert(in("b.gguf"), in("c"), NULL);
    convert(in("a"), in("d"), NULL);
    const char *copies[] = {"c", "d"};
    for (size_t i = 0; i < COUNT(copies); i++) {
        dsmoe_model *model = open_model(in(copies[i]));
        for (size_t j = 0; j < dsmoe_model_tensor_count(model); j++) {
            dsmoe_tensor_info info = dsmoe_model_tensor(model, j);
            bool is_router = !strcmp(info.name, router->name);
            assert_int_equal(info.dtype, is_router ? DSMOE_F32 : DSMOE_BF16);
        }
        dsmoe_model_free(model);
        made_model again = made_model_read(in(copies[i]));
        assert_int_equal(again.n_tensors, made.n_tensors);
        for (int j = 0; j < made.n_tensors; j++) {
            const made_tensor *t = &made.tensors[j];
            assert_same_bits(t->data, made_model_find(&again, t->name)->data, (size_t)t->n,
                             t->name);
        }
        made_model_free(&again);
    }
    made_model_free(&made);
    REMOVE("a", "b.gguf", "c", "d");
}

/* Between folders of different float types. */
static void test_folder_to_folder(void **state)
{
    (void)state;
    dsmoe_config config = small();
    init(in("a"), &config, DSMOE_F32);
    init(in("b"), &config, DSMOE_BF16);
    convert(in("a"), in("c"), "bf16");
    char other[TINY_PATH];
    snprintf(other, sizeof other, "%s", tiny_path(in("b"), "model.safetensors"));
    tiny_assert_same(other, tiny_path(in("c"), "model.safetensors"));
    snprintf(other, sizeof other, "%s", tiny_path(in("b"), "config.json"));
    tiny_assert_same(other, tiny_path(in("c"), "config.json"));
    REMOVE("a", "b", "c");
}

/* ---- tokenizer and generation_config.json ---------------------------------------------------- */

static void assert_same_ids(const char *a, const char *b)
{
    static const char text[] = "The quick brown fox, 12 times: \xc3\xa9t\xc3\xa9 <|end|>.";
    const char *paths[] = {a, b};
    int32_t *ids[2];
    size_t n[2];
    for (int i = 0; i < 2; i++) {
        dsmoe_tokenizer *tokenizer;
        dsmoe_error error = {0};
        must(dsmoe_tokenizer_open(paths[i], &tokenizer, &error), &error, paths[i]);
        must(dsmoe_tokenizer_encode(tokenizer, text, sizeof text - 1,
                                    DSMOE_ENCODE_BOS | DSMOE_ENCODE_SPECIAL, &ids[i], &n[i],
                                    &error),
             &error, paths[i]);
        dsmoe_tokenizer_free(tokenizer);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(ids[0], ids[1], n[0] * sizeof *ids[0]);
    free(ids[0]);
    free(ids[1]);
}

static void test_words(void **state)
{
    (void)state;
    dsmoe_config config = small(); /* with other tokens than the tokenizer's */
    init(in("a"), &config, DSMOE_F32);
    copy_file(TEST_DATA "/text_cli/tokenizer.json", tiny_path(in("a"), "tokenizer.json"));
    copy_file(TEST_DATA "/text_cli/tokenizer_config.json",
              tiny_path(in("a"), "tokenizer_config.json"));
    FILE *file = fopen(tiny_path(in("a"), "generation_config.json"), "w");
    assert_non_null(file);
    fputs("{\"do_sample\": true, \"temperature\": 0.3, \"eos_token_id\": [9, 11]}", file);
    assert_int_equal(fclose(file), 0);
    convert(in("a"), in("b.gguf"), "q8_0");
    convert(in("b.gguf"), in("c"), "f16");
    convert(in("c"), in("d"), NULL);
    const char *copies[] = {"b.gguf", "c", "d"};
    for (size_t i = 0; i < COUNT(copies); i++) {
        assert_same_ids(in("a"), in(copies[i]));
        dsmoe_model *model = open_model(in(copies[i]));
        const dsmoe_generation_config *generation = dsmoe_model_generation_config(model);
        assert_int_equal(generation->n_eos_token_ids, 2);
        assert_int_equal(generation->eos_token_id[1], 11);
        assert_true(generation->do_sample && generation->temperature == 0.3);
        assert_int_equal(dsmoe_model_config(model)->bos_token_id, 7);
        assert_int_equal(dsmoe_model_config(model)->eos_token_id, 9);
        dsmoe_model_free(model);
    }
    gguf *made = open_gguf(in("b.gguf"));
    gguf_string name;
    int64_t file_type;
    assert_int_equal(gguf_get_string(made, "general.name", &name, NULL, NULL), DSMOE_OK);
    assert_true(name.length == 1 && *name.bytes == 'a');
    assert_int_equal(gguf_get_int(made, "general.file_type", &file_type, NULL, NULL), DSMOE_OK);
    assert_int_equal(file_type, 7);
    gguf_close(made);
    REMOVE("a", "b.gguf", "c", "d");
}

/* ---- layout in the file ---------------------------------------------------------------------- */

static const safetensors_tensor *stored(const shards *set, const char *name)
{
    const safetensors_tensor *t = shards_find(set, name, NULL);
    if (!t) fail_msg("there is no %s", name);
    return t;
}

static void test_layout(void **state)
{
    (void)state;
    dsmoe_config config = small();
    init(in("a"), &config, DSMOE_F32);
    convert(in("a"), in("b.gguf"), NULL);
    shards *set;
    assert_int_equal(shards_open(in("a"), &set, NULL), DSMOE_OK);
    gguf *file = open_gguf(in("b.gguf"));

    const gguf_tensor *q = tensor_of(file, "blk.2.attn_q.weight");
    const safetensors_tensor *q_proj = stored(set, "model.layers.2.self_attn.q_proj.weight");
    size_t row = 64 * sizeof(float);
    for (size_t head = 0; head < 4; head++) /* each head has 16 rows */
        for (size_t i = 0; i < 8; i++)
            for (size_t half = 0; half < 2; half++)
                assert_memory_equal(
                    q->data + (head * 16 + 2 * i + half) * row,
                    (const unsigned char *)q_proj->data + (head * 16 + half * 8 + i) * row, row);

    const gguf_tensor *v = tensor_of(file, "blk.2.attn_v.weight");
    assert_memory_equal(v->data, stored(set, "model.layers.2.self_attn.v_proj.weight")->data,
                        v->size);
    const gguf_tensor *down = tensor_of(file, "blk.1.ffn_down_exps.weight");
    assert_int_equal(down->n_dims, 3);
    assert_int_equal(down->shape[0], 5);
    assert_int_equal(down->shape[1], 64);
    assert_int_equal(down->shape[2], 32);
    for (size_t e = 0; e < 5; e++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.1.mlp.experts.%zu.down_proj.weight", e);
        assert_memory_equal(down->data + e * down->size / 5, stored(set, name)->data,
                            down->size / 5);
    }
    /* 3 outside the layers, 9 in the dense layer, 13 in each MoE layer */
    assert_int_equal(gguf_count(file), 3 + 9 + 2 * 13);
    gguf_close(file);
    shards_close(set);
    REMOVE("a", "b.gguf");
}

/* ---- types ----------------------------------------------------------------------------------- */

static dsmoe_dtype type_of(const char *mixture_name, int64_t n_layers, const char *gguf_name,
                           int64_t n_in)
{
    mixture m;
    assert_int_equal(mixture_parse(mixture_name, &m, NULL), DSMOE_OK);
    source s = {.config = {.num_hidden_layers = n_layers}};
    source_tensor t = {.n_dims = 2, .role = WEIGHT_LINEAR, .n_in = n_in};
    return mixture_type(&m, &s, &t, gguf_name);
}

static void test_mixture(void **state)
{
    (void)state;
    /* Of 28 layers: 0-2, every third one from layer 5, and 24-27. */
    static const bool more[28] = {1, 1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0,
                                  1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 1, 1, 1, 1};
    for (int layer = 0; layer < 28; layer++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", layer);
        assert_int_equal(type_of("q4_k_m", 28, name, 2048), more[layer] ? DSMOE_Q6_K : DSMOE_Q4_K);
        assert_int_equal(type_of("q4_k", 28, name, 2048), DSMOE_Q4_K);
        snprintf(name, sizeof name, "blk.%d.ffn_down_exps.weight", layer);
        assert_int_equal(type_of("q4_k_m", 28, name, 1408), more[layer] ? DSMOE_Q8_0 : DSMOE_Q5_0);
        snprintf(name, sizeof name, "blk.%d.ffn_down_shexp.weight", layer);
        assert_int_equal(type_of("q4_k_m", 28, name, 2816), more[layer] ? DSMOE_Q6_K : DSMOE_Q4_K);
        snprintf(name, sizeof name, "blk.%d.ffn_gate_exps.weight", layer);
        assert_int_equal(type_of("q4_k_m", 28, name, 2048), DSMOE_Q4_K);
    }
    assert_int_equal(type_of("q4_k_m", 28, "token_embd.weight", 2048), DSMOE_Q4_K);
    static const struct {
        const char *type;
        dsmoe_dtype plain, head, by_32, by_none;
        uint32_t file_type;
    } cases[] = {
        {"f32", DSMOE_F32, DSMOE_F32, DSMOE_F32, DSMOE_F32, 0},
        {"f16", DSMOE_F16, DSMOE_F16, DSMOE_F16, DSMOE_F16, 1},
        {"bf16", DSMOE_BF16, DSMOE_BF16, DSMOE_BF16, DSMOE_BF16, 32},
        {"q8_0", DSMOE_Q8_0, DSMOE_Q8_0, DSMOE_Q8_0, DSMOE_F16, 7},
        {"q4_0", DSMOE_Q4_0, DSMOE_Q6_K, DSMOE_Q4_0, DSMOE_F16, 2},
        {"q5_0", DSMOE_Q5_0, DSMOE_Q6_K, DSMOE_Q5_0, DSMOE_F16, 8},
        {"q5_1", DSMOE_Q5_1, DSMOE_Q6_K, DSMOE_Q5_1, DSMOE_F16, 9},
        {"q4_k", DSMOE_Q4_K, DSMOE_Q6_K, DSMOE_Q5_0, DSMOE_F16, 14},
        {"q5_k", DSMOE_Q5_K, DSMOE_Q6_K, DSMOE_Q5_1, DSMOE_F16, 16},
        {"q6_k", DSMOE_Q6_K, DSMOE_Q6_K, DSMOE_Q8_0, DSMOE_F16, 18},
    };
    mixture m;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *any = "blk.3.ffn_up.weight";
        assert_int_equal(type_of(cases[i].type, 4, any, 512), cases[i].plain);
        assert_int_equal(type_of(cases[i].type, 4, "output.weight", 512), cases[i].head);
        assert_int_equal(type_of(cases[i].type, 4, any, 1408), cases[i].by_32);
        assert_int_equal(type_of(cases[i].type, 4, any, 100), cases[i].by_none);
        assert_int_equal(mixture_parse(cases[i].type, &m, NULL), DSMOE_OK);
        assert_int_equal(mixture_file_type(&m, DSMOE_F32), cases[i].file_type);
    }
    dsmoe_error error = {0};
    assert_int_equal(mixture_parse("q3_k", &m, &error), DSMOE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "q3_k"));
    assert_non_null(strstr(error.message, "q4_k_m"));
}

static void test_fallback(void **state)
{
    (void)state;
    dsmoe_config config = blocky();
    init(in("a"), &config, DSMOE_BF16);
    convert(in("a"), in("b.gguf"), "q5_k");
    gguf *file = open_gguf(in("b.gguf"));
    static const struct {
        const char *name;
        dsmoe_dtype type;
    } cases[] = {
        {"token_embd.weight", DSMOE_Q5_K},           {"output.weight", DSMOE_Q6_K},
        {"output_norm.weight", DSMOE_F32},           {"blk.0.attn_q.weight", DSMOE_Q5_K},
        {"blk.0.ffn_down.weight", DSMOE_F16},        {"blk.1.ffn_gate_inp.weight", DSMOE_F32},
        {"blk.1.ffn_down_exps.weight", DSMOE_Q5_1},  {"blk.1.ffn_up_exps.weight", DSMOE_Q5_K},
        {"blk.2.ffn_down_shexp.weight", DSMOE_Q5_1}, {"blk.2.ffn_norm.weight", DSMOE_F32},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(tensor_of(file, cases[i].name)->type, cases[i].type);
    gguf_close(file);
    REMOVE("a", "b.gguf");
}

/* ---- quantised models ------------------------------------------------------------------------ */

static void test_quantised(void **state)
{
    (void)state;
    /* How far the logits may be off. In so small and random a model rounding has a large effect. */
    static const struct {
        const char *type;
        double most, least;
    } cases[] = {
        {"q8_0", 0.06, 1e-4}, {"q6_k", 0.12, 1e-3}, {"q5_k", 0.25, 1e-2},   {"q5_0", 0.30, 1e-2},
        {"q5_1", 0.25, 1e-2}, {"q4_k", 0.45, 1e-2}, {"q4_k_m", 0.45, 1e-2}, {"q4_0", 0.55, 1e-2},
    };
    dsmoe_config config = blocky();
    config.num_experts_per_tok = config.n_routed_experts; /* errors cannot change the choice */
    init(in("a"), &config, DSMOE_BF16);
    float *exact = scores(in("a"));
    for (size_t i = 0; i < COUNT(cases); i++) {
        convert(in("a"), in("b.gguf"), cases[i].type);
        float *near = scores(in("b.gguf"));
        double far = distance(exact, near, config.vocab_size);
        if (!(far < cases[i].most && far > cases[i].least))
            fail_msg("%s: scores differ by %g", cases[i].type, far);
        free(near);
        tiny_remove(in("b.gguf"));
    }
    free(exact);
    REMOVE("a");
}

/* A quantised file is converted without a type, or to its own type: the bytes are copied, and q and k keep
 * their order. */
static void test_gguf_to_gguf(void **state)
{
    (void)state;
    dsmoe_config config = blocky();
    config.tie_word_embeddings = true;
    init(in("a"), &config, DSMOE_F32);
    convert(in("a"), in("b.gguf"), "q4_k_m");
    convert(in("b.gguf"), in("c.gguf"), NULL);
    tiny_assert_same(in("b.gguf"), in("c.gguf"));
    convert(in("b.gguf"), in("d.gguf"), "q4_k_m");
    tiny_assert_same(in("b.gguf"), in("d.gguf"));
    gguf *made = open_gguf(in("b.gguf"));
    assert_int_equal(tensor_of(made, "output.weight")->type, DSMOE_Q6_K);
    assert_int_equal(tensor_of(made, "token_embd.weight")->type, DSMOE_Q6_K); /* it is tied */
    gguf_close(made);
    /* Converted back to floats, the folder and the file hold the same numbers. */
    convert(in("b.gguf"), in("e"), "f32");
    convert(in("b.gguf"), in("f.gguf"), "f32");
    float *folder = scores(in("e")), *file = scores(in("f.gguf"));
    assert_true(distance(folder, file, config.vocab_size) < 1e-5);
    free(folder);
    free(file);
    REMOVE("a", "b.gguf", "c.gguf", "d.gguf", "e", "f.gguf");
}

static void test_threads(void **state)
{
    (void)state;
    dsmoe_config config = blocky();
    init(in("a"), &config, DSMOE_BF16);
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        dsmoe_error error = {0};
        dsmoe_convert_options options = {.type = "q4_k", .n_threads = n_threads};
        const char *to = in(n_threads == 1 ? "b.gguf" : "c.gguf");
        must(dsmoe_convert(in("a"), to, &options, &error), &error, to);
        if (n_threads == 1) continue;
        tiny_assert_same(in("b.gguf"), to);
        tiny_remove(to);
    }
    REMOVE("a", "b.gguf");
}

/* ---- newly initialised models ---------------------------------------------------------------- */

static void init_gguf(const char *name, const dsmoe_config *config, const char *type, int n_threads)
{
    dsmoe_error error = {0};
    dsmoe_convert_options options = {.type = type, .n_threads = n_threads};
    must(dsmoe_model_init_gguf(name, config, NULL, 5, &options, &error), &error, name);
}

/* Every tensor of one file is the same in the other. */
static void assert_within(const char *part, const char *whole)
{
    gguf *a = open_gguf(part), *b = open_gguf(whole);
    for (size_t i = 0; i < gguf_count(a); i++) {
        const gguf_tensor *x = gguf_at(a, i), *y = tensor_of(b, x->name);
        assert_int_equal(x->type, y->type);
        assert_int_equal(x->size, y->size);
        assert_memory_equal(x->data, y->data, x->size);
    }
    gguf_close(a);
    gguf_close(b);
}

static void test_fresh(void **state)
{
    (void)state;
    dsmoe_config config = blocky();
    init(in("a"), &config, DSMOE_F32);
    convert(in("a"), in("b.gguf"), "bf16");
    init_gguf(in("c.gguf"), &config, "bf16", 2);
    assert_within(in("c.gguf"), in("b.gguf"));
    assert_within(in("b.gguf"), in("c.gguf"));
    /* Quantised blocks are drawn from a stock: they are the same for any number of threads and layers. */
    init_gguf(in("d.gguf"), &config, "q4_k", 1);
    init_gguf(in("e.gguf"), &config, "q4_k", 3);
    assert_within(in("d.gguf"), in("e.gguf"));
    config.num_hidden_layers = 2;
    init_gguf(in("f.gguf"), &config, "q4_k", 2);
    assert_within(in("f.gguf"), in("d.gguf"));
    convert(in("d.gguf"), in("g"), "f32");
    made_model made = made_model_read(in("g"));
    static const char *const names[] = {"model.embed_tokens.weight",
                                        "model.layers.1.mlp.experts.3.up_proj.weight",
                                        "model.layers.1.mlp.experts.3.down_proj.weight"};
    for (size_t i = 0; i < COUNT(names); i++) {
        const made_tensor *t = made_model_find(&made, names[i]);
        double sum = 0, squares = 0;
        for (int64_t j = 0; j < t->n; j++) {
            sum += t->data[j];
            squares += (double)t->data[j] * t->data[j];
        }
        assert_true(fabs(sum / (double)t->n) < 0.002);
        assert_true(fabs(sqrt(squares / (double)t->n) - 0.07) < 0.002);
        assert_memory_not_equal(t->data, t->data + t->shape[1], (size_t)t->shape[1] * 4);
    }
    made_model_free(&made);
    REMOVE("a", "b.gguf", "c.gguf", "d.gguf", "e.gguf", "f.gguf", "g");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, clean_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_there_and_back), TEST(test_mixed_types), TEST(test_folder_to_folder),
        TEST(test_words),          TEST(test_layout),      TEST(test_mixture),
        TEST(test_fallback),       TEST(test_quantised),   TEST(test_gguf_to_gguf),
        TEST(test_threads),        TEST(test_fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
