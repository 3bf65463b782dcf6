/* http.c - HTTP by GNU libmicrohttpd (MHD), which no other file uses.
 *
 * MHD's threads read requests and write answers. Answers come from another thread at any time, and the client
 * may disconnect at any time. So an exchange has two owners, MHD's connection and the answering thread, and
 * lives until both have released it. Its lock guards what they share: the bytes waiting to be sent, and
 * whether the connection is suspended, which it is while no bytes wait. MHD suspends only in its own
 * callbacks, and only a suspended connection is resumed. Both happen under the lock, so a resume cannot be
 * lost.
 *
 * Order of locks: the server's, an exchange's, MHD's own. */
#include "serve/http.h"

#include <assert.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "serve/http_bytes.h"
#include "serve/http_fields.h"
#include "serve/http_links.h"
#include "serve/http_request.h"
#include "serve/http_socket.h"
#include "serve/http_tls.h"

enum {
    HEAD_BYTES = 32 * 1024,  /* memory of a connection, which limits a request's head */
    BLOCK_BYTES = 32 * 1024, /* of an answer per write */
    BODY_RATE = 1024,        /* bytes a second at which a body must arrive on average */
};

struct http_server {
    http_options options;
    struct MHD_Daemon *daemon;
    http_socket listener;
    int left_over; /* descriptor on which MHD listened before http_server_quiesce; -1: none */
    atomic_int references; /* the server's own, and one for each exchange */
    http_bodies bodies;
    atomic_int n_answers;
    atomic_bool stopping, quiet;
    http_links *links;        /* the connections */
    pthread_mutex_t lock;     /* guards `exchanges` */
    http_exchange *exchanges; /* those that have a connection */
};

struct http_exchange {
    http_server *server;
    atomic_int references;
    http_exchange *previous, *next; /* in the server's list, under its lock */

    /* The request. One of MHD's threads fills it until it is handed over; after that it is constant. */
    http_request request;
    double began;
    bool handed;      /* an answer was begun or will be, and http_end will be called */
    bool counted;     /* in n_answers */
    size_t swallowed; /* discarded bytes of the body */

    pthread_mutex_t lock;              /* guards the fields below */
    struct MHD_Connection *connection; /* NULL: MHD is done with this exchange */
    bool suspended;
    bool gone;   /* the client has disconnected */
    bool broken; /* the answer is incomplete: cut it off */
    bool begun, stream, started, ended;
    int status;
    http_fields answer_headers;
    http_bytes waiting; /* bytes to be sent */
    int sent_status;    /* 0: none yet */
    size_t n_sent;
    bool complete;
    double took; /* seconds; 0: not finished */
};

/* ---- lifetimes ------------------------------------------------------------------------------ */

static void server_release(http_server *server)
{
    if (atomic_fetch_sub(&server->references, 1) > 1) return;
    pthread_mutex_destroy(&server->lock);
    free(server);
}

static void exchange_release(http_exchange *x)
{
    if (atomic_fetch_sub(&x->references, 1) > 1) return;
    http_request_free(&x->request, &x->server->bodies);
    http_fields_free(&x->answer_headers);
    http_bytes_free(&x->waiting);
    pthread_mutex_destroy(&x->lock);
    server_release(x->server);
    free(x);
}

/* Has two references: the connection's and the answering thread's. NULL: no memory. */
static http_exchange *exchange_new(http_server *server, struct MHD_Connection *connection,
                                   const char *method, const char *path)
{
    http_exchange *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    x->server = server;
    x->connection = connection;
    x->began = clock_seconds();
    pthread_mutex_init(&x->lock, NULL);
    atomic_init(&x->references, 1);
    atomic_fetch_add(&server->references, 1);
    if (!http_request_init(&x->request, method, path, info ? info->client_addr : NULL)) {
        exchange_release(x);
        return NULL;
    }
    atomic_store(&x->references, 2);
    pthread_mutex_lock(&server->lock);
    x->next = server->exchanges;
    if (x->next) x->next->previous = x;
    server->exchanges = x;
    pthread_mutex_unlock(&server->lock);
    return x;
}

static void exchange_leave_list(http_exchange *x)
{
    http_server *server = x->server;
    pthread_mutex_lock(&server->lock);
    if (x->next) x->next->previous = x->previous;
    *(x->previous ? &x->previous->next : &server->exchanges) = x->next;
    pthread_mutex_unlock(&server->lock);
}

