/* made_run.c - writes made-up runs and comparisons that look like real ones. */
#include "made_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "report/metrics.h"

/* ---- a clock that this file sets, and chance ------------------------------------------------- */

static double made_time = 1.75e9;

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    now->tv_sec = (time_t)made_time;
    now->tv_nsec = (long)(1e9 * (made_time - floor(made_time)));
    return 0;
}

static double normal(uint64_t stream, uint64_t index)
{
    float out;
    rng_normal(&out, 1, 7, stream, index, 1);
    return (double)out;
}

static double uniform(uint64_t stream, uint64_t index)
{
    return (double)(rng_bits(11, stream, index) >> 11) * 0x1p-53;
}

/* ---- a run ---------------------------------------------------------------------------------- */

static const char *const kinds[] = {"arithmetic", "brackets", "dates", "records",
                                    "stories",    "C code",   "perl",  "prose"};

static double true_loss(const made_run *run, int64_t step)
{
    double share = (double)step / (double)run->n_steps;
    double loss = 1.35 + 7.6 * pow(1 + 160 * share, -0.75);
    return share > 0.8 ? loss - 0.08 * (share - 0.8) / 0.2 : loss; /* the learning rate falls */
}

static double rate(const made_run *run, int64_t step)
{
    double warm = (double)run->n_steps / 20, share = (double)step / (double)run->n_steps;
    double lr = 1.08e-3 * fmin(1, (double)step / warm);
    return lr * (share >= 0.9 ? 0.1 : share >= 0.8 ? 0.316 : 1);
}

/* How often an expert is chosen: early on chance favours some experts, later balancing keeps them close. */
static double affinity(const made_run *run, int64_t step, int64_t layer, int64_t expert)
{
    double share = (double)step / (double)run->n_steps;
    uint64_t at = (uint64_t)(layer * 4096 + expert);
    double early = 1.1 * exp(-9 * share), late = 0.34 * (1 - exp(-6 * share));
    double drift = 0.12 * normal(3, at + ((uint64_t)step << 32));
    return exp2(early * normal(1, at) + late * normal(2, at) + drift);
}

static void put_load(metrics *m, const made_run *run, int64_t step)
{
    int64_t *load = calloc((size_t)(run->n_layers * run->n_experts), sizeof *load);
    assert_non_null(load);
    for (int64_t l = 0; l < run->n_layers; l++)
        for (int64_t e = 0; e < run->n_experts; e++)
            load[l * run->n_experts + e] = (int64_t)(3000 * affinity(run, step, l, e));
    assert_int_equal(metrics_put_load(m, step, load, run->n_layers, run->n_experts, NULL), 0);
    free(load);
}

static void put_step(metrics *m, const made_run *run, int64_t step, int64_t *n_skipped)
{
    dsmoe_layer_losses layers[128];
    double share = (double)step / (double)run->n_steps, sum = 0;
    uint64_t at = (uint64_t)step;
    for (int64_t l = 0; l < run->n_layers; l++) {
        double over = (0.5 + 0.07 * (double)l) * exp(-12 * share) + 0.02;
        layers[l].aux_loss = (float)(0.01 * (1 + over * (1 + 0.15 * normal(20 + (uint64_t)l, at))));
        layers[l].device_loss = 0;
        sum += (double)layers[l].aux_loss;
    }
    bool skipped = run->skips && (step == run->n_steps / 7 || step == run->n_steps / 3);
    *n_skipped += skipped;
    metrics_step s = {.step = step,
                      .tokens = step * 2048,
                      .skipped = *n_skipped,
                      .loss = skipped ? NAN : true_loss(run, step) * (1 + 0.03 * normal(4, at)),
                      .aux_loss = sum,
                      .lr = rate(run, step),
                      .grad_norm = (0.35 + 6 * exp(-60 * share)) * exp(0.35 * normal(5, at)),
                      .tokens_per_s = 8200 + 350 * normal(6, at) - 2500 * (uniform(7, at) < 0.02),
                      .imbalance = 1.6 + 3 * exp(-12 * share) + 0.15 * fabs(normal(8, at)),
                      .layers = layers,
                      .n_layers = run->n_layers};
    made_time += 2048 / s.tokens_per_s * (double)run->log_every;
    assert_int_equal(metrics_put_step(m, &s, NULL), 0);
    if (skipped) assert_int_equal(metrics_put_skip(m, step, "the loss is not finite", NULL), 0);
}

