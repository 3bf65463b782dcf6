/* sampler.c - chooses the next token.
 *
 * Penalties and biases turn the logits into scores. Tokens are ordered by falling score (equal scores by
 * rising id). top-k, top-p and min-p each keep a number of tokens at the beginning of that order, and the
 * smallest number counts. The vocabulary is never sorted: heaps find as many of the first tokens as the
 * limits need. The last step draws one of the remaining tokens at the temperature. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

enum {
    VOCAB_MAX = 1 << 24,
    LAST_N_MAX = 1 << 24,
    STREAM = 0x5a3b1e, /* of the random numbers, as a seed may have other uses too */
};

/* Small enough that no finite logit becomes infinite: the largest penalty for 2^32 tokens and the largest
 * bias are less than the rounding error of the largest float. */
static const double penalty_max = 100, bias_max = 1e6;

typedef struct candidate {
    double weight; /* e^(score - largest score), which is 1 for the likeliest */
    float score;
    int32_t id;
} candidate;

struct dsmoe_sampler {
    dsmoe_sampler_options options;
    int64_t vocab_size;
    float *scores;          /* [vocab_size] after penalties and biases */
    candidate *candidates;  /* [vocab_size] */
    uint32_t *counts;       /* [vocab_size] how often the text has each token */
    int32_t *recent;        /* [repeat_last_n] a ring: the last tokens of prompt and text */
    dsmoe_logit_bias *bias; /* [n_logit_bias] copy of the list; options.logit_bias points here */
    int64_t n_recent, next_recent;
    uint64_t n_drawn;
};

/* ---- creation ------------------------------------------------------------------------------ */

dsmoe_sampler_options dsmoe_sampler_options_default(void)
{
    return (dsmoe_sampler_options){.temperature = 0.8,
                                   .top_k = 40,
                                   .top_p = 0.95,
                                   .min_p = 0.05,
                                   .repeat_penalty = 1.0,
                                   .repeat_last_n = 64,
                                   .seed = 0};
}

static dsmoe_status check_options(const dsmoe_sampler_options *o, dsmoe_error *error)
{
    const struct {
        const char *name;
        double value, min, max;
    } numbers[] = {{"temperature", o->temperature, 0, FLT_MAX},
                   {"top_p", o->top_p, 0, 1},
                   {"min_p", o->min_p, 0, 1},
                   {"repeat_penalty", o->repeat_penalty, FLT_MIN, FLT_MAX},
                   {"presence_penalty", o->presence_penalty, -penalty_max, penalty_max},
                   {"frequency_penalty", o->frequency_penalty, -penalty_max, penalty_max}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!(numbers[i].value >= numbers[i].min && numbers[i].value <= numbers[i].max))
            return status_fail(error, DSMOE_ERROR_ARGUMENT, "%s is %g, outside %g to %g",
                               numbers[i].name, numbers[i].value, numbers[i].min, numbers[i].max);
    if (o->top_k < 0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "top_k is %" PRId64 "; it must be 0 (all) or more", o->top_k);
    if (o->repeat_last_n < 0 || o->repeat_last_n > LAST_N_MAX)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "repeat_last_n is %" PRId64 ", outside 0 to %d", o->repeat_last_n,
                           LAST_N_MAX);
    return DSMOE_OK;
}

static dsmoe_status check_bias(const dsmoe_sampler_options *o, int64_t vocab_size,
                               dsmoe_error *error)
{
    if (o->n_logit_bias < 0 || o->n_logit_bias > DSMOE_LOGIT_BIAS_MAX)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "logit_bias has %" PRId64 " entries, outside 0 to %d", o->n_logit_bias,
                           DSMOE_LOGIT_BIAS_MAX);
    if (o->n_logit_bias > 0 && !o->logit_bias)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "logit_bias has %" PRId64 " entries, but none are given",
                           o->n_logit_bias);
    for (int64_t i = 0; i < o->n_logit_bias; i++) {
        const dsmoe_logit_bias *b = &o->logit_bias[i];
        if (b->id < 0 || b->id >= vocab_size)
            return status_fail(error, DSMOE_ERROR_ARGUMENT,
                               "logit_bias names token %" PRId32 ", outside 0 to %" PRId64, b->id,
                               vocab_size - 1);
        if (!(b->bias <= bias_max)) /* also true for NaN */
            return status_fail(error, DSMOE_ERROR_ARGUMENT,
                               "logit_bias of token %" PRId32 " is %g, not a number up to %g",
                               b->id, b->bias, bias_max);
    }
    return DSMOE_OK;
}