/* ---- connections ------------------------------------------------------------------------------ */

static void on_connection(void *context, struct MHD_Connection *connection, void **memory,
                          enum MHD_ConnectionNotificationCode code)
{
    http_server *server = context;
    if (code != MHD_CONNECTION_NOTIFY_STARTED) { /* its descriptor is still open */
        http_links_remove(server->links, *memory);
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    *memory = http_links_add(server->links, info ? info->connect_fd : -1);
}

static http_link *link_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* ---- the answer ----------------------------------------------------------------------------- */

/* The caller holds the lock. */
static void wake(http_exchange *x)
{
    if (!x->suspended) return;
    x->suspended = false;
    MHD_resume_connection(x->connection);
}

/* The caller holds the lock and runs in a callback of MHD. */
static void suspend(http_exchange *x)
{
    x->suspended = true;
    MHD_suspend_connection(x->connection);
}

void http_begin(http_exchange *x, int status, const char *content_type, bool stream)
{
    pthread_mutex_lock(&x->lock);
    assert(!x->begun);
    x->begun = true;
    x->status = status;
    x->stream = stream;
    pthread_mutex_unlock(&x->lock);
    if (content_type) http_add_header(x, "Content-Type", content_type);
    if (stream && content_type && !strncmp(content_type, "text/event-stream", 17)) {
        http_add_header(x, "Cache-Control", "no-cache");
        http_add_header(x, "X-Accel-Buffering", "no");
    }
}

void http_add_header(http_exchange *x, const char *name, const char *value)
{
    pthread_mutex_lock(&x->lock);
    assert(!x->started);
    if (!http_fields_add(&x->answer_headers, name, value)) x->broken = true;
    pthread_mutex_unlock(&x->lock);
}

bool http_send(http_exchange *x, const void *bytes, size_t length)
{
    pthread_mutex_lock(&x->lock);
    assert(x->begun && !x->ended);
    x->started = true;
    if (!x->gone && !x->broken) x->broken = !http_bytes_add(&x->waiting, bytes, length);
    bool sent = !x->gone && !x->broken;
    if (x->stream || !sent) wake(x);
    pthread_mutex_unlock(&x->lock);
    return sent;
}

size_t http_unsent(http_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    size_t n = http_bytes_count(&x->waiting);
    pthread_mutex_unlock(&x->lock);
    return n;
}

bool http_alive(http_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    if (x->connection && !x->gone) {
        /* The descriptor is open: before MHD closes it, on_completed clears `connection` under this lock. */
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        struct pollfd look = {.fd = info ? info->connect_fd : -1, .events = POLLRDHUP};
        if (poll(&look, 1, 0) > 0) x->gone = true;
    }
    bool alive = !x->gone;
    pthread_mutex_unlock(&x->lock);
    return alive;
}

void http_end(http_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    assert(!x->ended);
    x->ended = true;
    if (!x->begun) x->broken = true;
    wake(x);
    pthread_mutex_unlock(&x->lock);
    exchange_release(x);
}

void http_answer(http_exchange *x, int status, const char *content_type, const void *bytes,
                 size_t length)
{
    http_begin(x, status, content_type, false);
    http_send(x, bytes, length);
    http_end(x);
}

/* Sends an answer of http.c's own. The request is not handed to a handler after that. */
static void refuse(http_exchange *x, int status, const char *message)
{
    x->handed = true;
    char *body =
        x->server->options.error_body ? x->server->options.error_body(status, message) : NULL;
    const char *text = body ? body : message;
    http_begin(x, status, body ? "application/json" : "text/plain; charset=utf-8", false);
    if (status == 503) http_add_header(x, "Retry-After", "1");
    http_send(x, text, strlen(text));
    http_end(x);
    free(body);
}

/* ---- sending the answer ------------------------------------------------------------------------ */

/* MHD asks for the next bytes of a body. */
static ssize_t on_read(void *context, uint64_t position, char *bytes, size_t max)
{
    http_exchange *x = context;
    (void)position;
    pthread_mutex_lock(&x->lock);
    size_t n = 0;
    ssize_t result = 0;
    if (x->gone || x->broken || atomic_load(&x->server->stopping)) {
        result = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if ((n = http_bytes_take(&x->waiting, bytes, max))) {
        x->n_sent += n;
        result = (ssize_t)n;
    } else if (x->ended) {
        result = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        suspend(x);
    }
    pthread_mutex_unlock(&x->lock);
    return result;
}

/* Sends the head of the answer, which is constant from then on. */
static enum MHD_Result queue(http_exchange *x, struct MHD_Connection *connection)
{
    pthread_mutex_lock(&x->lock);
    uint64_t size = x->stream ? MHD_SIZE_UNKNOWN : http_bytes_count(&x->waiting);
    pthread_mutex_unlock(&x->lock);
    struct MHD_Response *response =
        MHD_create_response_from_callback(size, BLOCK_BYTES, on_read, x, NULL);
    if (!response) return MHD_NO;
    bool made = MHD_add_response_header(response, "X-Request-Id", x->request.id) &&
                MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (atomic_load(&x->server->quiet)) /* the next request needs another server */
        made = made && MHD_add_response_header(response, "Connection", "close");
    for (http_field *field = x->answer_headers.first; field && made; field = field->next)
        made = MHD_add_response_header(response, field->name, field->value);
    enum MHD_Result result =
        made ? MHD_queue_response(connection, (unsigned)x->status, response) : MHD_NO;
    MHD_destroy_response(response);
    if (result == MHD_YES) {
        pthread_mutex_lock(&x->lock);
        x->sent_status = x->status;
        pthread_mutex_unlock(&x->lock);
    }
    return result;
}

/* Sends the head of the answer if it is known. Otherwise suspends the connection; then MHD calls again. */
static enum MHD_Result answer(http_exchange *x, struct MHD_Connection *connection)
{
    http_link_end(x->server->links, link_of(connection));
    if (!x->counted) atomic_fetch_add(&x->server->n_answers, 1);
    x->counted = true;
    pthread_mutex_lock(&x->lock);
    bool cut = x->gone || x->broken || atomic_load(&x->server->stopping);
    bool ready = x->ended || (x->stream && x->started);
    if (!cut && !ready) suspend(x);
    pthread_mutex_unlock(&x->lock);
    if (cut) return MHD_NO;
    return ready ? queue(x, connection) : MHD_YES;
}

static void on_completed(void *context, struct MHD_Connection *connection, void **memory,
                         enum MHD_RequestTerminationCode code)
{
    http_server *server = context;
    http_exchange *x = *memory;
    http_link_begin(server->links, link_of(connection));
    if (!x) return;
    *memory = NULL;
    exchange_leave_list(x);
    pthread_mutex_lock(&x->lock);
    x->connection = NULL;
    x->suspended = false;
    x->gone = true;
    bool all_sent = x->ended && !http_bytes_count(&x->waiting);
    if (!strcmp(x->request.method, "HEAD")) all_sent = true; /* the body is not sent */
    x->complete = code == MHD_REQUEST_TERMINATED_COMPLETED_OK && x->sent_status && all_sent;
    x->took = clock_seconds() - x->began;
    pthread_mutex_unlock(&x->lock);
    if (x->counted) atomic_fetch_sub(&server->n_answers, 1);
    if (server->options.finished) server->options.finished(server->options.context, x);
    if (!x->handed) exchange_release(x); /* no handler will release it */
    exchange_release(x);
}

/* ---- the request ---------------------------------------------------------------------------- */

static enum MHD_Result on_header(void *context, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    http_exchange *x = context;
    (void)kind;
    return http_fields_add(&x->request.headers, name, value) ? MHD_YES : MHD_NO;
}

static enum MHD_Result on_parameter(void *context, enum MHD_ValueKind kind, const char *name,
                                    const char *value)
{
    http_exchange *x = context;
    (void)kind;
    if (!http_fields_add(&x->request.parameters, name, value)) return MHD_NO;
    MHD_http_unescape(x->request.parameters.last->name);
    MHD_http_unescape(x->request.parameters.last->value);
    return MHD_YES;
}

/* Paths are compared with known names, so they are not unescaped. */
static size_t on_unescape(void *context, struct MHD_Connection *connection, char *text)
{
    (void)context, (void)connection;
    return strlen(text);
}

static const char too_long[] = "the body of the request is too long";

/* The head of a request has arrived. A refusal waits for the body too: many clients read nothing before they
 * have sent everything, and would see a reset instead. The refusal is sent immediately, and the connection
 * closed, if the end of the body is unknown, if the body is too long, or if the client itself waits. */
static enum MHD_Result begin_request(http_server *server, struct MHD_Connection *connection,
                                     const char *path, const char *method, const char *version,
                                     void **memory)
{
    const http_options *o = &server->options;
    http_exchange *x = exchange_new(server, connection, method, path);
    *memory = x;
    if (!x) return MHD_NO;
    int n = MHD_get_connection_values(connection, MHD_HEADER_KIND, NULL, NULL);
    if (MHD_get_connection_values(connection, MHD_HEADER_KIND, on_header, x) != n) return MHD_NO;
    n = MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, NULL, NULL);
    if (MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, on_parameter, x) != n)
        return MHD_NO;

