/* test_pages.c - the pages of an engine: forks, shared prefixes, pages that run out, and turns that fail
 * while others succeed. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <string.h>

#include "engine/engine.h"
#include "made_model.h"
#include "scratch.h"

enum { VOCAB = 61, N_PAGES = 6, N_CTX = 4 * KV_PAGE };

static made_model made;
static dsmoe_model *model;
static int32_t text[N_CTX], other_text[N_CTX];
static dsmoe_engine *engine;

static int set_up(void **state)
{
    if (make_directory(state)) return -1;
    dsmoe_config config = made_config();
    made = made_model_create(&config, "F32", 12);
    made_model_write(&made, directory, false);
    model = open_model(directory);
    made_tokens(&made, text, N_CTX, 1);
    made_tokens(&made, other_text, N_CTX, 2);
    return 0;
}

static int tear_down(void **state)
{
    dsmoe_model_free(model);
    made_model_free(&made);
    made_model_remove(directory);
    return remove_directory(state);
}

/* Each test has its own engine with six pages. */
static int open_engine(void **state)
{
    (void)state;
    dsmoe_error error = {0};
    dsmoe_engine_options options = {
        .n_ctx = N_CTX, .n_sequences = 5, .n_kv = N_PAGES * KV_PAGE, .n_threads = 2};
    must(dsmoe_engine_create(model, &options, &engine, &error), &error, "an engine");
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    dsmoe_engine_free(engine);
    return 0;
}

static dsmoe_sequence *make_empty(void)
{
    dsmoe_error error = {0};
    dsmoe_sequence *sequence;
    must(dsmoe_sequence_create(engine, &sequence, &error), &error, "a sequence");
    return sequence;
}

static dsmoe_sequence *begin(const int32_t *tokens, int64_t n, int64_t expected)
{
    dsmoe_error error = {0};
    dsmoe_sequence *sequence;
    must(dsmoe_sequence_begin(engine, tokens, n, &sequence, &error), &error, "a beginning");
    assert_int_equal(dsmoe_sequence_length(sequence), expected);
    return sequence;
}

static dsmoe_sequence *fork_at(const dsmoe_sequence *sequence, int64_t length)
{
    dsmoe_error error = {0};
    dsmoe_sequence *other;
    must(dsmoe_sequence_fork(sequence, length, &other, &error), &error, "a fork");
    assert_int_equal(dsmoe_sequence_length(other), length);
    return other;
}

static void check_pages(int64_t used, int64_t shared, int64_t kept)
{
    dsmoe_engine_info info = dsmoe_engine_get_info(engine);
    assert_int_equal(info.n_pages, N_PAGES);
    assert_int_equal(info.n_pages_used, used);
    assert_int_equal(info.n_pages_shared, shared);
    assert_int_equal(info.n_pages_kept, kept);
}

/* The logits after the first n tokens of a text, from a new engine. */
static void alone(const int32_t *tokens, int64_t n, float *logits)
{
    dsmoe_sequence *sequence = make_sequence(model, N_CTX, 0, 1);
    prefill(sequence, tokens, n, logits);
    free_sequence(sequence);
}

static void assert_close(const float *a, const float *b, const char *what)
{
    double worst = worst_distance(a, b, VOCAB);
    if (!(worst <= 1e-5)) fail_msg("%s: off by %g", what, worst);
}

/* ---- pages in use ------------------------------------------------------------------------------ */

static void test_growing_and_rewinding(void **state)
{
    (void)state;
    dsmoe_sequence *s = make_empty();
    check_pages(0, 0, 0);
    prefill(s, text, 1, NULL);
    check_pages(1, 0, 0);
    prefill(s, text + 1, KV_PAGE - 1, NULL);
    check_pages(1, 0, 0);
    prefill(s, text + KV_PAGE, KV_PAGE + 1, NULL);
    check_pages(3, 0, 0);
    rewind_to(s, 2 * KV_PAGE);
    check_pages(2, 0, 0); /* the page with one token is no longer of use */
    rewind_to(s, KV_PAGE);
    check_pages(1, 0, 1); /* a full page may be used again */
    dsmoe_sequence_free(s);
    check_pages(0, 0, 2);
    assert_int_equal(dsmoe_engine_get_info(engine).n_sequences_used, 0);
}

