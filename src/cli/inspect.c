/* inspect.c - `dsmoe inspect`: what a model is, and with --routing which experts a text uses. */
#include "cli/cli.h"

#include <inttypes.h>
#include <string.h>

#include "cli/corpus.h"
#include "cli/gate_bias.h"
#include "cli/inspect_routing.h"
#include "cli/model_path.h"
#include "cli/model_view.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "formats/json_write.h"
#include "formats/partial_file.h"
#include "report/routing_page.h"

static const char help[] =
    "usage: dsmoe inspect -m PATH [options]                   what the model is\n"
    "       dsmoe inspect -m PATH --routing FILE [options]    which experts a text uses\n"
    "\n"
    "The first form counts parameters, types and bytes of the tensors, and the memory that a\n"
    "sequence takes; if the gates have a bias, it shows its range. The second runs a text through\n"
    "the model and shows for each layer how its experts share the work, which of them fire together\n"
    "and which tokens they like most.\n"
    "\n"
    "  -m, --model PATH    a model's folder in the public layout, a .gguf file, or a training run, of\n"
    "                      which the latest checkpoint is used\n"
    "  -c, --ctx-size N    tokens of a sequence (default: what the model was made for)\n"
    "  -t, --threads N     threads to use (default: all processors)\n"
    "      --json          print one JSON object\n"
    "  -h, --help          this text\n"
    "\n"
    "With --routing:\n"
    "      --routing FILE  the text (\"-\": stdin)\n"
    "      --ids           the file holds token ids separated by spaces; no tokenizer is needed, and\n"
    "                      no BOS is put before a sequence\n"
    "      --layer N       list every expert of this layer\n"
    "      --html FILE     write a page with charts as well; it needs no other file\n"
    "      --experts-out FILE    write the experts that the text uses most, as dsmoe train --experts\n"
    "                            reads them (ESFT's expert_cfg.json), and show them:\n"
    "      --expert-score NAME   the best of each layer by gate (default) or token score,\n"
    "      --expert-share X      until their scores add up to X (0.1 for gate, 0.2 for token)\n"
    "      --force         " OUTPUT_FORCE_HELP "\n"
    "\n"
    "Ctrl-C ends early and shows what is known so far.\n"
    "\n"
    "example:\n"
    "  dsmoe inspect -m deepseek-moe-16b-base --routing article.txt --html routing.html\n";

typedef struct inspect_options {
    const char *model, *routing, *html;
    int64_t n_ctx, n_threads, layer;
    bool ids, json, force;
    routing_choice experts;
} inspect_options;

/* Tensors of one type. */
typedef struct type_total {
    int64_t n_tensors;
    size_t size;
} type_total;

typedef struct inspection {
    const inspect_options *options;
    const dsmoe_model *model;
    model_view view;
    type_total types[DSMOE_N_DTYPES], all;
    int64_t n_ctx;
    dsmoe_engine_memory memory;
} inspection;

static const dsmoe_dtype kv_type = DSMOE_F16; /* as `generate` and `chat` have it by default */

/* ---- what the model is ----------------------------------------------------------------------- */

static dsmoe_status look(inspection *it, dsmoe_error *error)
{
    const dsmoe_config *config = dsmoe_model_config(it->model);
    for (size_t i = 0; i < dsmoe_model_tensor_count(it->model); i++) {
        dsmoe_tensor_info tensor = dsmoe_model_tensor(it->model, i);
        type_total *totals[] = {&it->types[tensor.dtype], &it->all};
        for (int j = 0; j < 2; j++) {
            totals[j]->n_tensors++;
            totals[j]->size += tensor.size;
        }
    }
    it->n_ctx = it->options->n_ctx ? it->options->n_ctx : config->max_position_embeddings;
    dsmoe_engine_options engine = {
        .n_ctx = it->n_ctx, .n_threads = (int)it->options->n_threads, .kv_type = kv_type};
    it->memory = dsmoe_engine_memory_size(it->model, &engine);
    return model_view_make(config, it->n_ctx, &it->view, error);
}

static void print_types(const inspection *it)
{
    char bytes[CLI_BYTES], count[TABLE_CELL];
    const char *label = "weights";
    for (int i = 0; i < DSMOE_N_DTYPES; i++) {
        if (it->types[i].n_tensors == 0) continue;
        printf("%-13s %-4s %8s in %s tensor%s\n", label, dsmoe_dtype_name((dsmoe_dtype)i),
               cli_format_bytes((double)it->types[i].size, bytes),
               number_group(it->types[i].n_tensors, count), it->types[i].n_tensors == 1 ? "" : "s");
        label = "";
    }
}

