/* test_conversations.c - sequences of several conversations: training gives the same gradients for any
 * packing, a conversation's results are those it has alone, padding changes nothing, and a step's
 * objective is the mean over all its targets, whatever the batches. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "made_trainer.h"

/* Lengths just around a block of queries, and of single tokens. */
static const int lengths[] = {5, 90, 1, 33, 74, 2, 17};
enum { N = COUNT(lengths), LONG = 160, MOST = 90, TOTAL = 222 };

/* A batch that is filled step by step: n_sequences x length places. */
typedef struct packed {
    int64_t n_sequences, length;
    int32_t *tokens, *targets, *positions;
    double n_targets, n_tokens;
} packed;

static packed packed_create(int64_t n_sequences, int64_t length)
{
    packed p = {.n_sequences = n_sequences, .length = length};
    size_t n = (size_t)(n_sequences * length);
    p.tokens = calloc(n, sizeof *p.tokens);
    p.targets = malloc(n * sizeof *p.targets);
    p.positions = malloc(n * sizeof *p.positions);
    assert_true(p.tokens && p.targets && p.positions);
    for (size_t i = 0; i < n; i++) {
        p.tokens[i] = (int32_t)(i % 7); /* padding may be any token */
        p.targets[i] = p.positions[i] = -1;
    }
    return p;
}

static void packed_free(packed *p)
{
    free(p->tokens);
    free(p->targets);
    free(p->positions);
}

/* Puts a conversation at a place. Its first third is no target, the rest is. */
static void put(packed *p, const dsmoe_config *config, int number, int64_t sequence, int64_t place)
{
    made_model vocabulary = {.config = *config};
    int32_t tokens[MOST + 1];
    int64_t n = lengths[number], at = sequence * p->length + place;
    assert_true(place + n <= p->length);
    made_tokens(&vocabulary, tokens, n + 1, 100 + (uint64_t)number);
    for (int64_t i = 0; i < n; i++) {
        bool is_target = i >= n / 3;
        p->tokens[at + i] = tokens[i];
        p->positions[at + i] = (int32_t)i;
        p->targets[at + i] = is_target ? tokens[i + 1] : -1;
        p->n_targets += is_target;
    }
    p->n_tokens += (double)n;
}

static dsmoe_trainer *trainer_for(const dsmoe_config *config, int64_t n_sequences, int64_t length)
{
    dsmoe_trainer_options options = made_options(n_sequences, length);
    options.n_device_groups = config->n_routed_experts % 7 ? 2 : 7;
    options.device_loss_alpha = 0.05;
    options.n_threads = 2;
    return fresh_trainer(config, &options, 3);
}

static dsmoe_batch_losses run(dsmoe_trainer *t, const packed *p, double n_targets, double n_tokens)
{
    dsmoe_error error = {0};
    dsmoe_batch_losses losses;
    const dsmoe_batch batch = {.tokens = p->tokens,
                               .targets = p->targets,
                               .positions = p->positions,
                               .n_targets = n_targets,
                               .n_tokens = n_tokens};
    must(dsmoe_trainer_backward(t, &batch, &losses, &error), &error, "a batch");
    return losses;
}

/* The gradients of b times a factor are those of a, up to rounding. */
static void assert_near(const dsmoe_trainer *a, const dsmoe_trainer *b, double factor,
                        const char *what)
{
    for (size_t i = 0; i < trainer_tensors(a); i++) {
        const float *x = dsmoe_trainer_gradient(a, i), *y = dsmoe_trainer_gradient(b, i);
        double worst = 0, most = 0;
        for (int64_t j = 0; j < trainer_count(a, i); j++) {
            worst = fmax(worst, fabs(x[j] - factor * y[j]));
            most = fmax(most, fabs((double)x[j]));
        }
        if (!(worst <= 1e-5 * most + 1e-9))
            fail_msg("%s: %s is off by %g, the largest is %g", what, trainer_name(a, i), worst,
                     most);
    }
}

static void assert_close(double a, double b, const char *what)
{
    if (!(fabs(a - b) <= 2e-6 * fabs(a))) fail_msg("%s: %.9g and %.9g", what, a, b);
}

