/* support.c - what several tests share. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define WATCHED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WATCHED 1
#endif
#endif

/* Makes sanitizers return NULL for an allocation that is too large. */
const char *__asan_default_options(void);
const char *__tsan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
const char *__tsan_default_options(void) { return "allocator_may_return_null=1"; }

#if defined(WATCHED)
enum { AFTER = 0 };
#else
enum { AFTER = 16 };
#endif
enum { BEFORE = 16 };

/* ---- numbers ------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ z >> 32) * 0xd6e8feb86659fd93u;
    z = (z ^ z >> 32) * 0xd6e8feb86659fd93u;
    return z ^ z >> 32;
}

void fill_random(float *values, int64_t n, uint64_t seed, double deviation)
{
    uint64_t state = seed * 0x2545f4914f6cdd1du + 1;
    for (int64_t i = 0; i < n; i++) {
        double sum = -2; /* the sum of four uniform numbers is close enough to normal */
        for (int j = 0; j < 4; j++) sum += (double)(next_random(&state) >> 11) * 0x1p-53;
        values[i] = (float)(sum * 1.7320508 * deviation);
    }
}

static const uint32_t guard_bits = 0xc7a5b3d1; /* a number that no computation here gives */

void fill_guard(float *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++) memcpy(&values[i], &guard_bits, sizeof guard_bits);
}

bool is_guard(float value) { return memcmp(&value, &guard_bits, sizeof value) == 0; }

double worst_difference(const float *ours, const double *expected, int64_t n)
{
    double difference = 0, magnitude = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(ours[i])) return INFINITY;
        difference = fmax(difference, fabs(ours[i] - expected[i]));
        magnitude = fmax(magnitude, fabs(expected[i]));
    }
    return difference > 0 ? difference / magnitude : 0;
}

double worst_distance(const float *ours, const float *others, int64_t n)
{
    double difference = 0, magnitude = 0;
    for (int64_t i = 0; i < n; i++) {
        difference = fmax(difference, fabs((double)ours[i] - others[i]));
        magnitude = fmax(magnitude, fabs((double)others[i]));
    }
    return difference / magnitude;
}

char *quoted(const char *text)
{
    char *copy = strdup(text);
    assert_non_null(copy);
    for (char *c = copy; *c; c++)
        if (*c == '\'') *c = '"';
    return copy;
}

/* ---- arrays -------------------------------------------------------------------------------- */

floats floats_make(int64_t n, int offset)
{
    floats f = {.n = n};
    size_t size = (size_t)(BEFORE + offset + n + AFTER) * sizeof(float);
    assert_int_equal(posix_memalign(&f.memory, 64, size), 0);
    f.at = (float *)f.memory + BEFORE + offset;
    fill_guard(f.memory, BEFORE + offset + n + AFTER);
    return f;
}

floats floats_random(int64_t n, int offset, uint64_t seed)
{
    floats f = floats_make(n, offset);
    fill_random(f.at, n, seed, 1.0);
    return f;
}

void floats_free(floats f)
{
    for (float *before = f.memory; before < f.at; before++)
        if (!is_guard(*before)) fail_msg("%td floats before the array were written", f.at - before);
    for (int i = 0; i < AFTER; i++)
        if (!is_guard(f.at[f.n + i])) fail_msg("%d floats after the array were written", i + 1);
    free(f.memory);
}

/* ---- a layer and its memory ----------------------------------------------------------------- */

static int add_expert(tensor *list, const char *prefix, const dsmoe_expert_weights *e, int64_t n)
{
    float *const data[] = {e->gate_proj, e->up_proj, e->down_proj};
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
    for (int i = 0; i < 3; i++) {
        list[i] = (tensor){.data = data[i], .n = n};
        snprintf(list[i].name, sizeof list[i].name, "%s.%s", prefix, names[i]);
    }
    return 3;
}

