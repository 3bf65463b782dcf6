/* test_latent_model.c - models with latent attention and the gates of V2 and V3 against plain double
 * arithmetic: one model of each kind, and random odd shapes. */
#include "support.h"

#include <stdio.h>

#include "naive_check.h"
#include "scratch.h"

static const char *const dtypes[] = {"F32", "F16", "BF16"};

/* ---- one of each kind ------------------------------------------------------------------------- */

typedef void change_fn(dsmoe_config *config);

static void as_it_is(dsmoe_config *c) { (void)c; }
static void whole_queries(dsmoe_config *c) { c->q_lora_rank = 0; }

static void without_yarn(dsmoe_config *c)
{
    c->rope_scaling = DSMOE_ROPE_NONE;
    c->rope_scaling_factor = 1;
}

static void groups_of_v2(dsmoe_config *c)
{
    c->n_routed_experts = 12;
    c->topk_method = DSMOE_TOPK_GROUP_LIMITED_GREEDY;
    c->n_group = 4;
    c->topk_group = 2;
    c->routed_scaling_factor = 16;
}

/* V2 does not use the scaling factor when weights are normalised. */
static void normalised(dsmoe_config *c)
{
    c->norm_topk_prob = true;
    c->routed_scaling_factor = 7;
}

static void smallest(dsmoe_config *c)
{
    c->hidden_size = c->kv_lora_rank = c->q_lora_rank = 1;
    c->qk_nope_head_dim = c->v_head_dim = 1;
    c->qk_rope_head_dim = 2;
    c->num_attention_heads = c->num_key_value_heads = 1;
}

static void many_heads(dsmoe_config *c)
{
    c->hidden_size = 10;
    c->num_attention_heads = c->num_key_value_heads = 67;
    c->qk_nope_head_dim = 3;
    c->v_head_dim = 5;
}

static void gate_of_v3(dsmoe_config *c) { *c = made_v3_config(); }

static void moonlight(dsmoe_config *c)
{
    *c = made_v3_config();
    c->q_lora_rank = c->n_group = c->topk_group = 0;
    c->routed_scaling_factor = 2.446;
    without_yarn(c);
}

static void v3_not_normalised(dsmoe_config *c)
{
    *c = made_v3_config();
    c->norm_topk_prob = false;
    c->rms_norm_eps = 1e-3; /* the inner norms keep theirs */
}

static const struct {
    const char *name;
    change_fn *change;
    int64_t n_tokens, n_batch;
} cases[] = {
    {"latent", as_it_is, 37, 0},
    {"one token", as_it_is, 1, 0},
    {"beyond the original length", as_it_is, 300, 70},
    {"queries not compressed", whole_queries, 37, 16},
    {"no YaRN", without_yarn, 37, 0},
    {"V2's groups", groups_of_v2, 37, 8},
    {"V2, normalised", normalised, 20, 0},
    {"sizes of one", smallest, 20, 0},
    {"67 heads", many_heads, 20, 0},
    {"V3's gate", gate_of_v3, 37, 0},
    {"Moonlight's gate", moonlight, 37, 8},
    {"V3, not normalised", v3_not_normalised, 20, 0},
};

static void test_kinds(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        for (size_t d = 0; d < COUNT(dtypes); d++) {
            dsmoe_config config = made_latent_config();
            cases[i].change(&config);
            naive_check(&(naive_case){cases[i].name, &config, dtypes[d], (i + d) % 2 == 0,
                                      9 * i + d + 1, cases[i].n_tokens, cases[i].n_batch, 0},
                        directory);
        }
    made_model_remove(directory);
}

/* ---- random shapes ------------------------------------------------------------------------------ */

static int64_t pick(uint64_t *state, int64_t low, int64_t high)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return low + (int64_t)((*state >> 33) % (uint64_t)(high - low + 1));
}

static void pick_gate(uint64_t *r, dsmoe_config *c)
{
    int64_t size = pick(r, 2, 5);
    c->n_group = pick(r, 1, 4);
    c->n_routed_experts = c->n_group * size;
    c->topk_group = pick(r, 1, c->n_group);
    c->num_experts_per_tok = pick(r, 1, c->topk_group * size);
    c->n_shared_experts = pick(r, 0, 2);
    c->norm_topk_prob = pick(r, 0, 1);
    c->routed_scaling_factor = (double)pick(r, 1, 40) / 8;
    c->topk_method = pick(r, 0, 1) ? DSMOE_TOPK_NOAUX_TC : DSMOE_TOPK_GROUP_LIMITED_GREEDY;
    if (c->topk_method == DSMOE_TOPK_NOAUX_TC) {
        c->model_type = DSMOE_DEEPSEEK_V3;
        c->scoring_func = DSMOE_SCORING_SIGMOID;
    } else if (c->n_group == 1) {
        c->topk_method = DSMOE_TOPK_GREEDY;
    }
    if (c->n_group == 1) c->n_group = c->topk_group = 0;
}

static dsmoe_config pick_config(uint64_t *r)
{
    dsmoe_config c = made_latent_config();
    c.vocab_size = pick(r, 17, 90);
    c.hidden_size = pick(r, 3, 75);
    c.intermediate_size = pick(r, 1, 70);
    c.moe_intermediate_size = pick(r, 1, 40);
    c.num_hidden_layers = pick(r, 1, 4);
    c.first_k_dense_replace = pick(r, 0, 1);
    c.num_attention_heads = c.num_key_value_heads = pick(r, 1, 9);
    c.kv_lora_rank = pick(r, 1, 80);
    c.q_lora_rank = pick(r, 0, 1) ? pick(r, 1, 50) : 0;
    c.qk_nope_head_dim = pick(r, 1, 40);
    c.qk_rope_head_dim = 2 * pick(r, 1, 17);
    c.v_head_dim = pick(r, 1, 40);
    c.rope_theta = (double)pick(r, 100, 50000);
    c.rope_scaling_factor = (double)pick(r, 8, 320) / 8;
    c.original_max_position_embeddings = pick(r, 4, 600);
    c.mscale = (double)pick(r, 0, 10) / 8;
    c.mscale_all_dim = (double)pick(r, 0, 10) / 8;
    if (pick(r, 0, 2) == 0) c.rope_scaling = DSMOE_ROPE_NONE;
    c.tie_word_embeddings = pick(r, 0, 3) == 0;
    pick_gate(r, &c);
    return c;
}

/* With large gate values and few tokens some float32 errors are larger. */
static void test_random_shapes(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        uint64_t random = (uint64_t)i + 1;
        char name[32];
        snprintf(name, sizeof name, "random shape %d", i);
        dsmoe_config config = pick_config(&random);
        int64_t n_tokens = pick(&random, 1, 60), n_batch = pick(&random, 0, 1) * 16;
        naive_check(&(naive_case){name, &config, dtypes[i % 3], i % 2, (uint64_t)i + 500, n_tokens,
                                  n_batch, 3e-5},
                    directory);
    }
    made_model_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_random_shapes),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