static void assert_same_load(const dsmoe_config *c, const dsmoe_trainer *a, const dsmoe_trainer *b)
{
    int64_t n = c->num_hidden_layers - c->first_k_dense_replace;
    assert_memory_equal(dsmoe_trainer_expert_load(a), dsmoe_trainer_expert_load(b),
                        (size_t)(n * c->n_routed_experts) * sizeof(int64_t));
}

static packed pack_two(const dsmoe_config *c)
{
    packed p = packed_create(2, LONG);
    put(&p, c, 1, 0, 0);
    put(&p, c, 3, 0, 90);
    put(&p, c, 6, 0, 123);
    put(&p, c, 2, 0, 140); /* then padding */
    put(&p, c, 4, 1, 0);
    put(&p, c, 5, 1, 74);
    put(&p, c, 0, 1, 80); /* after padding */
    return p;
}

/* All conversations packed into two sequences give the same as one conversation per sequence. */
static void check_config(const char *name, const dsmoe_config *c)
{
    packed two = pack_two(c), each = packed_create(N, 120);
    for (int i = 0; i < N; i++) put(&each, c, i, i, 0);
    assert_true(two.n_targets == each.n_targets && two.n_tokens == TOTAL);
    dsmoe_trainer *a = trainer_for(c, 2, LONG), *b = trainer_for(c, N, 120);
    dsmoe_batch_losses x = run(a, &two, 0, 0), y = run(b, &each, 0, 0);
    assert_close(x.loss, y.loss, name);
    assert_close(x.aux_loss, y.aux_loss, name);
    assert_close(x.device_loss, y.device_loss, name);
    assert_near(a, b, 1, name);
    assert_same_load(c, a, b);
    dsmoe_trainer_free(a);
    dsmoe_trainer_free(b);
    packed_free(&two);
    packed_free(&each);
}

static void test_packed_is_unpacked(void **state)
{
    (void)state;
    dsmoe_config older = made_config(), latent = made_latent_config(), v3 = made_v3_config();
    older.aux_loss_alpha = latent.aux_loss_alpha = v3.aux_loss_alpha = 0.02;
    older.seq_aux = latent.seq_aux = v3.seq_aux = true;
    check_config("plain", &older);
    check_config("latent", &latent);
    check_config("v3", &v3);
    older.seq_aux = false;
    older.attention_bias = true;
    check_config("balance over the batch", &older);
}

/* The loss of several batches is the sum over all targets divided by their number, however unevenly the
 * targets are spread. */
static void test_accumulation(void **state)
{
    (void)state;
    dsmoe_config c = made_config();
    c.aux_loss_alpha = 0.02;
    c.seq_aux = true;
    packed two = pack_two(&c);
    dsmoe_trainer_options options = made_options(2, LONG);
    dsmoe_trainer *a = fresh_trainer(&c, &options, 3);
    dsmoe_batch_losses x = run(a, &two, 0, 0), y = {0};
    options = made_options(1, 100);
    dsmoe_trainer *b = fresh_trainer(&c, &options, 3);
    for (int i = 0; i < N; i++) {
        packed one = packed_create(1, 100);
        put(&one, &c, i, 0, i % 3);
        dsmoe_batch_losses l = run(b, &one, two.n_targets / N, two.n_tokens / N);
        y.loss += l.loss / N;
        y.aux_loss += l.aux_loss / N;
        packed_free(&one);
    }
    assert_close(x.loss, y.loss, "loss");
    assert_close(x.aux_loss, y.aux_loss, "balance loss");
    assert_near(a, b, 1.0 / N, "batches");
    assert_close(run_update(a, 1e-3).grad_norm, run_update(b, 1e-3).grad_norm, "norm");
    packed_free(&two);
    dsmoe_trainer_free(a);
    dsmoe_trainer_free(b);
}

/* One conversation gives the same bits with positions as it does without them. Padding after it changes no
 * loss, whatever its tokens are. */
