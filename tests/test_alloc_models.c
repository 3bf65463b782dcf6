/* test_alloc_models.c - running out of memory while models and their texts are read and written. */
#include "alloc_failures.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/gguf_writer.h"
#include "model/init.h"

/* ---- a model and its parts ------------------------------------------------------------------ */

static const char *model_path;
static dsmoe_model *model;

static dsmoe_status open_model(dsmoe_error *error)
{
    dsmoe_model *made = NULL;
    dsmoe_status status = dsmoe_model_open(model_path, &made, error);
    assert_true((status == DSMOE_OK) == (made != NULL));
    dsmoe_model_free(made);
    return status;
}

static dsmoe_status make_engine(dsmoe_error *error)
{
    dsmoe_engine *made = NULL;
    dsmoe_engine_options options = {.n_ctx = 100, .n_threads = 2};
    dsmoe_status status = dsmoe_engine_create(model, &options, &made, error);
    assert_true((status == DSMOE_OK) == (made != NULL));
    dsmoe_engine_free(made);
    return status;
}

static dsmoe_status make_sampler(dsmoe_error *error)
{
    dsmoe_sampler *made = NULL;
    dsmoe_sampler_options options = dsmoe_sampler_options_default();
    dsmoe_status status = dsmoe_sampler_create(&options, 1000, &made, error);
    assert_true((status == DSMOE_OK) == (made != NULL));
    dsmoe_sampler_free(made);
    return status;
}

static dsmoe_status verify_folder(dsmoe_error *error)
{
    bool all_ok;
    dsmoe_status status =
        dsmoe_verify_model_folder(model_path, 1e-3, 1, NULL, NULL, &all_ok, error);
    assert_true(all_ok == (status == DSMOE_OK));
    return status;
}

static char directory[] = "/tmp/dsmoe-alloc-XXXXXX";

/* Removes the files in the scratch folder; returns their number. */
static int remove_files(void)
{
    DIR *list = opendir(directory);
    assert_non_null(list);
    int n = 0;
    for (struct dirent *entry; (entry = readdir(list));) {
        char name[600];
        snprintf(name, sizeof name, "%s/%s", directory, entry->d_name);
        n += unlink(name) == 0;
    }
    closedir(list);
    return n;
}

static void another_directory(void)
{
    memset(directory + sizeof directory - 7, 'X', 6);
    assert_non_null(mkdtemp(directory));
}

/* Writes a few tensors as shards; a failure leaves no file behind. */
static dsmoe_status write_model(dsmoe_error *error)
{
    dsmoe_config small;
    init_options options = {.dtype = DSMOE_BF16, .n_threads = 1, .shard_size = 40000};
    assert_int_equal(dsmoe_config_preset("tiny", &small, NULL), DSMOE_OK);
    small.vocab_size = small.hidden_size = small.intermediate_size = 32;
    small.num_hidden_layers = 2;
    small.n_routed_experts = small.num_experts_per_tok = 3;
    dsmoe_status status = init_folder(directory, &small, &options, error);
    int n_files = remove_files();
    assert_true(status == DSMOE_OK ? n_files > 5 : n_files == 0);
    return status;
}

static void test_model_failures(void **state)
{
    (void)state;
    static const char *const folders[] = {TEST_DATA "/lm/base", TEST_DATA "/lm/sharded"};
    for (size_t i = 0; i < COUNT(folders); i++) {
        model_path = folders[i];
        check_failures("dsmoe_model_open", open_model, ALLOC_IO);
    }
    assert_int_equal(dsmoe_model_open(model_path, &model, NULL), DSMOE_OK);
    check_failures("dsmoe_engine_create", make_engine, ALLOC_MEMORY);
    check_failures("dsmoe_verify_model_folder", verify_folder, ALLOC_IO);
    dsmoe_model_free(model);
    check_failures("dsmoe_sampler_create", make_sampler, ALLOC_MEMORY);
    another_directory();
    check_failures("init_folder", write_model, ALLOC_IO);
    assert_int_equal(rmdir(directory), 0);
}

/* ---- text ----------------------------------------------------------------------------------- */

static const char *tokenizer_path;
static dsmoe_tokenizer *tokenizer;

static dsmoe_status open_tokenizer(dsmoe_error *error)
{
    dsmoe_tokenizer *made = NULL;
    dsmoe_status status = dsmoe_tokenizer_open(tokenizer_path, &made, error);
    assert_true((status == DSMOE_OK) == (made != NULL));
    dsmoe_tokenizer_free(made);
    return status;
}