int layer_tensors(const dsmoe_layer_config *c, const dsmoe_layer_weights *w,
                  tensor list[MAX_TENSORS])
{
    int64_t n = c->hidden_size * c->moe_intermediate_size;
    int count = 0;
    assert_true(1 + 3 * (c->n_routed_experts + 1) <= MAX_TENSORS);
    list[count++] = (tensor){"gate", w->gate, c->n_routed_experts * c->hidden_size};
    for (int64_t i = 0; i < c->n_routed_experts; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "experts.%d", (int)i);
        count += add_expert(list + count, prefix, &w->experts[i], n);
    }
    if (c->n_shared_experts > 0)
        count +=
            add_expert(list + count, "shared_experts", &w->shared_experts, n * c->n_shared_experts);
    return count;
}

dsmoe_layer_config small_config(int64_t hidden, int64_t width, int64_t n_routed, int64_t k,
                                int64_t n_shared)
{
    dsmoe_layer_config config = dsmoe_layer_config_default();
    config.hidden_size = hidden;
    config.moe_intermediate_size = width;
    config.n_routed_experts = n_routed;
    config.num_experts_per_tok = k;
    config.n_shared_experts = n_shared;
    return config;
}

static void check(dsmoe_status status, const dsmoe_error *error, const char *what)
{
    if (status != DSMOE_OK) fail_msg("%s: %s", what, error->message);
}

static void *allocate(size_t size)
{
    void *memory = malloc(size ? size : 1);
    assert_non_null(memory);
    return memory;
}

static void make_weights(fixture *f, uint64_t seed)
{
    dsmoe_error error = {0};
    tensor list[MAX_TENSORS];
    check(dsmoe_layer_weights_create(&f->config, &f->weights, &error), &error, "weights");
    check(dsmoe_layer_weights_create(&f->config, &f->gradients, &error), &error, "gradients");
    int n = layer_tensors(&f->config, f->gradients, list);
    for (int i = 0; i < n; i++) fill_guard(list[i].data, list[i].n);
    if (f->weights->e_score_correction_bias) {
        fill_guard(f->gradients->e_score_correction_bias, f->config.n_routed_experts);
        fill_random(f->weights->e_score_correction_bias, f->config.n_routed_experts, seed + 99,
                    0.2);
    }
    n = layer_tensors(&f->config, f->weights, list);
    double deviation = 1.5 / sqrt((double)f->config.hidden_size);
    for (int i = 0; i < n; i++)
        fill_random(list[i].data, list[i].n, seed + 100 + (uint64_t)i, deviation);
    check(dsmoe_layer_create(&f->config, f->weights, &f->layer, &error), &error, "layer");
}

fixture fixture_make(dsmoe_layer_config config, int64_t n_sequences, int64_t sequence_length,
                     int n_threads, uint64_t seed)
{
    fixture f = {.config = config,
                 .n_sequences = n_sequences,
                 .sequence_length = sequence_length,
                 .n_tokens = n_sequences * sequence_length};
    make_weights(&f, seed);
    int64_t n = f.n_tokens * config.hidden_size;
    float **const rows[] = {&f.x, &f.dy, &f.y, &f.dx};
    for (int i = 0; i < 4; i++) {
        *rows[i] = allocate((size_t)n * sizeof(float));
        if (i < 2)
            fill_random(*rows[i], n, seed + (uint64_t)i, 1.0);
        else
            fill_guard(*rows[i], n);
    }
    size_t infer = dsmoe_layer_workspace_size(f.layer, f.n_tokens, n_threads);
    size_t train = dsmoe_layer_train_workspace_size(f.layer, f.n_tokens, n_threads);
    f.saved_size = dsmoe_layer_saved_size(f.layer, f.n_tokens);
    assert_true(infer > 0 && train > 0 && f.saved_size > 0);
    f.saved = allocate(f.saved_size);
    f.workspace = (dsmoe_workspace){.size = infer > train ? infer : train, .n_threads = n_threads};
    f.workspace.memory = allocate(f.workspace.size);
    memset(f.saved, 0xa5, f.saved_size);
    memset(f.workspace.memory, 0xa5, f.workspace.size);
    return f;
}

