/* test_adapter.c - LoRA adapters as files and in engines: unmerged against merged by hand, zeros against
 * the base model, PEFT's folder against the GGUF file, and which sequences share pages. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapt/peft.h"
#include "adapter_case.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"

/* ---- in engines ------------------------------------------------------------------------------- */

static void test_unmerged_is_merged(void **state)
{
    (void)state;
    made_model base = base_folder("base");
    made_adapter lora = adapter_folder("adapter", &base, "_proj", false, 1);
    floats plain_logits = run("base", NULL, 1), unmerged = run("base", "adapter", 0.7);
    made_adapter_merge(&lora, &base, 0.7);
    make_folder("merged");
    made_model_write(&base, in_directory("merged"), false);
    floats merged = run("merged", NULL, 1);
    assert_true(distance(unmerged, merged) < 1e-5);
    assert_true(distance(plain_logits, merged) > 1e-2);
    floats off = run("base", "adapter", 0);
    assert_same_bits(off.at, plain_logits.at, (size_t)off.n, "a scale of 0");
    floats_free(off);
    floats_free(plain_logits);
    floats_free(unmerged);
    floats_free(merged);
    made_adapter_free(&lora);
    made_model_free(&base);
}

static void test_zeros_are_the_base(void **state)
{
    (void)state;
    made_model base = base_folder("base");
    made_adapter lora = adapter_folder("adapter", &base, "_proj", true, 1);
    convert_adapter("base", "adapter", "adapter.gguf");
    floats plain_logits = run("base", NULL, 1), zeros = run("base", "adapter", 1);
    floats gguf_zeros = run("base", "adapter.gguf", 1);
    assert_same_bits(plain_logits.at, zeros.at, (size_t)zeros.n, "zeros");
    assert_same_bits(plain_logits.at, gguf_zeros.at, (size_t)zeros.n, "zeros of a GGUF file");
    floats_free(plain_logits);
    floats_free(zeros);
    floats_free(gguf_zeros);
    made_adapter_free(&lora);
    made_model_free(&base);
}

/* A model from a GGUF file has the rows of q and k in another order. */
static void test_base_of_gguf(void **state)
{
    (void)state;
    made_model base = base_folder("base");
    made_adapter lora = adapter_folder("adapter", &base, "_proj", false, 2);
    convert_to("base", "base.gguf", NULL);
    convert_adapter("base.gguf", "adapter", "adapter.gguf");
    floats right = run("base", "adapter", 1);
    static const char *const models[] = {"base.gguf", "base.gguf", "base"};
    static const char *const adapters[] = {"adapter", "adapter.gguf", "adapter.gguf"};
    for (int i = 0; i < 3; i++) {
        floats logits = run(models[i], adapters[i], 1);
        if (distance(logits, right) > 1e-5)
            fail_msg("%s on %s: %g", adapters[i], models[i], distance(logits, right));
        floats_free(logits);
    }
    floats_free(right);
    made_adapter_free(&lora);
    made_model_free(&base);
}

/* Four sequences in one pass: one with both adapters, two with one of them at different scales, one with
 * none. */
static void test_many_adapters_in_one_pass(void **state)
{
    (void)state;
    static const double scales[4][2] = {{1, 0.5}, {1, 0}, {-0.25, 0}, {0, 0}};
    made_model base = base_folder("base");
    made_adapter one = adapter_folder("one", &base, "_proj", false, 3);
    made_adapter two = adapter_folder("two", &base, "mlp.experts", false, 4);
    dsmoe_model *model = open_model(in_directory("base"));
    dsmoe_adapter *adapters[] = {open_adapter("one", model), open_adapter("two", model)};
    int32_t tokens[4][20];
    float together[4][61], alone[61];
    dsmoe_error error = {0};
    for (int i = 0; i < 4; i++) made_tokens(&base, tokens[i], 20, (uint64_t)i);
    dsmoe_engine *engine = open_engine(model, adapters, 2, NULL);
    dsmoe_sequence *sequences[4];
    for (int i = 0; i < 4; i++)
        must(dsmoe_sequence_begin_adapted(engine, NULL, 0, scales[i], &sequences[i], &error),
             &error, "a sequence");
    for (int step = 0; step < 3; step++) { /* rows of all sequences in each pass */
        dsmoe_turn turns[4];
        for (int i = 0; i < 4; i++)
            turns[i] = (dsmoe_turn){.sequence = sequences[i],
                                    .tokens = tokens[i] + 6 * step,
                                    .n_tokens = step < 2 ? 6 : 8};
        must(dsmoe_engine_forward(engine, turns, 4, &error), &error, "a pass");
    }
    for (int i = 0; i < 4; i++) decode(sequences[i], 7, together[i]);
    dsmoe_engine_free(engine);
    for (int i = 0; i < 4; i++) {
        dsmoe_sequence *sequence;
        engine = open_engine(model, adapters, 2, scales[i]);
        must(dsmoe_sequence_create(engine, &sequence, &error), &error, "a sequence");
        prefill(sequence, tokens[i], 20, NULL);
        decode(sequence, 7, alone);
        if (worst_distance(together[i], alone, 61) > 1e-5) fail_msg("text %d", i);
        dsmoe_engine_free(engine);
    }
    for (int i = 0; i < 2; i++) dsmoe_adapter_free(adapters[i]);
    dsmoe_model_free(model);
    made_adapter_free(&one);
    made_adapter_free(&two);
    made_model_free(&base);
}