static dsmoe_status encode_text(dsmoe_error *error)
{
    static const char text[] = "Some text: 12½ ö\n\n你好 </s> \xff.";
    int32_t *ids = NULL;
    size_t n_ids;
    dsmoe_status status =
        dsmoe_tokenizer_encode(tokenizer, text, sizeof text - 1, 0, &ids, &n_ids, error);
    assert_true((status == DSMOE_OK) == (ids != NULL));
    free(ids);
    return status;
}

static dsmoe_status encode_chat(dsmoe_error *error)
{
    static const dsmoe_message messages[] = {{"user", "Hello"}, {"assistant", "Well?"}};
    int32_t *ids = NULL;
    size_t n_ids;
    const dsmoe_chat_form *form;
    assert_int_equal(dsmoe_chat_form_find(tokenizer, "deepseek", &form, NULL), DSMOE_OK);
    dsmoe_status status =
        dsmoe_chat_encode(tokenizer, form, messages, 2, true, &ids, &n_ids, error);
    assert_true((status == DSMOE_OK) == (ids != NULL));
    free(ids);
    return status;
}

static dsmoe_status decode_ids(dsmoe_error *error)
{
    static const int32_t ids[] = {1, 2, 3, 4};
    char *text = NULL;
    size_t length;
    dsmoe_status status = dsmoe_tokenizer_decode(tokenizer, ids, COUNT(ids), &text, &length, error);
    assert_true((status == DSMOE_OK) == (text != NULL));
    free(text);
    return status;
}

static void test_text_failures(void **state)
{
    (void)state;
    tokenizer_path = TEST_DATA "/text_cli";
    check_failures("dsmoe_tokenizer_open", open_tokenizer, ALLOC_IO);
    assert_int_equal(dsmoe_tokenizer_open(TEST_DATA "/text_cli", &tokenizer, NULL), DSMOE_OK);
    check_failures("dsmoe_tokenizer_encode", encode_text, ALLOC_MEMORY);
    check_failures("dsmoe_chat_encode", encode_chat, ALLOC_MEMORY);
    check_failures("dsmoe_tokenizer_decode", decode_ids, ALLOC_MEMORY);
    dsmoe_tokenizer_free(tokenizer);
}

/* ---- GGUF files ------------------------------------------------------------------------------ */

static char fresh[300], other[300]; /* a GGUF file, and the file made from it */

/* A file with keys of all kinds and two tensors; with `count` above 1, one part of that many. */
static dsmoe_status write_gguf(const char *path, uint32_t number, uint32_t count,
                               dsmoe_error *error)
{
    static const int64_t shape[] = {3, 2};
    static const float numbers[6] = {1, 2, 3, 4, 5, 6};
    static const gguf_string words[] = {{"one", 3}, {"two", 3}};
    const char *names[2][2] = {{"a", "b"}, {"c", "d"}};
    gguf_writer *writer = NULL;
    dsmoe_status status = gguf_writer_create(path, &writer, error);
    if (status != DSMOE_OK) return status;
    gguf_writer_f32(writer, "number", 1.5f);
    gguf_writer_bool(writer, "truth", true);
    gguf_writer_strings(writer, "words", words, COUNT(words));
    if (count > 1) {
        gguf_writer_u32(writer, "split.no", number);
        gguf_writer_u32(writer, "split.count", count);
        gguf_writer_u32(writer, "split.tensors.count", 2 * count);
    }
    for (int i = 0; i < 2 && status == DSMOE_OK; i++)
        status = gguf_writer_declare(writer, names[number][i], DSMOE_F32, 2, shape, error);
    for (int i = 0; i < 2 && status == DSMOE_OK; i++)
        status = gguf_writer_write(writer, numbers, sizeof numbers, error);
    if (status == DSMOE_OK) return gguf_writer_finish(writer, error);
    gguf_writer_abandon(writer);
    return status;
}

/* A failure leaves no partial file behind. The whole file may be there if only syncing the folder
 * failed. */
static dsmoe_status write_whole_gguf(dsmoe_error *error)
{
    dsmoe_status status = write_gguf(fresh, 0, 1, error);
    bool is_there = access(fresh, F_OK) == 0;
    assert_true(is_there || status != DSMOE_OK);
    assert_int_equal(remove_files(), is_there);
    return status;
}

static dsmoe_status open_gguf(dsmoe_error *error)
{
    gguf *file = NULL;
    dsmoe_status status = gguf_open(fresh, &file, error);
    assert_true((status == DSMOE_OK) == (file != NULL));
    gguf_close(file);
    return status;
}

