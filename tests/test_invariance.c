/* test_invariance.c - what must not change a bit: the number of threads, training instead of inference,
 * the address of memory, the other tokens a token is routed with; and initial weights that are the same
 * everywhere. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- all outputs of a layer ----------------------------------------------------------------- */

typedef struct outputs {
    float *y, *train_y, *dx;
    float *gradients[MAX_TENSORS];
    dsmoe_layer_losses losses;
} outputs;

static float *copy_floats(const float *from, int64_t n)
{
    float *to = malloc((size_t)(n + 1) * sizeof *to);
    assert_non_null(to);
    memcpy(to, from, (size_t)n * sizeof *to);
    return to;
}

static outputs run_all(fixture *f)
{
    outputs o = {0};
    int64_t n = f->n_tokens * f->config.hidden_size;
    fill_guard(f->y, n);
    fixture_infer(f);
    o.y = copy_floats(f->y, n);
    fill_guard(f->y, n);
    fixture_forward(f);
    o.train_y = copy_floats(f->y, n);
    o.losses = f->losses;
    fill_guard(f->dx, n);
    fixture_backward(f, false);
    o.dx = copy_floats(f->dx, n);
    tensor list[MAX_TENSORS];
    int n_tensors = layer_tensors(&f->config, f->gradients, list);
    for (int i = 0; i < n_tensors; i++) {
        o.gradients[i] = copy_floats(list[i].data, list[i].n);
        fill_guard(list[i].data, list[i].n);
    }
    return o;
}

static void outputs_free(outputs *o)
{
    free(o->y);
    free(o->train_y);
    free(o->dx);
    for (int i = 0; i < MAX_TENSORS; i++) free(o->gradients[i]);
}

static void assert_same(const char *label, const char *name, const float *a, const float *b,
                        int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            fail_msg("%s: %s: element %d is %.9g here and %.9g there", label, name, (int)i,
                     (double)a[i], (double)b[i]);
}

static void assert_same_outputs(const char *label, const fixture *f, const outputs *a,
                                const outputs *b)
{
    int64_t n = f->n_tokens * f->config.hidden_size;
    tensor list[MAX_TENSORS];
    int n_tensors = layer_tensors(&f->config, f->gradients, list);
    assert_same(label, "y", a->y, b->y, n);
    assert_same(label, "y of training", a->train_y, b->train_y, n);
    assert_same(label, "dx", a->dx, b->dx, n);
    assert_same(label, "aux_loss", &a->losses.aux_loss, &b->losses.aux_loss, 1);
    assert_same(label, "device_loss", &a->losses.device_loss, &b->losses.device_loss, 1);
    for (int i = 0; i < n_tensors; i++)
        assert_same(label, list[i].name, a->gradients[i], b->gradients[i], list[i].n);
}

/* ---- threads -------------------------------------------------------------------------------- */

enum { MAX_THREADS = 4 };

/* Also checks that training computes the same as inference. */
static void check_threads(const char *label, dsmoe_layer_config config, int64_t n_sequences,
                          int64_t sequence_length)
{
    fixture f = fixture_make(config, n_sequences, sequence_length, MAX_THREADS, 17);
    f.workspace.n_threads = 1;
    outputs one = run_all(&f);
    assert_same(label, "y of training and inference", one.y, one.train_y,
                f.n_tokens * config.hidden_size);
    for (int n_threads = 2; n_threads <= MAX_THREADS; n_threads++) {
        f.workspace.n_threads = n_threads;
        outputs several = run_all(&f);
        assert_same_outputs(label, &f, &one, &several);
        outputs_free(&several);
    }
    outputs_free(&one);
    fixture_free(&f);
}

static void test_threads(void **state)
{
    (void)state;
    dsmoe_layer_config config = small_config(70, 40, 6, 2, 1);
    config.n_device_groups = 3;
    config.device_loss_alpha = 0.05f;
    config.norm_topk_prob = true;
    check_threads("many tokens", config, 3, 200); /* more rows than one tile of an expert */
    config.seq_aux = false;
    check_threads("loss over the batch", config, 5, 21);
    config.scoring_func = "sigmoid";
    config.topk_method = "noaux_tc";
    config.n_group = 3;
    config.topk_group = 2;
    check_threads("another gate", config, 3, 90);
    check_threads("one token", small_config(70, 40, 6, 2, 2), 1, 1);
    check_threads("no shared expert", small_config(70, 40, 6, 2, 0), 1, 50);
    /* Several parts of every product in forward and backward, sums in several stretches, few rows. */
    check_threads("wide", small_config(1030, 350, 3, 2, 3), 2, 6);
    check_threads("wide, many rows", small_config(1030, 400, 2, 1, 0), 1, 25);
}

