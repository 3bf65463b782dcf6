/* test_same_bits.c - a sequence's logits have the same bits however its tokens are given: in one call, in
 * pieces of any size, one by one, alone or with other sequences, computed or found in existing pages. This
 * holds for quantised weights, whose products have that property, for float weights if the engine is told
 * so, and for every type of KV cache. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "made_gguf.h"
#include "model/model.h"

enum { VOCAB = 61, N_TOKENS = 300, SEQUENCES = 3, SHARED = 200, MAX_THREADS = 3 };

static const dsmoe_dtype kv_types[] = {DSMOE_F32, DSMOE_F16, DSMOE_Q8_0};

/* A model, texts, and the logits of each text alone in one call. */
typedef struct fixed {
    made_model made;
    dsmoe_model *model;
    dsmoe_dtype kv_type;
    bool same_bits;
    int32_t tokens[SEQUENCES][N_TOKENS];
    float logits[SEQUENCES][N_TOKENS][VOCAB];
} fixed;

static fixed f;

/* ---- a seed's decisions --------------------------------------------------------------------- */

typedef struct dice {
    uint64_t seed, n;
} dice;

/* A number from 1 to `most`. */
static int64_t roll(dice *d, int64_t most)
{
    return 1 + (int64_t)(rng_bits(d->seed, 7, d->n++) % (uint64_t)most);
}

/* The length of the next piece: a single token, a few, or many. */
static int64_t roll_piece(dice *d, int64_t left)
{
    static const int64_t most[] = {1, 1, 1, 3, 8, 20, 64, 200};
    int64_t n = roll(d, most[roll(d, 8) - 1]);
    return n < left ? n : left;
}

/* ---- running -------------------------------------------------------------------------------- */

static dsmoe_engine *engine_of(int64_t n_batch, int n_threads)
{
    dsmoe_error error = {0};
    dsmoe_engine *engine;
    dsmoe_engine_options options = {.n_ctx = N_TOKENS,
                                    .n_sequences = SEQUENCES,
                                    .n_batch = n_batch,
                                    .n_threads = n_threads,
                                    .kv_type = f.kv_type,
                                    .same_bits = f.same_bits};
    must(dsmoe_engine_create(f.model, &options, &engine, &error), &error, "an engine");
    return engine;
}

/* A text in progress, whose logits are compared. */
typedef struct follower {
    const char *label;
    int text;
    int64_t done;
    dsmoe_sequence *sequence;
} follower;

/* A sequence for that text, which may find a part of it in the engine's pages. */
static follower follow(dsmoe_engine *engine, const char *label, int text)
{
    dsmoe_error error = {0};
    follower at = {.label = label, .text = text};
    must(dsmoe_sequence_begin(engine, f.tokens[text], N_TOKENS, &at.sequence, &error), &error,
         label);
    at.done = dsmoe_sequence_length(at.sequence);
    return at;
}

static void keep_row(void *context, int64_t row, const float *logits)
{
    const follower *at = context;
    memcpy(f.logits[at->text][at->done + row], logits, VOCAB * sizeof *logits);
}

static void compare_row(void *context, int64_t row, const float *logits)
{
    const follower *at = context;
    if (memcmp(f.logits[at->text][at->done + row], logits, VOCAB * sizeof *logits) != 0)
        fail_msg("%s: token %d of text %d differs", at->label, (int)(at->done + row), at->text);
}

static dsmoe_turn turn_of(follower *at, int64_t n, dsmoe_logits_fn *visit)
{
    return (dsmoe_turn){.sequence = at->sequence,
                        .tokens = f.tokens[at->text] + at->done,
                        .n_tokens = n,
                        .n_logits = n,
                        .visit = visit,
                        .context = at};
}

static void run_at_once(void)
{
    for (int i = 0; i < SEQUENCES; i++) {
        dsmoe_engine *engine = engine_of(N_TOKENS, 1);
        dsmoe_error error = {0};
        follower at = follow(engine, "at once", i);
        dsmoe_turn turn = turn_of(&at, N_TOKENS, keep_row);
        must(dsmoe_engine_forward(engine, &turn, 1, &error), &error, "at once");
        dsmoe_engine_free(engine);
    }
}

/* Sometimes starts a text again from the pages that are left of it, or rewinds it a little. */
static void disturb(dsmoe_engine *engine, follower *at, dice *d)
{
    if (roll(d, 12) == 1) {
        dsmoe_sequence_free(at->sequence);
        *at = follow(engine, at->label, at->text);
    } else if (roll(d, 12) == 1 && at->done > 0) {
        at->done -= roll(d, at->done);
        rewind_to(at->sequence, at->done);
    }
}