static void test_alone(void **state)
{
    (void)state;
    dsmoe_config c = made_latent_config();
    packed one = packed_create(1, 90);
    put(&one, &c, 1, 0, 0);
    dsmoe_trainer *a = trainer_for(&c, 1, 90), *b = trainer_for(&c, 1, 90);
    run(a, &one, 0, 0);
    free(one.positions);
    one.positions = NULL;
    run(b, &one, 0, 0);
    assert_same_trainers(a, b);
    dsmoe_trainer_free(b);
    packed_free(&one);
    for (int32_t token = 0; token < 3; token++) {
        packed padded = packed_create(1, LONG);
        put(&padded, &c, 1, 0, 0);
        for (int64_t i = MOST; i < LONG; i++) padded.tokens[i] = token;
        b = trainer_for(&c, 1, LONG);
        run(b, &padded, 0, 0);
        assert_near(a, b, 1, "padding");
        assert_same_load(&c, a, b);
        dsmoe_trainer_free(b);
        packed_free(&padded);
    }
    dsmoe_trainer_free(a);
}

/* Recomputed layers and any number of threads give the same bits. */
static void test_same_bits(void **state)
{
    (void)state;
    dsmoe_config c = made_config();
    c.aux_loss_alpha = 0.02;
    packed two = pack_two(&c);
    dsmoe_trainer_options options = made_options(2, LONG);
    dsmoe_trainer *a = fresh_trainer(&c, &options, 3);
    run(a, &two, 0, 0);
    for (int i = 0; i < 2; i++) {
        options.n_threads = 3 - i;
        options.recompute = i == 1;
        dsmoe_trainer *b = fresh_trainer(&c, &options, 3);
        run(b, &two, 0, 0);
        assert_same_trainers(a, b);
        dsmoe_trainer_free(b);
    }
    dsmoe_trainer_free(a);
    packed_free(&two);
}

static void assert_refused(dsmoe_trainer *t, const packed *p, const char *says)
{
    dsmoe_error error = {0};
    const dsmoe_batch batch = {.tokens = p->tokens,
                               .targets = p->targets,
                               .positions = p->positions,
                               .n_targets = p->n_targets,
                               .n_tokens = p->n_tokens};
    assert_int_equal(dsmoe_trainer_backward(t, &batch, NULL, &error), DSMOE_ERROR_ARGUMENT);
    if (!strstr(error.message, says)) fail_msg("'%s' does not say '%s'", error.message, says);
}

static void test_hostile(void **state)
{
    (void)state;
    dsmoe_config c = made_config();
    packed p = packed_create(2, LONG);
    put(&p, &c, 1, 0, 0);
    dsmoe_trainer *t = trainer_for(&c, 2, LONG);
    static const int32_t wrong[] = {-2, 1, 7, INT32_MAX, INT32_MIN};
    static const int64_t places[] = {0, 40, 90, LONG - 1, LONG};
    for (size_t i = 0; i < COUNT(places); i++)
        for (size_t j = 0; j < COUNT(wrong); j++) {
            int32_t before = p.positions[places[i]];
            p.positions[places[i]] = wrong[j];
            assert_refused(t, &p, "position ");
            p.positions[places[i]] = before;
        }
    p.targets[LONG] = 1;
    assert_refused(t, &p, "is padding with a target");
    p.targets[LONG] = -1;
    static const double numbers[] = {-1, NAN, INFINITY};
    for (size_t i = 0; i < COUNT(numbers); i++) {
        p.n_tokens = numbers[i];
        assert_refused(t, &p, "a batch cannot have");
        p.n_tokens = 0;
        p.n_targets = numbers[i];
        assert_refused(t, &p, "a batch cannot have");
        p.n_targets = 0;
    }
    run(t, &p, 0, 0);
    dsmoe_trainer_free(t);
    packed_free(&p);
}

/* A batch that is only padding has a loss of 0 and no gradient. */
static void test_nothing(void **state)
{
    (void)state;
    dsmoe_config c = made_config();
    c.aux_loss_alpha = 0.02;
    packed p = packed_create(1, 12);
    dsmoe_trainer *t = trainer_for(&c, 1, 12);
    dsmoe_batch_losses losses = run(t, &p, 0, 0);
    assert_true(losses.loss == 0 && losses.aux_loss == 0 && losses.device_loss == 0);
    assert_true(gradient_norm(t) == 0);
    dsmoe_trainer_free(t);
    packed_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed_is_unpacked),
        cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