static void put_eval(metrics *m, const made_run *run, int64_t step)
{
    double losses[8], sum = 0;
    for (int k = 0; k < run->n_kinds; k++) {
        losses[k] =
            true_loss(run, step) * (0.6 + 0.13 * k) * (1 + 0.01 * normal(9, (uint64_t)step));
        sum += losses[k] / run->n_kinds;
    }
    if (run->n_kinds == 0) sum = 1.03 * true_loss(run, step);
    assert_int_equal(metrics_put_eval(m,
                                      &(metrics_eval){.step = step,
                                                      .loss = sum,
                                                      .kinds = kinds,
                                                      .losses = losses,
                                                      .n_kinds = run->n_kinds},
                                      NULL),
                     0);
}

static void put_sample(metrics *m, const made_run *run, int64_t step)
{
    static const char *const texts[] = {
        " e,t 3\n \xe2\x96 <b>{a0 =)  the the", " the was and of a man. 3 + 4 = 9\nShe the",
        " there was a small fox who lived in the the wood. 12 + 7 = 18\n",
        " there was a small fox who lived near a river. It liked to count: 12 + 7 = 19.\n"
        "One day a bird came by & said: \"<come & see>\".",
        " there was a small fox who lived near a river. Every morning it went to see the owl,\n"
        "who knew the date (2021-03-14) and the answer to 25 + 17 = 42."};
    size_t stage = (size_t)(5 * step / (run->n_steps + 1));
    assert_int_equal(metrics_put_sample(m, step, "Once upon a time", texts[stage], NULL), 0);
}

/* For each kind a few experts of each layer are chosen more often. */
static void put_routing(metrics *m, const made_run *run)
{
    size_t n = (size_t)(run->n_layers * run->n_kinds * run->n_experts);
    int64_t *counts = calloc(n, sizeof *counts);
    assert_non_null(counts);
    for (size_t i = 0; i < n; i++) {
        size_t e = i % (size_t)run->n_experts, k = i / (size_t)run->n_experts;
        double own = 0.5 * normal(10, i) + (uniform(12, e * 1000 + k) < 0.08 ? 1.9 : -0.1);
        counts[i] = (int64_t)(1000 * exp2(own));
    }
    assert_int_equal(metrics_put_routing(m, run->done, kinds, run->n_kinds, counts, run->n_layers,
                                         run->n_experts, NULL),
                     0);
    free(counts);
}

static void put_start(FILE *text, const void *context)
{
    const made_run *run = context;
    long long width = 172, hidden = 256;
    long long expert = 3 * hidden * width, layers = (long long)run->n_layers;
    fprintf(text,
            ",\"time\":%.3f,\"version\":\"0.1.0\",\"step\":0,\"parameters\":%lld,"
            "\"active_parameters\":%lld,\"threads\":2,\"config\":{\"vocab_size\":8192,"
            "\"hidden_size\":%lld,\"moe_intermediate_size\":%lld,\"num_hidden_layers\":%lld,"
            "\"num_attention_heads\":4,\"n_shared_experts\":1,\"n_routed_experts\":%lld,"
            "\"num_experts_per_tok\":7,\"moe_layer_freq\":1,\"first_k_dense_replace\":1,"
            "\"norm_topk_prob\":false,\"aux_loss_alpha\":0.01,\"rms_norm_eps\":1e-06},"
            "\"settings\":{\"data\":[\"corpus\"],\"out\":\"run\",\"steps\":%lld,\"batch\":8,"
            "\"seq\":256,\"lr\":0.00108,\"schedule\":\"step\",\"warmup\":-1,\"aux_loss_alpha\":-1,"
            "\"sample_prompt\":\"Once upon a time\",\"recompute\":false},"
            "\"data\":{\"n_tokens\":4512345,\"n_documents\":1234,\"n_train\":17000,"
            "\"n_held_out\":620}",
            made_time, 2 * 8192 * hidden + layers * (expert * (run->n_experts + 1) + 4 * hidden),
            2 * 8192 * hidden + layers * (expert * 8 + 4 * hidden), hidden, width, layers + 1,
            (long long)run->n_experts, (long long)run->n_steps);
}

static void put_end(FILE *text, const void *context)
{
    const made_run *run = context;
    fprintf(text, ",\"step\":%lld,\"finished\":%s", (long long)run->done,
            run->done == run->n_steps ? "true" : "false");
}

