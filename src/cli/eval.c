/* eval.c - `dsmoe eval`: how well a model predicts a text (study/text_loss.h). */
#include "cli/eval.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/kv_type.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "cli/table.h"
#include "formats/json_write.h"

static const char help[] =
    "usage: dsmoe eval -m MODEL -f FILE [options]\n"
    "       dsmoe eval -m MODEL --against MODEL -f FILE [options]\n"
    "       dsmoe eval -m MODEL --tasks FILE [options]\n"
    "\n"
    "Measures how well a model predicts a text: cross entropy (nats per token), perplexity and bits\n"
    "per byte. A window of as many tokens as the context holds slides over the text; tokens that an\n"
    "earlier window has scored only serve as context.\n"
    "\n"
    "  -m, --model MODEL  a folder in the public layout, with its tokenizer.json, a .gguf file, or a\n"
    "                     training run, of which the latest checkpoint is used\n"
    "  -f, --file FILE    the text (\"-\": stdin)\n"
    "  -c, --ctx-size N   tokens of a window (default: what the model was made for)\n"
    "      --stride N     tokens by which the window moves (default: half of the context)\n"
    "      --ids          the file holds token ids separated by spaces; no tokenizer is needed, and\n"
    "                     no BOS is put before a window\n"
    "      --kv-type TYPE keys and values of the context as f32, f16 or q8_0 (default: f32)\n" LORA_HELP
    "  -t, --threads N    threads to use (default: all processors)\n"
    "      --json         print one JSON object\n"
    "  -h, --help         this text\n"
    "\n"
    "the paper's probes, which test what the experts of a model know:\n"
    "      --mask-top X       no token may use this share (0 to below 1) of its highest-scoring\n"
    "                         routed experts; it takes the best of the others\n"
    "      --mask-before-softmax\n"
    "                         the scores of the others add up to 1 (default: they stay as they are)\n"
    "      --replace-shared   no shared experts, and one more routed expert for each of them\n"
    "      --experts N        routed experts of a token\n"
    "      --probes           run all of them and print one table: no probe, 1/16 to 4/16 masked, the\n"
    "                         shared experts replaced, and every smaller number of experts (at\n"
    "                         most seven)\n"
    "\n"
    "against another model, such as the one with more bits that this one was made from:\n"
    "      --against MODEL    both run over the text in pieces (-c, default: 512 tokens) that do not\n"
    "                         overlap; perplexity and size of both, the Kullback-Leibler divergence\n"
    "                         of this model's predictions from that one's, and how often both find\n"
    "                         the same token likeliest\n"
    "\n"
    "questions with known answers (docs/tasks.md): JSON lines with \"prompt\" (or \"question\") and\n"
    "either \"choices\" and \"answer\" (the number of the right one), or only \"answer\" (the text):\n"
    "      --tasks FILE       may be given several times. The likeliest choice counts: by all of its\n"
    "                         tokens (acc), by character (acc_norm) and by token (acc_token);\n"
    "                         a written text counts if it is the answer (exact_match)\n"
    "      --answers          print a line of JSON for each question: what the model chose or wrote\n"
    "\n"
    "Ctrl-C ends early and shows what is known so far (with --against, nothing).\n"
    "\n"
    "examples:\n"
    "  dsmoe eval -m deepseek-moe-16b-base -f wiki.test.raw -c 2048\n"
    "  dsmoe eval -m deepseek-moe-16b-base -f wiki.test.raw -c 2048 --probes\n"
    "  dsmoe eval -m moe-16b-q4_k_m.gguf --against deepseek-moe-16b-base -f wiki.test.raw\n"
    "  dsmoe eval -m deepseek-moe-16b-base --tasks hellaswag.jsonl --tasks gsm8k.jsonl\n";

/* ---- the outcome ----------------------------------------------------------------------------- */

