/* test_convert_hostile.c - conversions that fail: what is refused, and what is left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "conversions.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "made_gguf.h"
#include "made_model.h"
#include "progress_watch.h"
#include "scratch.h"
#include "support.h"
#include "tiny_run.h"

/* ---- refusals -------------------------------------------------------------------------------- */

static void refused(const char *from, const char *to, const dsmoe_convert_options *options,
                    dsmoe_status status, const char *word)
{
    dsmoe_error error = {0};
    int before = count_files();
    assert_int_equal(dsmoe_convert(from, to, options, &error), status);
    if (!strstr(error.message, word)) fail_msg("no '%s' in: %s", word, error.message);
    assert_int_equal(count_files(), before);
}

static void refused_config(const dsmoe_config *config, const char *word)
{
    init(in("bad"), config, DSMOE_F32);
    refused(in("bad"), in("b.gguf"), NULL, DSMOE_ERROR_CONFIG, word);
    tiny_remove(in("bad"));
}

static void test_inexpressible(void **state)
{
    (void)state;
    dsmoe_config config = small();
    config.norm_topk_prob = true;
    refused_config(&config, "norm_topk_prob");
    config = small();
    config.routed_scaling_factor = 2;
    refused_config(&config, "routed_scaling_factor");
    config = small();
    config.attention_bias = true;
    refused_config(&config, "attention_bias");
    config = small();
    config.moe_layer_freq = 2;
    refused_config(&config, "moe_layer_freq");
    config = small();
    config.rope_scaling = DSMOE_ROPE_DYNAMIC;
    refused_config(&config, "dynamic rope_scaling");
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_model_init_gguf(in("b.gguf"), &config, NULL, 0, NULL, &error),
                     DSMOE_ERROR_CONFIG);
    assert_int_equal(count_files(), 0);
}

static void test_refusals(void **state)
{
    (void)state;
    dsmoe_config config = small();
    init(in("a"), &config, DSMOE_F32);
    convert(in("a"), in("q.gguf"), "q8_0");
    static const dsmoe_convert_options q8 = {.type = "q8_0"}, none = {.type = "q3"},
                                       with = {.type = "f16", .imatrix = "x"},
                                       lost = {.type = "q8_0", .imatrix = "/nowhere/x"},
                                       threads = {.n_threads = -1};
    const dsmoe_status bad = DSMOE_ERROR_ARGUMENT, io = DSMOE_ERROR_IO;
    refused(in("a"), in("b"), &q8, bad, ".gguf");
    refused(in("a"), in("b.gguf"), &none, bad, "q4_k_m");
    refused(in("a"), in("b.gguf"), &with, bad, "block types");
    refused(in("a"), in("b.gguf"), &lost, io, "/nowhere/x");
    refused(in("a"), in("b.gguf"), &threads, bad, "threads");
    refused(in("q.gguf"), in("b"), NULL, bad, "choose a type");
    refused(in("nothing"), in("b.gguf"), NULL, io, "nothing");
    refused(in("a"), tiny_path(in("no"), "b.gguf"), NULL, io, "no/b.gguf");
    refused(NULL, in("b.gguf"), NULL, bad, "");
    refused(in("a"), "", NULL, bad, "");
    /* Existing files stay as they are, above all the source. */
    size_t before, after;
    char *bytes = tiny_read(in("q.gguf"), &before);
    refused(in("a"), in("q.gguf"), NULL, io, "already");
    refused(in("q.gguf"), in("q.gguf"), &q8, io, "inputs");
    refused(in("a"), in("a"), NULL, io, "already");
    char *again = tiny_read(in("q.gguf"), &after);
    assert_int_equal(before, after);
    assert_memory_equal(bytes, again, before);
    free(bytes);
    free(again);
    REMOVE("a", "q.gguf");
}

/* A model in two files, the last norm in the second one. */
static void write_split(const made_model *made, const char *first, const char *second)
{
    static const char name[] = "output_norm.weight";
    dsmoe_error error = {0};
    gguf *whole;
    made_gguf_write(made, first, NULL);
    must(gguf_open(first, &whole, &error), &error, first);
    const made_key keys[] = {{"split.no", MADE_U32, 0, NULL},
                             {"split.count", MADE_U32, 2, NULL},
                             {"split.tensors.count", MADE_U32, (double)gguf_count(whole), NULL}};
    gguf_close(whole);
    made_gguf_options options = {.left_out = name, .keys = keys, .n_keys = COUNT(keys)};
    made_gguf_write(made, first, &options);
    const made_tensor *norm = made_model_find(made, "model.norm.weight");
    gguf_writer *writer;
    must(gguf_writer_create(second, &writer, &error), &error, second);
    gguf_writer_u32(writer, "split.no", 1);
    gguf_writer_u32(writer, "split.count", 2);
    must(gguf_writer_declare(writer, name, DSMOE_F32, 1, &norm->n, &error), &error, second);
    must(gguf_writer_write(writer, norm->data, (size_t)norm->n * sizeof *norm->data, &error),
         &error, second);
    must(gguf_writer_finish(writer, &error), &error, second);
}