/* ---- tokens alone and together -------------------------------------------------------------- */

static float largest(const float *values, int64_t n)
{
    float max = 0.0f;
    for (int64_t i = 0; i < n; i++) max = fmaxf(max, fabsf(values[i]));
    return max;
}

/* Groups of `group` tokens have the same scores, bit by bit, as in the whole batch. The output is the same
 * up to the order in which an expert adds up few or many rows. */
static void check_groups(fixture *f, const float *together, const float *scores, int64_t group)
{
    int64_t hidden = f->config.hidden_size, n_experts = f->config.n_routed_experts;
    float *y = malloc((size_t)(group * hidden) * sizeof *y);
    float *apart = malloc((size_t)(group * n_experts) * sizeof *apart);
    assert_true(y && apart);
    double allowed = 2e-6 * largest(together, f->n_tokens * hidden);
    for (int64_t t = 0; t < f->n_tokens; t += group) {
        int64_t n = f->n_tokens - t < group ? f->n_tokens - t : group;
        const float *x = f->x + t * hidden;
        dsmoe_routing routing = {.scores = apart};
        assert_int_equal(dsmoe_layer_forward(f->layer, x, n, y, &f->workspace, NULL), DSMOE_OK);
        assert_int_equal(dsmoe_layer_route(f->layer, x, n, routing, &f->workspace, NULL), DSMOE_OK);
        assert_same("alone and in a batch", "scores", apart, scores + t * n_experts, n * n_experts);
        for (int64_t i = 0; i < n * hidden; i++)
            if (!(fabs((double)y[i] - together[t * hidden + i]) <= allowed))
                fail_msg("alone and in a batch: y of token %d differs by %g", (int)(t + i / hidden),
                         (double)y[i] - together[t * hidden + i]);
    }
    free(apart);
    free(y);
}

static void check_company(dsmoe_layer_config config, int64_t n_tokens)
{
    fixture f = fixture_make(config, 1, n_tokens, 2, 23);
    fixture_infer(&f);
    float *scores = malloc((size_t)(n_tokens * config.n_routed_experts) * sizeof *scores);
    assert_non_null(scores);
    assert_int_equal(dsmoe_layer_route(f.layer, f.x, n_tokens, (dsmoe_routing){.scores = scores},
                                       &f.workspace, NULL),
                     DSMOE_OK);
    static const int64_t sizes[] = {1, 3, 10, 97};
    for (int i = 0; i < 4; i++) check_groups(&f, f.y, scores, sizes[i]);
    free(scores);
    fixture_free(&f);
}

static void test_company(void **state)
{
    (void)state;
    check_company(small_config(300, 65, 5, 2, 1), 250);
    check_company(small_config(1030, 40, 3, 2, 2), 40);
    check_company(small_config(17, 530, 3, 1, 0), 100);
    check_company(small_config(1, 1, 1, 1, 1), 100);
}

