/* test_divided_model.c - a model whose experts are divided over ranks: the same logits as on one machine
 * to the bit, for any type of weights and any order of sequences; stops and failures that reach all ranks;
 * ranks that die at any moment. */
#include "support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "made_gguf.h"
#include "model/model.h"
#include "scratch.h"
#include "socket_peers.h"

enum { VOCAB = 61, N_TEXT = 76, N_CTX = 120, N_BATCH = 48, MOST_ROWS = 64, LOST = 3 };

/* What the ranks do in a test. */
typedef struct story {
    const char *path; /* of the model */
    bool share;       /* dsmoe_model_options.share_weights */
    bool same_bits;
    int n_threads;
    int64_t n_batch; /* 0: N_BATCH */
    /* The expected result of dsmoe_model_divide and dsmoe_model_follow on all ranks. */
    dsmoe_status expected;
    const char *words; /* in the message */
    /* The rank that is short of memory; -1: none. */
    int poor_rank;
    uint64_t available; /* what memory_available reports there; 0: see below */
    bool reserves_none; /* memory_reserve fails there */
    /* The rank that asks to stop, the n-th time it is polled, counting from 1; 0: never. */
    int stop_rank;
    int64_t stop_at_ask;
    bool goes_on_wanting; /* also every later time */
} story;

static story story_of(const char *path_of_model, bool same_bits)
{
    return (story){.path = path_of_model, .same_bits = same_bits, .n_threads = 2, .poor_rank = -1};
}

/* ---- a machine that is short of memory --------------------------------------------------------- */

static uint64_t said_available = UINT64_MAX;
static bool is_reserve_refused;

uint64_t __wrap_memory_available(void);
uint64_t __wrap_memory_available(void) { return said_available; }

void *__real_memory_reserve(size_t size);
void *__wrap_memory_reserve(size_t size);
void *__wrap_memory_reserve(size_t size)
{
    return is_reserve_refused ? NULL : __real_memory_reserve(size);
}

/* ---- a stop --------------------------------------------------------------------------------------- */

typedef struct stopper {
    int64_t n_asked, at;
    bool goes_on;
} stopper;

static bool wants_stop(void *context)
{
    stopper *s = context;
    s->n_asked++;
    return s->at > 0 && (s->goes_on ? s->n_asked >= s->at : s->n_asked == s->at);
}

static double share_sent; /* by rank 0 */

static bool counts(void *context, double done, double total)
{
    assert_true(done <= total);
    share_sent = done / total;
    return !wants_stop(context);
}

/* ---- texts ---------------------------------------------------------------------------------------- */

/* The logits of a whole play, one row after another. */
typedef struct record {
    float rows[MOST_ROWS][VOCAB];
    int n_rows;
} record;

static void note(void *context, int64_t row, const float *logits)
{
    record *r = context;
    (void)row;
    assert_true(r->n_rows < MOST_ROWS);
    memcpy(r->rows[r->n_rows++], logits, sizeof r->rows[0]);
}

static dsmoe_turn turn_of(dsmoe_sequence *s, const int32_t *tokens, int64_t n, int64_t n_logits,
                          record *r)
{
    return (dsmoe_turn){.sequence = s,
                        .tokens = tokens,
                        .n_tokens = n,
                        .n_logits = n_logits,
                        .visit = note,
                        .context = r};
}

static dsmoe_status speak(dsmoe_sequence *s, const int32_t *tokens, int64_t n, int64_t n_logits,
                          record *r, dsmoe_error *error)
{
    dsmoe_turn turn = turn_of(s, tokens, n, n_logits, r);
    return dsmoe_engine_forward(dsmoe_sequence_engine(s), &turn, 1, error);
}

/* A prompt in several passes, decoding, a second sequence that begins like the first, both and a third in
 * one pass, a fork, and a rewind. */
