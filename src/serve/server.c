/* server.c - the server as a whole: its start, its paths and their answers, its end. */
#include "serve/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/status.h"
#include "formats/json_write.h"
#include "serve/answer.h"
#include "serve/page.h"
#include "serve/server_parts.h"

/* ---- paths ------------------------------------------------------------------------------------- */

const endpoint endpoints[] = {
    {"GET", "/health", endpoint_health, false},
    {"GET", "/v1/health", endpoint_health, false},
    {"GET", "/v1/models", endpoint_models, true},
    {"GET", "/models", endpoint_models, true},
    {"GET", "/props", endpoint_props, true},
    {"GET", "/slots", endpoint_slots, true},
    {"GET", "/metrics", endpoint_metrics, true},
    {"GET", "/routing", endpoint_routing, true},
    {"GET", "/lora-adapters", endpoint_lora, true},
    {"POST", "/lora-adapters", endpoint_set_lora, true},
    {"POST", "/v1/chat/completions", endpoint_chat, true},
    {"POST", "/chat/completions", endpoint_chat, true},
    {"POST", "/v1/completions", endpoint_completions, true},
    {"POST", "/completion", endpoint_native, true},
    {"POST", "/completions", endpoint_native, true},
    {"POST", "/v1/embeddings", endpoint_embeddings, true},
    {"POST", "/embeddings", endpoint_embeddings, true},
    {"POST", "/tokenize", endpoint_tokenize, true},
    {"POST", "/detokenize", endpoint_detokenize, true},
    {"POST", "/apply-template", endpoint_apply_template, true},
};
const int n_endpoints = sizeof endpoints / sizeof *endpoints;
_Static_assert(sizeof endpoints / sizeof *endpoints < METRICS_ENDPOINTS, "each is counted");

static bool is_method(const http_exchange *exchange, const char *method)
{
    const char *is = http_method(exchange);
    return !strcmp(is, method) || (!strcmp(method, "GET") && !strcmp(is, "HEAD"));
}

/* The index of a request's path in the table, preferably with its method; n_endpoints: no such path. */
static int find_endpoint(const http_exchange *exchange)
{
    int found = n_endpoints;
    for (int i = n_endpoints - 1; i >= 0; i--) {
        if (strcmp(endpoints[i].path, http_path(exchange))) continue;
        if (found == n_endpoints || is_method(exchange, endpoints[i].method)) found = i;
    }
    return found;
}

/* Requests are counted by path: the first index with that path; n_endpoints: no such path. */
static int counted_endpoint(const http_exchange *exchange)
{
    int i = 0;
    while (i < n_endpoints && strcmp(endpoints[i].path, http_path(exchange))) i++;
    return i;
}

/* The methods of a path, as the header Allow lists them. */
static const char *methods_of(const char *path)
{
    bool get = false, post = false;
    for (int i = 0; i < n_endpoints; i++) {
        if (strcmp(endpoints[i].path, path)) continue;
        get |= !strcmp(endpoints[i].method, "GET");
        post |= !strcmp(endpoints[i].method, "POST");
    }
    return get && post ? "GET, POST" : get ? "GET" : "POST";
}

static void refuse(http_exchange *exchange, int status, const char *format, const char *what)
{
    request_error error = {0};
    request_refuse(&error, status, "", format, what);
    answer_refuse(exchange, &error);
}

/* ---- before the body --------------------------------------------------------------------------- */

static guard_request describe(const server *s, const http_exchange *exchange)
{
    return (guard_request){.method = http_method(exchange),
                           .path = http_path(exchange),
                           .host = http_header(exchange, "Host"),
                           .origin = http_header(exchange, "Origin"),
                           .authorization = http_header(exchange, "Authorization"),
                           .api_key = http_header(exchange, "X-Api-Key"),
                           .local = s->o.socket_path != NULL};
}

