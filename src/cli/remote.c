/* remote.c - the only file that uses libcurl. A transfer waits in small steps, so that Ctrl-C or a server
 * that has become silent ends it soon. Everything that the server sends is bounded, except for the length of
 * a whole answer. */
#include "cli/remote.h"

#include <curl/curl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/cli.h"

enum {
    CONNECT_SECONDS = 10,
    WAIT_MS = 100,         /* between checks for Ctrl-C */
    MAX_HEADERS = 1 << 20, /* bytes */
    /* The largest answer that is not a stream of events: a refusal, a list of models. */
    MAX_BODY = 1 << 20,
};
static const double max_silence = 60;   /* seconds */
static const double last_moment = 0.25; /* for a server to end a stream after its last event */

struct remote {
    char *base; /* the URL without /v1 and a slash at its end */
    const char *unix_path, *ca_file;
    double max_silence;
    struct curl_slist *headers;
    CURL *easy;
    CURLM *multi;
};

/* One request and its answer. */
typedef struct transfer {
    const remote *r;
    client_events *events; /* NULL: the answer is not a stream */
    bool has_body, is_stream;
    FILE *kept; /* an answer that is not a stream */
    char *body;
    size_t n_body, n_headers;
    double last_byte, done_at; /* seconds; done_at is 0 before [DONE] */
    curl_off_t n_sent;
    bool is_broken; /* this side ended it; `error` says why */
    dsmoe_error *error;
    char curl_says[CURL_ERROR_SIZE];
} transfer;

