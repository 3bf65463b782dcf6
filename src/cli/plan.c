/* plan.c - `dsmoe plan`: what an architecture costs before a weight exists. This file has the
 * command and the paper's three architectures; plan_model.c explains a config.json. */
#include "cli/plan.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/table.h"

static const char help[] =
    "usage: dsmoe plan [options]                  the paper's three architectures, side by side\n"
    "       dsmoe plan --config PATH [options]    what a model's config.json describes\n"
    "\n"
    "The first form splits each of N experts in m parts and shares Ks of them, and shows that\n"
    "parameters and compute stay while the combinations of experts multiply:\n"
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
    "Both:\n"
    "  --json         one JSON object; numbers of combinations are exact, as strings\n"
    "  -h, --help     this text\n"
    "\n"
    "example:\n"
    "  dsmoe plan --experts 16 --active 2 --split 8 --shared 2\n";

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

int command_plan(int argc, char **argv)
{
    enum { NOT_GIVEN = -1, N_SIZES = 6, DEFAULT_TOKENS = 4096 };
    plan_sizes s = paper_sizes;
    int64_t given[N_SIZES], n_tokens = NOT_GIVEN;
    int64_t *sizes[N_SIZES] = {&s.n_experts, &s.k_active,    &s.m_split,
                               &s.k_shared,  &s.hidden_size, &s.ffn_size};
    const char *config = NULL;
    bool json = false, has_sizes = false;
    const option_row rows[] = {
        {"--experts", NULL, OPTION_INTEGER, &given[0], 1, INFINITY},
        {"--active", NULL, OPTION_INTEGER, &given[1], 1, INFINITY},
        {"--split", NULL, OPTION_INTEGER, &given[2], 1, INFINITY},
        {"--shared", NULL, OPTION_INTEGER, &given[3], 0, INFINITY},
        {"--hidden", NULL, OPTION_INTEGER, &given[4], 1, INFINITY},
        {"--ffn", NULL, OPTION_INTEGER, &given[5], 1, INFINITY},
        {"--tokens", NULL, OPTION_INTEGER, &n_tokens, 1, INFINITY},
        {"--config", NULL, OPTION_PATH, &config, 0, 0},
        {"--json", NULL, OPTION_FLAG, &json, 0, 0},
    };
    for (int i = 0; i < N_SIZES; i++) given[i] = NOT_GIVEN;
    int code = options_parse("plan", help, rows, sizeof rows / sizeof *rows, argc, argv, NULL);
    if (code >= 0) return code;
    for (int i = 0; i < N_SIZES; i++)
        if (given[i] != NOT_GIVEN) {
            *sizes[i] = given[i];
            has_sizes = true;
        }
    if (config && has_sizes)
        return cli_usage("plan",
                         "--config brings its own sizes: only --tokens and --json go with it");
    if (n_tokens != NOT_GIVEN && !config) return cli_usage("plan", "--tokens goes with --config");
    if (!config) return plan_architectures(&s, json);
    return plan_model(config, n_tokens == NOT_GIVEN ? DEFAULT_TOKENS : n_tokens, json);
}
