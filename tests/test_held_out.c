/* test_held_out.c - the loss on held-out sequences: against one sequence at a time in double precision,
 * for any number of threads, and the routing that a watcher sees. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "data_files.h"
#include "made_model.h"
#include "scratch.h"

enum { VOCAB = 61, N_TOKENS = 6000, N_MOE = 2, K = 3, N_EXPERTS = 7 };

static made_model made;
static dsmoe_model *model;

static int set_up(void **state)
{
    if (make_directory(state)) return -1;
    dsmoe_config config = made_config();
    made = made_model_create(&config, "F32", 11);
    made_model_write(&made, directory, false);
    model = open_model(directory);
    return 0;
}

static int tear_down(void **state)
{
    dsmoe_model_free(model);
    made_model_free(&made);
    small_tokenizer_free();
    return clear_directory(state);
}

/* Random tokens in sequences of the given length. */
static dsmoe_dataset *open_random(int64_t length, double held_out, int64_t vocab_size)
{
    static uint32_t tokens[N_TOKENS];
    for (uint32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (uint32_t)(rng_bits(1, 2, i) % (uint64_t)vocab_size);
    write_shard("random.bin", 20240520, 1, N_TOKENS, tokens, N_TOKENS, 2);
    dsmoe_dataset_options options = options_for("random.bin");
    options.tokenizer = NULL;
    options.vocab_size = vocab_size;
    options.sequence_length = length;
    options.held_out = held_out;
    return open_data(&options);
}

static double loss_of(const dsmoe_dataset *data, dsmoe_held_out_options options)
{
    double loss;
    dsmoe_error error = {0};
    must(dsmoe_held_out_loss(model, data, &options, &loss, &error), &error, "the held-out loss");
    return loss;
}

/* ---- the loss ------------------------------------------------------------------------------- */

typedef struct plain_loss {
    const int32_t *targets;
    double sum;
} plain_loss;

static void add_row(void *context, int64_t row, const float *logits)
{
    plain_loss *p = context;
    double sum = 0;
    for (int i = 0; i < VOCAB; i++) sum += exp((double)logits[i]);
    p->sum += log(sum) - logits[p->targets[row]];
}

/* One sequence after another, each in a dsmoe_sequence of its own. */
static double plain_loss_of(const dsmoe_dataset *data, int64_t n)
{
    int64_t length = dsmoe_dataset_get_info(data).sequence_length;
    int32_t *tokens = calloc((size_t)length, sizeof *tokens);
    int32_t *targets = calloc((size_t)length, sizeof *targets);
    plain_loss p = {.targets = targets};
    dsmoe_error error = {0};
    for (int64_t i = 0; i < n; i++) {
        dsmoe_dataset_held_out(data, i, 1, tokens, targets, NULL, NULL);
        dsmoe_sequence *sequence = make_sequence(model, length, 64, 1);
        dsmoe_turn turn = {.sequence = sequence,
                           .tokens = tokens,
                           .n_tokens = length,
                           .n_logits = length,
                           .visit = add_row,
                           .context = &p};
        must(dsmoe_engine_forward(dsmoe_sequence_engine(turn.sequence), &turn, 1, &error), &error,
             "a sequence");
        free_sequence(sequence);
    }
    free(tokens);
    free(targets);
    return p.sum / (double)(n * length);
}

static void check_loss(int64_t length, double held_out, int64_t n)
{
    dsmoe_dataset *data = open_random(length, held_out, VOCAB);
    int64_t n_held_out = dsmoe_dataset_get_info(data).n_held_out;
    double loss = loss_of(data, (dsmoe_held_out_options){.n = n, .n_threads = 1});
    double expected = plain_loss_of(data, n > 0 && n < n_held_out ? n : n_held_out);
    if (!(fabs(loss - expected) < 1e-5))
        fail_msg("length %d: %.9f instead of %.9f", (int)length, loss, expected);
    for (int n_threads = 2; n_threads <= 5; n_threads += 3) {
        double other = loss_of(data, (dsmoe_held_out_options){.n = n, .n_threads = n_threads});
        assert_memory_equal(&other, &loss, sizeof loss);
    }
    dsmoe_dataset_free(data);
}

static void test_loss(void **state)
{
    (void)state;
    check_loss(12, 0.05, 0);    /* 24 sequences: three groups */
    check_loss(12, 0.0522, 0);  /* 26: two more */
    check_loss(12, 0.05, 3);    /* less than a group */
    check_loss(12, 0.05, 8);    /* exactly one */
    check_loss(12, 0.003, 999); /* there is only one */
    check_loss(300, 0.5, 0);    /* more tokens than one pass takes */
    check_loss(1, 0.002, 0);
}

static void test_default_options(void **state)
{
    (void)state;
    dsmoe_dataset *data = open_random(12, 0.05, VOCAB);
    double loss = 0, same = loss_of(data, (dsmoe_held_out_options){.n_threads = 2});
    assert_int_equal(dsmoe_held_out_loss(model, data, NULL, &loss, NULL), DSMOE_OK);
    assert_memory_equal(&loss, &same, sizeof loss);
    dsmoe_dataset_free(data);
}

/* ---- routing -------------------------------------------------------------------------------- */

enum { LENGTH = 20, N_SEQUENCES = 14 };

typedef struct seen_routing {
    int n_seen[N_MOE + 1][LENGTH * N_SEQUENCES]; /* by layer of the model and token */
    int32_t topk_idx[N_MOE + 1][LENGTH * N_SEQUENCES][K];
} seen_routing;

static void see(void *context, int64_t layer, int64_t first, int64_t n_tokens,
                const dsmoe_routing *routing)
{
    seen_routing *seen = context;
    assert_true(layer >= 0 && layer <= N_MOE && first >= 0);
    assert_true(first + n_tokens <= LENGTH * N_SEQUENCES);
    for (int64_t i = 0; i < n_tokens; i++) {
        seen->n_seen[layer][first + i]++;
        memcpy(seen->topk_idx[layer][first + i], routing->topk_idx + i * K,
               sizeof seen->topk_idx[layer][0]);
    }
}

static void test_watch(void **state)
{
    (void)state;
    static seen_routing seen, alone;
    memset(&seen, 0, sizeof seen);
    dsmoe_dataset *data = open_random(LENGTH, 0.05, VOCAB);
    assert_int_equal(dsmoe_dataset_get_info(data).n_held_out, N_SEQUENCES);
    loss_of(data, (dsmoe_held_out_options){.watch = see, .context = &seen});
    int n_layers = 0;
    for (int layer = 0; layer <= N_MOE; layer++) {
        int per_token = seen.n_seen[layer][0];
        assert_true(per_token == 0 || per_token == 1);
        n_layers += per_token;
        for (int i = 0; i < LENGTH * N_SEQUENCES; i++)
            assert_int_equal(seen.n_seen[layer][i], per_token);
    }
    assert_int_equal(n_layers, N_MOE);
    /* Each sequence is routed as if it were alone. */
    int32_t tokens[LENGTH], targets[LENGTH];
    for (int i = 0; i < N_SEQUENCES; i++) {
        memset(&alone, 0, sizeof alone);
        dsmoe_dataset_held_out(data, i, 1, tokens, targets, NULL, NULL);
        dsmoe_sequence *sequence = make_sequence(model, LENGTH, LENGTH, 1);
        dsmoe_sequence_watch(sequence, see, &alone);
        prefill(sequence, tokens, LENGTH, NULL);
        free_sequence(sequence);
        for (int layer = 0; layer <= N_MOE; layer++)
            assert_memory_equal(alone.topk_idx[layer][0], seen.topk_idx[layer][i * LENGTH],
                                LENGTH * K * sizeof(int32_t));
    }
    dsmoe_dataset_free(data);
}

/* ---- failures ------------------------------------------------------------------------------- */

typedef struct progress_log {
    int n, stop_at;
    double done, total;
} progress_log;

static bool log_progress(void *context, double done, double total)
{
    progress_log *log = context;
    assert_true(done >= log->done && done <= total);
    log->done = done;
    log->total = total;
    return ++log->n != log->stop_at;
}

static void test_progress(void **state)
{
    (void)state;
    dsmoe_dataset *data = open_random(12, 0.05, VOCAB);
    progress_log log = {0};
    loss_of(data, (dsmoe_held_out_options){.progress = log_progress, .context = &log});
    assert_true(log.n >= 4 && log.done == 24 && log.total == 24);
    double loss;
    dsmoe_error error = {0};
    for (int stop = 1; stop < log.n; stop++) {
        progress_log again = {.stop_at = stop};
        dsmoe_held_out_options options = {.progress = log_progress, .context = &again};
        assert_int_equal(dsmoe_held_out_loss(model, data, &options, &loss, &error),
                         DSMOE_ERROR_STOPPED);
        assert_string_equal(error.message, "stopped");
        assert_int_equal(again.n, stop);
    }
    dsmoe_dataset_free(data);
}

static void test_refusals(void **state)
{
    (void)state;
    double loss;
    dsmoe_error error = {0};
    dsmoe_dataset *data = open_random(12, 0, VOCAB);
    assert_int_equal(dsmoe_held_out_loss(model, data, NULL, &loss, &error), DSMOE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "held_out above 0"));
    dsmoe_dataset_free(data);
    data = open_random(12, 0.1, VOCAB);
    dsmoe_held_out_options options = {.n = -1};
    assert_int_equal(dsmoe_held_out_loss(model, data, &options, &loss, &error),
                     DSMOE_ERROR_ARGUMENT);
    options = (dsmoe_held_out_options){.n_threads = -1};
    assert_int_equal(dsmoe_held_out_loss(model, data, &options, &loss, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_held_out_loss(NULL, data, NULL, &loss, NULL), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_held_out_loss(model, NULL, NULL, &loss, NULL), DSMOE_ERROR_ARGUMENT);
    dsmoe_dataset_free(data);
    data = open_random(12, 0.1, 300); /* data for a larger model */
    assert_int_equal(dsmoe_held_out_loss(model, data, NULL, &loss, &error), DSMOE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "ids are 0 to 60"));
    dsmoe_dataset_free(data);
}

