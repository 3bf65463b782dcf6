/* test_alloc.c - memory that cannot be had: every allocation of every function that allocates fails
 * once, and each time the function must say so, leave nothing behind and work when called again.
 * And: the passes of a layer allocate nothing at all.
 *
 * The linker sends the library's calls of malloc, mmap and their family through this file (--wrap).
 * jansson, a library of its own, is left out: where it has no memory for the next character of a
 * string it drops that character, and may end in an assertion of its own. */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/init.h"
#include "model/weights.h"

/* ---- counting allocations ------------------------------------------------------------------- */

static long n_allocations;
static size_t n_aligned;  /* bytes of large arrays that were ever asked for */
static long fail_at = -1; /* the number of the allocation that is refused; none if negative */

/* What was handed out and has not come back. Memory that others made, a text of open_memstream say,
 * may come back here as well and does not count. */
enum { MAX_LIVE = 1 << 16 };
static void *handed_out[MAX_LIVE];
static long n_live;

static bool refused(void) { return n_allocations++ == fail_at; }

static void *counted(void *memory)
{
    if (memory && n_live < MAX_LIVE) handed_out[n_live++] = memory;
    return memory;
}

static void returned(const void *memory)
{
    for (long i = n_live; i-- > 0;)
        if (handed_out[i] == memory) {
            handed_out[i] = handed_out[--n_live];
            return;
        }
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *text);
void __real_free(void *memory);
void *__real_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
int __real_munmap(void *memory, size_t size);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
int __wrap_munmap(void *memory, size_t size);

void *__wrap_malloc(size_t size) { return refused() ? NULL : counted(__real_malloc(size)); }

void *__wrap_calloc(size_t count, size_t size)
{
    return refused() ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *memory, size_t size)
{
    if (refused()) return NULL;
    returned(memory);
    return counted(__real_realloc(memory, size));
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    n_aligned += size;
    return refused() ? NULL : counted(__real_aligned_alloc(alignment, size));
}

char *__wrap_strdup(const char *text) { return refused() ? NULL : counted(__real_strdup(text)); }

void __wrap_free(void *memory)
{
    returned(memory);
    __real_free(memory);
}

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    if (refused()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *memory = __real_mmap(at, size, protection, flags, file, offset);
    return memory == MAP_FAILED ? memory : counted(memory);
}

int __wrap_munmap(void *memory, size_t size)
{
    returned(memory);
    return __real_munmap(memory, size);
}

/* ---- failing at every point ----------------------------------------------------------------- */

/* Calls a function and gives back what it made. What maps a file may call that an I/O error. */
typedef dsmoe_status attempt(dsmoe_error *error);

static void check_failures(const char *name, attempt *run, dsmoe_status expected)
{
    dsmoe_error error;
    long live = n_live, n = 0;
    for (;; n++) {
        memset(&error, 0, sizeof error);
        fail_at = n;
        n_allocations = 0;
        dsmoe_status status = run(&error);
        bool reached = n_allocations > n;
        fail_at = -1;
        if (n_live != live) fail_msg("%s leaks when allocation %ld fails", name, n);
        if (status != DSMOE_OK && (error.status != status || !error.message[0]))
            fail_msg("%s gives no reason when allocation %ld fails", name, n);
        if (!reached) {
            if (status != DSMOE_OK) fail_msg("%s: %s", name, error.message);
            break;
        }
        if (status != DSMOE_ERROR_MEMORY && status != expected)
            fail_msg("%s, allocation %ld fails: status %d, \"%s\"", name, n, status, error.message);
    }
    if (n == 0) fail_msg("%s allocates nothing", name);
}

static dsmoe_layer_config config;
static dsmoe_layer_weights *weights;

static dsmoe_status make_weights(dsmoe_error *error)
{
    dsmoe_layer_weights *made = NULL;
    dsmoe_status status = dsmoe_layer_weights_create(&config, &made, error);
    assert_true((status == DSMOE_OK) == (made != NULL));
    dsmoe_layer_weights_free(made);
    return status;
}

static dsmoe_status make_layer(dsmoe_error *error)
{
    dsmoe_layer *made = NULL;
    dsmoe_status status = dsmoe_layer_create(&config, weights, &made, error);
    assert_true((status == DSMOE_OK) == (made != NULL));
    dsmoe_layer_free(made);
    return status;
}

static dsmoe_status measure_device_loss(dsmoe_error *error)
{
    float scores[6] = {0.5f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f};
    int32_t topk_idx[2] = {0, 1};
    double loss;
    return dsmoe_device_loss(&config, (dsmoe_routing){scores, topk_idx, NULL}, 1, 2, &loss, error);
}