/* Every part of a split model is an input, whichever part is named. */
static void test_parts(void **state)
{
    (void)state;
    static const char *const parts[] = {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"};
    dsmoe_config config = small();
    made_model made = made_model_create(&config, "F32", 3);
    write_split(&made, in(parts[0]), in(parts[1]));
    const dsmoe_convert_options force = {.type = "q8_0", .n_threads = 2, .replace = true};
    for (int from = 0; from < 2; from++)
        for (int to = 0; to < 2; to++)
            refused(in(parts[from]), in(parts[to]), &force, DSMOE_ERROR_IO, "inputs");
    convert(in(parts[1]), in("whole.gguf"), NULL); /* both parts are intact */
    made_model_free(&made);
}

/* NaN cannot be quantised; a float type keeps it. */
static void test_nonfinite(void **state)
{
    (void)state;
    dsmoe_config config = blocky();
    made_model made = made_model_create(&config, "F32", 3);
    made_tensor *up = made_model_find(&made, "model.layers.2.mlp.experts.4.up_proj.weight");
    up->data[17 * 256 + 5] = NAN;
    up->data[40 * 256] = INFINITY;
    assert_int_equal(mkdir(in("a"), 0777), 0);
    made_model_write(&made, in("a"), false);
    static const char *const types[] = {"q8_0", "q4_0", "q5_0", "q5_1",
                                        "q4_k", "q5_k", "q6_k", "q4_k_m"};
    for (size_t i = 0; i < COUNT(types); i++) {
        dsmoe_convert_options options = {.type = types[i], .n_threads = 3};
        refused(in("a"), in("b.gguf"), &options, DSMOE_ERROR_NONFINITE,
                "row 17 of model.layers.2.mlp.experts.4.up_proj.weight");
    }
    convert(in("a"), in("b.gguf"), NULL);
    convert(in("b.gguf"), in("c"), "bf16");
    tiny_remove(in("b.gguf"));
    tiny_remove(in("c"));
    up->data[17 * 256 + 5] = 65519;
    up->data[40 * 256] = 65520;
    made_model_remove(in("a"));
    made_model_write(&made, in("a"), false);
    dsmoe_convert_options options = {.type = "f16", .n_threads = 2};
    refused(in("a"), in("b.gguf"), &options, DSMOE_ERROR_NONFINITE, "row 40 of");
    refused(in("a"), in("b"), &options, DSMOE_ERROR_NONFINITE, "row 40 of");
    made_model_free(&made);
    REMOVE("a");
}

/* ---- what a failure leaves ------------------------------------------------------------------- */

static void test_stop(void **state)
{
    (void)state;
    dsmoe_config config = small();
    init(in("a"), &config, DSMOE_F32);
    copy_file(TEST_DATA "/text_cli/tokenizer.json", tiny_path(in("a"), "tokenizer.json"));
    const char *targets[] = {"b.gguf", "c"};
    for (size_t i = 0; i < COUNT(targets); i++) {
        progress_watch w = {0};
        dsmoe_convert_options options = {
            .n_threads = 2, .progress = watch_progress, .context = &w, .type = "bf16"};
        dsmoe_error error = {0};
        must(dsmoe_convert(in("a"), in(targets[i]), &options, &error), &error, targets[i]);
        assert_true(w.done == w.total && w.total > 1e5);
        tiny_remove(in(targets[i]));
        int n_calls = w.calls;
        for (int stop_at = 1; stop_at <= n_calls; stop_at += n_calls / 5) {
            w = (progress_watch){.stop_at = stop_at};
            refused(in("a"), in(targets[i]), &options, DSMOE_ERROR_STOPPED, "stopped");
        }
    }
    REMOVE("a");
}

static void test_full_disk(void **state)
{
    (void)state;
    dsmoe_config config = small();
    init(in("a"), &config, DSMOE_F32);
    struct rlimit before, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    static const rlim_t limits[] = {10, 5000, 100000};
    for (size_t i = 0; i < COUNT(limits) * 2; i++) {
        tight = before;
        tight.rlim_cur = limits[i / 2];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
        dsmoe_error error = {0};
        dsmoe_status status = dsmoe_convert(in("a"), in(i % 2 ? "b.gguf" : "b"), NULL, &error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(status, DSMOE_ERROR_IO);
        assert_non_null(strstr(error.message, strerror(EFBIG)));
        assert_int_equal(count_files(), 1);
    }
    REMOVE("a");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, clean_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_inexpressible), TEST(test_refusals), TEST(test_parts),
        TEST(test_nonfinite),     TEST(test_stop),     TEST(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