/* Sequences share pages only if their tokens and their adapters are the same. */
static void test_pages(void **state)
{
    (void)state;
    made_model base = base_folder("base");
    made_adapter made = adapter_folder("adapter", &base, "self_attn", false, 6);
    dsmoe_model *model = open_model(in_directory("base"));
    dsmoe_adapter *lora = open_adapter("adapter", model);
    int32_t tokens[150];
    static const struct {
        double scale;
        int64_t found;
    } texts[] = {{1, 0}, {1, 128}, {0, 0}, {0, 128}, {0.5, 0}, {1, 128}, {0.5, 128}};
    dsmoe_error error = {0};
    made_tokens(&base, tokens, 150, 9);
    dsmoe_engine *engine = open_engine(model, &lora, 1, NULL);
    for (size_t i = 0; i < COUNT(texts); i++) {
        dsmoe_sequence *sequence, *fork;
        must(dsmoe_sequence_begin_adapted(engine, tokens, 150, &texts[i].scale, &sequence, &error),
             &error, "a sequence");
        int64_t found = dsmoe_sequence_length(sequence);
        if (found != texts[i].found) fail_msg("text %zu: %lld tokens found", i, (long long)found);
        prefill(sequence, tokens + found, 150 - found, NULL);
        must(dsmoe_sequence_fork(sequence, 150, &fork, &error), &error, "a fork");
        float a[61], b[61];
        decode(sequence, 5, a);
        decode(fork, 5, b);
        assert_same_bits(a, b, 61, "a fork has the adapters of its text");
        dsmoe_sequence_free(sequence);
        dsmoe_sequence_free(fork);
    }
    /* a hundred combinations: the oldest are forgotten and none are confused */
    for (int i = 0; i < 100; i++) {
        dsmoe_sequence *sequence;
        double factor = 2 + i;
        must(dsmoe_sequence_begin_adapted(engine, tokens, 150, &factor, &sequence, &error), &error,
             "a sequence");
        assert_int_equal(dsmoe_sequence_length(sequence), 0);
        dsmoe_sequence_free(sequence);
    }
    double not_a_number = NAN;
    dsmoe_sequence *none;
    assert_int_equal(dsmoe_sequence_begin_adapted(engine, tokens, 2, &not_a_number, &none, &error),
                     DSMOE_ERROR_ARGUMENT);
    dsmoe_engine_free(engine);
    dsmoe_adapter_free(lora);
    dsmoe_model_free(model);
    made_adapter_free(&made);
    made_model_free(&base);
}

/* ---- files ------------------------------------------------------------------------------------ */

static void assert_same_adapter(const char *name, const made_adapter *made)
{
    char path_of[600];
    safetensors *file;
    dsmoe_error error = {0};
    snprintf(path_of, sizeof path_of, "%s/adapter_model.safetensors", in_directory(name));
    must(safetensors_open(path_of, &file, &error), &error, name);
    assert_int_equal(safetensors_count(file), 2 * made->n_pairs);
    for (int i = 0; i < made->n_pairs; i++) {
        const made_pair *p = &made->pairs[i];
        for (int half = 0; half < 2; half++) {
            char tensor_name[200];
            snprintf(tensor_name, sizeof tensor_name, "base_model.model.%s.lora_%c.weight",
                     p->module, "AB"[half]);
            const safetensors_tensor *t = safetensors_find(file, tensor_name);
            if (!t) fail_msg("%s is missing", tensor_name);
            assert_int_equal(t->shape[0], half ? p->n_out : p->rank);
            assert_int_equal(t->shape[1], half ? p->rank : p->n_in);
            assert_memory_equal(t->data, half ? p->b : p->a, t->size);
        }
    }
    safetensors_close(file);
}

