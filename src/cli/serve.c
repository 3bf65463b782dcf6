/* serve.c - `dsmoe serve`: serves a model until a signal ends it. */
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/kv_type.h"
#include "cli/lora.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "cli/preload.h"
#include "cli/runner.h"
#include "serve/server.h"

static const char help[] =
    "usage: dsmoe serve -m PATH [options]\n"
    "\n"
    "Serves a model: a page to talk to it and to watch its experts, OpenAI's interface under /v1,\n"
    "and llama.cpp's own. All running texts share every pass through the model. Ctrl-C or SIGTERM\n"
    "lets running answers finish; a second one stops the server immediately.\n"
    "\n"
    "  -m, --model PATH         the model: its folder, a .gguf file, or a training run, of which the\n"
    "                           latest checkpoint is used\n"
    "      --alias NAME         the model's name for clients (default: the last part of its path)\n" CLI_CHAT_FORM_HELP
    "      --host ADDRESS       where to listen (127.0.0.1; 0.0.0.0: for other machines too)\n"
    "      --port N             the port (8080; 0: one that is free)\n"
    "      --unix PATH          listen on a Unix socket instead\n"
    "      --parallel N         texts at the same time; others wait (4)\n"
    "  -c, --ctx-size N         most tokens of a text with its prompt (default: the model's)\n"
    "  -b, --batch-size N       tokens that go through the model together (512)\n"
    "  -t, --threads N          threads (all processors)\n"
    "      --kv-type TYPE       keys and values of the context as f32, f16 or q8_0 (f16)\n"
    "      --same-bits          the same answers whatever else runs, for float models too (slower)\n"
    "      --no-repack          keep no copies of quantised weights in the kernels' order: slower,\n"
    "                           but processes that run the same file share its memory\n" LORA_HELP
    "      --queue N            requests that may wait; any more get status 429 (128)\n"
    "      --timeout TIME       longest time for a request, including its wait (10m)\n"
    "      --drain TIME         how long running answers may take to finish after SIGTERM (30)\n"
    "      --log FILE           write a line of JSON for each request (\"-\": to stdout)\n"
    "\n"
    "access:\n"
    "      --api-key KEY        serve only clients that send this key; may be given several times\n"
    "      --api-key-file FILE  the same for the keys of a file, one on each line\n"
    "      --cert FILE          TLS with this certificate (PEM)\n"
    "      --key FILE           the private key of --cert\n"
    "      --allow-host NAME    another name under which browsers may reach the server\n"
    "      --cors-origin URL    the origin of another page that may use the server (\"*\": any)\n"
    "  -h, --help               this text\n"
    "\n"
    "example:\n"
    "  dsmoe serve -m moe-16b-q4_k.gguf --parallel 8\n"
    "  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\":\n"
    "      [{\"role\": \"user\", \"content\": \"What is a mixture of experts?\"}]}'\n";

enum { MAX_WORDS = 64 };

typedef struct serve_options {
    server_options server;
    const char *model, *kv_type, *chat_form;
    model_path found;
    int64_t port, n_ctx, n_batch, n_threads, n_parallel;
    double drain;
    bool same_bits, no_repack;
    const char *keys[MAX_WORDS], *hosts[MAX_WORDS], *origins[MAX_WORDS];
    option_words key_words, host_words, origin_words;
    lora_list lora;
} serve_options;

/* ---- options ----------------------------------------------------------------------------------- */