static dsmoe_status play_texts(dsmoe_engine *engine, const int32_t *text, record *r,
                               dsmoe_error *error)
{
    dsmoe_sequence *a, *b, *c, *d;
    int32_t other[N_TEXT];
    for (int i = 0; i < N_TEXT; i++) other[i] = i < 68 ? text[i] : text[N_TEXT - 1 - i];
    STATUS_TRY(dsmoe_sequence_create(engine, &a, error));
    STATUS_TRY(speak(a, text, N_TEXT, 5, r, error));
    for (int i = 0; i < 4; i++) STATUS_TRY(speak(a, text + 2 * i, 1, 1, r, error));
    STATUS_TRY(dsmoe_sequence_begin(engine, other, N_TEXT, &b, error));
    int64_t found = dsmoe_sequence_length(b);
    assert_int_equal(found, 64);
    STATUS_TRY(dsmoe_sequence_create(engine, &c, error));
    dsmoe_turn turns[] = {turn_of(a, text + 9, 1, 1, r),
                          turn_of(b, other + found, N_TEXT - found, 3, r),
                          turn_of(c, text + 30, 3, 3, r)};
    STATUS_TRY(dsmoe_engine_forward(engine, turns, COUNT(turns), error));
    STATUS_TRY(dsmoe_sequence_fork(a, 61, &d, error));
    STATUS_TRY(speak(d, text + 5, 6, 6, r, error));
    STATUS_TRY(dsmoe_sequence_rewind(a, 70, error));
    return speak(a, text + 11, 2, 2, r, error);
}

static dsmoe_status play(const dsmoe_model *model, const story *s, stopper *stop, record *r,
                         dsmoe_error *error)
{
    dsmoe_engine_options options = {.n_ctx = N_CTX,
                                    .n_sequences = 4,
                                    .n_batch = s->n_batch ? s->n_batch : N_BATCH,
                                    .n_threads = s->n_threads,
                                    .same_bits = s->same_bits,
                                    .stop = stop ? wants_stop : NULL,
                                    .stop_context = stop};
    int32_t text[N_TEXT];
    for (int i = 0; i < N_TEXT; i++) text[i] = (i * i + 7 * i + 3) % VOCAB;
    dsmoe_engine *engine;
    r->n_rows = 0;
    must(dsmoe_engine_create(model, &options, &engine, error), error, "an engine");
    dsmoe_status status = play_texts(engine, text, r, error);
    dsmoe_engine_free(engine);
    return status;
}

/* ---- ranks ---------------------------------------------------------------------------------------- */

static dsmoe_model *open_story(const story *s)
{
    dsmoe_model *model;
    dsmoe_error error = {0};
    dsmoe_model_options options = {.share_weights = s->share};
    must(dsmoe_model_open_with(s->path, &options, &model, &error), &error, "opening");
    return model;
}

/* Returns 0 if the rank ended as expected. */
static int judge(const story *s, int rank, dsmoe_status status, const dsmoe_error *error)
{
    if (status == DSMOE_ERROR_PEER && s->expected != DSMOE_ERROR_PEER) return LOST;
    if (status == s->expected && (!s->words || strstr(error->message, s->words))) return 0;
    fprintf(stderr, "rank %d: status %d: %s\n", rank, (int)status, error->message);
    return 1;
}

static int follow(const dsmoe_peers *peers, const story *s)
{
    bool stops = peers->rank == s->stop_rank;
    stopper stop = {.at = stops ? s->stop_at_ask : 0, .goes_on = s->goes_on_wanting};
    dsmoe_follow_options options = {
        .peers = peers, .n_threads = s->n_threads, .stop = wants_stop, .context = &stop};
    dsmoe_error error = {0};
    dsmoe_status status = dsmoe_model_follow(&options, &error);
    return judge(s, peers->rank, status, &error);
}

static void become_poor(const dsmoe_peers *peers, const story *s)
{
    if (peers->rank != s->poor_rank) return;
    if (s->available) said_available = s->available;
    is_reserve_refused = s->reserves_none;
}

static dsmoe_status divide(const dsmoe_peers *peers, const story *s, dsmoe_model *model,
                           dsmoe_rank_memory *memory, dsmoe_error *error)
{
    bool stops = s->stop_rank == 0;
    stopper stop = {.at = stops ? s->stop_at_ask : 0};
    dsmoe_divide_options options = {
        .peers = peers, .n_batch = N_BATCH, .progress = counts, .context = &stop, .memory = memory};
    return dsmoe_model_divide(model, &options, error);
}

/* ---- the same bits -------------------------------------------------------------------------------- */

static record alone, divided; /* both on rank 0 */