static void test_not_finite(void **state)
{
    (void)state;
    made_tensor *head = made_model_find(&made, "lm_head.weight");
    float before = head->data[5];
    head->data[5] = NAN;
    make_folder("broken");
    made_model_write(&made, in_directory("broken"), false);
    head->data[5] = before;
    dsmoe_model *broken = open_model(in_directory("broken"));
    dsmoe_dataset *data = open_random(12, 0.1, VOCAB);
    double loss = 0;
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_held_out_loss(broken, data, NULL, &loss, &error), DSMOE_ERROR_NONFINITE);
    assert_true(error.message[0] != '\0');
    dsmoe_dataset_free(data);
    dsmoe_model_free(broken);
}

/* The cache shrinks while it is mapped. */
static void test_lost_cache(void **state)
{
    (void)state;
    dsmoe_dataset *data = open_random(12, 0.1, VOCAB);
    int32_t tokens[12], targets[12];
    double loss;
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_dataset_check(data, &error), DSMOE_OK);
    assert_int_equal(truncate(in_directory("data.cache"), 1024), 0);
    dsmoe_dataset_train(data, 0, 1, tokens, targets, NULL); /* without SIGBUS */
    assert_int_equal(dsmoe_dataset_check(data, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "data.cache: the file changed"));
    assert_int_equal(dsmoe_held_out_loss(model, data, NULL, &loss, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "data.cache"));
    dsmoe_dataset_free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss),       cmocka_unit_test(test_default_options),
        cmocka_unit_test(test_watch),      cmocka_unit_test(test_progress),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_lost_cache),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