static int parse_options(serve_options *o, int argc, char **argv)
{
    o->key_words = (option_words){o->keys, MAX_WORDS, 0};
    o->host_words = (option_words){o->hosts, MAX_WORDS, 0};
    o->origin_words = (option_words){o->origins, MAX_WORDS, 0};
    server_options *s = &o->server;
    const option_row rows[] = {
        {"--model", "-m", OPTION_PATH, &o->model, 0, 0},
        {"--alias", NULL, OPTION_PATH, &s->alias, 0, 0},
        {"--chat-form", NULL, OPTION_NAME, &o->chat_form, 0, 0},
        {"--host", NULL, OPTION_PATH, &s->host, 0, 0},
        {"--port", NULL, OPTION_INTEGER, &o->port, 0, 65535},
        {"--unix", NULL, OPTION_PATH, &s->socket_path, 0, 0},
        {"--parallel", NULL, OPTION_INTEGER, &o->n_parallel, 1, 1024},
        {"--ctx-size", "-c", OPTION_INTEGER, &o->n_ctx, 0, 1 << 30},
        {"--batch-size", "-b", OPTION_INTEGER, &o->n_batch, 1, CLI_MAX_BATCH},
        {"--threads", "-t", OPTION_INTEGER, &o->n_threads, 1, CLI_MAX_THREADS},
        {"--kv-type", NULL, OPTION_NAME, &o->kv_type, 0, 0},
        {"--same-bits", NULL, OPTION_FLAG, &o->same_bits, 0, 0},
        {"--no-repack", NULL, OPTION_FLAG, &o->no_repack, 0, 0},
        lora_row(&o->lora),
        {"--queue", NULL, OPTION_INTEGER, &s->max_waiting, 1, 1 << 20},
        {"--timeout", NULL, OPTION_DURATION, &s->max_seconds, 0, 1e9},
        {"--drain", NULL, OPTION_DURATION, &o->drain, 0, 1e9},
        {"--log", NULL, OPTION_PATH, &s->log_path, 0, 0},
        {"--api-key", NULL, OPTION_LIST, &o->key_words, 0, 0},
        {"--api-key-file", NULL, OPTION_PATH, &s->api_key_file, 0, 0},
        {"--cert", NULL, OPTION_PATH, &s->cert, 0, 0},
        {"--key", NULL, OPTION_PATH, &s->key, 0, 0},
        {"--allow-host", NULL, OPTION_PATH_LIST, &o->host_words, 0, 0},
        {"--cors-origin", NULL, OPTION_PATH_LIST, &o->origin_words, 0, 0},
    };
    enum { N = sizeof rows / sizeof *rows };
    static const option_rule rules[] = {
        {"--cert", OPTION_NEEDS, "--key"},
        {"--key", OPTION_NEEDS, "--cert"},
        {"--port", OPTION_EXCLUDES, "--unix"},
    };
    bool given[N];
    int code = options_parse_given("serve", help, rows, N, argc, argv, NULL, given);
    if (code < 0)
        code = options_check("serve", rows, N, given, rules, sizeof rules / sizeof *rules);
    return code;
}

/* The last part of a path, without slashes at its end. */
static const char *last_part(const char *path)
{
    static char copy[DSMOE_PATH];
    snprintf(copy, sizeof copy, "%s", path);
    size_t end = strlen(copy);
    while (end > 1 && copy[end - 1] == '/') copy[--end] = '\0';
    const char *slash = strrchr(copy, '/');
    return slash && slash[1] ? slash + 1 : copy;
}

/* Fills in the server's options from those of the command line, and finds the model. */
static int settle_options(serve_options *o)
{
    server_options *s = &o->server;
    if (!o->model) return cli_usage("serve", CLI_NO_MODEL);
    s->port = (int)o->port;
    s->api_keys = o->keys;
    s->n_api_keys = (size_t)o->key_words.count;
    s->allowed_hosts = o->hosts;
    s->n_allowed_hosts = (size_t)o->host_words.count;
    s->cors_origins = o->origins;
    s->n_cors_origins = (size_t)o->origin_words.count;
    s->engine = (dsmoe_engine_options){.n_ctx = o->n_ctx,
                                       .n_sequences = o->n_parallel,
                                       .n_batch = o->n_batch,
                                       .n_threads = (int)o->n_threads,
                                       .kv_type = DSMOE_F16,
                                       .same_bits = o->same_bits};
    int code = kv_type_parse("serve", o->kv_type, &s->engine.kv_type);
    if (code != CLI_OK) return code;
    if (!s->alias)
        s->alias = last_part(o->model); /* the run's name says more than its checkpoint's */
    code = model_path_find("serve", &o->model, &o->found);
    s->model_path = o->model;
    return code;
}

/* ---- signals, and the service manager ----------------------------------------------------------- */

static volatile sig_atomic_t n_signals;

/* A lost terminal counts only once, because the kernel and the shell may both report it. */
static void on_signal(int signal_number)
{
    if (signal_number != SIGHUP || n_signals == 0) n_signals++;
}

/* Tells systemd the state, if it waits for that. */
static void notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!path || (*path != '/' && *path != '@') || strlen(path) >= sizeof to.sun_path) return;
    memcpy(to.sun_path, path, strlen(path));
    if (*path == '@') to.sun_path[0] = '\0'; /* an abstract socket, not a file */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, length);
    close(fd);
}

/* ---- the work ---------------------------------------------------------------------------------- */