static bool fail(dsmoe_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Always false, so that a function can end with it. */
static bool fail(dsmoe_error *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    error->status = DSMOE_ERROR_IO;
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return false;
}

/* ---- the address --------------------------------------------------------------------------------- */

/* Removes slashes and /v1 from the end of the path, because every request adds /v1. */
static bool trim_path(CURLU *url)
{
    static const char version[] = "/v1";
    const size_t n_version = sizeof version - 1;
    char *path;
    if (curl_url_get(url, CURLUPART_PATH, &path, 0)) return false;
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/') n--;
    if (n >= n_version && !memcmp(path + n - n_version, version, n_version)) n -= n_version;
    while (n > 0 && path[n - 1] == '/') n--;
    path[n] = '\0';
    bool ok = curl_url_set(url, CURLUPART_PATH, n ? path : "/", 0) == CURLUE_OK;
    curl_free(path);
    return ok;
}

static bool has_part(CURLU *url, CURLUPart part)
{
    char *text;
    if (curl_url_get(url, part, &text, 0)) return false;
    curl_free(text);
    return true;
}

static bool is_http(CURLU *url)
{
    char *scheme;
    if (curl_url_get(url, CURLUPART_SCHEME, &scheme, 0)) return false;
    bool ok = !strcmp(scheme, "http") || !strcmp(scheme, "https");
    curl_free(scheme);
    return ok;
}

/* A copy of the URL in the form that requests begin with; NULL if it cannot be used. */
static char *base_url(CURLU *url, const char *text)
{
    char *whole, *with_scheme = NULL, *base = NULL;
    if (asprintf(&with_scheme, "%s%s", strstr(text, "://") ? "" : "http://", text) < 0) return NULL;
    if (!curl_url_set(url, CURLUPART_URL, with_scheme, 0) && is_http(url) &&
        !has_part(url, CURLUPART_QUERY) && !has_part(url, CURLUPART_FRAGMENT) && trim_path(url) &&
        !curl_url_get(url, CURLUPART_URL, &whole, 0)) {
        base = strdup(whole);
        curl_free(whole);
    }
    free(with_scheme);
    if (base && *base && base[strlen(base) - 1] == '/') base[strlen(base) - 1] = '\0';
    return base;
}

static int open_url(const char *command, const char *text, remote *r)
{
    if (!text) text = "http://localhost"; /* with a socket the host does not matter */
    if (strchr(text, '@'))                /* a password would be in every message */
        return cli_usage(command, "--url takes no name or password; give a key with --api-key");
    CURLU *url = curl_url();
    if (!url) return cli_failure(command, "not enough memory");
    r->base = base_url(url, text);
    curl_url_cleanup(url);
    if (r->base) return CLI_OK;
    return cli_usage(command, "--url must be an address such as http://host:8080, not '%s'", text);
}

/* ---- opening ------------------------------------------------------------------------------------- */

static bool add_header(remote *r, const char *name, const char *value)
{
    char *line;
    if (asprintf(&line, "%s%s", name, value) < 0) return false;
    struct curl_slist *longer = curl_slist_append(r->headers, line);
    free(line);
    if (longer) r->headers = longer;
    return longer != NULL;
}

/* The empty "Expect" is there because libcurl would otherwise wait, before a long conversation, for a
 * permission that few servers give. */
static bool add_headers(remote *r, const char *api_key)
{
    return add_header(r, "User-Agent: dsmoe/", dsmoe_version()) &&
           add_header(r, "Content-Type: ", "application/json") && add_header(r, "Expect:", "") &&
           (!api_key || add_header(r, "Authorization: Bearer ", api_key));
}

static bool is_printable(const char *text)
{
    for (; *text; text++)
        if (*text < 0x21 || *text > 0x7e) return false;
    return true;
}

int remote_open(const char *command, const remote_address *address, remote **out)
{
    *out = NULL;
    if (address->api_key && !is_printable(address->api_key))
        return cli_usage(command, "the API key has characters that no key can have");
    if (curl_global_init(CURL_GLOBAL_DEFAULT))
        return cli_failure(command, "libcurl cannot be started");
    remote *r = *out = calloc(1, sizeof *r);
    if (!r) return cli_failure(command, "not enough memory");
    r->unix_path = address->unix_path;
    r->ca_file = address->ca_file;
    r->max_silence = address->max_silence > 0 ? address->max_silence : max_silence;
    int code = open_url(command, address->url, r);
    if (code != CLI_OK) return code;
    r->easy = curl_easy_init();
    r->multi = curl_multi_init();
    if (!r->easy || !r->multi || !add_headers(r, address->api_key))
        return cli_failure(command, "not enough memory");
    return CLI_OK;
}

void remote_close(remote *r)
{
    if (!r) return;
    curl_easy_cleanup(r->easy);
    curl_multi_cleanup(r->multi);
    curl_slist_free_all(r->headers);
    curl_global_cleanup();
    free(r->base);
    free(r);
}

const char *remote_name(const remote *r) { return r->unix_path ? r->unix_path : r->base; }

/* ---- receiving ------------------------------------------------------------------------------------- */

static long status_of(const remote *r)
{
    long status = 0;
    curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

/* Called before the first byte of a body: whether it is the stream that was asked for. */
static bool begin_body(transfer *t)
{
    static const char wanted[] = "text/event-stream";
    const char *type = NULL;
    t->has_body = true;
    if (!t->events || status_of(t->r) != 200) return true;
    curl_easy_getinfo(t->r->easy, CURLINFO_CONTENT_TYPE, &type);
    t->is_stream = type && !strncasecmp(type, wanted, sizeof wanted - 1);
    return t->is_stream || fail(t->error, "the answer is not %s but %.100s", wanted,
                                type && *type ? type : "of a type that the server does not name");
}

static bool take_events(transfer *t, const char *bytes, size_t length)
{
    if (client_events_put(t->events, bytes, length, t->error)) return false;
    if (t->events->is_done && t->done_at == 0) t->done_at = t->last_byte;
    return true;
}

/* A callback of libcurl; returning anything but `length` ends the transfer. */
static size_t on_body(char *bytes, size_t one, size_t length, void *context)
{
    transfer *t = context;
    (void)one;
    t->last_byte = cli_seconds();
    if (!t->has_body && !begin_body(t)) t->is_broken = true;
    if (!t->is_broken && t->is_stream && !take_events(t, bytes, length)) t->is_broken = true;
    if (t->is_broken) return 0;
    if (t->is_stream) return t->events->is_stopped ? 0 : length;
    t->n_body += length;
    return t->n_body > MAX_BODY ? 0 : fwrite(bytes, 1, length, t->kept);
}

static size_t on_header(char *bytes, size_t one, size_t length, void *context)
{
    transfer *t = context;
    (void)bytes, (void)one;
    t->last_byte = cli_seconds();
    t->n_headers += length;
    if (t->n_headers <= MAX_HEADERS) return length;
    t->is_broken = true;
    fail(t->error, "the headers of the answer have more than %d MB", MAX_HEADERS >> 20);
    return 0;
}

/* ---- a transfer ------------------------------------------------------------------------------------ */

static bool fell_silent(transfer *t)
{
    curl_off_t n_sent = 0;
    curl_easy_getinfo(t->r->easy, CURLINFO_SIZE_UPLOAD_T, &n_sent);
    if (n_sent != t->n_sent) t->last_byte = cli_seconds();
    t->n_sent = n_sent;
    return cli_seconds() - t->last_byte > t->r->max_silence;
}

/* Whether to wait for more. */
static bool goes_on(transfer *t)
{
    if (cli_interrupted()) return false;
    if (t->done_at > 0) return cli_seconds() - t->done_at < last_moment;
    if (!fell_silent(t)) return true;
    t->is_broken = true;
    return fail(t->error, "the server sent nothing for %.0f seconds", t->r->max_silence);
}

static CURLcode drive(transfer *t)
{
    const remote *r = t->r;
    int n_running = 1, n_left;
    CURLcode code = CURLE_OK;
    if (curl_multi_add_handle(r->multi, r->easy)) return CURLE_OUT_OF_MEMORY;
    while (!curl_multi_perform(r->multi, &n_running) && n_running > 0 && goes_on(t))
        if (curl_multi_poll(r->multi, NULL, 0, WAIT_MS, NULL)) break;
    const CURLMsg *message = curl_multi_info_read(r->multi, &n_left);
    if (message && message->msg == CURLMSG_DONE) code = message->data.result;
    curl_multi_remove_handle(r->multi, r->easy); /* closes a connection that is still open */
    return code;
}

static bool set_url(const remote *r, const char *path)
{
    char *url;
    if (asprintf(&url, "%s%s", r->base, path) < 0) return false;
    bool ok = curl_easy_setopt(r->easy, CURLOPT_URL, url) == CURLE_OK;
    free(url);
    return ok;
}

/* Redirects are not followed (libcurl's default), because a key is meant only for the named server. */
static bool prepare(transfer *t, const char *path, const char *body, size_t length)
{
    const remote *r = t->r;
    CURL *easy = r->easy;
    curl_easy_reset(easy);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, r->headers);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, t->curl_says);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, t);
    if (r->unix_path && curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, r->unix_path))
        return false;
    if (r->ca_file && curl_easy_setopt(easy, CURLOPT_CAINFO, r->ca_file)) return false;
    if (body) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)length);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
    }
    return set_url(r, path);
}

