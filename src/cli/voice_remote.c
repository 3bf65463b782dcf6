/* voice_remote.c - a server elsewhere as a voice. Each text is one request with the whole prompt or
 * conversation. Whether the server still has some of it from the last request is up to the server. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/remote.h"
#include "cli/remote_request.h"
#include "cli/voice.h"
#include "formats/json_write.h"

typedef struct remote_voice {
    voice base;
    const voice_order *order;
    remote *server;
    char *model;  /* the model's name for the server; NULL: it has none */
    int64_t seed; /* -1: the server chooses */
    int64_t n_prompt, n_cached, n_predicted;
    double prompt_seconds, predicted_seconds;
} remote_voice;

/* A text that is being received. */
typedef struct remote_text {
    stream *out;
    double first_at; /* seconds; 0 before its first piece */
} remote_text;

static remote_voice *remote_of(voice *v) { return (remote_voice *)v; }

/* ---- a request ---------------------------------------------------------------------------------------- */

static bool show(void *context, const char *text, size_t length)
{
    remote_text *t = context;
    if (t->first_at == 0) t->first_at = cli_seconds();
    return stream_put(t->out, text, length);
}

/* Takes the server's numbers or, if it gives none, our clock and the number of pieces that came. */
static void add_cost(remote_voice *s, const client_events *e, double start, double first_at)
{
    const client_cost *cost = &e->cost;
    double now = cli_seconds();
    if (first_at == 0) first_at = now;
    if (cost->n_prompt > 0) s->n_prompt += cost->n_prompt;
    if (cost->n_cached > 0 && cost->n_cached <= cost->n_prompt) s->n_cached += cost->n_cached;
    s->n_predicted += cost->n_predicted >= 0 ? cost->n_predicted : e->n_texts;
    s->prompt_seconds += cost->prompt_seconds >= 0 ? cost->prompt_seconds : first_at - start;
    s->predicted_seconds += cost->predicted_seconds >= 0 ? cost->predicted_seconds : now - first_at;
}

/* How a complete text ended. One that is shorter than asked for had no more room. */
static runner_end end_of(const remote_voice *s, const client_events *e)
{
    int64_t limit = s->order->options->n_predict, n = e->cost.n_predicted;
    if (e->is_stopped) return RUNNER_STOPPED;
    if (e->finish != CLIENT_FINISH_LENGTH) return RUNNER_EOS;
    return limit < 0 || (n >= 0 && n < limit) ? RUNNER_FULL : RUNNER_LIMIT;
}

/* Sends JSON and shows what comes. False if it does not fit the context; otherwise *result says how it
 * ended. */
static bool post(remote_voice *s, const char *path, const char *body, size_t length, stream *out,
                 voice_result *result)
{
    remote_text text = {.out = out};
    client_events events = {.show = show, .context = &text};
    double start = cli_seconds();
    client_events_begin(&events);
    remote_end end = remote_post(s->server, path, body, length, &events, &result->error);
    client_events_free(&events);
    result->began = events.n_texts > 0 || events.finish != CLIENT_FINISH_NONE;
    if (end == REMOTE_ANSWERED || events.n_texts > 0) add_cost(s, &events, start, text.first_at);
    switch (end) {
    case REMOTE_ANSWERED: result->end = end_of(s, &events); break;
    case REMOTE_INTERRUPTED: result->end = RUNNER_INTERRUPTED; break;
    case REMOTE_TOO_LONG: result->end = RUNNER_FULL; break;
    case REMOTE_FAILED: result->end = RUNNER_FAILED; break;
    }
    return end != REMOTE_TOO_LONG;
}

/* Begins a body; the prompt or the messages follow. NULL if there is not enough memory. */
static FILE *begin_body(const remote_voice *s, char **body, size_t *length)
{
    FILE *out = open_memstream(body, length);
    if (!out) return NULL;
    fputs("{", out);
    if (s->model) {
        fputs("\"model\": ", out);
        json_write_string(out, s->model);
        fputs(", ", out);
    }
    remote_request_settings(s->order, out);
    if (s->seed >= 0) fprintf(out, "\"seed\": %" PRId64 ", ", s->seed);
    return out;
}