/* PEFT's folder to a GGUF file and back, with a base model in either form: the same numbers under the same
 * names. */
static void test_round_trip(void **state)
{
    (void)state;
    made_model base = base_folder("base");
    made_adapter lora = adapter_folder("adapter", &base, "_proj", false, 8);
    convert_to("base", "base.gguf", NULL);
    convert_adapter("base", "adapter", "one.gguf");
    convert_adapter("base.gguf", "one.gguf", "again");
    assert_same_adapter("again", &lora);
    convert_adapter("base.gguf", "again", "two.gguf");
    size_t size, other_size;
    unsigned char *one = read_data("one.gguf", &size), *two = read_data("two.gguf", &other_size);
    assert_int_equal(size, other_size);
    assert_memory_equal(one, two, size);
    free(one);
    free(two);
    dsmoe_error error = {0};
    gguf *file;
    must(gguf_open(in_directory("one.gguf"), &file, &error), &error, "one.gguf");
    double alpha = 0;
    must(gguf_get_float(file, "adapter.lora.alpha", &alpha, NULL, &error), &error, "alpha");
    assert_true(alpha == scale * RANK);
    const gguf_tensor *stacked = gguf_find(file, "blk.1.ffn_down_exps.weight.lora_b");
    assert_non_null(stacked);
    assert_int_equal(stacked->n_dims, 3);
    assert_int_equal(stacked->shape[0], 7);
    assert_int_equal(stacked->shape[1], 42);
    assert_int_equal(stacked->shape[2], RANK);
    gguf_close(file);
    made_adapter_free(&lora);
    made_model_free(&base);
}

/* Experts without an adapter are zeros in the GGUF stack and are left out again on the way back. Ranks and
 * factors differ. */
static void test_uneven_experts(void **state)
{
    (void)state;
    static const char *const some[] = {"layers.1.mlp.experts.2.", "layers.2.mlp.experts.6.up",
                                       "layers.2.mlp.experts.0.up"};
    made_model base = base_folder("base");
    made_adapter lora = made_adapter_create(&base, some, 3, RANK, scale, false, 12);
    make_folder("adapter");
    made_pair *last = &lora.pairs[lora.n_pairs - 1];
    made_adapter wide = made_adapter_create(&base, some + 1, 1, 5, 0.125, false, 13);
    free(last->a);
    free(last->b);
    *last = wide.pairs[0];
    free(wide.pairs);
    made_adapter_write(&lora, in_directory("adapter"),
                       "{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 1.5, \"rank_pattern\": "
                       "{\"layers.2.mlp.experts.6.up_proj\": 5}, \"alpha_pattern\": "
                       "{\"experts\\\\.6\\\\.up_proj\": 0.625}, \"target_modules\": "
                       "\".*experts.*\"}");
    convert_adapter("base", "adapter", "adapter.gguf");
    dsmoe_model *model = open_model(in_directory("base"));
    dsmoe_adapter *read = open_adapter("adapter.gguf", model);
    assert_int_equal(dsmoe_adapter_get_info(read).n_matrices, lora.n_pairs);
    assert_int_equal(dsmoe_adapter_get_info(read).rank, 5);
    dsmoe_adapter_free(read);
    dsmoe_model_free(model);
    floats peft = run("base", "adapter", 1), stacked = run("base", "adapter.gguf", 1);
    assert_true(distance(peft, stacked) < 1e-5);
    made_adapter_merge(&lora, &base, 1);
    make_folder("merged");
    made_model_write(&base, in_directory("merged"), false);
    floats merged = run("merged", NULL, 1);
    assert_true(distance(peft, merged) < 1e-5);
    floats_free(peft);
    floats_free(stacked);
    floats_free(merged);
    made_adapter_free(&lora);
    made_model_free(&base);
}