static dsmoe_status measure_machine(dsmoe_error *error)
{
    dsmoe_machine machine;
    static float memory[(64 << 20) / sizeof(float)];
    return dsmoe_machine_measure(1, 0.01, memory, sizeof memory, &machine, error);
}

static dsmoe_status make_plan(dsmoe_error *error)
{
    dsmoe_plan plan;
    dsmoe_status status = dsmoe_plan_make(16, 2, 4, 1, 2048, 5632, &plan, error);
    dsmoe_plan_free(&plan);
    return status;
}

static dsmoe_status count_combinations(dsmoe_error *error)
{
    char *digits = NULL;
    dsmoe_status status = dsmoe_combinations(64, 8, &digits, error);
    assert_true((status == DSMOE_OK) == (digits != NULL));
    free(digits);
    return status;
}

static dsmoe_status count_no_combinations(dsmoe_error *error)
{
    char *digits = NULL;
    dsmoe_status status = dsmoe_combinations(3, 8, &digits, error);
    assert_true((status == DSMOE_OK) == (digits != NULL));
    free(digits);
    return status;
}

static dsmoe_status read_config(dsmoe_error *error)
{
    dsmoe_config read;
    return dsmoe_config_read(TEST_DATA "/config/deepseek-moe-16b.json", &read, error);
}

static dsmoe_status verify_file(dsmoe_error *error)
{
    bool all_ok;
    dsmoe_status status = dsmoe_verify_layer_file(TEST_DATA "/layer/one_token.safetensors", 1e-5, 1,
                                                  NULL, NULL, &all_ok, error);
    assert_true(all_ok == (status == DSMOE_OK));
    return status;
}

/* ---- a model and its parts ------------------------------------------------------------------ */

static const char *model_folder;
static dsmoe_model *model;
static dsmoe_tokenizer *tokenizer;

static dsmoe_status open_model(dsmoe_error *error)
{
    dsmoe_model *made = NULL;
    dsmoe_status status = dsmoe_model_open(model_folder, &made, error);
    assert_true((status == DSMOE_OK) == (made != NULL));
    dsmoe_model_free(made);
    return status;
}

static dsmoe_status make_session(dsmoe_error *error)
{
    dsmoe_session *made = NULL;
    dsmoe_session_options options = {.n_ctx = 100, .n_threads = 2};
    dsmoe_status status = dsmoe_session_create(model, &options, &made, error);
    assert_true((status == DSMOE_OK) == (made != NULL));
    dsmoe_session_free(made);
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
        dsmoe_verify_model_folder(model_folder, 1e-3, 1, NULL, NULL, &all_ok, error);
    assert_true(all_ok == (status == DSMOE_OK));
    return status;
}

static dsmoe_status open_tokenizer(dsmoe_error *error)
{
    dsmoe_tokenizer *made = NULL;
    dsmoe_status status = dsmoe_tokenizer_open(TEST_DATA "/text_cli", &made, error);
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
    dsmoe_status status = dsmoe_chat_encode(tokenizer, messages, 2, true, &ids, &n_ids, error);
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

static char directory[] = "/tmp/dsmoe-alloc-XXXXXX";

/* The files in that folder, which are removed. */
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

/* Shards of a few tensors; what fails leaves no file behind. */
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
    const dsmoe_status memory = DSMOE_ERROR_MEMORY;
    static const char *const folders[] = {TEST_DATA "/lm/base", TEST_DATA "/lm/sharded"};
    for (size_t i = 0; i < COUNT(folders); i++) {
        model_folder = folders[i];
        check_failures("dsmoe_model_open", open_model, DSMOE_ERROR_IO);
    }
    assert_int_equal(dsmoe_model_open(model_folder, &model, NULL), DSMOE_OK);
    check_failures("dsmoe_session_create", make_session, memory);
    check_failures("dsmoe_verify_model_folder", verify_folder, DSMOE_ERROR_IO);
    dsmoe_model_free(model);
    check_failures("dsmoe_sampler_create", make_sampler, memory);
    assert_non_null(mkdtemp(directory));
    check_failures("init_folder", write_model, DSMOE_ERROR_IO);
    assert_int_equal(rmdir(directory), 0);
}

/* ---- conversions ---------------------------------------------------------------------------- */

static char fresh[300], other[300]; /* a GGUF file, and what it becomes */
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