static void print_memory(const inspection *it)
{
    char a[CLI_BYTES], b[CLI_BYTES], c[CLI_BYTES], n[TABLE_CELL];
    const dsmoe_engine_memory *memory = &it->memory;
    number_group(it->n_ctx, n);
    if (memory->kv_cache == 0) {
        printf("memory        a sequence of %s tokens does not fit into any memory\n", n);
    } else {
        double engine = (double)memory->kv_cache + (double)memory->workspace;
        printf("memory        for a sequence of %s tokens: KV cache %s (%s), workspace %s\n", n,
               cli_format_bytes((double)memory->kv_cache, a), dsmoe_dtype_name(kv_type),
               cli_format_bytes((double)memory->workspace, b));
        printf("              with the weights, mapped from the files: %s\n",
               cli_format_bytes(engine + (double)it->all.size, c));
    }
    printf("decoding      a token reads %s of weights\n",
           cli_format_bytes((double)dsmoe_model_bytes_per_token(it->model), a));
}

static void print_extras(const inspection *it)
{
    enum { SHOWN = 8 };
    size_t n_extra = dsmoe_model_extra_count(it->model);
    if (n_extra == 0) return;
    printf("extra         %zu tensor%s in the files that the model does not have:\n", n_extra,
           n_extra == 1 ? "" : "s");
    for (size_t i = 0; i < n_extra && i < SHOWN; i++) {
        printf("              ");
        json_write_string(stdout, dsmoe_model_extra(it->model, i)); /* may hold anything */
        putchar('\n');
    }
    if (n_extra > SHOWN) printf("              and %zu more\n", n_extra - SHOWN);
}

static void print_model(const inspection *it)
{
    static const char *const scalings[] = {[DSMOE_ROPE_LINEAR] = "linear",
                                           [DSMOE_ROPE_DYNAMIC] = "dynamic",
                                           [DSMOE_ROPE_YARN] = "YaRN"};
    const dsmoe_config *config = &it->view.config;
    char context[TABLE_CELL];
    printf("%s\n\n", it->options->model);
    model_view_print_shape(&it->view);
    printf("context       made for %s tokens",
           number_group(config->max_position_embeddings, context));
    if (config->rope_scaling != DSMOE_ROPE_NONE)
        printf(", %s scaling by %g", scalings[config->rope_scaling], config->rope_scaling_factor);
    fputs("\n\n", stdout);
    model_view_print_parts(&it->view, false);
    putchar('\n');
    print_types(it);
    print_memory(it);
    gate_bias_print(it->model);
    print_extras(it);
}

static void print_json_config(const dsmoe_config *config)
{
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {{"vocab_size", config->vocab_size},
                   {"hidden_size", config->hidden_size},
                   {"intermediate_size", config->intermediate_size},
                   {"moe_intermediate_size", config->moe_intermediate_size},
                   {"num_attention_heads", config->num_attention_heads},
                   {"num_key_value_heads", config->num_key_value_heads},
                   {"n_shared_experts", config->n_shared_experts},
                   {"n_routed_experts", config->n_routed_experts},
                   {"num_experts_per_tok", config->num_experts_per_tok},
                   {"max_position_embeddings", config->max_position_embeddings},
                   {"kv_lora_rank", config->kv_lora_rank},
                   {"q_lora_rank", config->q_lora_rank},
                   {"qk_nope_head_dim", config->qk_nope_head_dim},
                   {"qk_rope_head_dim", config->qk_rope_head_dim},
                   {"v_head_dim", config->v_head_dim},
                   {"n_group", config->n_group},
                   {"topk_group", config->topk_group}};
    const size_t n_all = sizeof numbers / sizeof *numbers, n_latent = 7;
    size_t n = config->kv_lora_rank ? n_all : n_all - n_latent; /* the last belong to V2 and V3 */
    fputs(" \"config\": {", stdout);
    for (size_t i = 0; i < n; i++)
        printf("%s\"%s\": %" PRId64, i ? ", " : "", numbers[i].key, numbers[i].value);
    fputs("},\n", stdout);
}