void fixture_free(fixture *f)
{
    dsmoe_layer_free(f->layer);
    dsmoe_layer_weights_free(f->weights);
    dsmoe_layer_weights_free(f->gradients);
    free(f->x);
    free(f->dy);
    free(f->y);
    free(f->dx);
    free(f->saved);
    free(f->workspace.memory);
    *f = (fixture){0};
}

void fixture_infer(fixture *f)
{
    dsmoe_error error = {0};
    check(dsmoe_layer_forward(f->layer, f->x, f->n_tokens, f->y, &f->workspace, &error), &error,
          "forward");
}

void fixture_forward(fixture *f)
{
    dsmoe_error error = {0};
    check(dsmoe_layer_forward_train(f->layer, f->x, f->n_sequences, f->sequence_length, f->y,
                                    f->saved, f->saved_size, &f->losses, &f->workspace, &error),
          &error, "forward_train");
}

void fixture_backward(fixture *f, bool accumulate)
{
    dsmoe_error error = {0};
    check(dsmoe_layer_backward(f->layer, f->x, f->dy, f->saved, f->dx, f->gradients, accumulate,
                               &f->workspace, &error),
          &error, "backward");
}

/* ---- the layer in plain double arithmetic --------------------------------------------------- */

static double *copy_doubles(const float *from, int64_t n)
{
    double *to = allocate((size_t)n * sizeof *to);
    for (int64_t i = 0; i < n; i++) to[i] = from[i];
    return to;
}

plain plain_of(const fixture *f)
{
    const dsmoe_layer_config *c = &f->config;
    plain p = {.config = *c,
               .n_sequences = f->n_sequences,
               .sequence_length = f->sequence_length,
               .n_tokens = f->n_tokens};
    tensor list[MAX_TENSORS];
    int n = layer_tensors(c, f->weights, list);
    p.n_tensors = n + 1;
    p.sizes[PLAIN_X] = f->n_tokens * c->hidden_size;
    p.tensors[PLAIN_X] = copy_doubles(f->x, p.sizes[PLAIN_X]);
    for (int i = 0; i < n; i++) {
        p.sizes[i + 1] = list[i].n;
        p.tensors[i + 1] = copy_doubles(list[i].data, list[i].n);
    }
    if (f->weights->e_score_correction_bias)
        p.bias = copy_doubles(f->weights->e_score_correction_bias, c->n_routed_experts);
    size_t tokens = (size_t)f->n_tokens, k = (size_t)c->num_experts_per_tok;
    p.y = allocate(tokens * (size_t)c->hidden_size * sizeof *p.y);
    p.scores = allocate(tokens * (size_t)c->n_routed_experts * sizeof *p.scores);
    p.chosen = allocate(tokens * k * sizeof *p.chosen);
    p.gates = allocate(tokens * k * sizeof *p.gates);
    p.hidden =
        allocate((size_t)((c->n_shared_experts + 1) * c->moe_intermediate_size) * sizeof *p.hidden);
    return p;
}

void plain_free(plain *p)
{
    for (int i = 0; i < p->n_tensors; i++) free(p->tensors[i]);
    free(p->bias);
    free(p->y);
    free(p->scores);
    free(p->chosen);
    free(p->gates);
    free(p->hidden);
    *p = (plain){0};
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void plain_softmax(double *values, int64_t n)
{
    double max = values[0], sum = 0;
    for (int64_t i = 1; i < n; i++) max = fmax(max, values[i]);
    for (int64_t i = 0; i < n; i++) sum += values[i] = exp(values[i] - max);
    for (int64_t i = 0; i < n; i++) values[i] /= sum;
}

static bool is_word(const char *word, const char *expected)
{
    return word && strcmp(word, expected) == 0;
}

/* The indices of n values, the largest first; for equal values the lower index first. */
static void sort_down(const double *values, int64_t n, int64_t *order)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t place = 0;
        for (int64_t j = 0; j < n; j++)
            place += values[j] > values[i] || (values[j] == values[i] && j < i);
        order[place] = i;
    }
}