/* The struct comes first in the layout, so its address is that of the allocation. */
static dsmoe_sampler *place_sampler(arena *a, const dsmoe_sampler_options *options,
                                    int64_t vocab_size)
{
    dsmoe_sampler *sampler = arena_take(a, 1, sizeof *sampler);
    float *scores = arena_take(a, vocab_size, sizeof *scores);
    candidate *candidates = arena_take(a, vocab_size, sizeof *candidates);
    uint32_t *counts = arena_take(a, vocab_size, sizeof *counts);
    int32_t *recent = arena_take(a, options->repeat_last_n, sizeof *recent);
    dsmoe_logit_bias *bias = arena_take(a, options->n_logit_bias, sizeof *bias);
    if (a->base)
        *sampler = (dsmoe_sampler){.options = *options,
                                   .vocab_size = vocab_size,
                                   .scores = scores,
                                   .candidates = candidates,
                                   .counts = counts,
                                   .recent = recent,
                                   .bias = bias};
    return sampler;
}

/* Copies the list, since the caller's may not exist after the creation. */
static void copy_bias(dsmoe_sampler *sampler)
{
    const dsmoe_logit_bias *given = sampler->options.logit_bias;
    for (int64_t i = 0; i < sampler->options.n_logit_bias; i++) {
        sampler->bias[i] = given[i];
        if (given[i].bias <= DSMOE_LOGIT_BIAS_BAN) sampler->bias[i].bias = -INFINITY;
    }
    sampler->options.logit_bias = sampler->bias;
}

dsmoe_status dsmoe_sampler_create(const dsmoe_sampler_options *options, int64_t vocab_size,
                                  dsmoe_sampler **sampler, dsmoe_error *error)
{
    if (!options || !sampler)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "no options or no place for the sampler given");
    *sampler = NULL;
    STATUS_TRY(check_options(options, error));
    if (vocab_size < 1 || vocab_size > VOCAB_MAX)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "vocab_size is %" PRId64 ", outside 1 to %d", vocab_size, VOCAB_MAX);
    STATUS_TRY(check_bias(options, vocab_size, error));
    arena measure = arena_over(NULL);
    place_sampler(&measure, options, vocab_size);
    void *memory = memory_alloc(arena_size(&measure));
    if (!memory) return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for a sampler");
    arena place = arena_over(memory);
    *sampler = place_sampler(&place, options, vocab_size);
    copy_bias(*sampler);
    return DSMOE_OK;
}

void dsmoe_sampler_free(dsmoe_sampler *sampler) { free(sampler); }

/* ---- the text ------------------------------------------------------------------------------ */

void dsmoe_sampler_reset(dsmoe_sampler *sampler)
{
    sampler->n_recent = sampler->next_recent = 0;
    memset(sampler->counts, 0, (size_t)sampler->vocab_size * sizeof *sampler->counts);
}

static bool is_token(const dsmoe_sampler *sampler, int32_t id)
{
    return id >= 0 && id < sampler->vocab_size;
}

static void remember(dsmoe_sampler *sampler, int32_t token)
{
    int64_t capacity = sampler->options.repeat_last_n;
    if (capacity == 0) return;
    sampler->recent[sampler->next_recent] = token;
    sampler->next_recent = (sampler->next_recent + 1) % capacity;
    if (sampler->n_recent < capacity) sampler->n_recent++;
}

void dsmoe_sampler_accept_prompt(dsmoe_sampler *sampler, const int32_t *tokens, int64_t n_tokens)
{
    for (int64_t i = 0; i < n_tokens; i++)
        if (is_token(sampler, tokens[i])) remember(sampler, tokens[i]);
}

void dsmoe_sampler_accept(dsmoe_sampler *sampler, int32_t token)
{
    if (!is_token(sampler, token)) return;
    remember(sampler, token);
    if (sampler->counts[token] < UINT32_MAX) sampler->counts[token]++;
}