/* ---- results --------------------------------------------------------------------------------------- */

static bool fail_to_connect(const transfer *t)
{
    long problem = 0;
    curl_easy_getinfo(t->r->easy, CURLINFO_OS_ERRNO, &problem);
    return fail(t->error, "cannot connect: %.300s",
                problem ? strerror((int)problem) : t->curl_says);
}

/* Writes why the network ended a transfer; returns false. */
static bool explain(const transfer *t, CURLcode code)
{
    const char *words = *t->curl_says ? t->curl_says : curl_easy_strerror(code);
    switch (code) {
    case CURLE_COULDNT_CONNECT: return fail_to_connect(t);
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY: return fail(t->error, "cannot connect: %.300s", words);
    case CURLE_OPERATION_TIMEDOUT:
        return fail(t->error, "cannot connect: no answer within %d seconds", CONNECT_SECONDS);
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR: return fail(t->error, "TLS: %.300s", words);
    case CURLE_GOT_NOTHING: return fail(t->error, "the server hung up without an answer");
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR: return fail(t->error, "the answer broke off: %.300s", words);
    default: return fail(t->error, "%.300s", words);
    }
}

/* Writes what a status other than 200 means. */
static remote_end explain_refusal(const transfer *t, long status)
{
    client_refusal refusal;
    client_read_refusal(t->body, strlen(t->body), &refusal);
    if (status == 400 && refusal.is_about_context) {
        fail(t->error, "%s", refusal.message);
        return REMOTE_TOO_LONG;
    }
    const char *words = refusal.message;
    if (!*words && status >= 300 && status < 400) words = "redirects are not followed";
    fail(t->error, "status %ld%s%s", status, *words ? ": " : "", words);
    return REMOTE_FAILED;
}

static remote_end judge(const transfer *t, CURLcode code)
{
    const client_events *e = t->events;
    if (t->is_broken) return REMOTE_FAILED;
    if (e && (e->is_done || e->is_stopped)) return REMOTE_ANSWERED;
    if (cli_interrupted()) return REMOTE_INTERRUPTED;
    if (code != CURLE_OK && t->n_body <= MAX_BODY) return explain(t, code), REMOTE_FAILED;
    long status = status_of(t->r);
    if (status != 200) return explain_refusal(t, status);
    if (!e) return REMOTE_ANSWERED;
    fail(t->error, "the answer broke off before its end");
    return REMOTE_FAILED;
}

/* The caller frees t->body. */
static remote_end transfer_run(transfer *t, const char *path, const char *body, size_t length)
{
    size_t n_kept;
    t->kept = open_memstream(&t->body, &n_kept);
    if (!t->kept) {
        fail(t->error, "not enough memory");
        return REMOTE_FAILED;
    }
    t->last_byte = cli_seconds();
    CURLcode code = prepare(t, path, body, length) ? drive(t) : CURLE_OUT_OF_MEMORY;
    if (fclose(t->kept) == 0) return judge(t, code);
    fail(t->error, "not enough memory");
    return REMOTE_FAILED;
}

remote_end remote_post(remote *r, const char *path, const char *body, size_t length,
                       client_events *events, dsmoe_error *error)
{
    transfer t = {.r = r, .events = events, .error = error};
    remote_end end = transfer_run(&t, path, body, length);
    free(t.body);
    return end;
}

/* A server without such a list has one model, which need not be named. */
remote_end remote_ask_model(remote *r, char **model, dsmoe_error *error)
{
    transfer t = {.r = r, .error = error};
    *model = NULL;
    remote_end end = transfer_run(&t, "/v1/models", NULL, 0);
    if (end == REMOTE_ANSWERED) *model = client_read_model(t.body, strlen(t.body));
    if (end == REMOTE_FAILED && status_of(r) == 404) end = REMOTE_ANSWERED;
    free(t.body);
    return end;
}
