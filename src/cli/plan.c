/* plan.c - `dsmoe plan`: what an architecture costs before any weight exists. This file has the command and
 * the paper's three architectures; plan_model.c explains a config.json, plan_ranks.c predicts training on
 * several machines. */
#include "cli/plan.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/model_sizes.h"
#include "cli/options.h"
#include "cli/table.h"

static const char help[] =
    "usage: dsmoe plan [options]                  the paper's three architectures, side by side\n"
    "       dsmoe plan --config PATH [options]    what a model's config.json describes\n"
    "       dsmoe plan --ranks R --network G …    what training on R machines takes\n"
    "\n"
    "The first form splits each of N experts into m parts and shares Ks of them, and shows that\n"
    "parameters and compute stay the same while the combinations of experts multiply:\n"
    "  --experts N    conventional experts (16)\n"
    "  --active K     of them active for a token (2)\n"
    "  --split m      parts of each expert; must divide the FFN size (4)\n"
    "  --shared Ks    parts that are always active; less than m K (1)\n"
    "  --hidden D     hidden size (2048)\n"
    "  --ffn F        width of a conventional expert (5632)\n"
    "\n"
    "The second form counts a whole model:\n"
    "  --config PATH  a config.json, the folder that holds it, a training run or a .gguf file\n"
    "  --tokens T     length of the sequence for the FLOPs of one training step (4096)\n"
    "\n"
    "The third form predicts a training step of several ranks, one for each machine: memory, bytes\n"
    "sent and time, with only the data or also the experts divided (docs/machines.md):\n"
    "  --ranks R      how many\n"
    "  --network G    Gbit/s of each machine's network link, in each direction\n"
    "  --latency US   microseconds from one machine to another (50)\n"
    "  --parallel WAY data or experts: predict only this way to divide the work (default: both)\n"
    "  --config PATH, --preset NAME   the model, and its sizes as in dsmoe train\n"
    "  --batch N, --seq N             sequences per batch, and their tokens (8, 256)\n"
    "  --accumulate N                 batches per step, of all ranks together (one for each)\n"
    "  --recompute                    as in dsmoe train\n"
    "  -t, --threads N                threads of each rank (all processors)\n"
    "  --gflops X     GFLOP/s that a machine reaches in training (default: a layer is trained here for\n"
    "                 a few seconds, and the machines are assumed to be like this one)\n"
    "  --gbs X        GB/s at which it reads and writes memory; only with --gflops (15)\n"
    "  --memory GB    memory of a machine (what is available here)\n"
    "  --imbalance X  rows of the busiest rank over the mean, where experts are divided (1)\n"
    "the sizes of its model:\n" MODEL_SIZES_HELP "      --vocab-size N         vocab_size\n"
    "\n"
    "All:\n"
    "  --json         one JSON object; numbers of combinations are exact, as strings\n"
    "  -h, --help     this text\n"
    "\n"
    "examples:\n"
    "  dsmoe plan --experts 16 --active 2 --split 8 --shared 2\n"
    "  dsmoe plan --preset 16b --ranks 16 --network 10 --batch 4 --seq 512 --gflops 500\n";

/* N, K, m, Ks, the hidden size and the width of a conventional expert. */
typedef struct plan_sizes {
    int64_t n_experts, k_active, m_split, k_shared, hidden_size, ffn_size;
} plan_sizes;

/* ---- the three architectures ---------------------------------------------------------------- */

typedef struct architecture {
    char title[TABLE_CELL]; /* as in the paper's figure */
    const char *key;
    const dsmoe_plan_row *row;
} architecture;
enum { N_ARCHITECTURES = 3 };