/* Long inputs are processed in pieces, which must not change the result. */
static void test_pieces(void **state)
{
    (void)state;
    enum { N = 5000, HIDDEN = 16, EXPERTS = 8, K = 3 };
    fixture f = fixture_make(small_config(HIDDEN, 12, EXPERTS, K, 1), 1, N, MAX_THREADS, 29);
    fixture_infer(&f);
    float *together = copy_floats(f.y, N * HIDDEN), *scores = copy_floats(f.x, N * EXPERTS);
    float *alone = copy_floats(f.x, N * EXPERTS);
    fixture_forward(&f); /* in a single piece */
    assert_same("training", "y", f.y, together, N * HIDDEN);
    f.workspace.n_threads = 1;
    fixture_infer(&f);
    assert_same("one thread", "y", f.y, together, N * HIDDEN);

    assert_int_equal(
        dsmoe_layer_route(f.layer, f.x, N, (dsmoe_routing){.scores = scores}, &f.workspace, NULL),
        DSMOE_OK);
    for (int64_t t = 0; t < N; t += 500)
        assert_int_equal(dsmoe_layer_route(f.layer, f.x + t * HIDDEN, 500,
                                           (dsmoe_routing){.scores = alone + t * EXPERTS},
                                           &f.workspace, NULL),
                         DSMOE_OK);
    assert_same("pieces", "scores", scores, alone, N * EXPERTS);
    free(alone);
    free(scores);
    free(together);
    fixture_free(&f);
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Memory may have any alignment, and exactly the requested size. */
static void test_alignment(void **state)
{
    (void)state;
    fixture f = fixture_make(small_config(70, 40, 6, 2, 1), 2, 40, 2, 31);
    outputs aligned = run_all(&f);
    void *saved = f.saved, *workspace = f.workspace.memory;
    size_t infer = dsmoe_layer_workspace_size(f.layer, f.n_tokens, 2);
    size_t train = dsmoe_layer_train_workspace_size(f.layer, f.n_tokens, 2);
    size_t size = infer > train ? infer : train;
    static const int shifts[] = {1, 3, 4, 8, 17, 32, 60, 63};
    for (size_t i = 0; i < COUNT(shifts); i++) {
        char *a = malloc(size + (size_t)shifts[i]);
        char *b = malloc(f.saved_size + (size_t)shifts[i]);
        assert_true(a && b);
        f.workspace = (dsmoe_workspace){a + shifts[i], size, 2};
        f.saved = b + shifts[i];
        outputs shifted = run_all(&f);
        assert_same_outputs("misaligned memory", &f, &aligned, &shifted);
        outputs_free(&shifted);
        free(a);
        free(b);
    }
    f.saved = saved;
    f.workspace.memory = workspace;
    outputs_free(&aligned);
    fixture_free(&f);
}

/* ---- accumulating --------------------------------------------------------------------------- */

static void test_accumulate(void **state)
{
    (void)state;
    dsmoe_layer_config config = small_config(30, 20, 6, 2, 1);
    config.aux_loss_alpha = 0.1f;
    fixture f = fixture_make(config, 2, 50, 2, 37);
    outputs once = run_all(&f);
    tensor list[MAX_TENSORS];
    int n = layer_tensors(&config, f.gradients, list);
    for (int i = 0; i < n; i++) memcpy(list[i].data, once.gradients[i], (size_t)list[i].n * 4);
    fixture_forward(&f);
    fixture_backward(&f, true);
    for (int i = 0; i < n; i++) {
        double worst = 0, magnitude = 0;
        for (int64_t j = 0; j < list[i].n; j++) {
            worst = fmax(worst, fabs(list[i].data[j] - 2.0 * once.gradients[i][j]));
            magnitude = fmax(magnitude, fabs(once.gradients[i][j]));
        }
        if (!(worst <= 1e-6 * magnitude)) fail_msg("%s: off by %g", list[i].name, worst);
    }
    assert_same("accumulating", "dx", f.dx, once.dx, f.n_tokens * 30); /* dx is overwritten */
    outputs_free(&once);
    fixture_free(&f);
}

/* ---- initial weights ------------------------------------------------------------------------ */

static dsmoe_layer_weights *init_weights(const dsmoe_layer_config *config, uint64_t seed,
                                         int n_threads)
{
    dsmoe_layer_weights *weights;
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_layer_weights_create(config, &weights, &error), DSMOE_OK);
    assert_int_equal(dsmoe_layer_weights_init(config, weights, 0.006f, seed, n_threads, &error),
                     DSMOE_OK);
    return weights;
}

/* The mean and the deviation must be within five standard errors, and uniform numbers within the bounds. */
static void check_distribution(const tensor *t, double deviation, double bound)
{
    double sum = 0, squares = 0, largest = 0, n = (double)t->n;
    for (int64_t i = 0; i < t->n; i++) {
        sum += t->data[i];
        squares += (double)t->data[i] * t->data[i];
        largest = fmax(largest, fabs(t->data[i]));
    }
    if (fabs(sum / n) > 5 * deviation / sqrt(n) ||
        fabs(sqrt(squares / n) / deviation - 1) > 5 / sqrt(2 * n) || largest > bound)
        fail_msg("%s: mean %g, deviation %g, largest %g", t->name, sum / n, sqrt(squares / n),
                 largest);
}