static void test_gguf_failures(void **state)
{
    (void)state;
    another_directory();
    snprintf(fresh, sizeof fresh, "%s/whole.gguf", directory);
    check_failures("gguf_writer", write_whole_gguf, ALLOC_IO);
    assert_int_equal(write_gguf(fresh, 0, 1, NULL), DSMOE_OK);
    check_failures("gguf_open", open_gguf, ALLOC_IO);
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(fresh, sizeof fresh, "%s/part-%05u-of-00002.gguf", directory, i + 1);
        assert_int_equal(write_gguf(fresh, i, 2, NULL), DSMOE_OK);
    }
    check_failures("gguf_open of parts", open_gguf, ALLOC_IO);
    assert_int_equal(remove_files(), 3);
    assert_int_equal(rmdir(directory), 0);
}

/* ---- conversions ---------------------------------------------------------------------------- */

static const char *target_type;

static dsmoe_status make_fresh(dsmoe_error *error)
{
    dsmoe_config small;
    dsmoe_convert_options options = {.type = target_type, .n_threads = 1};
    assert_int_equal(dsmoe_config_preset("tiny", &small, NULL), DSMOE_OK);
    small.vocab_size = 270;
    small.hidden_size = small.intermediate_size = 32;
    small.num_hidden_layers = 1;
    small.n_routed_experts = small.num_experts_per_tok = 2;
    remove(fresh);
    dsmoe_status status =
        dsmoe_model_init_gguf(fresh, &small, TEST_DATA "/text_cli", 0, &options, error);
    assert_true((access(fresh, F_OK) == 0) == (status == DSMOE_OK));
    return status;
}

static dsmoe_status convert_fresh(dsmoe_error *error)
{
    dsmoe_convert_options options = {.type = target_type, .n_threads = 1};
    dsmoe_status status = dsmoe_convert(fresh, other, &options, error);
    assert_true((access(other, F_OK) == 0) == (status == DSMOE_OK));
    static const char *const files[] = {"config.json", "generation_config.json",
                                        "model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json"};
    for (size_t i = 0; i < COUNT(files); i++) {
        char name[400];
        snprintf(name, sizeof name, "%s/%s", other, files[i]);
        remove(name);
    }
    remove(other);
    return status;
}

static dsmoe_status make_imatrix(dsmoe_error *error)
{
    static const int32_t tokens[] = {1, 2, 3};
    dsmoe_imatrix_options options = {.n_threads = 1};
    dsmoe_status status = dsmoe_imatrix_make(model, tokens, COUNT(tokens), &options, other, error);
    if (status == DSMOE_OK) assert_int_equal(access(other, F_OK), 0);
    remove(other);
    return status;
}

static dsmoe_status compare_models(dsmoe_error *error)
{
    static const int32_t tokens[] = {1, 2, 3, 4, 5};
    dsmoe_comparison comparison;
    return dsmoe_model_compare(model, model, tokens, COUNT(tokens), 3, 1, NULL, NULL, &comparison,
                               error);
}

static void test_convert_failures(void **state)
{
    (void)state;
    another_directory();
    snprintf(fresh, sizeof fresh, "%s/fresh.gguf", directory);
    target_type = "q8_0";
    check_failures("dsmoe_model_init_gguf", make_fresh, ALLOC_IO);
    model_path = fresh;
    check_failures("dsmoe_model_open of blocks", open_model, ALLOC_OPTIONAL);
    target_type = "f16";
    assert_int_equal(make_fresh(NULL), DSMOE_OK);
    check_failures("dsmoe_model_open of a file", open_model, ALLOC_IO);
    tokenizer_path = fresh;
    check_failures("dsmoe_tokenizer_open of a file", open_tokenizer, ALLOC_IO);
    snprintf(other, sizeof other, "%s/other.gguf", directory);
    target_type = "q4_0";
    check_failures("dsmoe_convert to a file", convert_fresh, ALLOC_IO);
    assert_int_equal(dsmoe_model_open(fresh, &model, NULL), DSMOE_OK);
    check_failures("dsmoe_imatrix_make", make_imatrix, ALLOC_IO);
    check_failures("dsmoe_model_compare", compare_models, ALLOC_MEMORY);
    dsmoe_model_free(model);
    snprintf(other, sizeof other, "%s/other", directory);
    target_type = "bf16";
    check_failures("dsmoe_convert to a folder", convert_fresh, ALLOC_IO);
    assert_int_equal(remove(fresh), 0);
    assert_int_equal(rmdir(directory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_failures),
        cmocka_unit_test(test_text_failures),
        cmocka_unit_test(test_gguf_failures),
        cmocka_unit_test(test_convert_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