/* Leaves the object open for more members. */
static void print_json_model(const inspection *it)
{
    fputs("{\"model\": ", stdout);
    json_write_string(stdout, it->options->model);
    fputs(",\n", stdout);
    print_json_config(&it->view.config);
    putchar(' ');
    model_view_print_json(&it->view, false);
    printf(",\n \"tensors\": {\"count\": %" PRId64 ", \"bytes\": %zu, \"types\": {",
           it->all.n_tensors, it->all.size);
    const char *separator = "";
    for (int i = 0; i < DSMOE_N_DTYPES; i++) {
        if (it->types[i].n_tensors == 0) continue;
        printf("%s\"%s\": {\"count\": %" PRId64 ", \"bytes\": %zu}", separator,
               dsmoe_dtype_name((dsmoe_dtype)i), it->types[i].n_tensors, it->types[i].size);
        separator = ", ";
    }
    fputs("}, \"extra\": [", stdout);
    for (size_t i = 0; i < dsmoe_model_extra_count(it->model); i++) {
        if (i > 0) fputs(", ", stdout);
        json_write_string(stdout, dsmoe_model_extra(it->model, i));
    }
    printf("]},\n \"memory\": {\"n_ctx\": %" PRId64 ", \"weights\": %zu, \"kv_type\": \"%s\""
           ", \"kv_cache\": %zu, \"workspace\": %zu},\n \"bytes_per_token\": %zu",
           it->n_ctx, it->all.size, dsmoe_dtype_name(kv_type), it->memory.kv_cache,
           it->memory.workspace, dsmoe_model_bytes_per_token(it->model));
    gate_bias_print_json(it->model);
}

/* ---- which experts a text uses --------------------------------------------------------------- */

static int check_page(const inspect_options *options)
{
    const char *inputs[] = {options->model, output_input(options->routing)};
    const dsmoe_output page = {options->html, DSMOE_OUTPUT_PAGE, options->force, inputs, 2};
    return options->html ? output_check("inspect", &page) : CLI_OK;
}

static int check_experts(const inspect_options *options)
{
    const char *path = options->experts.path;
    const char *inputs[] = {options->model, output_input(options->routing), options->html};
    const dsmoe_output experts = {path, DSMOE_OUTPUT_EXPERTS, options->force, inputs, 3};
    return path ? output_check("inspect", &experts) : CLI_OK;
}

static void put_page(FILE *file, const void *report) { routing_page_put(file, report); }

/* Checks again, because the file may have been created meanwhile. */
static int write_page(const inspection *it, const routing_report *report)
{
    dsmoe_error error;
    int exit_code = check_page(it->options);
    if (exit_code != CLI_OK) return exit_code;
    if (partial_file_put_text(it->options->html, put_page, report, &error) == DSMOE_OK)
        return CLI_OK;
    return cli_failure("inspect", "%s", error.message);
}

static int show_routing(const inspection *it, const routing_report *report)
{
    if (report->interrupted)
        fprintf(stderr, "dsmoe inspect: interrupted after %" PRId64 " of %" PRId64 " tokens\n",
                report->n_tokens, report->n_text);
    if (report->n_tokens == 0) return CLI_INTERRUPTED;
    if (it->options->json) {
        print_json_model(it);
        fputs(",\n \"routing\": ", stdout);
        routing_put_json(report, stdout);
        puts("}");
    } else {
        routing_print(report, it->options->layer);
    }
    int exit_code = CLI_OK;
    if (it->options->experts.path)
        exit_code = routing_put_experts(report, &it->options->experts, !it->options->json);
    if (exit_code == CLI_OK && it->options->html) exit_code = write_page(it, report);
    if (exit_code == CLI_OK && it->options->html && !it->options->json)
        printf("\nThe page: %s\n", it->options->html);
    return exit_code == CLI_OK && report->interrupted ? CLI_INTERRUPTED : exit_code;
}

/* "1 to 27": the first and the last MoE layer; returns `out`. */
static const char *moe_layers(const dsmoe_config *config, char out[TABLE_CELL])
{
    int64_t first = 0, last = config->num_hidden_layers - 1;
    while (first < last && !dsmoe_config_layer_is_moe(config, first)) first++;
    while (last > first && !dsmoe_config_layer_is_moe(config, last)) last--;
    snprintf(out, TABLE_CELL, "%" PRId64 " to %" PRId64, first, last);
    return out;
}

static bool show_progress(void *context, double done, double total)
{
    progress_update(context, done, total);
    return !cli_interrupted();
}

static int count_routing(const inspection *it, const corpus *text, routing_report *report)
{
    const inspect_options *options = it->options;
    progress bar = progress_start("routing", "tokens");
    const token_text tokens = corpus_text(text);
    const routing_options counting = {
        .n_ctx = corpus_context("inspect", text, &it->view.config, options->n_ctx),
        .n_threads = (int)options->n_threads,
        .progress = show_progress,
        .context = &bar};
    dsmoe_error error;
    if (counting.n_ctx < 1 + (text->bos >= 0))
        return cli_usage("inspect", "a context (-c) of %" PRId64 " leaves no room after BOS",
                         counting.n_ctx);
    cli_catch_interrupt();
    report->tokenizer = text->tokenizer;
    dsmoe_status status = routing_collect(it->model, &tokens, &counting, report, &error);
    progress_finish(&bar);
    if (status == DSMOE_OK) return CLI_OK;
    return cli_failure("inspect", "%s: %s", options->model, error.message);
}

