/* test_merge.c - models made from a base model and an adapter, or from a base model and some experts. */
#include <stdio.h>
#include <string.h>

#include "adapter_case.h"
#include "formats/gguf.h"

/* ---- merging ---------------------------------------------------------------------------------- */

static void test_merge(void **state)
{
    (void)state;
    made_model base = base_folder("base");
    made_adapter lora = adapter_folder("adapter", &base, "_proj", false, 20);
    convert_to("base", "base.gguf", NULL);
    convert_adapter("base", "adapter", "adapter.gguf");
    merge_to("base", "adapter", 0.75, "merged", NULL);
    merge_to("base.gguf", "adapter.gguf", 0.75, "merged.gguf", NULL);
    merge_to("base.gguf", "adapter", 0.75, "from-gguf", NULL);
    made_adapter_merge(&lora, &base, 0.75);
    made_model merged = made_model_read(in_directory("merged"));
    made_model from_gguf = made_model_read(in_directory("from-gguf"));
    for (int i = 0; i < base.n_tensors; i++) {
        const made_tensor *t = &base.tensors[i];
        const float *ours = made_model_find(&merged, t->name)->data;
        if (worst_distance(ours, t->data, t->n) > 1e-7) fail_msg("%s", t->name);
        assert_same_bits(made_model_find(&from_gguf, t->name)->data, ours, (size_t)t->n, t->name);
    }
    floats right = run("merged", NULL, 1), gguf_logits = run("merged.gguf", NULL, 1);
    floats unmerged = run("base", "adapter", 0.75);
    assert_true(distance(right, gguf_logits) < 1e-5);
    assert_true(distance(right, unmerged) < 1e-5);
    floats_free(right);
    floats_free(gguf_logits);
    floats_free(unmerged);
    made_model_free(&merged);
    made_model_free(&from_gguf);
    made_adapter_free(&lora);
    made_model_free(&base);
}

typedef struct latent_case {
    made_model base;   /* in base and base.gguf */
    made_adapter lora; /* in adapter, for modules with one of the words */
} latent_case;

static latent_case latent_case_make(const char *const *words, int n_words, uint64_t seed)
{
    dsmoe_config config = made_latent_config();
    dsmoe_error error = {0};
    config.mscale = config.mscale_all_dim; /* as in GGUF files */
    must(dsmoe_model_init(in_directory("base"), &config, DSMOE_F32, 3, 2, NULL, NULL, &error),
         &error, "init");
    latent_case c = {.base = made_model_read(in_directory("base"))};
    c.lora = made_adapter_create(&c.base, words, n_words, RANK, scale, false, seed);
    make_folder("adapter");
    made_adapter_write(&c.lora, in_directory("adapter"), NULL);
    convert_to("base", "base.gguf", NULL);
    return c;
}

static void latent_case_free(latent_case *c)
{
    made_adapter_free(&c->lora);
    made_model_free(&c->base);
}