static void json_architectures(const plan_sizes *sizes, const architecture *architectures)
{
    printf("{\"n_experts\": %" PRId64 ", \"k_active\": %" PRId64 ", \"m_split\": %" PRId64
           ", \"k_shared\": %" PRId64 ", \"hidden_size\": %" PRId64 ", \"ffn_size\": %" PRId64
           ",\n \"architectures\": [",
           sizes->n_experts, sizes->k_active, sizes->m_split, sizes->k_shared, sizes->hidden_size,
           sizes->ffn_size);
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        const dsmoe_plan_row *row = architectures[i].row;
        printf("%s\n  {\"name\": \"%s\", \"n_shared_experts\": %" PRId64
               ", \"n_routed_experts\": %" PRId64 ", \"num_experts_per_tok\": %" PRId64
               ", \"moe_intermediate_size\": %" PRId64 ",\n   \"expert_parameters\": %" PRId64
               ", \"active_parameters\": %" PRId64 ", \"flops_per_token\": %" PRId64
               ", \"router_parameters\": %" PRId64 ",\n   \"combinations\": \"%s\"}",
               i ? "," : "", architectures[i].key, row->n_shared_experts, row->n_routed_experts,
               row->num_experts_per_tok, row->moe_intermediate_size, row->expert_parameters,
               row->active_parameters, row->flops_per_token, row->router_parameters,
               row->combinations);
    }
    puts("\n ]}");
}

/* "1 + 63": shared and routed. */
static void table_experts(text_table *table, int64_t n_shared, int64_t n_routed)
{
    char shared[TABLE_CELL], routed[TABLE_CELL];
    if (n_shared)
        table_text(table, "%.20s + %.20s", number_group(n_shared, shared),
                   number_group(n_routed, routed));
    else
        table_number(table, n_routed);
}

static void print_architecture_table(const architecture *architectures)
{
    static const char *const headers[] = {
        "", "",        "",       "",      "expert",     "active",     "FLOPs",     "",
        "", "experts", "active", "width", "parameters", "parameters", "per token", "combinations"};
    text_table table = {.n_columns = 8, .n_headers = 2};
    for (int i = 0; i < 16; i++) table_text(&table, "%s", headers[i]);
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        const dsmoe_plan_row *row = architectures[i].row;
        char count[TABLE_CELL];
        table_text(&table, "%s", architectures[i].title);
        table_experts(&table, row->n_shared_experts, row->n_routed_experts);
        table_experts(&table, row->n_shared_experts, row->num_experts_per_tok);
        table_number(&table, row->moe_intermediate_size);
        table_number(&table, row->expert_parameters);
        table_number(&table, row->active_parameters);
        table_number(&table, row->flops_per_token);
        table_text(&table, "%s", count_shorten(row->combinations, count));
    }
    table_print(&table);
}

static void print_router_table(const architecture *architectures)
{
    text_table table = {.n_columns = 4, .n_headers = 1};
    table_text(&table, "the router");
    table_text(&table, "parameters");
    table_text(&table, "of the experts' parameters");
    table_text(&table, "of the experts' FLOPs");
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        const dsmoe_plan_row *row = architectures[i].row;
        double router = (double)row->router_parameters;
        table_text(&table, "%s", architectures[i].title);
        table_number(&table, row->router_parameters);
        table_share(&table, router, (double)row->expert_parameters, 3);
        table_share(&table, router, (double)row->active_parameters, 3);
    }
    table_print(&table);
}

static void print_architectures(const plan_sizes *sizes, const architecture *architectures)
{
    char experts[TABLE_CELL], ffn[TABLE_CELL], hidden[TABLE_CELL];
    printf("N = %s experts of width %s, K = %" PRId64 " active, hidden size %s;"
           " split in m = %" PRId64 ", Ks = %" PRId64 " shared\n\n",
           number_group(sizes->n_experts, experts), number_group(sizes->ffn_size, ffn),
           sizes->k_active, number_group(sizes->hidden_size, hidden), sizes->m_split,
           sizes->k_shared);
    print_architecture_table(architectures);
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        const dsmoe_plan_row *row = architectures[i].row;
        bool repeated = i > 0 && !strcmp(row->combinations, architectures[i - 1].row->combinations);
        if (repeated || count_is_short(row->combinations)) continue;
        putchar('\n');
        count_print(row->n_routed_experts, row->num_experts_per_tok, row->combinations);
    }
    puts("\nExpert parameters and compute are the same in all three, only the ways to combine the\n"
         "experts differ. The router does grow: it has a row for each expert it chooses among.\n");
    print_router_table(architectures);
}

