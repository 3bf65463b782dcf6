/* test_octets.c - copies of weights in the kernels' order: kept while there is memory, never made if the
 * weights are to be shared, reported, and without effect on results. */
#include "support.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "made_gguf.h"
#include "model/model.h"
#include "scratch.h"

enum { N_TOKENS = 9, VOCAB_MAX = 512 };

static made_model made;
static int32_t tokens[N_TOKENS];

/* Sizes that quantised blocks divide. */
static int set_up(void **state)
{
    if (made_gguf_set_up(state)) return -1;
    dsmoe_config c = made_config();
    c.num_hidden_layers = 2;
    c.hidden_size = c.intermediate_size = c.moe_intermediate_size = 256;
    c.num_attention_heads = c.num_key_value_heads = 4;
    made = made_model_create(&c, "F32", 2);
    made_gguf_write(&made, made_file, &(made_gguf_options){.type = DSMOE_Q4_K, .has_type = true});
    made_tokens(&made, tokens, N_TOKENS, 7);
    return c.vocab_size <= VOCAB_MAX ? 0 : -1;
}

static int tear_down(void **state)
{
    made_model_free(&made);
    return made_gguf_tear_down(state);
}

static dsmoe_model *open_with(const dsmoe_model_options *options)
{
    dsmoe_model *model;
    dsmoe_error error = {0};
    must(dsmoe_model_open_with(made_file, options, &model, &error), &error, "opening");
    return model;
}

/* Logits after the last token, with one token per pass. Copies are made from the second use. */
static void run(const dsmoe_model *model, int from, int to, float *logits)
{
    dsmoe_sequence *sequence = make_sequence(model, N_TOKENS, 0, 2);
    for (int i = from; i < to; i++) decode(sequence, tokens[i], logits);
    free_sequence(sequence);
}

static void assert_as_shared(const dsmoe_model *model, const char *what)
{
    float shared[VOCAB_MAX], own[VOCAB_MAX];
    dsmoe_model *shared_model = open_with(&(dsmoe_model_options){.share_weights = true});
    run(shared_model, 0, N_TOKENS, shared);
    run(model, 0, N_TOKENS, own);
    assert_same_bits(own, shared, (size_t)made.config.vocab_size, what);
    dsmoe_model_free(shared_model);
}

static size_t file_size(void)
{
    struct stat info;
    assert_int_equal(stat(made_file, &info), 0);
    return (size_t)info.st_size;
}

static void test_kept(void **state)
{
    (void)state;
    float logits[VOCAB_MAX];
    dsmoe_model *model = open_with(NULL);
    dsmoe_model_memory memory = dsmoe_model_memory_size(model);
    assert_int_equal(memory.mapped, file_size());
    assert_int_equal(memory.copied, 0);
    assert_in_range(memory.copied_most, file_size() / 2, file_size());
    run(model, 0, 1, logits);
    assert_int_equal(dsmoe_model_memory_size(model).copied, 0); /* made at the second use */
    for (int i = 0; i < 3; i++) run(model, 0, N_TOKENS, logits);
    memory = dsmoe_model_memory_size(model);
    assert_in_range(memory.copied, 1, memory.copied_most);
    assert_as_shared(model, "octets");
    /* A probe of this model uses the same copies. */
    dsmoe_model *probed;
    must(dsmoe_model_probe(model, &(dsmoe_probe){0}, &probed, NULL), NULL, "a probe");
    dsmoe_model_memory lent = dsmoe_model_memory_size(probed);
    assert_memory_equal(&lent, &memory, sizeof lent);
    dsmoe_model_free(probed);
    dsmoe_model_free(model);
}

static void test_shared(void **state)
{
    (void)state;
    float logits[VOCAB_MAX];
    dsmoe_model *model = open_with(&(dsmoe_model_options){.share_weights = true});
    for (int i = 0; i < 3; i++) run(model, 0, N_TOKENS, logits);
    dsmoe_model_memory memory = dsmoe_model_memory_size(model);
    assert_int_equal(memory.mapped, file_size());
    assert_int_equal(memory.copied, 0);
    assert_int_equal(memory.copied_most, 0);
    dsmoe_model_free(model);
}

/* ---- memory that fills up ------------------------------------------------------------------- */

static uint64_t now_available;
static atomic_int n_asked;

static uint64_t say_available(void)
{
    n_asked++;
    return now_available;
}

static dsmoe_model *open_with_available(uint64_t bytes)
{
    dsmoe_model *model = open_with(NULL);
    model->octets.budget.available = say_available;
    now_available = bytes;
    n_asked = 0;
    return model;
}

/* There is enough memory when the model is opened, but too little when copies would be made. */
static void test_full(void **state)
{
    (void)state;
    float logits[VOCAB_MAX];
    dsmoe_model *model = open_with_available(UINT64_MAX);
    now_available = dsmoe_model_memory_size(model).copied_most;
    for (int i = 0; i < 3; i++) run(model, 0, N_TOKENS, logits);
    assert_int_equal(dsmoe_model_memory_size(model).copied, 0);
    assert_int_equal(n_asked, 1); /* the answer is reused for hundreds of megabytes */
    assert_as_shared(model, "no octets");
    dsmoe_model_free(model);
}

/* Existing copies are kept and count as available memory, as they need no more. */
static void test_fills_up(void **state)
{
    (void)state;
    float logits[VOCAB_MAX];
    dsmoe_model *model = open_with_available(UINT64_MAX);
    run(model, 0, 2, logits);
    run(model, 0, 2, logits);
    size_t some = dsmoe_model_memory_size(model).copied;
    size_t most = dsmoe_model_memory_size(model).copied_most;
    assert_in_range(some, 1, most - 1);
    model->octets.budget.holds_for = 0; /* as if hundreds of megabytes had been copied since */
    now_available = 0;
    for (int i = 0; i < 3; i++) run(model, 0, N_TOKENS, logits);
    assert_int_equal(dsmoe_model_memory_size(model).copied, some);
    assert_int_equal(n_asked, 2);
    assert_as_shared(model, "some octets");
    dsmoe_model_free(model);

    model = open_with_available(UINT64_MAX);
    run(model, 0, 2, logits);
    run(model, 0, 2, logits);
    model->octets.budget.holds_for = 0;
    now_available = most * 100 / 85 + 1 - some;
    for (int i = 0; i < 3; i++) run(model, 0, N_TOKENS, logits);
    assert_true(dsmoe_model_memory_size(model).copied > some);
    dsmoe_model_free(model);
}

static void test_refused(void **state)
{
    (void)state;
    dsmoe_model *model;
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_model_open_with(NULL, NULL, &model, &error), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_model_open_with(made_file, NULL, NULL, &error), DSMOE_ERROR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),    cmocka_unit_test(test_shared),
        cmocka_unit_test(test_full),    cmocka_unit_test(test_fills_up),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