/* Latent attention: kv_b_proj, which a GGUF file holds in two halves, can be adapted only by merging. */
static void test_merge_latent(void **state)
{
    (void)state;
    static const char *const words[] = {"kv_b_proj", "kv_a_proj", "q_b_proj"};
    latent_case c = latent_case_make(words, 3, 21);
    merge_to("base", "adapter", 1, "merged", NULL);
    merge_to("base", "adapter", 1, "merged.gguf", NULL);
    merge_to("base.gguf", "adapter", 1, "from-gguf", NULL);
    merge_to("base.gguf", "adapter", 1, "both.gguf", NULL);
    made_adapter_merge(&c.lora, &c.base, 1);
    made_model merged = made_model_read(in_directory("merged"));
    for (int i = 0; i < c.base.n_tensors; i++) {
        const made_tensor *t = &c.base.tensors[i];
        if (worst_distance(made_model_find(&merged, t->name)->data, t->data, t->n) > 1e-6)
            fail_msg("%s", t->name);
    }
    floats right = run("merged", NULL, 1);
    static const char *const others[] = {"merged.gguf", "from-gguf", "both.gguf"};
    for (int i = 0; i < 3; i++) {
        floats logits = run(others[i], NULL, 1);
        if (distance(right, logits) > 1e-4) fail_msg("%s: %g", others[i], distance(right, logits));
        floats_free(logits);
    }
    dsmoe_model *model = open_model(in_directory("base"));
    dsmoe_adapter *opened = open_adapter("adapter", model);
    const dsmoe_adapter *list[] = {opened};
    dsmoe_engine_options options = {.adapters = list, .n_adapters = 1};
    dsmoe_engine *engine;
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_engine_create(model, &options, &engine, &error), DSMOE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "merge"));
    assert_int_equal(dsmoe_adapter_write(opened, in_directory("no.gguf"), false, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_false(exists("no.gguf"));
    dsmoe_adapter_free(opened);
    dsmoe_model_free(model);
    floats_free(right);
    made_model_free(&merged);
    latent_case_free(&c);
}

/* Latent attention with adapters for the matrices that can be used unmerged. */
static void test_latent_unmerged(void **state)
{
    (void)state;
    static const char *const words[] = {"kv_a_proj", "q_a_proj",    "q_b_proj",
                                        "o_proj",    "mlp.experts", "shared_experts"};
    latent_case c = latent_case_make(words, 6, 22);
    merge_to("base", "adapter", 1, "merged", NULL);
    floats merged = run("merged", NULL, 1), unmerged = run("base", "adapter", 1);
    floats gguf_base = run("base.gguf", "adapter", 1);
    assert_true(distance(merged, unmerged) < 1e-4);
    assert_true(distance(merged, gguf_base) < 1e-4);
    floats_free(merged);
    floats_free(unmerged);
    floats_free(gguf_base);
    latent_case_free(&c);
}

/* A folder with some experts: they replace the base model's experts. The rest keeps its bytes, in a
 * quantised file too. */
static void test_merge_experts(void **state)
{
    (void)state;
    dsmoe_config config = made_config();
    config.hidden_size = 96;
    config.moe_intermediate_size = 32;
    made_model base = made_model_create(&config, "F32", 5);
    make_folder("base");
    made_model_write(&base, in_directory("base"), false);
    convert_to("base", "base.gguf", "q8_0");
    made_model other = made_model_create(&config, "F32", 77), part = other;
    static const char *const kept[] = {"layers.1.mlp.experts.3.", "layers.2.mlp.experts.0."};
    for (int i = 0; i < part.n_tensors; i++)
        part.tensors[i].left_out =
            !strstr(part.tensors[i].name, kept[0]) && !strstr(part.tensors[i].name, kept[1]);
    make_folder("experts");
    made_model_write(&part, in_directory("experts"), false);
    merge_to("base", "experts", 1, "merged", NULL);
    merge_to("base.gguf", "experts", 1, "merged.gguf", NULL);
    made_model merged = made_model_read(in_directory("merged"));
    for (int i = 0; i < base.n_tensors; i++) {
        const made_tensor *right = &(part.tensors[i].left_out ? base : other).tensors[i];
        assert_same_bits(made_model_find(&merged, right->name)->data, right->data, (size_t)right->n,
                         right->name);
    }
    gguf *was, *is;
    dsmoe_error error = {0};
    must(gguf_open(in_directory("base.gguf"), &was, &error), &error, "base.gguf");
    must(gguf_open(in_directory("merged.gguf"), &is, &error), &error, "merged.gguf");
    const gguf_tensor *a = gguf_find(was, "blk.1.ffn_up_exps.weight");
    const gguf_tensor *b = gguf_find(is, "blk.1.ffn_up_exps.weight");
    size_t slice = a->size / 7;
    for (size_t e = 0; e < 7; e++)
        assert_int_equal(!memcmp(a->data + e * slice, b->data + e * slice, slice), e != 3);
    gguf_close(was);
    gguf_close(is);
    dsmoe_convert_options options = {.n_threads = 1};
    assert_int_equal(dsmoe_merge(in_directory("base"), in_directory("experts"), 0.5,
                                 in_directory("no"), &options, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_false(exists("no"));
    made_model_free(&merged);
    made_model_free(&other);
    made_model_free(&base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_merge),
        TEST(test_merge_latent),
        TEST(test_latent_unmerged),
        TEST(test_merge_experts),
    };
    return cmocka_run_group_tests(tests, NULL, small_tokenizer_teardown);
}