static void test_convert_failures(void **state)
{
    (void)state;
    memset(directory + sizeof directory - 7, 'X', 6); /* another one */
    assert_non_null(mkdtemp(directory));
    snprintf(fresh, sizeof fresh, "%s/fresh.gguf", directory);
    target_type = "q8_0";
    check_failures("dsmoe_model_init_gguf", make_fresh, DSMOE_ERROR_IO);
    target_type = "f16"; /* opening one of blocks asks for memory that it can do without */
    assert_int_equal(make_fresh(NULL), DSMOE_OK);
    snprintf(other, sizeof other, "%s/other.gguf", directory);
    target_type = "q4_0";
    check_failures("dsmoe_convert to a file", convert_fresh, DSMOE_ERROR_IO);
    assert_int_equal(dsmoe_model_open(fresh, &model, NULL), DSMOE_OK);
    check_failures("dsmoe_imatrix_make", make_imatrix, DSMOE_ERROR_IO);
    dsmoe_model_free(model);
    snprintf(other, sizeof other, "%s/other", directory);
    target_type = "bf16";
    check_failures("dsmoe_convert to a folder", convert_fresh, DSMOE_ERROR_IO);
    assert_int_equal(remove(fresh), 0);
    assert_int_equal(rmdir(directory), 0);
}

static void test_text_failures(void **state)
{
    (void)state;
    const dsmoe_status memory = DSMOE_ERROR_MEMORY;
    check_failures("dsmoe_tokenizer_open", open_tokenizer, DSMOE_ERROR_IO);
    assert_int_equal(dsmoe_tokenizer_open(TEST_DATA "/text_cli", &tokenizer, NULL), DSMOE_OK);
    check_failures("dsmoe_tokenizer_encode", encode_text, memory);
    check_failures("dsmoe_chat_encode", encode_chat, memory);
    check_failures("dsmoe_tokenizer_decode", decode_ids, memory);
    dsmoe_tokenizer_free(tokenizer);
}

/* ---- a trainer ------------------------------------------------------------------------------ */

static dsmoe_config train_config(void)
{
    dsmoe_config small;
    assert_int_equal(dsmoe_config_preset("tiny", &small, NULL), DSMOE_OK);
    small.vocab_size = small.hidden_size = small.intermediate_size = 32;
    small.num_hidden_layers = 2;
    small.first_k_dense_replace = 1;
    small.n_routed_experts = small.num_experts_per_tok = 3;
    return small;
}

static dsmoe_trainer_options train_options(void)
{
    dsmoe_trainer_options options = dsmoe_trainer_options_default();
    options.n_sequences = 2;
    options.sequence_length = 20;
    options.n_threads = 2;
    return options;
}

static dsmoe_status make_trainer(dsmoe_error *error)
{
    dsmoe_trainer *made = NULL;
    dsmoe_config small = train_config();
    dsmoe_trainer_options options = train_options();
    dsmoe_status status = dsmoe_trainer_create(&small, &options, &made, error);
    assert_true((status == DSMOE_OK) == (made != NULL));
    dsmoe_trainer_free(made);
    return status;
}

/* Where there is no memory to find out, there are no sizes. */
static dsmoe_status measure_trainer(dsmoe_error *error)
{
    dsmoe_config small = train_config();
    dsmoe_trainer_options options = train_options();
    dsmoe_trainer_memory m = dsmoe_trainer_memory_size(&small, &options);
    bool known = m.weights > 0;
    assert_true(known == (m.gradients > 0) && known == (m.moments > 0));
    assert_true(known == (m.activations > 0) && known == (m.workspace > 0));
    if (known) return DSMOE_OK;
    *error = (dsmoe_error){DSMOE_ERROR_MEMORY, "no sizes"};
    return DSMOE_ERROR_MEMORY;
}

static void test_trainer_failures(void **state)
{
    (void)state;
    check_failures("dsmoe_trainer_create", make_trainer, DSMOE_ERROR_MEMORY);
    check_failures("dsmoe_trainer_memory_size", measure_trainer, DSMOE_ERROR_MEMORY);
}

/* The five sizes are what is allocated, beside the two tables of where each tensor lies; after that
 * nothing is. */