static void say_what(const serve_options *o, server *s)
{
    dsmoe_engine_info info = server_engine(s);
    char kv[CLI_BYTES], weights[CLI_BYTES];
    fprintf(stderr,
            "%s (%s): %" PRId64 " texts at a time, %" PRId64
            " tokens each; up to %s of keys and values; %d threads\n",
            o->model, cli_format_bytes((double)info.weights.mapped, weights), info.n_sequences,
            info.n_ctx, cli_format_bytes((double)info.kv_cache, kv), info.n_threads);
    if (server_is_open(s))
        cli_note(
            "serve",
            "warning: anyone who can reach this machine can use the model; set a key with --api-key");
}

/* Only the address is printed to stdout, for programs; what to do with it, to stderr. */
static void say_where(const serve_options *o, const server *s)
{
    const char *socket_path = o->server.socket_path;
    printf("%s\n", server_url(s));
    cli_flush();
    if (socket_path)
        fprintf(stderr, "dsmoe chat --unix %s talks to it; Ctrl-C stops\n", socket_path);
    else
        fprintf(stderr,
                "open it in a browser, or give an OpenAI client the base URL %s/v1; Ctrl-C stops\n",
                server_url(s));
}

static void serve_until_told(const serve_options *o, server *s)
{
    const struct timespec moment = {0, 100000000};
    say_where(o, s);
    notify("READY=1\n");
    while (n_signals == 0) nanosleep(&moment, NULL);
    notify("STOPPING=1\n");
    fprintf(stderr, "running answers may finish; Ctrl-C again stops immediately\n");
    double end = cli_seconds() + o->drain;
    while (n_signals == 1 && cli_seconds() < end && !server_drain(s, 0.1)) continue;
}

static int load_and_serve(serve_options *o, server *s, dsmoe_model **model,
                          dsmoe_tokenizer **tokenizer)
{
    dsmoe_error error;
    if (dsmoe_model_open_with(o->model, &(dsmoe_model_options){.share_weights = o->no_repack},
                              model, &error))
        return cli_failure("serve", "%s", error.message);
    if (dsmoe_tokenizer_open(o->model, tokenizer, &error)) {
        if (error.status != DSMOE_ERROR_IO) return cli_failure("serve", "%s", error.message);
        cli_note("serve", "%s; only token ids can be sent", error.message);
    }
    int code = lora_open("serve", &o->lora, *model);
    if (code != CLI_OK) return code;
    const dsmoe_chat_form *form = NULL;
    const char *name = lora_form(&o->lora, o->chat_form);
    if (*tokenizer && dsmoe_chat_form_find(*tokenizer, name, &form, &error))
        return cli_failure("serve", "%s%s", error.message, o->chat_form ? "" : " (--chat-form)");
    if (!preload_model(o->model, &n_signals)) return CLI_INTERRUPTED;
    int64_t n_ctx = o->n_ctx ? o->n_ctx : dsmoe_model_config(*model)->max_position_embeddings;
    server_model served = {.model = *model,
                           .tokenizer = *tokenizer,
                           .chat_form = form,
                           .converses = form && (name || dsmoe_tokenizer_has_chat(*tokenizer)),
                           .sampling =
                               runner_model_sampling(dsmoe_model_generation_config(*model), n_ctx)};
    lora_use(&o->lora, &served.adapters);
    if (server_give_model(s, &served, &error)) return kv_type_error("serve", o->model, &error);
    cli_warn_of_context("serve", dsmoe_model_config(*model), server_engine(s).n_ctx);
    say_what(o, s);
    serve_until_told(o, s);
    return CLI_OK;
}

int command_serve(int argc, char **argv)
{
    serve_options o = {.server = server_options_default(), .n_parallel = 4, .drain = 30};
    o.port = o.server.port;
    int code = parse_options(&o, argc, argv);
    if (code >= 0) return code;
    code = settle_options(&o);
    if (code != CLI_OK) return code;
    cli_handle_signal(SIGINT, on_signal);
    cli_handle_signal(SIGTERM, on_signal);
    cli_handle_hangup(on_signal);
    signal(SIGPIPE, SIG_IGN);
    server *s;
    dsmoe_model *model = NULL;
    dsmoe_tokenizer *tokenizer = NULL;
    dsmoe_error error;
    if (server_start(&o.server, &s, &error)) return cli_error("serve", NULL, &error);
    code = load_and_serve(&o, s, &model, &tokenizer);
    server_free(s);
    lora_close(&o.lora);
    dsmoe_tokenizer_free(tokenizer);
    dsmoe_model_free(model);
    return code;
}