/* Ends a body and sends it; returns the same as `post`. */
static bool send_body(remote_voice *s, const char *path, FILE *file, char **body, size_t *length,
                      stream *out, voice_result *result)
{
    bool fits = true;
    if (file) fputs("}", file);
    if (!file || fclose(file)) {
        result->end = RUNNER_FAILED;
        snprintf(result->error.message, sizeof result->error.message, "not enough memory");
    } else {
        fits = post(s, path, *body, *length, out, result);
    }
    free(*body);
    return fits;
}

/* ---- functions of a voice ------------------------------------------------------------------------------ */

static int take_prompt(voice *v, const char *name, const char *text, size_t length)
{
    if (!remote_request_can_hold(text, length))
        return cli_failure(v->command, "%s: not UTF-8; a server takes only UTF-8", name);
    v->prompt = text;
    v->n_prompt = length;
    return CLI_OK;
}

static void go_on(voice *v, stream *out, voice_result *result)
{
    remote_voice *s = remote_of(v);
    char *body = NULL;
    size_t length = 0;
    FILE *file = begin_body(s, &body, &length);
    if (file) {
        fputs("\"prompt\": ", file);
        json_write_text(file, v->prompt, v->n_prompt);
    }
    if (!send_body(s, "/v1/completions", file, &body, &length, out, result))
        result->end = RUNNER_FAILED; /* with the server's words for it */
}

static void answer(voice *v, conversation *talk, stream *out, voice_result *result)
{
    remote_voice *s = remote_of(v);
    for (;;) {
        char *body = NULL;
        size_t length = 0;
        FILE *file = begin_body(s, &body, &length);
        if (file) {
            fputs("\"messages\": ", file);
            conversation_print(talk, file);
        }
        if (send_body(s, "/v1/chat/completions", file, &body, &length, out, result)) return;
        if (!conversation_drop_turn(talk)) return;
        result->n_dropped += 2;
    }
}

static int64_t seed_from_clock(void) { return (int64_t)(cli_seconds() * 1e6) % 1000000000; }

static int reseed(voice *v)
{
    remote_voice *s = remote_of(v);
    s->seed = s->seed < 0 || s->seed == INT64_MAX ? seed_from_clock() : s->seed + 1;
    return CLI_OK;
}

static void report(const voice *v)
{
    const remote_voice *s = (const remote_voice *)v;
    runner_report_speed("prompt:", s->n_prompt - s->n_cached, s->prompt_seconds);
    if (s->n_cached > 0) fprintf(stderr, " and %" PRId64 " of the server's cache", s->n_cached);
    runner_report_speed("; decode:", s->n_predicted, s->predicted_seconds);
    if (s->seed >= 0) fprintf(stderr, "; seed: %" PRId64, s->seed);
    fputc('\n', stderr);
}

/* ---- opening and closing ------------------------------------------------------------------------------ */

static void close_remote(voice *v)
{
    remote_voice *s = remote_of(v);
    remote_close(s->server);
    free(s->model);
    free(s);
}

/* The key may be in the environment, where others do not see it. */
static const char *api_key(const runner_options *o)
{
    const char *key = o->api_key ? o->api_key : getenv("DSMOE_API_KEY");
    return key && *key ? key : NULL;
}

int voice_open_remote(const voice_order *order, voice **v)
{
    static const voice_kind kind = {take_prompt, go_on, answer, reseed, report, close_remote};
    const runner_options *o = order->options;
    const remote_address address = {
        .url = o->url, .unix_path = o->unix_path, .api_key = api_key(o), .ca_file = o->ca_file};
    dsmoe_error error = {0};
    remote_voice *s = calloc(1, sizeof *s);
    if (!s) return cli_failure(order->command, "not enough memory");
    s->base = (voice){.kind = &kind,
                      .command = order->command,
                      .context = "the server's context",
                      .context_hint = "",
                      .is_greedy = o->temp == 0,
                      .may_recover = true};
    s->order = order;
    s->seed = o->seed;
    *v = &s->base;
    int code = remote_open(order->command, &address, &s->server);
    if (code != CLI_OK) return code;
    s->base.name = remote_name(s->server);
    remote_end end = remote_ask_model(s->server, &s->model, &error);
    if (end == REMOTE_INTERRUPTED) return CLI_INTERRUPTED;
    return end == REMOTE_ANSWERED ? CLI_OK : voice_failure(*v, &error);
}