/* A table by matrix number, as a trainer has it, for a model from a folder and from a GGUF file. */
static void test_table_to_folder(void **state)
{
    (void)state;
    made_model base = base_folder("base");
    made_adapter lora = adapter_folder("adapter", &base, "_proj", false, 14);
    convert_to("base", "base.gguf", NULL);
    static const char *const bases[] = {"base", "base.gguf"};
    for (int i = 0; i < 2; i++) {
        dsmoe_model *model = open_model(in_directory(bases[i]));
        dsmoe_adapter *read = open_adapter("adapter", model);
        peft_words words = {.base = "the/base", .lora_dropout = 0.1, .use_rslora = true};
        dsmoe_error error = {0};
        const char *name = i ? "two" : "one";
        must(peft_write_table(&read->table, model, in_directory(name), &words, &error), &error,
             "a folder");
        assert_same_adapter(name, &lora);
        dsmoe_adapter *again = open_adapter(name, model);
        for (int64_t j = 0; j < read->n_items; j++)
            assert_true(fabsf(again->items[j].scale - (float)scale) < 1e-6f);
        dsmoe_adapter_free(again);
        dsmoe_adapter_free(read);
        dsmoe_model_free(model);
    }
    made_adapter_free(&lora);
    made_model_free(&base);
}

static void write_as(const char *from, const char *to, const dsmoe_model *model, dsmoe_dtype dtype)
{
    dsmoe_error error = {0};
    peft_words words = {.dtype = dtype};
    dsmoe_adapter *read = open_adapter(from, model);
    must(peft_write_table(&read->table, model, in_directory(to), &words, &error), &error, to);
    dsmoe_adapter_free(read);
}

static void assert_same_files(const char *one, const char *two)
{
    size_t size, other_size;
    unsigned char *bytes = read_data(one, &size), *others = read_data(two, &other_size);
    assert_int_equal(size, other_size);
    assert_memory_equal(bytes, others, size);
    free(bytes);
    free(others);
}

/* 16-bit numbers stay 16-bit in memory and in both forms of files, and give the same results as the same
 * numbers in float32. */
static void check_type(dsmoe_dtype type)
{
    make_folder("half");
    make_folder("wide");
    dsmoe_model *model = open_model(in_directory("base.gguf"));
    write_as("adapter", "half", model, type);
    write_as("half", "wide", model, DSMOE_F32);
    convert_adapter("base.gguf", "half", "half.gguf");
    convert_adapter("base", "half.gguf", "again");
    assert_same_files("half/adapter_model.safetensors", "again/adapter_model.safetensors");
    static const char *const forms[] = {"half", "half.gguf"};
    floats wide = run("base.gguf", "wide", 1);
    for (int i = 0; i < 2; i++) {
        dsmoe_adapter *read = open_adapter(forms[i], model);
        for (int64_t j = 0; j < read->n_items; j++)
            assert_true(read->items[j].a_type == type && read->items[j].b_type == type);
        dsmoe_adapter_free(read);
        floats half = run("base.gguf", forms[i], 1);
        assert_memory_equal(half.at, wide.at, (size_t)wide.n * sizeof(float));
        floats_free(half);
    }
    merge_to("base", "half", 1, "merged", NULL);
    floats merged = run("merged", NULL, 1);
    assert_true(distance(wide, merged) < 1e-5);
    floats_free(merged);
    floats_free(wide);
    dsmoe_model_free(model);
}

static void test_types(void **state)
{
    static const dsmoe_dtype types[] = {DSMOE_F16, DSMOE_BF16};
    for (int i = 0; i < 2; i++) {
        made_model base = base_folder("base");
        made_adapter lora = adapter_folder("adapter", &base, "_proj", false, 15);
        convert_to("base", "base.gguf", NULL);
        check_type(types[i]);
        made_adapter_free(&lora);
        made_model_free(&base);
        if (i == 0) empty_directory(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_unmerged_is_merged),
        TEST(test_zeros_are_the_base),
        TEST(test_base_of_gguf),
        TEST(test_many_adapters_in_one_pass),
        TEST(test_pages),
        TEST(test_round_trip),
        TEST(test_uneven_experts),
        TEST(test_table_to_folder),
        TEST(test_types),
    };
    return cmocka_run_group_tests(tests, NULL, small_tokenizer_teardown);
}
