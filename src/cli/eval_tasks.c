/* eval_tasks.c - `dsmoe eval --tasks`: questions whose answers are known. */
#include <inttypes.h>

#include "cli/cli.h"
#include "cli/eval.h"
#include "formats/json_write.h"

/* The questions of one file. */
typedef struct quiz {
    const eval_options *options;
    const dsmoe_model *model;
    const char *path;
    const dsmoe_tasks *tasks;
    progress bar;
    dsmoe_task_scores scores;
    double seconds;
    bool interrupted;
} quiz;

/* ---- asking ---------------------------------------------------------------------------------- */

static bool show_progress(void *context, double done, double total)
{
    quiz *q = context;
    progress_update(&q->bar, done, total);
    return !cli_interrupted();
}

/* Prints a line of JSON to stdout; the bar is on stderr. */
static void print_answer(void *context, const dsmoe_task_result *r)
{
    const quiz *q = context;
    fputs("{\"file\": ", stdout);
    json_write_string(stdout, q->path);
    printf(", \"line\": %" PRId64 ", \"right\": %s", r->line, r->right ? "true" : "false");
    if (r->n_choices == 0) {
        fputs(", \"text\": ", stdout);
        json_write_string(stdout, r->text);
    } else {
        printf(", \"answer\": %" PRId64 ", \"chosen\": %" PRId64
               ", \"chosen_by_character\": %" PRId64 ", \"chosen_by_token\": %" PRId64
               ", \"log_probabilities\": [",
               r->answer, r->chosen, r->chosen_by_character, r->chosen_by_token);
        for (int64_t i = 0; i < r->n_choices; i++)
            printf("%s%.6f", i ? ", " : "", r->log_probabilities[i]);
        putchar(']');
    }
    puts("}");
}

/* CLI_OK, even after Ctrl-C, or an exit code. */
static int ask(quiz *q)
{
    dsmoe_error error;
    const lora_list *lora = &q->options->lora;
    dsmoe_task_options options = {.n_threads = (int)q->options->n_threads,
                                  .kv_type = q->options->kv_type,
                                  .adapters = (const dsmoe_adapter *const *)lora->adapters,
                                  .adapter_scales = lora->scales,
                                  .n_adapters = lora->n,
                                  .progress = show_progress,
                                  .visit = q->options->answers ? print_answer : NULL,
                                  .context = q};
    double start = cli_seconds();
    q->bar = progress_start("asking", "questions");
    dsmoe_status status = dsmoe_tasks_run(q->tasks, q->model, &options, &q->scores, &error);
    progress_finish(&q->bar);
    q->seconds = cli_seconds() - start;
    q->interrupted = status == DSMOE_ERROR_STOPPED;
    if (status == DSMOE_OK || q->interrupted) return CLI_OK;
    return cli_failure("eval", "%s: %s", q->options->model, error.message);
}

/* ---- the outcome ----------------------------------------------------------------------------- */

static void print_score(const char *name, dsmoe_task_score score)
{
    if (score.n > 0)
        printf("%-12s %.4f +/- %.4f  (%" PRId64 " questions)\n", name, score.mean, score.error,
               score.n);
}

static void print_text(const quiz *q)
{
    const dsmoe_task_scores *s = &q->scores;
    double rate = q->seconds > 0 ? (double)s->n_run / q->seconds : 0;
    printf("%s\n", q->path);
    print_score("acc", s->acc);
    print_score("acc_norm", s->acc_norm);
    print_score("acc_token", s->acc_token);
    print_score("exact_match", s->exact_match);
    printf("%-12s %" PRId64 " run, %" PRId64 " reused; %.1f tokens/s, %.1f s\n", "tokens", s->n_run,
           s->n_reused, rate, q->seconds);
}

static void print_json_score(const char *name, dsmoe_task_score score)
{
    if (score.n > 0)
        printf(",\n \"%s\": %.9g, \"%s_stderr\": %.6g", name, score.mean, name, score.error);
}

static void print_json(const quiz *q)
{
    const dsmoe_task_scores *s = &q->scores;
    fputs("{\"model\": ", stdout);
    json_write_string(stdout, q->options->model);
    fputs(", \"file\": ", stdout);
    json_write_string(stdout, q->path);
    printf(",\n \"questions\": %" PRId64 ", \"answered\": %" PRId64, dsmoe_tasks_count(q->tasks),
           s->acc.n + s->exact_match.n);
    print_json_score("acc", s->acc);
    print_json_score("acc_norm", s->acc_norm);
    print_json_score("acc_token", s->acc_token);
    print_json_score("exact_match", s->exact_match);
    printf(",\n \"tokens\": %" PRId64 ", \"reused\": %" PRId64
           ", \"seconds\": %.3f, \"interrupted\": %s}\n",
           s->n_run, s->n_reused, q->seconds, q->interrupted ? "true" : "false");
}

/* ---- the files ------------------------------------------------------------------------------- */

static int ask_file(const eval_options *options, const dsmoe_model *model,
                    const dsmoe_tokenizer *tokenizer, const char *path)
{
    dsmoe_error error;
    dsmoe_tasks *tasks;
    const dsmoe_config *config = dsmoe_model_config(model);
    int64_t n_ctx = options->n_ctx ? options->n_ctx : config->max_position_embeddings;
    if (dsmoe_tasks_read(path, tokenizer, n_ctx, &tasks, &error) != DSMOE_OK)
        return cli_failure("eval", "%s", error.message);
    quiz q = {.options = options, .model = model, .path = path, .tasks = tasks};
    int exit_code = ask(&q);
    int64_t n_answered = q.scores.acc.n + q.scores.exact_match.n;
    if (exit_code == CLI_OK && q.interrupted)
        fprintf(stderr, "dsmoe eval: interrupted with %" PRId64 " of %" PRId64 " questions asked\n",
                n_answered, dsmoe_tasks_count(tasks));
    if (exit_code == CLI_OK && n_answered > 0) (options->json ? print_json : print_text)(&q);
    if (q.interrupted) exit_code = CLI_INTERRUPTED;
    dsmoe_tasks_free(tasks);
    return exit_code;
}

int eval_tasks(const eval_options *options, const dsmoe_model *model)
{
    dsmoe_error error;
    dsmoe_tokenizer *tokenizer;
    dsmoe_model *probed = NULL;
    if (eval_is_probed(&options->probe)) {
        if (dsmoe_model_probe(model, &options->probe, &probed, &error) != DSMOE_OK)
            return eval_refuse_probe(options, &error);
        model = probed;
    }
    int exit_code = CLI_OK;
    if (dsmoe_tokenizer_open(options->model, &tokenizer, &error) != DSMOE_OK) {
        exit_code = cli_failure("eval", "%s", error.message);
    } else {
        cli_catch_interrupt();
        if (options->n_ctx) cli_warn_of_context("eval", dsmoe_model_config(model), options->n_ctx);
        for (int i = 0; exit_code == CLI_OK && i < options->tasks.count; i++)
            exit_code = ask_file(options, model, tokenizer, options->tasks.at[i]);
        dsmoe_tokenizer_free(tokenizer);
    }
    dsmoe_model_free(probed);
    return exit_code;
}