/* A fork shares pages until one of the two sequences writes. After that both continue as if they were
 * alone. */
static void test_fork(void **state)
{
    (void)state;
    const int64_t n = KV_PAGE + 9;
    float logits[VOCAB], right[VOCAB];
    int32_t branch[N_CTX];
    dsmoe_sequence *a = make_empty();
    prefill(a, text, n, NULL);
    dsmoe_sequence *b = fork_at(a, n - 3);
    check_pages(2, 2, 0);
    memcpy(branch, text, sizeof branch);
    memcpy(branch + n - 3, other_text, 20 * sizeof *branch);
    prefill(b, branch + n - 3, 20, logits);
    check_pages(3, 1, 0); /* the prefix is still shared */
    alone(branch, n + 17, right);
    assert_close(logits, right, "the fork");
    prefill(a, text + n, 4, logits);
    alone(text, n + 4, right);
    assert_close(logits, right, "the one it came from");
    dsmoe_sequence *c = fork_at(b, 0);
    prefill(c, other_text, 5, logits);
    alone(other_text, 5, right);
    assert_close(logits, right, "a fork of nothing");
    dsmoe_sequence_free(a);
    prefill(b, other_text, 1, NULL); /* it still has the prefix */
    dsmoe_sequence_free(b);
    dsmoe_sequence_free(c);
    check_pages(0, 0, 1);
}

/* Rewinding into a shared page and continuing with another text does not change the other sequence. */
static void test_rewind_into_shared(void **state)
{
    (void)state;
    float before[VOCAB], after[VOCAB];
    dsmoe_sequence *a = make_empty();
    prefill(a, text, 2 * KV_PAGE, NULL);
    dsmoe_sequence *b = fork_at(a, 2 * KV_PAGE);
    rewind_to(b, KV_PAGE + 5);
    prefill(b, other_text, 7, NULL);
    prefill(a, text + 2 * KV_PAGE, 1, after);
    alone(text, 2 * KV_PAGE + 1, before);
    assert_close(before, after, "after a fork went back");
}

/* ---- shared prefixes --------------------------------------------------------------------------- */

static void test_beginnings(void **state)
{
    (void)state;
    float logits[VOCAB], right[VOCAB];
    dsmoe_sequence *a = begin(text, 3 * KV_PAGE, 0);
    prefill(a, text, 2 * KV_PAGE + 7, NULL);
    dsmoe_sequence *b = begin(text, 3 * KV_PAGE, 2 * KV_PAGE); /* while `a` exists */
    check_pages(3, 2, 0);
    prefill(b, text + 2 * KV_PAGE, 9, logits);
    alone(text, 2 * KV_PAGE + 9, right);
    assert_close(logits, right, "after a shared beginning");
    dsmoe_sequence_free(a);
    dsmoe_sequence_free(b);
    check_pages(0, 0, 2);
    begin(text, 2 * KV_PAGE + 1, 2 * KV_PAGE);
    begin(text, 2 * KV_PAGE, KV_PAGE); /* one token must be left to compute */
    begin(text, KV_PAGE, 0);
    dsmoe_sequence *other = begin(other_text, N_CTX, 0);
    assert_int_equal(dsmoe_engine_get_info(engine).n_tokens_reused, 5 * KV_PAGE);
    dsmoe_sequence_free(other);
    int32_t late[N_CTX]; /* the text's second page, but after another first page */
    memcpy(late, other_text, sizeof late);
    memcpy(late + KV_PAGE, text + KV_PAGE, KV_PAGE * sizeof *late);
    other = make_empty();
    prefill(other, late, KV_PAGE, NULL);
    dsmoe_sequence_free(other);
    begin(late, N_CTX, KV_PAGE);
}