/* ---- scores -------------------------------------------------------------------------------- */

/* Scores are computed from logits, so a token that occurs several times is penalised only once. */
static void penalise_recent(dsmoe_sampler *sampler, const float *logits)
{
    float penalty = (float)sampler->options.repeat_penalty;
    if (penalty == 1.0f) return;
    for (int64_t i = 0; i < sampler->n_recent; i++) {
        int32_t id = sampler->recent[i];
        sampler->scores[id] = logits[id] > 0.0f ? logits[id] / penalty : logits[id] * penalty;
    }
}

static void penalise_text(dsmoe_sampler *sampler)
{
    double presence = sampler->options.presence_penalty;
    double frequency = sampler->options.frequency_penalty;
    if (presence == 0.0 && frequency == 0.0) return;
    for (int64_t i = 0; i < sampler->vocab_size; i++)
        if (sampler->counts[i] > 0)
            sampler->scores[i] =
                (float)(sampler->scores[i] - presence - frequency * sampler->counts[i]);
}

/* Biases come last, so that no penalty weakens a ban or a large bias. If a banned token's logit is NaN or
 * inf, its score is NaN, so the ban does not hide the error. */
static void add_bias(dsmoe_sampler *sampler)
{
    for (int64_t i = 0; i < sampler->options.n_logit_bias; i++) {
        const dsmoe_logit_bias *b = &sampler->bias[i];
        sampler->scores[b->id] = (float)(sampler->scores[b->id] + b->bias);
    }
}

static void make_scores(dsmoe_sampler *sampler, const float *logits)
{
    memcpy(sampler->scores, logits, (size_t)sampler->vocab_size * sizeof *logits);
    penalise_recent(sampler, logits);
    penalise_text(sampler);
    add_bias(sampler);
}

/* The error if all scores are -inf: caused by the model, or by the options of the sampler. */
static dsmoe_status no_token_left(const dsmoe_sampler *sampler, const float *logits,
                                  dsmoe_error *error)
{
    for (int64_t i = 0; i < sampler->vocab_size; i++)
        if (logits[i] > -INFINITY)
            return status_fail(error, DSMOE_ERROR_ARGUMENT,
                               "no token is left: logit_bias and penalties ban every token");
    return status_fail(error, DSMOE_ERROR_NONFINITE, "the logits of all tokens are -inf");
}

/* Finds the likeliest token; of several the one with the lowest id. A token with the score -inf cannot be
 * chosen. */
static dsmoe_status find_best(const dsmoe_sampler *sampler, const float *logits, int32_t *best,
                              dsmoe_error *error)
{
    float largest = -INFINITY;
    *best = -1;
    for (int64_t i = 0; i < sampler->vocab_size; i++) {
        float score = sampler->scores[i];
        if (!(score <= FLT_MAX)) /* also true for NaN */
            return status_fail(error, DSMOE_ERROR_NONFINITE, "the logit of token %" PRId64 " is %g",
                               i, (double)score);
        if (score > largest) {
            largest = score;
            *best = (int32_t)i;
        }
    }
    return *best < 0 ? no_token_left(sampler, logits, error) : DSMOE_OK;
}

/* ---- the order of the candidates ----------------------------------------------------------- */

static bool comes_before(const candidate *a, const candidate *b)
{
    return a->score > b->score || (a->score == b->score && a->id < b->id);
}

/* Candidates that may still be chosen. */
typedef struct selection {
    candidate *at;
    int64_t n;
} selection;

/* Whether the first or the last candidate in that order is on top of a heap. */
typedef enum heap_top { FIRST_ON_TOP, LAST_ON_TOP } heap_top;

static bool is_above(const candidate *a, const candidate *b, heap_top top)
{
    return top == FIRST_ON_TOP ? comes_before(a, b) : comes_before(b, a);
}