enum { MOST_EXPERTS = 64 };

/* Marks the experts of all groups except the best as gone, and returns the distance between the last group
 * kept and the next. If topk_group groups have too few experts left, more groups are kept. */
static double plain_groups(const dsmoe_layer_config *c, const double *keys, bool *gone)
{
    int64_t size = c->n_routed_experts / c->n_group, order[MOST_EXPERTS], n_left = 0, kept;
    double value[MOST_EXPERTS];
    for (int64_t g = 0; g < c->n_group; g++) {
        double best[MOST_EXPERTS];
        int64_t down[MOST_EXPERTS], n = 0;
        for (int64_t i = g * size; i < (g + 1) * size; i++)
            if (!gone[i]) best[n++] = keys[i];
        sort_down(best, n, down);
        value[g] = n > 0 ? best[down[0]] : -INFINITY;
        if (is_word(c->topk_method, "noaux_tc") && n > 1) value[g] += best[down[1]];
    }
    sort_down(value, c->n_group, order);
    for (kept = 0; kept < c->topk_group || n_left < c->num_experts_per_tok; kept++)
        for (int64_t i = order[kept] * size; i < (order[kept] + 1) * size; i++) n_left += !gone[i];
    for (int64_t g = kept; g < c->n_group; g++)
        for (int64_t i = order[g] * size; i < (order[g] + 1) * size; i++) gone[i] = true;
    return kept < c->n_group ? value[order[kept - 1]] - value[order[kept]] : INFINITY;
}

double plain_gate(const dsmoe_layer_config *c, const double *bias, int64_t n_masked, double *scores,
                  int64_t *chosen, double *gates)
{
    int64_t n = c->n_routed_experts, k = c->num_experts_per_tok, order[MOST_EXPERTS], count = 0;
    double keys[MOST_EXPERTS], sum = 0, margin = INFINITY;
    bool gone[MOST_EXPERTS] = {false}, corrects = is_word(c->topk_method, "noaux_tc");
    assert_true(n <= MOST_EXPERTS);
    if (is_word(c->scoring_func, "sigmoid"))
        for (int64_t i = 0; i < n; i++) scores[i] = 1 / (1 + exp(-scores[i]));
    else
        plain_softmax(scores, n);
    for (int64_t i = 0; i < n; i++) keys[i] = corrects ? scores[i] + bias[i] : scores[i];
    sort_down(keys, n, order);
    for (int64_t m = 0; m < n_masked; m++) gone[order[m]] = true;
    if (c->n_group > 1 && (corrects || is_word(c->topk_method, "group_limited_greedy")))
        margin = plain_groups(c, keys, gone);
    for (int64_t i = 0; i < n && count <= k; i++) {
        if (gone[order[i]]) continue;
        if (count == k) margin = fmin(margin, keys[chosen[k - 1]] - keys[order[i]]);
        if (count++ < k) chosen[count - 1] = order[i];
    }
    bool normalises = c->norm_topk_prob && k > 1;
    double scale = c->routed_scaling_factor != 0 ? c->routed_scaling_factor : 1;
    for (int64_t s = 0; s < k; s++) sum += gates[s] = scores[chosen[s]];
    for (int64_t s = 0; s < k; s++) {
        if (normalises) gates[s] /= sum + 1e-20;
        if (corrects || !normalises) gates[s] *= scale;
    }
    return margin;
}