static int inspect_routing(const inspection *it)
{
    char layers[TABLE_CELL];
    const inspect_options *options = it->options;
    const dsmoe_config *config = &it->view.config;
    if (it->view.plan.n_moe_layers == 0)
        return cli_failure("inspect", "%s: all layers are dense, so nothing is routed",
                           options->model);
    if (options->layer >= 0 && (options->layer >= config->num_hidden_layers ||
                                !dsmoe_config_layer_is_moe(config, options->layer)))
        return cli_usage("inspect", "--layer %" PRId64 " is not an MoE layer of this model (%s)",
                         options->layer, moe_layers(config, layers));
    corpus text;
    corpus_source source = {"inspect", options->model, options->routing, options->ids};
    int exit_code = corpus_read(&source, config, &text);
    if (exit_code != CLI_OK) return exit_code;
    routing_report report = {.model_path = options->model, .text_path = options->routing};
    exit_code = count_routing(it, &text, &report);
    if (exit_code == CLI_OK) exit_code = show_routing(it, &report);
    routing_free(&report);
    corpus_free(&text);
    return exit_code;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int inspect(inspection *it)
{
    dsmoe_error error;
    if (look(it, &error) != DSMOE_OK) return cli_failure("inspect", "%s", error.message);
    if (it->options->routing) return inspect_routing(it);
    if (it->options->json) {
        print_json_model(it);
        puts("}");
    } else {
        print_model(it);
    }
    return CLI_OK;
}

int command_inspect(int argc, char **argv)
{
    inspect_options options = {.layer = -1, .experts = {.score = "gate", .share = -1}};
    const option_row rows[] = {
        {"--model", "-m", OPTION_PATH, &options.model, 0, 0},
        {"--ctx-size", "-c", OPTION_INTEGER, &options.n_ctx, 1, INT32_MAX},
        {"--threads", "-t", OPTION_INTEGER, &options.n_threads, 1, CLI_MAX_THREADS},
        {"--json", NULL, OPTION_FLAG, &options.json, 0, 0},
        {"--routing", NULL, OPTION_PATH, &options.routing, 0, 0},
        {"--ids", NULL, OPTION_FLAG, &options.ids, 0, 0},
        {"--layer", NULL, OPTION_INTEGER, &options.layer, 0, INT32_MAX},
        {"--html", NULL, OPTION_PATH, &options.html, 0, 0},
        {"--experts-out", NULL, OPTION_PATH, &options.experts.path, 0, 0},
        {"--expert-score", NULL, OPTION_TEXT, &options.experts.score, 0, 0},
        {"--expert-share", NULL, OPTION_NUMBER, &options.experts.share, 0, 1},
        {"--force", NULL, OPTION_FLAG, &options.force, 0, 0},
    };
    int exit_code =
        options_parse("inspect", help, rows, sizeof rows / sizeof *rows, argc, argv, NULL);
    if (exit_code >= 0) return exit_code;
    if (!options.model) return cli_usage("inspect", CLI_NO_MODEL);
    if (!options.routing &&
        (options.ids || options.html || options.layer >= 0 || options.experts.path))
        return cli_usage("inspect", "%s has no effect without --routing",
                         options.html           ? "--html"
                         : options.ids          ? "--ids"
                         : options.experts.path ? "--experts-out"
                                                : "--layer");
    if (options.force && !options.html && !options.experts.path)
        return cli_usage("inspect", "--force has no effect without --html or --experts-out");
    if (!options.experts.path &&
        (options.experts.share >= 0 || strcmp(options.experts.score, "gate")))
        return cli_usage("inspect",
                         "--expert-score and --expert-share have no effect without --experts-out");
    if (options.experts.path && (exit_code = routing_check_experts(&options.experts)) != CLI_OK)
        return exit_code;
    if (options.html && output_check_name("inspect", "--html", options.html) != CLI_OK)
        return CLI_USAGE;
    model_path found;
    exit_code = model_path_find("inspect", &options.model, &found);
    if (exit_code == CLI_OK) exit_code = check_page(&options);
    if (exit_code == CLI_OK) exit_code = check_experts(&options);
    if (exit_code != CLI_OK) return exit_code;
    dsmoe_model *model;
    dsmoe_error error;
    if (dsmoe_model_open(options.model, &model, &error) != DSMOE_OK)
        return cli_failure("inspect", "%s", error.message);
    inspection it = {.options = &options, .model = model};
    exit_code = inspect(&it);
    dsmoe_model_free(model);
    return exit_code;
}