    const char *fault = http_fields_fault(&x->request.headers, version);
    bool at_once = fault || http_fields_length(&x->request.headers) > o->max_body;
    if (fault)
        refuse(x, 400, fault);
    else if (o->admit && o->admit(o->context, x))
        x->handed = true;
    else if (at_once)
        refuse(x, 413, too_long);
    at_once = at_once || (x->handed && http_fields_find(&x->request.headers, "Expect"));
    return at_once ? answer(x, connection) : MHD_YES;
}

static enum MHD_Result take_body(http_exchange *x, const char *bytes, size_t length)
{
    http_bodies *bodies = &x->server->bodies;
    http_link_extend(x->server->links, link_of(x->connection), (double)length / BODY_RATE);
    if (!x->handed) {
        int status = http_request_add(&x->request, bytes, length, bodies);
        if (!status) return MHD_YES;
        refuse(x, status, status == 413 ? too_long : "too many requests are being read");
    }
    x->swallowed += length;
    return x->swallowed > bodies->max ? MHD_NO : MHD_YES; /* too much to wait for */
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection,
                                  const char *path, const char *method, const char *version,
                                  const char *bytes, size_t *length, void **memory)
{
    http_server *server = context;
    http_exchange *x = *memory;
    if (!x) return begin_request(server, connection, path, method, version, memory);
    if (*length) {
        size_t n = *length;
        *length = 0;
        return take_body(x, bytes, n);
    }
    if (!x->handed) {
        x->handed = true;
        server->options.handle(server->options.context, x);
    }
    return answer(x, connection);
}