void eval_print_json_source(const evaluation *e)
{
    fputs("{\"model\": ", stdout);
    json_write_string(stdout, e->options->model);
    fputs(", \"file\": ", stdout);
    json_write_string(stdout, e->options->file);
    printf(",\n \"tokens\": %" PRId64 ", \"n_ctx\": %" PRId64 ", \"stride\": %" PRId64
           ", \"bos\": %s,\n",
           e->text->n_tokens, e->n_ctx, e->stride, e->text->bos >= 0 ? "true" : "false");
}

static void print_json(const evaluation *e)
{
    const text_loss *result = &e->result;
    text_loss_numbers numbers = text_loss_compute(result);
    eval_print_json_source(e);
    printf(" \"scored\": %" PRId64 ", \"windows\": %" PRId64 ",\n", result->n_scored,
           result->n_windows);
    if (eval_is_probed(&e->options->probe)) {
        fputs(" \"probe\": {", stdout);
        eval_print_json_probe(&e->options->probe, &e->config);
        fputs("},\n", stdout);
    }
    printf(" \"cross_entropy\": %.9g, \"standard_error\": %.4g, \"perplexity\": ",
           numbers.cross_entropy, numbers.error);
    printf(isfinite(numbers.perplexity) ? "%.9g" : "null", numbers.perplexity);
    if (result->n_bytes > 0)
        printf(", \"bits_per_byte\": %.9g, \"bytes\": %" PRId64, numbers.bits_per_byte,
               result->n_bytes);
    printf(",\n \"seconds\": %.3f, \"tokens_per_s\": %.2f, \"interrupted\": %s}\n", result->seconds,
           numbers.tokens_per_s, result->interrupted ? "true" : "false");
}

static void print_text(const evaluation *e)
{
    const text_loss *result = &e->result;
    text_loss_numbers numbers = text_loss_compute(result);
    char scored[TABLE_CELL], all[TABLE_CELL];
    if (eval_is_probed(&e->options->probe))
        printf("experts        %s\n", eval_format_experts(&e->options->probe, &e->config, scored));
    printf("cross entropy  %.4f +/- %.4f nats per token\n", numbers.cross_entropy, numbers.error);
    printf("perplexity     %.4f +/- %.4f\n", numbers.perplexity,
           numbers.perplexity * numbers.error);
    if (result->n_bytes > 0) printf("bits per byte  %.4f\n", numbers.bits_per_byte);
    printf("tokens         %s of %s scored in %" PRId64 " window%s of %" PRId64,
           number_group(result->n_scored, scored), number_group(e->text->n_tokens, all),
           result->n_windows, result->n_windows == 1 ? "" : "s", e->n_ctx);
    if (result->n_windows > 1) printf(" moved by %" PRId64, e->stride);
    puts(e->text->bos >= 0 ? ", BOS first" : "");
    printf("speed          %.1f tokens/s, %.1f s\n", numbers.tokens_per_s, result->seconds);
}