static void plain_route(plain *p, int64_t token)
{
    int64_t n = p->config.n_routed_experts, k = p->config.num_experts_per_tok;
    int64_t hidden = p->config.hidden_size;
    const double *x = p->tensors[PLAIN_X] + token * hidden;
    double *scores = p->scores + token * n;
    for (int64_t i = 0; i < n; i++) scores[i] = dot(p->tensors[PLAIN_GATE] + i * hidden, x, hidden);
    p->margin = fmin(p->margin, plain_gate(&p->config, p->bias, 0, scores, p->chosen + token * k,
                                           p->gates + token * k));
}

/* y += weight · down · (silu(gate · x) * (up · x)); `first` is the index of the gate_proj. */
static void plain_expert(plain *p, int first, int64_t width, double weight, const double *x,
                         double *y)
{
    int64_t hidden = p->config.hidden_size;
    const double *gate = p->tensors[first], *up = p->tensors[first + 1];
    const double *down = p->tensors[first + 2];
    for (int64_t j = 0; j < width; j++) {
        double a = dot(gate + j * hidden, x, hidden), b = dot(up + j * hidden, x, hidden);
        p->hidden[j] = a / (1 + exp(-a)) * b;
    }
    for (int64_t i = 0; i < hidden; i++) y[i] += weight * dot(down + i * width, p->hidden, width);
}

static void plain_token(plain *p, int64_t token)
{
    const dsmoe_layer_config *c = &p->config;
    int64_t hidden = c->hidden_size, k = c->num_experts_per_tok;
    const double *x = p->tensors[PLAIN_X] + token * hidden;
    double *y = p->y + token * hidden;
    for (int64_t i = 0; i < hidden; i++) y[i] = 0;
    for (int64_t s = 0; s < k; s++)
        plain_expert(p, PLAIN_EXPERTS + 3 * (int)p->chosen[token * k + s], c->moe_intermediate_size,
                     p->gates[token * k + s], x, y);
    if (c->n_shared_experts > 0)
        plain_expert(p, PLAIN_EXPERTS + 3 * (int)c->n_routed_experts,
                     c->n_shared_experts * c->moe_intermediate_size, 1.0, x, y);
}

/* The sum over groups of `size` experts of (mean of f)·(sum of P), for n tokens starting at `first`. P are
 * shares of the scores; for softmax they equal the scores. */
static double plain_balance(const plain *p, int64_t first, int64_t n, int64_t size)
{
    int64_t n_experts = p->config.n_routed_experts, k = p->config.num_experts_per_tok;
    double loss = 0;
    for (int64_t group = 0; group < n_experts; group += size) {
        double times_chosen = 0, scores = 0;
        for (int64_t t = first; t < first + n; t++) {
            for (int64_t s = 0; s < k; s++) {
                int64_t expert = p->chosen[t * k + s];
                times_chosen += expert >= group && expert < group + size;
            }
            double total = 0;
            for (int64_t i = 0; i < n_experts; i++) total += p->scores[t * n_experts + i];
            for (int64_t i = group; i < group + size; i++)
                scores += p->scores[t * n_experts + i] / total;
        }
        double f = times_chosen * (double)n_experts / (double)(k * n);
        loss += f / (double)size * scores / (double)n;
    }
    return loss;
}

void plain_run(plain *p)
{
    const dsmoe_layer_config *c = &p->config;
    p->margin = INFINITY;
    p->aux_loss = p->device_loss = 0;
    for (int64_t t = 0; t < p->n_tokens; t++) {
        plain_route(p, t);
        plain_token(p, t);
    }
    if (p->n_tokens == 0) return;
    int64_t n = c->seq_aux ? p->n_sequences : 1, length = p->n_tokens / n;
    for (int64_t s = 0; s < n; s++)
        p->aux_loss += c->aux_loss_alpha * plain_balance(p, s * length, length, 1) / (double)n;
    if (c->n_device_groups > 0)
        p->device_loss = c->device_loss_alpha *
                         plain_balance(p, 0, p->n_tokens, c->n_routed_experts / c->n_device_groups);
}