/* Moves the candidate at `i` down to its place. */
static void sift_down(selection heap, int64_t i, heap_top top)
{
    candidate moved = heap.at[i];
    for (int64_t child; (child = 2 * i + 1) < heap.n; i = child) {
        if (child + 1 < heap.n && is_above(&heap.at[child + 1], &heap.at[child], top)) child++;
        if (!is_above(&heap.at[child], &moved, top)) break;
        heap.at[i] = heap.at[child];
    }
    heap.at[i] = moved;
}

static void make_heap(selection heap, heap_top top)
{
    for (int64_t i = heap.n / 2 - 1; i >= 0; i--) sift_down(heap, i, top);
}

/* The first k of all tokens that can be chosen. The top of the heap is the one that the next better candidate
 * replaces; of equals the earlier stays. */
static selection list_first(dsmoe_sampler *sampler, int64_t k)
{
    const float *scores = sampler->scores;
    selection s = {sampler->candidates, 0};
    int64_t i = 0;
    for (; i < sampler->vocab_size && s.n < k; i++)
        if (scores[i] > -INFINITY) s.at[s.n++] = (candidate){.score = scores[i], .id = (int32_t)i};
    if (i == sampler->vocab_size) return s;
    make_heap(s, LAST_ON_TOP);
    for (; i < sampler->vocab_size; i++) {
        if (!(scores[i] > s.at[0].score)) continue;
        s.at[0] = (candidate){.score = scores[i], .id = (int32_t)i};
        sift_down(s, 0, LAST_ON_TOP);
    }
    return s;
}

/* Keeps the first candidates whose weights add up to `enough`, at least one. They are taken off the heap one
 * by one and put after the rest of it. */
static selection keep_weight(selection s, double enough)
{
    selection heap = s;
    double reached = 0;
    make_heap(heap, FIRST_ON_TOP);
    do {
        candidate first = heap.at[0];
        heap.at[0] = heap.at[--heap.n];
        heap.at[heap.n] = first;
        if (heap.n > 0) sift_down(heap, 0, FIRST_ON_TOP);
        reached += first.weight;
    } while (heap.n > 0 && reached < enough);
    return (selection){s.at + heap.n, s.n - heap.n};
}

/* ---- choosing ------------------------------------------------------------------------------ */

/* Sets the weights, which are probabilities at temperature 1 except for a factor. Returns their sum. */
static double weigh(selection s, float largest)
{
    double total = 0;
    for (int64_t i = 0; i < s.n; i++)
        total += s.at[i].weight = exp((double)s.at[i].score - (double)largest);
    return total;
}

/* Draws one of the selection at the sampler's temperature, after min-p. */
static int32_t draw(dsmoe_sampler *sampler, selection s, float largest)
{
    const dsmoe_sampler_options *o = &sampler->options;
    double total = 0;
    int64_t kept = 0;
    for (int64_t i = 0; i < s.n; i++) {
        if (s.at[i].weight < o->min_p) continue;
        candidate c = s.at[i];
        c.weight = exp(((double)c.score - (double)largest) / o->temperature);
        total += c.weight;
        s.at[kept++] = c;
    }
    uint64_t bits = rng_bits(o->seed, STREAM, sampler->n_drawn++);
    double target = (double)(bits >> 11) * 0x1p-53 * total;
    int64_t i = 0;
    for (; i < kept - 1 && target >= s.at[i].weight; i++) target -= s.at[i].weight;
    while (s.at[i].weight == 0.0) i--; /* rounding may lead past the last with a weight */
    return s.at[i].id;
}

dsmoe_status dsmoe_sampler_pick(dsmoe_sampler *sampler, const float *logits, int32_t *token,
                                dsmoe_error *error)
{
    if (!sampler || !logits || !token)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "no sampler, no logits or no place for the token given");
    const dsmoe_sampler_options *o = &sampler->options;
    make_scores(sampler, logits);
    int32_t best;
    STATUS_TRY(find_best(sampler, logits, &best, error));
    if (o->temperature == 0.0) {
        *token = best;
        return DSMOE_OK;
    }
    float largest = sampler->scores[best];
    selection s = list_first(sampler, o->top_k > 0 ? o->top_k : sampler->vocab_size);
    double total = weigh(s, largest);
    if (o->top_p < 1.0) s = keep_weight(s, o->top_p * total);
    *token = draw(sampler, s, largest);
    return DSMOE_OK;
}