/* Runs all texts in random pieces. Not all texts take part in each pass. */
static void run_pieces(const char *label, dice *d)
{
    follower at[SEQUENCES];
    dsmoe_error error = {0};
    dsmoe_engine *engine = engine_of(roll(d, N_TOKENS), (int)roll(d, MAX_THREADS));
    for (int i = 0; i < SEQUENCES; i++) at[i] = follow(engine, label, i);
    for (int n_turns = 1; n_turns > 0;) {
        dsmoe_turn turns[SEQUENCES];
        n_turns = 0;
        for (int i = 0; i < SEQUENCES; i++) {
            if (at[i].done == N_TOKENS) continue;
            disturb(engine, &at[i], d);
            if (n_turns == 0 || roll(d, 4) > 1)
                turns[n_turns++] =
                    turn_of(&at[i], roll_piece(d, N_TOKENS - at[i].done), compare_row);
        }
        must(dsmoe_engine_forward(engine, turns, n_turns, &error), &error, label);
        for (int i = 0; i < n_turns; i++) ((follower *)turns[i].context)->done += turns[i].n_tokens;
    }
    dsmoe_engine_free(engine);
}

static void run_one_by_one(const char *label)
{
    dsmoe_engine *engine = engine_of(1, 2);
    dsmoe_error error = {0};
    for (follower at = follow(engine, label, 0); at.done < N_TOKENS; at.done++) {
        dsmoe_turn turn = turn_of(&at, 1, compare_row);
        must(dsmoe_engine_forward(engine, &turn, 1, &error), &error, label);
    }
    dsmoe_engine_free(engine);
}

/* ---- models --------------------------------------------------------------------------------- */

typedef struct shape {
    dsmoe_dtype type;
    int64_t n_heads, n_kv_heads;
    bool dynamic; /* sets dynamic RoPE, which these files cannot store */
} shape;

static void open_fixed(const shape *s)
{
    dsmoe_config c = made_config();
    c.num_hidden_layers = 2;
    c.n_routed_experts = 4;
    c.num_experts_per_tok = 2;
    c.n_shared_experts = 1;
    c.hidden_size = c.intermediate_size = c.moe_intermediate_size = 256;
    c.num_attention_heads = s->n_heads;
    c.num_key_value_heads = s->n_kv_heads;
    f.made = made_model_create(&c, "F32", 31);
    made_gguf_write(&f.made, made_file, &(made_gguf_options){.type = s->type, .has_type = true});
    f.model = open_model(made_file);
    for (int i = 0; i < SEQUENCES; i++) made_tokens(&f.made, f.tokens[i], N_TOKENS, 1 + i);
    memcpy(f.tokens[1], f.tokens[0], SHARED * sizeof f.tokens[0][0]); /* a shared prefix */
    f.same_bits = !dtype_is_block(s->type);
    if (!s->dynamic) return;
    f.model->config.rope_scaling = DSMOE_ROPE_DYNAMIC;
    f.model->config.rope_scaling_factor = 2;
    f.model->config.max_position_embeddings = 100;
}

static void close_fixed(void)
{
    dsmoe_model_free(f.model);
    made_model_free(&f.made);
}

static void check_shape(const shape *s, int n_schedules)
{
    open_fixed(s);
    for (size_t t = 0; t < COUNT(kv_types); t++) {
        f.kv_type = kv_types[t];
        run_at_once();
        char label[96];
        for (int i = 0; i < n_schedules; i++) {
            dice d = {.seed = (uint64_t)(1000 * t + 100 * s->type + i)};
            snprintf(label, sizeof label, "%s, %d/%d heads, cache %s, schedule %d",
                     dsmoe_dtype_name(s->type), (int)s->n_heads, (int)s->n_kv_heads,
                     dsmoe_dtype_name(f.kv_type), i);
            run_pieces(label, &d);
        }
        run_one_by_one("one by one");
    }
    close_fixed();
}

/* Plain C is slow and has only one way to compute; sanitizers are slower still. */
static int schedules(void) { return kernels_get() == &kernels_scalar ? 1 : SCHEDULES; }

static void test_multi_head(void **state)
{
    (void)state;
    check_shape(&(shape){DSMOE_Q8_0, 4, 4, false}, schedules());
    check_shape(&(shape){DSMOE_Q4_K, 2, 2, false}, schedules());
}

/* A few query heads for each key-value head, and more than fit a tile. */
static void test_grouped_query(void **state)
{
    (void)state;
    check_shape(&(shape){DSMOE_Q8_0, 8, 2, false}, schedules());
    check_shape(&(shape){DSMOE_Q4_K, 8, 1, false}, schedules());
}

/* Float types add in one order for few rows and in another for many, unless the engine is told
 * otherwise. */
static void test_float_types(void **state)
{
    (void)state;
    check_shape(&(shape){DSMOE_F32, 4, 2, false}, (schedules() + 1) / 2);
    check_shape(&(shape){DSMOE_BF16, 4, 4, false}, (schedules() + 1) / 2);
    check_shape(&(shape){DSMOE_F16, 8, 2, false}, (schedules() + 1) / 2);
}

/* After max_position_embeddings the angles depend on the token's own position. */
static void test_dynamic_rope(void **state)
{
    (void)state;
    check_shape(&(shape){DSMOE_Q8_0, 4, 2, true}, (schedules() + 1) / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_multi_head),
        cmocka_unit_test(test_grouped_query),
        cmocka_unit_test(test_float_types),
        cmocka_unit_test(test_dynamic_rope),
    };
    return cmocka_run_group_tests(tests, made_gguf_set_up, made_gguf_tear_down);
}