static void test_trainer_memory(void **state)
{
    (void)state;
    for (int recompute = 0; recompute < 2; recompute++) {
        dsmoe_config small = train_config();
        dsmoe_trainer_options options = train_options();
        int32_t tokens[40] = {1, 2, 3}, targets[40] = {2, 3, -1};
        dsmoe_trainer *trainer;
        options.recompute = recompute;
        n_aligned = 0;
        weights_free(weights_create(&small));
        size_t table = n_aligned;
        dsmoe_trainer_memory m = dsmoe_trainer_memory_size(&small, &options);
        n_aligned = 0;
        assert_int_equal(dsmoe_trainer_create(&small, &options, &trainer, NULL), DSMOE_OK);
        assert_int_equal(n_aligned - 2 * table,
                         m.weights + m.gradients + m.moments + m.activations + m.workspace);
        long before = n_allocations;
        dsmoe_trainer_init(trainer, 1);
        for (int i = 0; i < 4; i++) {
            dsmoe_batch_losses losses;
            dsmoe_update update;
            assert_int_equal(dsmoe_trainer_backward(trainer, tokens, targets, &losses, NULL),
                             DSMOE_OK);
            if (i % 2) assert_int_equal(dsmoe_trainer_update(trainer, 1e-3, &update, NULL), 0);
        }
        assert_int_equal(n_allocations, before);
        dsmoe_trainer_free(trainer);
    }
}

/* ---- a layer and its parts ------------------------------------------------------------------ */

static void test_failures(void **state)
{
    (void)state;
    const dsmoe_status memory = DSMOE_ERROR_MEMORY;
    config = small_config(8, 4, 6, 2, 1);
    assert_int_equal(dsmoe_layer_weights_create(&config, &weights, NULL), DSMOE_OK);
    check_failures("dsmoe_layer_weights_create", make_weights, memory);
    check_failures("dsmoe_layer_create", make_layer, memory);
    check_failures("dsmoe_device_loss", measure_device_loss, memory);
    check_failures("dsmoe_plan_make", make_plan, memory);
    check_failures("dsmoe_combinations", count_combinations, memory);
    check_failures("dsmoe_combinations of none", count_no_combinations, memory);
    check_failures("dsmoe_config_read", read_config, DSMOE_ERROR_IO);
    check_failures("dsmoe_verify_layer_file", verify_file, DSMOE_ERROR_IO);
    check_failures("dsmoe_machine_measure", measure_machine, memory);
    dsmoe_layer_weights_free(weights);
}

/* ---- nothing is allocated while a layer runs ------------------------------------------------ */

static void run_passes(fixture *f)
{
    fixture_infer(f);
    assert_int_equal(
        dsmoe_layer_route(f->layer, f->x, f->n_tokens, (dsmoe_routing){0}, &f->workspace, NULL),
        DSMOE_OK);
    fixture_forward(f);
    fixture_backward(f, false);
}

static void test_passes_allocate_nothing(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        dsmoe_layer_config c = small_config(40, 20, 6, 2, 1);
        c.n_device_groups = 2;
        c.device_loss_alpha = 0.05f;
        fixture f = fixture_make(c, 2, 1500, n_threads, 5);
        run_passes(&f); /* threads start once */
        long before = n_allocations;
        run_passes(&f);
        assert_int_equal(n_allocations, before);
        fixture_free(&f);
    }
}

/* Neither a token nor a prompt, nor choosing what comes next. */
static void test_sessions_allocate_nothing(void **state)
{
    (void)state;
    static const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7};
    dsmoe_session *session;
    dsmoe_sampler *sampler;
    dsmoe_session_options options = {.n_ctx = 100, .n_batch = 5, .n_threads = 2};
    dsmoe_sampler_options sampling = dsmoe_sampler_options_default();
    assert_int_equal(dsmoe_model_open(TEST_DATA "/lm/base", &model, NULL), DSMOE_OK);
    int64_t vocab = dsmoe_model_config(model)->vocab_size;
    assert_int_equal(dsmoe_session_create(model, &options, &session, NULL), DSMOE_OK);
    assert_int_equal(dsmoe_sampler_create(&sampling, vocab, &sampler, NULL), DSMOE_OK);
    float *logits = malloc((size_t)vocab * sizeof *logits);
    assert_non_null(logits);
    long before = n_allocations;
    for (int round = 0; round < 3; round++) {
        int32_t token;
        assert_int_equal(dsmoe_session_prefill(session, tokens, 7, logits, NULL), DSMOE_OK);
        assert_int_equal(dsmoe_sampler_pick(sampler, logits, &token, NULL), DSMOE_OK);
        dsmoe_sampler_accept(sampler, token);
        assert_int_equal(dsmoe_session_decode(session, token, logits, NULL), DSMOE_OK);
    }
    assert_int_equal(n_allocations, before);
    free(logits);
    dsmoe_sampler_free(sampler);
    dsmoe_session_free(session);
    dsmoe_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_model_failures),
        cmocka_unit_test(test_text_failures),
        cmocka_unit_test(test_convert_failures),
        cmocka_unit_test(test_trainer_failures),
        cmocka_unit_test(test_trainer_memory),
        cmocka_unit_test(test_passes_allocate_nothing),
        cmocka_unit_test(test_sessions_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