static void assert_same_record(void)
{
    assert_int_equal(divided.n_rows, alone.n_rows);
    assert_memory_equal(divided.rows, alone.rows, (size_t)alone.n_rows * sizeof alone.rows[0]);
}

/* All experts are held exactly once; each rank has room for at most one matrix more. */
static void assert_held(const dsmoe_model *model, const dsmoe_rank_memory *memory, int n_ranks)
{
    size_t size = 0, sum = 0, largest = 0, n = 0;
    for (size_t i = 0; i < dsmoe_model_tensor_count(model); i++) {
        dsmoe_tensor_info t = dsmoe_model_tensor(model, i);
        if (!strstr(t.name, ".mlp.experts.")) continue;
        size += t.size;
        n++;
        if (t.size > largest) largest = t.size;
    }
    for (int i = 0; i < n_ranks; i++) sum += memory[i].experts;
    assert_in_range(sum, size, size + 64 * n + (size_t)n_ranks * (largest + 128));
}

static int exact_body(const dsmoe_peers *peers, void *context)
{
    const story *s = context;
    if (peers->rank > 0) return follow(peers, s);
    dsmoe_model *one = open_story(s), *model = open_story(s);
    dsmoe_rank_memory memory[SOCKET_PEERS_MAX] = {0};
    dsmoe_error error = {0};
    size_t copies = dsmoe_model_memory_size(model).copied_most;
    must(play(one, s, NULL, &alone, &error), &error, "alone");
    must(divide(peers, s, model, memory, &error), &error, "dividing");
    for (int i = 0; i < 2; i++) { /* the second time with the octets kept */
        must(play(model, s, NULL, &divided, &error), &error, "divided");
        assert_same_record();
    }
    assert_true(dsmoe_imatrix_make(model, (int32_t[]){1}, 1, NULL, "nowhere", NULL) != DSMOE_OK);
    size_t own_copies = dsmoe_model_memory_size(model).copied_most;
    assert_held(model, memory, peers->size);
    if (peers->size > 1 && copies > 0) assert_true(own_copies < copies);
    dsmoe_model_free(model);
    dsmoe_model_free(one);
    return 0;
}

/* Sanitizers make this ten times slower; with them one number of ranks must be enough. */
static void check_exact(story s)
{
    for (int n_ranks = STRIDE; n_ranks <= 4; n_ranks += STRIDE)
        if (!socket_peers_run(n_ranks, exact_body, &s, NULL, NULL))
            fail_msg("%s over %d ranks", s.path, n_ranks);
}

/* Two MoE layers after a dense one. */
static dsmoe_config config_of(int64_t size)
{
    dsmoe_config c = made_config();
    c.hidden_size = c.intermediate_size = c.moe_intermediate_size = size;
    c.num_attention_heads = c.num_key_value_heads = 4;
    c.max_position_embeddings = N_CTX;
    return c;
}

static void make_folder(dsmoe_config c, const char *dtype)
{
    made_model made = made_model_create(&c, dtype, 5);
    made_model_write(&made, directory, false);
    made_model_free(&made);
}

static void make_gguf(dsmoe_dtype type)
{
    dsmoe_config c = config_of(256);
    c.num_hidden_layers = 2; /* the minimum, for the sanitizers */
    c.first_k_dense_replace = 0;
    c.n_shared_experts = 1;
    made_model made = made_model_create(&c, "F32", 5);
    made_gguf_write(&made, made_file, &(made_gguf_options){.type = type, .has_type = true});
    made_model_free(&made);
}

static void test_float_types(void **state)
{
    (void)state;
    static const char *const types[] = {"F32", "BF16", "F16"};
    for (size_t i = 0; i < COUNT(types); i++) {
        make_folder(config_of(40), types[i]);
        check_exact(story_of(directory, true));
        check_exact(story_of(directory, false));
    }
}

static void test_block_types(void **state)
{
    (void)state;
    static const dsmoe_dtype types[] = {DSMOE_Q4_K, DSMOE_Q8_0, DSMOE_Q6_K};
    for (size_t i = 0; i < COUNT(types); i++) {
        make_gguf(types[i]);
        story s = story_of(made_file, false);
        check_exact(s);
        s.share = true;
        s.n_threads = 1;
        check_exact(s);
    }
}