const char *http_method(const http_exchange *x) { return x->request.method; }
const char *http_path(const http_exchange *x) { return x->request.path; }
const char *http_id(const http_exchange *x) { return x->request.id; }
const char *http_peer(const http_exchange *x) { return x->request.peer; }

const char *http_header(const http_exchange *x, const char *name)
{
    return http_fields_find(&x->request.headers, name);
}

const char *http_parameter(const http_exchange *x, const char *name)
{
    return http_fields_find(&x->request.parameters, name);
}

const char *http_body(const http_exchange *x, size_t *length)
{
    *length = x->request.length;
    return x->request.body ? x->request.body : "";
}

http_summary http_summarise(http_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    http_summary summary = {.status = x->sent_status,
                            .n_sent = x->n_sent,
                            .complete = x->complete,
                            .seconds = x->took > 0 ? x->took : clock_seconds() - x->began};
    pthread_mutex_unlock(&x->lock);
    return summary;
}

/* ---- the server ----------------------------------------------------------------------------- */

/* MHD closes the descriptor that it listens on, but after an error only sometimes, so it gets a duplicate. */
static void start_daemon(http_server *server, const http_tls *tls)
{
    int descriptor = fcntl(server->listener.descriptor, F_DUPFD_CLOEXEC, 0);
    if (descriptor < 0) return;
    const http_options *o = &server->options;
    struct MHD_OptionItem more[] = {{MHD_OPTION_END, 0, NULL},
                                    {MHD_OPTION_END, 0, NULL},
                                    {MHD_OPTION_END, 0, NULL},
                                    {MHD_OPTION_END, 0, NULL}};
    int n = 0;
    int n_threads = o->n_threads < o->max_connections ? o->n_threads : o->max_connections;
    if (n_threads > 1) /* the threads divide the connections */
        more[n++] = (struct MHD_OptionItem){MHD_OPTION_THREAD_POOL_SIZE, n_threads, NULL};
    if (tls->key) {
        more[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, tls->key};
        more[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, tls->cert};
    }
    unsigned flags = MHD_ALLOW_SUSPEND_RESUME | (tls->key ? MHD_USE_TLS : 0);
    flags |= MHD_is_feature_supported(MHD_FEATURE_EPOLL) ? MHD_USE_EPOLL_INTERNAL_THREAD
                                                         : MHD_USE_AUTO_INTERNAL_THREAD;
    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, server, MHD_OPTION_LISTEN_SOCKET, descriptor,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)o->max_connections, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)o->idle_seconds, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_BYTES,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, server, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, server, MHD_OPTION_UNESCAPE_CALLBACK, on_unescape, NULL, MHD_OPTION_ARRAY,
        more, MHD_OPTION_END);
}