/* Biases that spread and then stay. */
static void put_bias(metrics *m, const made_run *run, int64_t step)
{
    metrics_range ranges[128];
    for (int64_t l = 0; l < run->n_layers; l++) {
        double share = 1 - exp(-4.0 * (double)step / (double)run->n_steps);
        float spread = (float)(0.1 * share / (double)(l + 1));
        ranges[l] = (metrics_range){-spread, 2 * spread};
    }
    assert_int_equal(metrics_put_bias(m, step, ranges, run->n_layers, NULL), 0);
}

void made_run_write(const char *folder, const made_run *run)
{
    metrics *m;
    int64_t n_skipped = 0;
    assert_int_equal(metrics_open(folder, 0, &m, NULL), 0);
    assert_int_equal(metrics_put_line(m, "start", put_start, run, NULL), 0);
    for (int64_t step = run->log_every; step <= run->done; step += run->log_every) {
        put_step(m, run, step, &n_skipped);
        if (run->load_every && step % run->load_every == 0) put_load(m, run, step);
        if (run->biases && step % run->load_every == 0) put_bias(m, run, step);
        if (run->eval_every && step % run->eval_every == 0) put_eval(m, run, step);
        if (run->sample_every && step % run->sample_every == 0) put_sample(m, run, step);
    }
    if (run->done == run->n_steps) {
        if (run->n_kinds) put_routing(m, run);
        assert_int_equal(metrics_put_line(m, "end", put_end, run, NULL), 0);
    }
    metrics_close(m);
}

/* ---- a comparison --------------------------------------------------------------------------- */

typedef struct architecture {
    const char *name, *label, *experts, *paper_loss;
    double loss, total, active, experts_total, experts_active;
} architecture;

static const architecture architectures[] = {
    {"dense", "Dense", "none", "2.060", 1.732, 2.1e6, 2.1e6, 1.1e6, 1.1e6},
    {"switch", "Switch", "1 of 16", "1.881", 1.641, 13.7e6, 2.1e6, 12.6e6, 0.8e6},
    {"gshard", "GShard", "2 of 16", "1.867", 1.612, 13.7e6, 2.9e6, 12.6e6, 1.6e6},
    {"gshard_shared", "GShard + 1 shared", "1+1 of 15", "null", 1.604, 13.7e6, 2.9e6, 12.6e6,
     1.6e6},
    {"fine_2", "Finer, m = 2", "1+3 of 31", "null", 1.596, 13.7e6, 2.9e6, 12.6e6, 1.6e6},
    {"fine_4", "Finer, m = 4", "1+7 of 63", "null", 1.586, 13.7e6, 2.9e6, 12.6e6, 1.6e6},
    {"deepseekmoe", "DeepSeekMoE", "1+7 of 63", "1.808", 1.585, 13.7e6, 2.9e6, 12.6e6, 1.6e6}};
enum { N_ARCHITECTURES = sizeof architectures / sizeof *architectures };

static void put_run(FILE *text, const architecture *a, int seed, bool done)
{
    double end = a->loss + 0.006 * normal(30 + (uint64_t)(a - architectures), (uint64_t)seed);
    fprintf(text, "%s{\"seed\":%d,\"held_out_loss\":", seed ? "," : "", seed);
    if (!done) {
        fputs("null,\"curve\":[]}", text);
        return;
    }
    fprintf(text, "%.5f,\"curve\":[", end);
    for (int i = 1; i <= 40; i++) {
        double loss = end + 5.5 * pow(1 + i * 1.5, -1.05) - 5.5 * pow(61, -1.05) +
                      0.02 * normal(40 + (uint64_t)seed, (uint64_t)i) / i;
        fprintf(text, "%s[%d,%.5f]", i > 1 ? "," : "", i * 100, loss);
    }
    fputs("]}", text);
}

static void put_model(FILE *text, const architecture *a, int n_seeds, int done)
{
    fprintf(text,
            "{\"name\":\"%s\",\"label\":\"%s\",\"paper_loss\":%s,\"experts\":\"%s\","
            "\"total_parameters\":%.0f,\"active_parameters\":%.0f,\"expert_parameters\":%.0f,"
            "\"active_expert_parameters\":%.0f,\n",
            a->name, a->label, a->paper_loss, a->experts, a->total, a->active, a->experts_total,
            a->experts_active);
    bool one = !strncmp(a->experts, "1 of", 4); /* its gate value cannot be normalised */
    fprintf(text,
            "\"lr\":%s,\"norm_topk_prob\":%s,\"routed_scaling_factor\":%d,\"seq_aux\":false,"
            "\"aux_loss_alpha\":0.01,\"initializer_range\":0.02,\n\"runs\":[",
            strcmp(a->name, "dense") ? "0.002" : "0.001", one ? "false" : "true", one ? 4 : 1);
    for (int seed = 0; seed < n_seeds; seed++) put_run(text, a, seed, seed < done);
    fputs("]}", text);
}