static int report(const evaluation *e)
{
    const text_loss *result = &e->result;
    if (result->interrupted)
        fprintf(stderr, "dsmoe eval: interrupted with %" PRId64 " of %" PRId64 " tokens scored\n",
                result->n_scored, e->text->n_tokens - (e->text->bos < 0));
    if (result->n_scored > 0) (e->options->json ? print_json : print_text)(e);
    return result->interrupted ? CLI_INTERRUPTED : CLI_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int choose_windows(evaluation *e, const dsmoe_config *config)
{
    const eval_options *options = e->options;
    int64_t asked = options->n_ctx ? options->n_ctx : config->max_position_embeddings;
    if (asked < 2)
        return cli_failure("eval",
                           "%s: max_position_embeddings is %" PRId64
                           ", which leaves nothing to predict from; set another context with -c",
                           options->model, asked);
    if (options->stride >= asked)
        return cli_usage("eval", "--stride %" PRId64 " must be below the context of %" PRId64,
                         options->stride, asked);
    if (e->text->n_tokens + (e->text->bos >= 0) < 2)
        return cli_failure("eval", "%s: only one token, with nothing before it to predict it from",
                           cli_input_name(options->file));
    e->n_ctx = corpus_context("eval", e->text, config, options->n_ctx);
    e->stride = options->stride ? options->stride : e->n_ctx / 2;
    if (e->stride >= e->n_ctx) e->stride = e->n_ctx - 1; /* one window holds the whole text */
    return CLI_OK;
}

static bool show_progress(void *context, double done, double total)
{
    evaluation *e = context;
    progress_update(&e->bar, done, total);
    return true;
}

int eval_run(evaluation *e, const dsmoe_model *model, const char *label)
{
    dsmoe_error error;
    token_text text = corpus_text(e->text);
    text_loss_options options = {.engine = {.n_ctx = e->n_ctx,
                                            .n_threads = (int)e->options->n_threads,
                                            .kv_type = e->options->kv_type,
                                            .stop = cli_stop},
                                 .stride = e->stride,
                                 .tokenizer = e->text->tokenizer,
                                 .n_bytes = e->text->n_bytes,
                                 .progress = show_progress,
                                 .context = e};
    lora_use(&e->options->lora, &options.engine);
    e->config = *dsmoe_model_config(model);
    e->bar = progress_start(label, "tokens");
    dsmoe_status status = text_loss_measure(model, &text, &options, &e->result, &error);
    progress_finish(&e->bar);
    return status == DSMOE_OK ? CLI_OK : kv_type_error("eval", e->options->model, &error);
}

int eval_refuse_probe(const eval_options *o, const dsmoe_error *error)
{
    char options[96], mask[32] = "", experts[32] = "";
    if (o->probe.mask_top > 0) snprintf(mask, sizeof mask, " --mask-top %g", o->probe.mask_top);
    if (o->probe.num_experts_per_tok > 0)
        snprintf(experts, sizeof experts, " --experts %" PRId64, o->probe.num_experts_per_tok);
    snprintf(options, sizeof options, "%s%s%s", mask, experts,
             o->probe.replace_shared ? " --replace-shared" : "");
    bool fits_none = error->status != DSMOE_ERROR_ARGUMENT; /* a dense model */
    return cli_error("eval", fits_none ? o->model : options + 1, error);
}

/* Evaluates with the probe that the options name, if any. */
static int evaluate_probed(evaluation *e, const dsmoe_model *model)
{
    dsmoe_error error;
    dsmoe_model *probed = NULL;
    if (eval_is_probed(&e->options->probe)) {
        if (dsmoe_model_probe(model, &e->options->probe, &probed, &error) != DSMOE_OK)
            return eval_refuse_probe(e->options, &error);
        model = probed;
    }
    int exit_code = eval_run(e, model, "evaluating");
    if (exit_code == CLI_OK) exit_code = report(e);
    dsmoe_model_free(probed);
    return exit_code;
}

static int evaluate(evaluation *e, const dsmoe_model *model)
{
    int exit_code = choose_windows(e, dsmoe_model_config(model));
    if (exit_code != CLI_OK) return exit_code;
    cli_catch_interrupt();
    return (e->options->probes ? eval_probes : evaluate_probed)(e, model);
}

static int check_tasks(const eval_options *options)
{
    if (options->file || options->against || options->stride || options->ids || options->probes)
        return cli_usage(
            "eval",
            "--tasks cannot be used together with -f, --against, --stride, --ids or --probes");
    return CLI_OK;
}

static int check_options(eval_options *options)
{
    bool probed = eval_is_probed(&options->probe);
    if (!options->model) return cli_usage("eval", CLI_NO_MODEL);
    if (options->lora.words.count > 0 && (probed || options->probes || options->against))
        return cli_usage(
            "eval", "--lora cannot be used together with probes or --against; dsmoe merge makes a "
                    "model of base and adapter");
    if (options->tasks.count) {
        int exit_code = check_tasks(options);
        if (exit_code != CLI_OK) return exit_code;
        return kv_type_parse("eval", options->kv_type_name, &options->kv_type);
    }
    if (options->probe.mask_before_softmax && options->probe.mask_top == 0)
        return cli_usage("eval", "--mask-before-softmax has no effect without --mask-top");
    if (options->answers) return cli_usage("eval", "--answers has no effect without --tasks");
    if (!options->file) return cli_usage("eval", "no text: name its file with -f FILE");
    if (options->probes && probed)
        return cli_usage("eval",
                         "--probes runs every probe and cannot be used together with a single one");
    if (options->against && (options->probes || probed || options->stride || options->kv_type_name))
        return cli_usage("eval",
                         "--against cannot be used together with probes, --stride or --kv-type");
    return kv_type_parse("eval", options->kv_type_name, &options->kv_type);
}

/* How well the model predicts the text of -f. */
static int evaluate_file(const eval_options *options, const dsmoe_model *model)
{
    corpus text;
    corpus_source source = {"eval", options->model, options->file, options->ids};
    int exit_code = corpus_read(&source, dsmoe_model_config(model), &text);
    if (exit_code != CLI_OK) return exit_code;
    evaluation e = {.options = options, .text = &text};
    exit_code = options->against ? eval_against(options, &text, model) : evaluate(&e, model);
    corpus_free(&text);
    return exit_code;
}

int command_eval(int argc, char **argv)
{
    const char *tasks[EVAL_MOST_TASKS];
    eval_options options = {.tasks = {tasks, EVAL_MOST_TASKS, 0}};
    model_path found, found_against;
    const option_row rows[] = {
        {"--model", "-m", OPTION_PATH, &options.model, 0, 0},
        {"--file", "-f", OPTION_PATH, &options.file, 0, 0},
        {"--ctx-size", "-c", OPTION_INTEGER, &options.n_ctx, 2, INT32_MAX},
        {"--stride", NULL, OPTION_INTEGER, &options.stride, 1, INT32_MAX},
        {"--ids", NULL, OPTION_FLAG, &options.ids, 0, 0},
        {"--kv-type", NULL, OPTION_NAME, &options.kv_type_name, 0, 0},
        lora_row(&options.lora),
        {"--threads", "-t", OPTION_INTEGER, &options.n_threads, 1, CLI_MAX_THREADS},
        {"--json", NULL, OPTION_FLAG, &options.json, 0, 0},
        {"--mask-top", NULL, OPTION_NUMBER, &options.probe.mask_top, 0, 1},
        {"--mask-before-softmax", NULL, OPTION_FLAG, &options.probe.mask_before_softmax, 0, 0},
        {"--replace-shared", NULL, OPTION_FLAG, &options.probe.replace_shared, 0, 0},
        {"--experts", NULL, OPTION_INTEGER, &options.probe.num_experts_per_tok, 1, INT32_MAX},
        {"--probes", NULL, OPTION_FLAG, &options.probes, 0, 0},
        {"--against", NULL, OPTION_PATH, &options.against, 0, 0},
        {"--tasks", NULL, OPTION_PATH_LIST, &options.tasks, 0, 0},
        {"--answers", NULL, OPTION_FLAG, &options.answers, 0, 0},
    };
    int exit_code = options_parse("eval", help, rows, sizeof rows / sizeof *rows, argc, argv, NULL);
    if (exit_code >= 0) return exit_code;
    exit_code = check_options(&options);
    if (exit_code == CLI_OK) exit_code = model_path_find("eval", &options.model, &found);
    if (exit_code == CLI_OK && options.against)
        exit_code = model_path_find("eval", &options.against, &found_against);
    if (exit_code != CLI_OK) return exit_code;
    dsmoe_model *model;
    dsmoe_error error;
    if (dsmoe_model_open(options.model, &model, &error) != DSMOE_OK)
        return cli_failure("eval", "%s", error.message);
    exit_code = lora_open("eval", &options.lora, model);
    if (exit_code == CLI_OK)
        exit_code = (options.tasks.count ? eval_tasks : evaluate_file)(&options, model);
    lora_close(&options.lora);
    dsmoe_model_free(model);
    return exit_code;
}