/* The oldest page is reused first, and of a text its last page. */
static void test_oldest_go_first(void **state)
{
    (void)state;
    dsmoe_sequence *a = make_empty();
    prefill(a, text, 3 * KV_PAGE, NULL);
    dsmoe_sequence_free(a);
    dsmoe_sequence *b = make_empty();
    prefill(b, other_text, 2 * KV_PAGE, NULL);
    dsmoe_sequence_free(b);
    check_pages(0, 0, 5);
    dsmoe_sequence *c = make_empty();
    prefill(c, other_text + 5, KV_PAGE + 1,
            NULL); /* takes the free page and the end of the first text */
    check_pages(2, 0, 4);
    dsmoe_sequence_free(begin(text, N_CTX, 2 * KV_PAGE));
    dsmoe_sequence_free(begin(other_text, N_CTX, 2 * KV_PAGE));
}

/* ---- turns that fail ---------------------------------------------------------------------------- */

static void keep(void *context, int64_t row, const float *logits)
{
    assert_int_equal(row, 0);
    memcpy(context, logits, VOCAB * sizeof *logits);
}

static void test_no_free_page(void **state)
{
    (void)state;
    float logits[3][VOCAB], right[VOCAB];
    dsmoe_error error = {0};
    dsmoe_sequence *s[3] = {make_empty(), make_empty(), make_empty()};
    prefill(s[0], text, 2 * KV_PAGE, NULL);
    const int64_t n[] = {1, 3 * KV_PAGE + 1, 2 * KV_PAGE};
    const int32_t *tokens[] = {text + 2 * KV_PAGE, other_text, other_text};
    dsmoe_turn turns[3];
    for (int i = 0; i < 3; i++)
        turns[i] = (dsmoe_turn){.sequence = s[i],
                                .tokens = tokens[i],
                                .n_tokens = n[i],
                                .n_logits = 1,
                                .visit = keep,
                                .context = logits[i]};
    assert_int_equal(dsmoe_engine_forward(engine, turns, 3, &error), DSMOE_ERROR_MEMORY);
    assert_non_null(strstr(error.message, "KV cache is full"));
    assert_int_equal(turns[0].error.status, DSMOE_OK);
    assert_int_equal(turns[1].error.status, DSMOE_ERROR_MEMORY);
    assert_int_equal(turns[2].error.status, DSMOE_OK);
    assert_int_equal(dsmoe_sequence_length(s[1]), 0);
    alone(text, 2 * KV_PAGE + 1, right);
    assert_close(logits[0], right, "before the one that does not fit");
    alone(other_text, 2 * KV_PAGE, right);
    assert_close(logits[2], right, "after it");
    check_pages(5, 0, 0);
    dsmoe_sequence_free(s[0]);
    prefill(s[1], other_text, 3 * KV_PAGE + 1, NULL); /* now there is room */
}