static void allow_origin(const server *s, http_exchange *exchange, const guard_request *r)
{
    const char *origin = guard_allowed_origin(&s->guard, r);
    if (!origin) return;
    http_add_header(exchange, "Access-Control-Allow-Origin", origin);
    http_add_header(exchange, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
    http_add_header(exchange, "Vary", "Origin");
}

static void answer_options(http_exchange *exchange)
{
    http_add_header(exchange, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    /* "*" allows every header but Authorization; clients send many headers of their own. */
    http_add_header(exchange, "Access-Control-Allow-Headers", "Authorization, *");
    http_add_header(exchange, "Access-Control-Max-Age", "600");
    http_answer(exchange, 204, "text/plain", "", 0);
}

static void answer_page(http_exchange *exchange, const page_file *file)
{
    http_add_header(
        exchange, "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'");
    http_add_header(exchange, "Referrer-Policy", "no-referrer");
    http_add_header(exchange, "Cache-Control", "no-cache");
    http_answer(exchange, 200, page_type(file), file->bytes, file->length);
}

/* Answers requests that need no body: refused ones, the page, OPTIONS from browsers. */
static bool admit(void *context, http_exchange *exchange)
{
    server *s = context;
    const char *path = http_path(exchange);
    guard_request r = describe(s, exchange);
    int status;
    const char *wrong = guard_check(&s->guard, &r, &status);
    if (!wrong || status == 401) allow_origin(s, exchange, &r);
    if (wrong) {
        if (status == 401) http_add_header(exchange, "WWW-Authenticate", "Bearer");
        refuse(exchange, status, "%s", wrong);
        return true;
    }
    if (is_method(exchange, "OPTIONS")) {
        answer_options(exchange);
        return true;
    }
    const page_file *file = page_find(path);
    if (file && is_method(exchange, "GET")) {
        answer_page(exchange, file);
        return true;
    }
    int at = find_endpoint(exchange);
    if (at == n_endpoints) {
        refuse(exchange, 404, "there is nothing at %.200s", path);
        return true;
    }
    if (!is_method(exchange, endpoints[at].method)) {
        http_add_header(exchange, "Allow", methods_of(path));
        refuse(exchange, 405, "use %s here", methods_of(path));
        return true;
    }
    if (endpoints[at].needs_model && !atomic_load(&s->ready)) {
        refuse(exchange, 503, "%s", "the model is being loaded");
        return true;
    }
    return false;
}

static void handle(void *context, http_exchange *exchange)
{
    server *s = context;
    endpoints[find_endpoint(exchange)].answer(s, exchange);
}

static char *error_body(int status, const char *message)
{
    request_error error = {0};
    request_refuse(&error, status, "", "%s", message);
    return request_error_body(&error);
}

/* ---- after the answer -------------------------------------------------------------------------- */

static void log_request(server *s, const http_exchange *exchange, const http_summary *summary)
{
    struct timespec now;
    struct tm parts;
    char when[40], *line = NULL;
    size_t length = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &parts));
    FILE *out = open_memstream(&line, &length);
    if (!out) return;
    fprintf(out, "{\"time\": \"%s.%03ldZ\", \"id\": \"%s\", \"peer\": ", when,
            now.tv_nsec / 1000000, http_id(exchange));
    json_write_text(out, http_peer(exchange), strlen(http_peer(exchange)));
    fputs(", \"method\": ", out);
    json_write_text(out, http_method(exchange), strlen(http_method(exchange)));
    fputs(", \"path\": ", out);
    json_write_text(out, http_path(exchange), strlen(http_path(exchange)));
    fprintf(out, ", \"status\": %d, \"complete\": %s, \"bytes\": %zu, \"seconds\": %.3f}\n",
            summary->status, summary->complete ? "true" : "false", summary->n_sent,
            summary->seconds);
    if (fclose(out) == 0) { /* one call, so that lines do not mix */
        fwrite(line, 1, length, s->log);
        fflush(s->log);
    }
    free(line);
}

static void finished(void *context, http_exchange *exchange)
{
    server *s = context;
    http_summary summary = http_summarise(exchange);
    int status = summary.complete ? summary.status : 499; /* the client left */
    metrics_count_request(&s->metrics, counted_endpoint(exchange), status);
    if (s->log) log_request(s, exchange, &summary);
}

/* ---- beginning and end ------------------------------------------------------------------------- */

server_options server_options_default(void)
{
    return (server_options){.host = "127.0.0.1",
                            .port = 8080,
                            .max_waiting = 128,
                            .max_seconds = 600,
                            .hang_seconds = 60,
                            .max_unsent = (size_t)256 << 10,
                            .max_connections = 512,
                            .n_http_threads = 2};
}

static dsmoe_status open_log(server *s, dsmoe_error *error)
{
    if (!s->o.log_path) return DSMOE_OK;
    if (!strcmp(s->o.log_path, "-")) {
        s->log = stdout;
        return DSMOE_OK;
    }
    s->log = fopen(s->o.log_path, "ae");
    if (s->log) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_IO, "%s: cannot be opened: %s", s->o.log_path,
                       strerror(errno));
}