static int plan_architectures(const plan_sizes *sizes, bool json)
{
    dsmoe_plan plan;
    dsmoe_error error;
    dsmoe_status status =
        dsmoe_plan_make(sizes->n_experts, sizes->k_active, sizes->m_split, sizes->k_shared,
                        sizes->hidden_size, sizes->ffn_size, &plan, &error);
    if (status == DSMOE_ERROR_ARGUMENT) return cli_usage("plan", "%s", error.message);
    if (status != DSMOE_OK) return cli_failure("plan", "%s", error.message);
    architecture architectures[N_ARCHITECTURES] = {
        {"", "conventional", &plan.conventional},
        {"(b) + fine-grained", "fine_grained", &plan.fine_grained},
        {"(c) + shared experts", "shared_isolation", &plan.shared_isolation}};
    snprintf(architectures[0].title, TABLE_CELL, "(a) conventional top-%" PRId64, sizes->k_active);
    (json ? json_architectures : print_architectures)(sizes, architectures);
    dsmoe_plan_free(&plan);
    return CLI_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */

static const plan_sizes paper_sizes = {.n_experts = 16,
                                       .k_active = 2,
                                       .m_split = 4,
                                       .k_shared = 1,
                                       .hidden_size = 2048,
                                       .ffn_size = 5632};

enum { NOT_GIVEN = -1, DEFAULT_TOKENS = 4096, N_OWN = 22, N_ROWS = N_OWN + MODEL_SIZES_ROWS };

typedef struct plan_options {
    int64_t n_experts, k_active, m_split, n_tokens; /* NOT_GIVEN if they are not */
    plan_ranks_options ranks;                       /* its sizes and config serve all forms */
} plan_options;

/* Which options need or exclude each other. */
static const option_rule rules[] = {
    {"--experts", OPTION_EXCLUDES, "--config"},  {"--active", OPTION_EXCLUDES, "--config"},
    {"--split", OPTION_EXCLUDES, "--config"},    {"--experts", OPTION_EXCLUDES, "--ranks"},
    {"--active", OPTION_EXCLUDES, "--ranks"},    {"--split", OPTION_EXCLUDES, "--ranks"},
    {"--tokens", OPTION_EXCLUDES, "--ranks"},    {"--tokens", OPTION_NEEDS, "--config"},
    {"--preset", OPTION_EXCLUDES, "--config"},   {"--ranks", OPTION_NEEDS, "--network"},
    {"--network", OPTION_NEEDS, "--ranks"},      {"--preset", OPTION_NEEDS, "--ranks"},
    {"--latency", OPTION_NEEDS, "--ranks"},      {"--parallel", OPTION_NEEDS, "--ranks"},
    {"--batch", OPTION_NEEDS, "--ranks"},        {"--seq", OPTION_NEEDS, "--ranks"},
    {"--accumulate", OPTION_NEEDS, "--ranks"},   {"--recompute", OPTION_NEEDS, "--ranks"},
    {"--threads", OPTION_NEEDS, "--ranks"},      {"--gflops", OPTION_NEEDS, "--ranks"},
    {"--gbs", OPTION_NEEDS, "--gflops"},         {"--memory", OPTION_NEEDS, "--ranks"},
    {"--imbalance", OPTION_NEEDS, "--ranks"},    {"--vocab-size", OPTION_NEEDS, "--ranks"},
    {"--layers", OPTION_NEEDS, "--ranks"},       {"--heads", OPTION_NEEDS, "--ranks"},
    {"--kv-heads", OPTION_NEEDS, "--ranks"},     {"--moe", OPTION_NEEDS, "--ranks"},
    {"--routed", OPTION_NEEDS, "--ranks"},       {"--k", OPTION_NEEDS, "--ranks"},
    {"--dense-layers", OPTION_NEEDS, "--ranks"}, {"--kv-rank", OPTION_NEEDS, "--ranks"},
    {"--q-rank", OPTION_NEEDS, "--ranks"},       {"--nope", OPTION_NEEDS, "--ranks"},
    {"--rope", OPTION_NEEDS, "--ranks"},         {"--v-dim", OPTION_NEEDS, "--ranks"},
};

static int parse(plan_options *o, int argc, char **argv)
{
    plan_ranks_options *r = &o->ranks;
    const int most = 1 << 24;
    bool given[N_ROWS];
    option_row rows[N_ROWS] = {
        {"--experts", NULL, OPTION_INTEGER, &o->n_experts, 1, INFINITY},
        {"--active", NULL, OPTION_INTEGER, &o->k_active, 1, INFINITY},
        {"--split", NULL, OPTION_INTEGER, &o->m_split, 1, INFINITY},
        {"--tokens", NULL, OPTION_INTEGER, &o->n_tokens, 1, INFINITY},
        {"--config", NULL, OPTION_PATH, &r->config, 0, 0},
        {"--preset", NULL, OPTION_NAME, &r->preset, 0, 0},
        {"--ranks", NULL, OPTION_INTEGER, &r->n_ranks, 1, 1 << 16},
        {"--network", NULL, OPTION_NUMBER, &r->network, 1e-3, 1e6},
        {"--latency", NULL, OPTION_NUMBER, &r->latency, 0, 1e9},
        {"--parallel", NULL, OPTION_NAME, &r->parallel, 0, 0},
        {"--batch", NULL, OPTION_INTEGER, &r->batch, 1, most},
        {"--seq", NULL, OPTION_INTEGER, &r->seq, 1, most},
        {"--accumulate", NULL, OPTION_INTEGER, &r->accumulate, 1, most},
        {"--recompute", NULL, OPTION_FLAG, &r->recompute, 0, 0},
        {"--threads", "-t", OPTION_INTEGER, &r->n_threads, 1, CLI_MAX_THREADS},
        {"--gflops", NULL, OPTION_NUMBER, &r->gflops, 1e-3, 1e9},
        {"--gbs", NULL, OPTION_NUMBER, &r->gbs, 1e-3, 1e9},
        {"--memory", NULL, OPTION_NUMBER, &r->memory, 1e-3, 1e9},
        {"--imbalance", NULL, OPTION_NUMBER, &r->imbalance, 1, most},
        {"--vocab-size", NULL, OPTION_INTEGER, &r->vocab_size, 1, most},
        {"--vocab", NULL, OPTION_INTEGER, &r->vocab_size, 1, most},
        {"--json", NULL, OPTION_FLAG, &r->json, 0, 0},
    };
    model_sizes_rows(&r->sizes, rows + N_OWN);
    int code = options_parse_given("plan", help, rows, N_ROWS, argc, argv, NULL, given);
    if (code >= 0) return code;
    return options_check("plan", rows, N_ROWS, given, rules, sizeof rules / sizeof *rules);
}

/* Takes the sizes of the first form, some of which have the names of a model's sizes; false if none is
 * given. */
static bool take_sizes(const plan_options *o, plan_sizes *sizes)
{
    const dsmoe_model_sizes *m = &o->ranks.sizes;
    const int64_t given[] = {o->n_experts,        o->k_active,    o->m_split,
                             m->n_shared_experts, m->hidden_size, m->intermediate_size};
    int64_t *to[] = {&sizes->n_experts, &sizes->k_active,    &sizes->m_split,
                     &sizes->k_shared,  &sizes->hidden_size, &sizes->ffn_size};
    bool any = false;
    for (int i = 0; i < 6; i++) {
        if (given[i] == NOT_GIVEN) continue;
        *to[i] = given[i];
        any = true;
    }
    return any;
}

int command_plan(int argc, char **argv)
{
    plan_options o = {
        .n_experts = NOT_GIVEN,
        .k_active = NOT_GIVEN,
        .m_split = NOT_GIVEN,
        .n_tokens = NOT_GIVEN,
        .ranks = {.sizes = dsmoe_model_sizes_default(), .batch = 8, .seq = 256, .latency = 50}};
    plan_sizes sizes = paper_sizes;
    int exit_code = parse(&o, argc, argv);
    if (exit_code >= 0) return exit_code;
    if (o.ranks.n_ranks) return plan_ranks(&o.ranks);
    bool has_sizes = take_sizes(&o, &sizes);
    if (o.ranks.config && has_sizes)
        return cli_usage(
            "plan", "--config has its own sizes: only --tokens and --json can be used with it");
    if (!o.ranks.config) return plan_architectures(&sizes, o.ranks.json);
    return plan_model(o.ranks.config, o.n_tokens == NOT_GIVEN ? DEFAULT_TOKENS : o.n_tokens,
                      o.ranks.json);
}