/* [a, b, c] near a value. */
static void put_seeds(FILE *text, double value, int n_seeds, uint64_t stream)
{
    fputc('[', text);
    for (int i = 0; i < n_seeds; i++)
        fprintf(text, "%s%.5f", i ? "," : "", value + 0.008 * normal(stream, (uint64_t)i));
    fputc(']', text);
}

static void put_mask_top(FILE *text, const char *name, double loss, double slope, int n_seeds)
{
    fprintf(text, "{\"name\":\"%s\",\"share\":[0,0.0625,0.125,0.1875,0.25],\"losses\":[", name);
    for (int i = 0; i < 5; i++) {
        if (i) fputc(',', text);
        put_seeds(text, loss + slope * sqrt(i / 4.0), n_seeds, 60 + (uint64_t)i);
    }
    fputs("]}", text);
}

static void put_replaced(FILE *text, const char *name, double loss, double after, int n_seeds)
{
    fprintf(text, "{\"name\":\"%s\",\"before\":", name);
    put_seeds(text, loss, n_seeds, 70);
    fputs(",\"after\":", text);
    put_seeds(text, after, n_seeds, 71);
    bool in_paper = !strcmp(name, "deepseekmoe");
    fprintf(text, ",\"paper_before\":%s,\"paper_after\":%s}", in_paper ? "1.808" : "null",
            in_paper ? "2.414" : "null");
}

static void put_fewer(FILE *text, const char *name, double loss, int most, int n_seeds)
{
    fprintf(text, "{\"name\":\"%s\",\"k\":[", name);
    for (int k = most; k > 0; k--) fprintf(text, "%s%d", k < most ? "," : "", k);
    fputs("],\"losses\":[", text);
    for (int k = most; k > 0; k--) {
        double missing = 7.0 * (most - k) / most;
        if (k < most) fputc(',', text);
        put_seeds(text, loss + 0.004 * missing * missing, n_seeds, 80 + (uint64_t)k);
    }
    fputs("],\"compare\":{\"name\":\"gshard\",\"losses\":", text);
    put_seeds(text, 1.612, n_seeds, 90);
    fputs("}}", text);
}

static void put_probes(FILE *text, int n_seeds)
{
    fputs(",\n\"probes\":{\"mask_top\":[", text);
    put_mask_top(text, "gshard", 1.612, 0.55, n_seeds);
    fputc(',', text);
    put_mask_top(text, "deepseekmoe", 1.585, 0.95, n_seeds);
    fputs("],\n\"replace_shared\":[", text);
    put_replaced(text, "gshard_shared", 1.604, 1.78, n_seeds);
    fputc(',', text);
    put_replaced(text, "deepseekmoe", 1.585, 1.93, n_seeds);
    fputs("],\n\"fewer_active\":[", text);
    put_fewer(text, "fine_2", 1.596, 3, n_seeds);
    fputc(',', text);
    put_fewer(text, "deepseekmoe", 1.585, 7, n_seeds);
    fputs("]}", text);
}

void made_ablation_write(const char *json_path, int n_seeds, int done)
{
    FILE *text = fopen(json_path, "w");
    assert_non_null(text);
    fputs("{\"scale\":\"tiny\",\"data\":[\"corpus/prose\",\"corpus/code\"],\"tokens\":8192000,"
          "\"steps\":4000,\"batch\":8,\"seq\":256,\"vocab_size\":2048,\"seeds\":[",
          text);
    for (int i = 0; i < n_seeds; i++) fprintf(text, "%s%d", i ? "," : "", i);
    fprintf(text, "],\"finished\":%s,\n\"models\":[", done == n_seeds ? "true" : "false");
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        if (i) fputs(",\n", text);
        put_model(text, &architectures[i], n_seeds, done);
    }
    fputc(']', text);
    if (done == n_seeds) put_probes(text, n_seeds);
    fputs("}\n", text);
    assert_int_equal(fclose(text), 0);
}