/* Passes of more tokens than n_batch are run in pieces. The bits stay the same where the type allows it. */
static void test_large_batch(void **state)
{
    (void)state;
    make_gguf(DSMOE_Q8_0);
    story s = story_of(made_file, false);
    s.n_batch = N_TEXT;
    check_exact(s);
}

/* Matrices of different types and sizes, and rows that do not fill an octet. */
static void test_mixture(void **state)
{
    (void)state;
    dsmoe_config c = config_of(256);
    dsmoe_error error = {0};
    c.moe_intermediate_size = 100;
    make_folder(c, "F32");
    dsmoe_convert_options options = {.type = "q4_k_m", .n_threads = 1, .replace = true};
    must(dsmoe_convert(directory, made_file, &options, &error), &error, "quantising");
    check_exact(story_of(made_file, false));
}

/* Without experts the other ranks have nothing to do; with two experts only some of them have. */
static void test_few_experts(void **state)
{
    (void)state;
    dsmoe_config c = config_of(40);
    c.n_routed_experts = c.num_experts_per_tok = c.n_shared_experts = 0;
    make_folder(c, "F32");
    check_exact(story_of(directory, true));
    c = config_of(40);
    c.n_routed_experts = 2;
    c.num_experts_per_tok = 1;
    make_folder(c, "F32");
    check_exact(story_of(directory, true));
}

/* Latent attention, which stays on the first rank, and gates with groups and a bias. */
static void test_relatives(void **state)
{
    (void)state;
    dsmoe_config configs[] = {made_latent_config(), made_v3_config()};
    for (size_t i = 0; i < COUNT(configs); i++) {
        configs[i].max_position_embeddings = N_CTX;
        make_folder(configs[i], "BF16");
        check_exact(story_of(directory, true));
        check_exact(story_of(directory, false));
    }
}

/* ---- a model of many pieces ------------------------------------------------------------------------ */

/* How much of a file's mapping is in memory in this process, in kilobytes. */
static long resident(const char *name)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    long sum = 0, one;
    unsigned long begin, end;
    bool is_it = false;
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2) is_it = strstr(line, name) != NULL;
        if (is_it && sscanf(line, "Rss: %ld", &one) == 1) sum += one;
    }
    fclose(maps);
    return sum;
}

static int large_body(const dsmoe_peers *peers, void *context)
{
    story *s = context;
    if (peers->rank > 0) return follow(peers, s);
    dsmoe_model *model = open_story(s);
    dsmoe_error error = {0};
    dsmoe_status status = divide(peers, s, model, NULL, &error);
    assert_in_range(resident("model.safetensors"), 0, 2000);
    assert_true(status == DSMOE_OK ? share_sent == 1 : share_sent < 0.8);
    if (status == DSMOE_OK) {
        dsmoe_model *one = open_story(s);
        must(play(one, s, NULL, &alone, &error), &error, "alone");
        must(play(model, s, NULL, &divided, &error), &error, "divided");
        assert_same_record();
        dsmoe_model_free(one);
    }
    dsmoe_model_free(model);
    return judge(s, 0, status, &error);
}

/* Matrices of 2.2 MB: two pieces each, and more of them than may be sent without a check by all ranks. */
static void test_large(void **state)
{
    (void)state;
    dsmoe_config c = config_of(768);
    c.num_hidden_layers = 1;
    c.first_k_dense_replace = 0;
    c.moe_intermediate_size = 1432;
    c.n_shared_experts = 0;
    make_folder(c, "BF16");
    story s = story_of(directory, false);
    assert_true(socket_peers_run(3, large_body, &s, NULL, NULL));
    s.expected = DSMOE_ERROR_STOPPED;
    for (int rank = 0; rank < 3; rank++) { /* before everything is sent */
        char words[64];
        snprintf(words, sizeof words, "rank %d on machine%d: it was told to stop", rank, rank);
        s.stop_rank = rank;
        s.stop_at_ask = 1;
        s.words = words;
        assert_true(socket_peers_run(3, large_body, &s, NULL, NULL));
    }
}

/* ---- stops ----------------------------------------------------------------------------------------- */