/* A token whose embedding has a NaN, among others. */
static void test_spoilt_company(void **state)
{
    (void)state;
    char folder[1024];
    snprintf(folder, sizeof folder, "%s/spoilt", directory);
    dsmoe_config config = made_config();
    made_model harmed = made_model_create(&config, "F32", 12);
    made_model_find(&harmed, "model.embed_tokens.weight")->data[5 * 42] = NAN;
    assert_int_equal(mkdir(folder, 0755), 0);
    made_model_write(&harmed, folder, false);
    dsmoe_model *spoilt = open_model(folder);
    dsmoe_error error = {0};
    dsmoe_engine_options options = {.n_ctx = 64, .n_sequences = 3, .n_threads = 2};
    dsmoe_engine *three;
    must(dsmoe_engine_create(spoilt, &options, &three, &error), &error, "an engine");
    static const int32_t tokens[3][4] = {{1, 2, 3, 4}, {6, 7, 5, 8}, {9, 8, 7, 6}};
    float logits[3][VOCAB], right[VOCAB];
    dsmoe_turn turns[3];
    for (int i = 0; i < 3; i++) {
        turns[i] = (dsmoe_turn){
            .tokens = tokens[i], .n_tokens = 4, .n_logits = 1, .visit = keep, .context = logits[i]};
        must(dsmoe_sequence_create(three, &turns[i].sequence, &error), &error, "a sequence");
    }
    assert_int_equal(dsmoe_engine_forward(three, turns, 3, &error), DSMOE_ERROR_NONFINITE);
    assert_non_null(strstr(turns[1].error.message, "token 2"));
    assert_int_equal(dsmoe_sequence_length(turns[1].sequence), 0);
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(turns[i].error.status, DSMOE_OK);
        alone(tokens[i], 4, right); /* with the intact model */
        assert_close(logits[i], right, "beside a spoilt one");
    }
    dsmoe_engine_free(three);
    dsmoe_model_free(spoilt);
    made_model_free(&harmed);
    made_model_remove(folder);
    assert_int_equal(rmdir(folder), 0);
}

/* ---- the last layer ------------------------------------------------------------------------------ */

/* The rows left after all layers of a pass with two spans of ten rows. */
static int64_t rows_left(int64_t first_wanted, int64_t second_wanted, dsmoe_routing_fn *watch)
{
    enum { N = 10 };
    dsmoe_sequence *s[2] = {make_empty(), make_empty()};
    arena a = arena_over(engine->workspace);
    engine_space space = engine_space_place(&a, model, &engine->options, &engine->adapted);
    for (int i = 0; i < 2; i++) {
        assert_true(sequence_reserve(s[i], N));
        space.spans[i] = (span){.cache = {&engine->pool.pages, s[i]->table},
                                .tokens = text,
                                .row = i * N,
                                .n_rows = N,
                                .n_wanted = i ? second_wanted : first_wanted,
                                .watch = i ? watch : NULL};
    }
    pass *p = &space.pass;
    p->spans = space.spans;
    p->n_spans = 2;
    p->n_rows = 2 * N;
    pass_begin(p);
    for (int64_t layer = 0; layer < made.config.num_hidden_layers; layer++) {
        assert_int_equal(p->n_rows, 2 * N);
        assert_int_equal(pass_layer(p, layer, NULL), DSMOE_OK);
    }
    assert_int_equal(p->spans[0].n_rows, first_wanted);
    assert_int_equal(p->spans[0].position, N - first_wanted);
    assert_int_equal(p->spans[1].row, first_wanted);
    for (int i = 0; i < 2; i++) dsmoe_sequence_free(s[i]);
    return p->n_rows;
}

static void look_away(void *context, int64_t layer, int64_t position, int64_t n_tokens,
                      const dsmoe_routing *routing)
{
    (void)context, (void)layer, (void)position, (void)n_tokens, (void)routing;
}

/* The last layer computes only the rows that are needed; of the others it computes keys and values. */
static void test_needed_rows(void **state)
{
    (void)state;
    assert_int_equal(rows_left(10, 10, NULL), 20);
    assert_int_equal(rows_left(1, 1, NULL), 2);
    assert_int_equal(rows_left(0, 3, NULL), 3);
    assert_int_equal(rows_left(0, 0, NULL), 0);
    assert_int_equal(rows_left(1, 1, look_away), 11); /* a watcher sees all rows */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_growing_and_rewinding, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(test_fork, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(test_rewind_into_shared, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(test_beginnings, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(test_oldest_go_first, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(test_no_free_page, open_engine, close_engine),
        cmocka_unit_test(test_spoilt_company),
        cmocka_unit_test_setup_teardown(test_needed_rows, open_engine, close_engine),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