static dsmoe_status make_guard(server *s, dsmoe_error *error)
{
    const server_options *o = &s->o;
    s->guard.hosts = o->allowed_hosts;
    s->guard.n_hosts = o->n_allowed_hosts;
    s->guard.origins = o->cors_origins;
    s->guard.n_origins = o->n_cors_origins;
    for (size_t i = 0; i < o->n_api_keys; i++)
        STATUS_TRY(guard_add_key(&s->guard, o->api_keys[i], error));
    if (o->api_key_file) STATUS_TRY(guard_add_key_file(&s->guard, o->api_key_file, error));
    return DSMOE_OK;
}

static dsmoe_status listen_on(server *s, dsmoe_error *error)
{
    const server_options *o = &s->o;
    const http_options http = {.host = o->host,
                               .port = o->port,
                               .socket_path = o->socket_path,
                               .cert = o->cert,
                               .key = o->key,
                               .n_threads = o->n_http_threads,
                               .max_connections = o->max_connections,
                               .max_body = (size_t)4 << 20,
                               .max_bodies = (size_t)256 << 20,
                               .idle_seconds = 30,
                               .admit = admit,
                               .handle = handle,
                               .error_body = error_body,
                               .finished = finished,
                               .context = s};
    return http_server_start(&http, &s->http, error);
}

dsmoe_status server_start(const server_options *options, server **out, dsmoe_error *error)
{
    server *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory");
    s->o = *options;
    s->created = (int64_t)time(NULL);
    s->name = strdup(options->alias ? options->alias : options->model_path);
    metrics_init(&s->metrics, clock_seconds());
    dsmoe_status status =
        s->name ? DSMOE_OK : status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory");
    if (status == DSMOE_OK) status = make_guard(s, error);
    if (status == DSMOE_OK) status = open_log(s, error);
    if (status == DSMOE_OK) status = listen_on(s, error);
    if (status != DSMOE_OK) {
        server_free(s);
        return status;
    }
    *out = s;
    return DSMOE_OK;
}

dsmoe_status server_give_model(server *s, const server_model *model, dsmoe_error *error)
{
    dsmoe_engine_options engine = s->o.engine;
    engine.adapters = model->adapters.adapters;
    engine.adapter_scales = model->adapters.adapter_scales;
    engine.n_adapters = model->adapters.n_adapters;
    const scheduler_options o = {.model = model->model,
                                 .tokenizer = model->tokenizer,
                                 .chat_form = model->chat_form,
                                 .engine = engine,
                                 .max_waiting = s->o.max_waiting,
                                 .max_seconds = s->o.max_seconds,
                                 .hang_seconds = s->o.hang_seconds,
                                 .max_unsent = s->o.max_unsent,
                                 .metrics = &s->metrics};
    STATUS_TRY(scheduler_create(&o, &s->scheduler, error));
    s->served = *model;
    s->limits = (request_limits){.tokenizer = model->tokenizer,
                                 .chat_form = model->chat_form,
                                 .vocab_size = dsmoe_model_config(model->model)->vocab_size,
                                 .n_ctx = scheduler_look(s->scheduler).n_ctx,
                                 .model = s->name,
                                 .sampling = model->sampling,
                                 .n_adapters = model->adapters.n_adapters};
    atomic_store(&s->ready, true);
    return DSMOE_OK;
}

const char *server_url(const server *s) { return http_server_url(s->http); }

bool server_is_open(const server *s)
{
    const char *host = s->o.host;
    bool local = s->o.socket_path || !strcmp(host, "localhost") || !strncmp(host, "127.", 4) ||
                 !strcmp(host, "::1");
    return !local && s->guard.n_keys == 0;
}

dsmoe_engine_info server_engine(server *s) { return scheduler_look(s->scheduler).engine; }

/* Waits until all answers have been sent; false if that takes too long. */
static bool wait_for_answers(const server *s, double until)
{
    const struct timespec moment = {0, 10000000};
    while (http_server_answers(s->http) > 0 && clock_seconds() < until) nanosleep(&moment, NULL);
    return http_server_answers(s->http) == 0;
}

bool server_drain(server *s, double seconds)
{
    double until = clock_seconds() + seconds;
    atomic_store(&s->closed, true);
    if (!s->scheduler) return true;
    scheduler_close(s->scheduler);
    return scheduler_drain(s->scheduler, seconds) && wait_for_answers(s, until);
}

void server_free(server *s)
{
    if (!s) return;
    atomic_store(&s->closed, true);
    if (s->http) http_server_quiesce(s->http);
    if (s->scheduler) scheduler_stop(s->scheduler);
    if (s->http) wait_for_answers(s, clock_seconds() + 1);
    http_server_stop(s->http);
    scheduler_free(s->scheduler);
    if (s->log && s->log != stdout) fclose(s->log);
    guard_free(&s->guard);
    free(s->name);
    free(s);
}