/* Rank 0 or another rank stops in the middle of a pass; the other ranks wait for the next pass. */
static int stop_body(const dsmoe_peers *peers, void *context)
{
    const story *s = context;
    if (peers->rank > 0) return follow(peers, s);
    dsmoe_model *model = open_story(s), *one = open_story(s);
    dsmoe_error error = {0};
    stopper stop = {.at = s->stop_rank == 0 ? s->stop_at_ask : 0};
    story calm = *s;
    calm.stop_rank = -1;
    must(play(one, s, NULL, &alone, &error), &error, "alone");
    must(divide(peers, &calm, model, NULL, &error), &error, "dividing");
    assert_int_equal(play(model, s, &stop, &divided, &error), DSMOE_ERROR_STOPPED);
    char words[64];
    snprintf(words, sizeof words, "rank %d on machine%d: it was told to stop", s->stop_rank,
             s->stop_rank);
    if (s->stop_rank > 0) assert_non_null(strstr(error.message, words));
    must(play(model, s, NULL, &divided, &error), &error, "after a stop");
    assert_same_record();
    dsmoe_model_free(model);
    dsmoe_model_free(one);
    return 0;
}

static void test_stop(void **state)
{
    (void)state;
    make_gguf(DSMOE_Q8_0);
    story s = story_of(made_file, false);
    for (s.stop_rank = 0; s.stop_rank < 3; s.stop_rank++)
        for (s.stop_at_ask = 2; s.stop_at_ask < 14; s.stop_at_ask += 3 * STRIDE)
            assert_true(socket_peers_run(3, stop_body, &s, NULL, NULL));
}

/* ---- failures -------------------------------------------------------------------------------------- */

/* A division that fails on all ranks and leaves rank 0 with its model unchanged. */
static int refused_body(const dsmoe_peers *peers, void *context)
{
    const story *s = context;
    become_poor(peers, s);
    if (peers->rank > 0) return follow(peers, s);
    dsmoe_model *model = open_story(s);
    dsmoe_error error = {0}, unused = {0};
    must(play(model, s, NULL, &alone, &unused), &unused, "alone");
    int code = judge(s, 0, divide(peers, s, model, NULL, &error), &error);
    must(play(model, s, NULL, &divided, &unused), &unused, "alone once more");
    assert_same_record();
    dsmoe_model_free(model);
    return code;
}

static void test_no_memory(void **state)
{
    (void)state;
    make_gguf(DSMOE_Q8_0);
    story s = story_of(made_file, false);
    s.expected = DSMOE_ERROR_MEMORY;
    for (s.poor_rank = 1; s.poor_rank < 3; s.poor_rank++) {
        char words[64];
        s.words = words;
        s.available = 100000;
        s.reserves_none = false;
        snprintf(words, sizeof words, "rank %d on machine%d: its experts take 0.0", s.poor_rank,
                 s.poor_rank);
        assert_true(socket_peers_run(3, refused_body, &s, NULL, NULL));
        s.available = 0;
        s.reserves_none = true;
        snprintf(words, sizeof words, "rank %d on machine%d: not enough memory", s.poor_rank,
                 s.poor_rank);
        assert_true(socket_peers_run(3, refused_body, &s, NULL, NULL));
    }
}

/* Two ranks on a machine with enough memory for each of them, but not for both. */
static int crowded_body(const dsmoe_peers *peers, void *context)
{
    story s = *(const story *)context;
    dsmoe_rank_memory memory[3] = {0};
    dsmoe_error error = {0};
    dsmoe_model *model = peers->rank == 0 ? open_story(&s) : NULL;
    if (peers->rank == 0) {
        must(divide(peers, &s, model, memory, &error), &error, "dividing");
        dsmoe_model_free(model);
    } else {
        assert_int_equal(follow(peers, &s), 0);
    }
    assert_int_equal(peers->broadcast(peers->context, 0, memory, sizeof memory, NULL), DSMOE_OK);
    uint64_t both = 0;
    for (int i = 1; i < 3; i++) both += memory[i].experts + memory[i].workspace;
    said_available = both;
    s.expected = DSMOE_OK;
    s.words = NULL;
    assert_int_equal(exact_body(peers, &s), 0);
    said_available = both - 1;
    s.expected = DSMOE_ERROR_MEMORY;
    s.words =
        "rank 1 on machine0: its experts take 0.0 GB and running them 0.0 GB (with 1 other rank";
    return refused_body(peers, &s);
}