static http_server *server_new(const http_options *options)
{
    http_server *server = calloc(1, sizeof *server);
    if (!server) return NULL;
    server->options = *options;
    server->bodies.max = options->max_body;
    server->bodies.max_all = options->max_bodies;
    server->listener.descriptor = server->left_over = -1;
    atomic_init(&server->references, 1);
    pthread_mutex_init(&server->lock, NULL);
    return server;
}

/* Opens everything that a server needs. After an error some of it may be open. */
static dsmoe_status server_open(http_server *server, http_tls *tls, dsmoe_error *error)
{
    const http_options *o = &server->options;
    STATUS_TRY(http_tls_read(tls, o->cert, o->key, error));
    if (tls->cert && !MHD_is_feature_supported(MHD_FEATURE_TLS))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: the HTTP library was built without TLS", o->cert);
    if (o->socket_path)
        STATUS_TRY(http_socket_open_file(&server->listener, o->socket_path, error));
    else
        STATUS_TRY(http_socket_open(&server->listener, o->cert ? "https" : "http",
                                    o->host ? o->host : "127.0.0.1", o->port, error));
    server->links = http_links_create(2.0 * o->idle_seconds);
    if (server->links) start_daemon(server, tls);
    if (server->links && !server->daemon && o->cert)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s and %s: not a certificate and its key",
                           o->cert, o->key);
    if (!server->daemon)
        return status_fail(error, DSMOE_ERROR_IO, "%s: the server's threads cannot be started",
                           server->listener.url);
    return DSMOE_OK;
}

dsmoe_status http_server_start(const http_options *options, http_server **result,
                               dsmoe_error *error)
{
    *result = NULL;
    http_server *server = server_new(options);
    if (!server) return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory");
    http_tls tls = {0};
    dsmoe_status status = server_open(server, &tls, error);
    http_tls_free(&tls);
    if (status == DSMOE_OK)
        *result = server;
    else
        http_server_stop(server);
    return status;
}

const char *http_server_url(const http_server *server) { return server->listener.url; }

void http_server_quiesce(http_server *server)
{
    if (atomic_exchange(&server->quiet, true)) return;
    /* MHD stops accepting but leaves the socket open, so the kernel would still accept clients. */
    server->left_over = MHD_quiesce_daemon(server->daemon);
    shutdown(server->listener.descriptor, SHUT_RDWR);
}

int http_server_connections(http_server *server) { return http_links_count(server->links); }

int http_server_answers(http_server *server) { return atomic_load(&server->n_answers); }

/* MHD must not be stopped while a connection is suspended. Once `stopping` is set, none will be. */
static void resume_all(http_server *server)
{
    pthread_mutex_lock(&server->lock);
    atomic_store(&server->stopping, true);
    for (http_exchange *x = server->exchanges; x; x = x->next) {
        pthread_mutex_lock(&x->lock);
        x->gone = true;
        wake(x);
        pthread_mutex_unlock(&x->lock);
    }
    pthread_mutex_unlock(&server->lock);
}

void http_server_stop(http_server *server)
{
    if (!server) return;
    resume_all(server);
    if (server->daemon) MHD_stop_daemon(server->daemon);
    http_links_free(server->links);
    if (server->left_over >= 0) close(server->left_over);
    if (server->listener.descriptor >= 0) close(server->listener.descriptor);
    http_socket_forget(&server->listener);
    server_release(server);
}