static void test_init(void **state)
{
    (void)state;
    const dsmoe_layer_config config = small_config(300, 250, 4, 2, 2);
    dsmoe_layer_weights *weights = init_weights(&config, 1234, 1);
    tensor list[MAX_TENSORS], other[MAX_TENSORS];
    int n = layer_tensors(&config, weights, list);
    const double bound = 1 / sqrt(300);
    check_distribution(&list[0], bound / sqrt(3), bound * (1 + 1e-7));
    for (int i = 1; i < n; i++) check_distribution(&list[i], 0.006, 0.006 * 6.5);
    for (int n_threads = 2; n_threads <= MAX_THREADS; n_threads++) {
        dsmoe_layer_weights *again = init_weights(&config, 1234, n_threads);
        layer_tensors(&config, again, other);
        for (int i = 0; i < n; i++)
            assert_same("threads", list[i].name, list[i].data, other[i].data, list[i].n);
        dsmoe_layer_weights_free(again);
    }
    for (int i = 1; i < n; i++) /* no two matrices are the same */
        for (int j = 1; j < i; j++) assert_true(list[i].data[0] != list[j].data[0]);
    dsmoe_layer_weights *another = init_weights(&config, 1235, 1);
    layer_tensors(&config, another, other);
    for (int i = 0; i < n; i++) assert_true(list[i].data[0] != other[i].data[0]);
    dsmoe_layer_weights_free(another);
    dsmoe_layer_weights_free(weights);
}

/* Another expert leaves the weights of the others unchanged. */
static void test_init_grows(void **state)
{
    (void)state;
    const dsmoe_layer_config small = small_config(20, 10, 4, 2, 1);
    const dsmoe_layer_config large = small_config(20, 10, 5, 2, 1);
    dsmoe_layer_weights *a = init_weights(&small, 7, 1), *b = init_weights(&large, 7, 1);
    tensor of_a[MAX_TENSORS], of_b[MAX_TENSORS];
    int n_a = layer_tensors(&small, a, of_a), n_b = layer_tensors(&large, b, of_b);
    for (int i = 0; i < 13; i++)
        assert_same("growing", of_a[i].name, of_a[i].data, of_b[i].data, of_a[i].n);
    for (int i = 1; i <= 3; i++)
        assert_same("growing", of_a[n_a - i].name, of_a[n_a - i].data, of_b[n_b - i].data, 200);
    dsmoe_layer_weights_free(a);
    dsmoe_layer_weights_free(b);
}

/* The same seed gives the same bits on every machine. */
static void test_init_golden(void **state)
{
    (void)state;
    const dsmoe_layer_config config = small_config(300, 250, 4, 2, 2);
    dsmoe_layer_weights *w = init_weights(&config, 2401, 2);
    const struct {
        float value;
        uint32_t bits;
    } golden[] = {
        {w->gate[0], 0x3c9ce887},
        {w->gate[4 * 300 - 1], 0x3d29c52e},
        {w->experts[0].gate_proj[0], 0x3c55b6c3},
        {w->experts[0].up_proj[70000], 0xba951bde},
        {w->experts[3].down_proj[250 * 300 - 1], 0x3b2eb316},
        {w->shared_experts.gate_proj[0], 0xbb01a183},
        {w->shared_experts.down_proj[2 * 250 * 300 - 1], 0xbbb373e7},
    };
    for (size_t i = 0; i < COUNT(golden); i++) {
        uint32_t bits;
        memcpy(&bits, &golden[i].value, sizeof bits);
        if (bits != golden[i].bits) fail_msg("number %zu is 0x%08x", i, bits);
    }
    dsmoe_layer_weights_free(w);
}

static void test_init_refuses(void **state)
{
    (void)state;
    const dsmoe_layer_config config = small_config(6, 4, 3, 1, 1);
    dsmoe_layer_weights *weights = init_weights(&config, 1, 1);
    static const float wrong[] = {-1.0f, NAN, INFINITY};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        dsmoe_error error = {0};
        assert_int_equal(dsmoe_layer_weights_init(&config, weights, wrong[i], 1, 1, &error),
                         DSMOE_ERROR_CONFIG);
        assert_non_null(strstr(error.message, "initializer_range"));
    }
    assert_int_equal(dsmoe_layer_weights_init(&config, NULL, 0.1f, 1, 1, NULL),
                     DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_layer_weights_init(&config, weights, 0.1f, 1, 0, NULL),
                     DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_layer_weights_init(&config, weights, 0.0f, 1, 1, NULL), DSMOE_OK);
    for (int i = 0; i < 24; i++) assert_true(weights->experts[2].down_proj[i] == 0.0f);
    dsmoe_layer_weights_free(weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_company),
        cmocka_unit_test(test_pieces),       cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_accumulate),   cmocka_unit_test(test_init),
        cmocka_unit_test(test_init_grows),   cmocka_unit_test(test_init_golden),
        cmocka_unit_test(test_init_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