static void test_crowded(void **state)
{
    (void)state;
    make_gguf(DSMOE_Q8_0);
    story s = story_of(made_file, false);
    socket_peers_options options = {.ranks_per_host = 3};
    assert_true(socket_peers_run(3, crowded_body, &s, &options, NULL));
}

static int no_model_body(const dsmoe_peers *peers, void *context)
{
    const story *s = context;
    dsmoe_error error = {0};
    if (peers->rank > 0) return follow(peers, s);
    return judge(s, 0, divide(peers, s, NULL, NULL, &error), &error);
}

/* Most of the file is cut off between opening and sending. */
static int cut_body(const dsmoe_peers *peers, void *context)
{
    const story *s = context;
    if (peers->rank > 0) return follow(peers, s);
    dsmoe_model *model = open_story(s);
    dsmoe_error error = {0};
    assert_int_equal(truncate(s->path, 300000), 0);
    int code = judge(s, 0, divide(peers, s, model, NULL, &error), &error);
    dsmoe_model_free(model);
    return code;
}

static void test_no_model(void **state)
{
    (void)state;
    make_gguf(DSMOE_Q8_0);
    story s = story_of(made_file, false);
    s.expected = DSMOE_ERROR_ARGUMENT;
    s.words = "rank 0 on machine0 has no model to divide";
    assert_true(socket_peers_run(3, no_model_body, &s, NULL, NULL));
    s.expected = DSMOE_ERROR_IO;
    s.words = "the file changed or could not be read while it was in use";
    assert_true(socket_peers_run(3, cut_body, &s, NULL, NULL));
}

/* ---- ranks that die -------------------------------------------------------------------------------- */

static int mortal_body(const dsmoe_peers *peers, void *context)
{
    const story *s = context;
    if (peers->rank > 0) return follow(peers, s);
    dsmoe_model *model = open_story(s);
    dsmoe_error error = {0};
    dsmoe_status status = divide(peers, s, model, NULL, &error);
    if (status == DSMOE_OK) status = play(model, s, NULL, &divided, &error);
    dsmoe_model_free(model);
    return judge(s, 0, status, &error);
}

/* The other ranks end with an error. A rank whose last call was over may not notice. */
static void test_killed(void **state)
{
    (void)state;
    make_gguf(DSMOE_Q4_K);
    story s = story_of(made_file, false);
    s.n_threads = 1;
    socket_peers_end whole[3], ends[3];
    assert_true(socket_peers_run(3, mortal_body, &s, NULL, whole));
    for (int bad = 0; bad < 3; bad++) {
        int64_t last = whole[bad].n_calls;
        for (int64_t call = 1 + bad; call <= last;
             call += call < 20 || call > last - 4 ? 1 : 17 * STRIDE) {
            socket_peers_options options = {.bad_rank = bad, .dies_at_call = call};
            assert_false(socket_peers_run(3, mortal_body, &s, &options, ends));
            for (int i = 0; i < 3; i++) {
                bool is_well = i == bad ? ends[i].signal == SIGKILL : ends[i].exit_code == LOST;
                bool may_miss_it = i != bad && call == last && ends[i].exit_code == 0;
                if (!is_well && !may_miss_it)
                    fail_msg("rank %d dies at call %d: rank %d ends with %d, signal %d", bad,
                             (int)call, i, ends[i].exit_code, ends[i].signal);
            }
        }
    }
}

/* Slow messages in small parts change nothing. */
static void test_slow(void **state)
{
    (void)state;
    make_gguf(DSMOE_Q4_K);
    story s = story_of(made_file, false);
    socket_peers_options options = {.most_bytes = 9000, .most_delay_us = 200, .seed = 3};
    assert_true(socket_peers_run(3, exact_body, &s, &options, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float_types), cmocka_unit_test(test_block_types),
        cmocka_unit_test(test_large_batch), cmocka_unit_test(test_mixture),
        cmocka_unit_test(test_few_experts), cmocka_unit_test(test_relatives),
        cmocka_unit_test(test_large),       cmocka_unit_test(test_stop),
        cmocka_unit_test(test_no_memory),   cmocka_unit_test(test_crowded),
        cmocka_unit_test(test_no_model),    cmocka_unit_test(test_killed),
        cmocka_unit_test(test_slow),
    };
    return cmocka_run_group_tests(tests, made_gguf_set_up, made_gguf_tear_down);
}
