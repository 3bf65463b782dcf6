/* http_client.c - an HTTP client for tests of the server. */
#include "http_client.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

enum { MAX_HEAD = 1 << 16 };

static bool fails(http_client *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fails(http_client *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->problem, sizeof c->problem, format, arguments);
    va_end(arguments);
    return false;
}

static void *grown(void *memory, size_t *capacity, size_t need)
{
    if (need <= *capacity) return memory;
    while (*capacity < need) *capacity = *capacity ? *capacity * 2 : 4096;
    memory = realloc(memory, *capacity);
    if (!memory) abort();
    return memory;
}

/* ---- the connection ------------------------------------------------------------------------- */

static bool connect_file(http_client *c, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    c->descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return c->descriptor >= 0 && !connect(c->descriptor, (void *)&address, sizeof address);
}

static bool connect_address(http_client *c, const char *authority)
{
    char host[128];
    snprintf(host, sizeof host, "%s", authority);
    char *port = strrchr(host, ':'), *name = host;
    if (!port) return false;
    *port++ = '\0';
    if (name[0] == '[') {
        name++;
        name[strcspn(name, "]")] = '\0';
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(name, port, &hints, &found)) return false;
    bool connected = false;
    for (struct addrinfo *a = found; a && !connected; a = a->ai_next) {
        if (c->descriptor >= 0) close(c->descriptor);
        c->descriptor = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        connected = c->descriptor >= 0 && !connect(c->descriptor, a->ai_addr, a->ai_addrlen);
    }
    freeaddrinfo(found);
    return connected;
}

bool client_open(http_client *c, const char *url)
{
    *c = (http_client){.descriptor = -1, .patience = 10};
    const char *host = strstr(url, "://");
    bool connected =
        !strncmp(url, "unix:", 5) ? connect_file(c, url + 5) : host && connect_address(c, host + 3);
    return connected || fails(c, "%.80s: %s", url, strerror(errno));
}

void client_close(http_client *c)
{
    if (c->descriptor >= 0) close(c->descriptor);
    free(c->bytes);
    free(c->head);
    free(c->body);
    *c = (http_client){.descriptor = -1};
}

void client_reset(http_client *c)
{
    struct linger at_once = {.l_onoff = 1};
    setsockopt(c->descriptor, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    client_close(c);
}

void client_half_close(http_client *c) { shutdown(c->descriptor, SHUT_WR); }

static bool wait_for(http_client *c, short events, double until)
{
    double left = until - clock_seconds();
    struct pollfd look = {.fd = c->descriptor, .events = events};
    return poll(&look, 1, left > 0 ? (int)(left * 1000) + 1 : 0) > 0;
}

/* ---- sending -------------------------------------------------------------------------------- */

bool client_send(http_client *c, const void *bytes, size_t length)
{
    double until = clock_seconds() + c->patience;
    for (size_t at = 0; at < length;) {
        if (!wait_for(c, POLLOUT, until)) return fails(c, "the server takes no more bytes");
        ssize_t n =
            send(c->descriptor, (const char *)bytes + at, length - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n < 0) return fails(c, "cannot send: %s", strerror(errno));
        at += (size_t)n;
    }
    return true;
}

bool client_say(http_client *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = NULL;
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    bool sent = length >= 0 && client_send(c, text, (size_t)length);
    if (length >= 0) free(text);
    return sent;
}

bool client_ask(http_client *c, const char *method, const char *path, const char *headers,
                const char *body)
{
    c->asked_head = !strcmp(method, "HEAD");
    if (!body)
        return client_say(c, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", method, path, headers);
    return client_say(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n%s\r\n%s",
                      method, path, strlen(body), headers, body);
}

/* ---- receiving ------------------------------------------------------------------------------ */

/* Receives at least one more byte; false at the end or after `until`. */
static bool more(http_client *c, double until)
{
    if (c->first == c->last) c->first = c->last = 0;
    c->bytes = grown(c->bytes, &c->capacity, c->last + 4096);
    for (;;) {
        if (!wait_for(c, POLLIN, until)) return fails(c, "nothing came in time");
        ssize_t n = recv(c->descriptor, c->bytes + c->last, c->capacity - c->last, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n <= 0) {
            c->ended = true;
            return fails(c, "the connection ended: %s", n ? strerror(errno) : "closed");
        }
        c->last += (size_t)n;
        return true;
    }
}

/* A line that ends with CR LF, as a string in place; NULL if no complete line comes. */
static char *read_line(http_client *c, double until)
{
    for (size_t seen = 0;;) {
        char *from = c->bytes + c->first;
        char *end =
            c->last - c->first > seen ? memchr(from + seen, '\n', c->last - c->first - seen) : NULL;
        if (end) {
            c->first += (size_t)(end - from) + 1;
            if (end == from || end[-1] != '\r') {
                fails(c, "a line ends without CR LF");
                return NULL;
            }
            end[-1] = '\0';
            return from;
        }
        seen = c->last - c->first;
        if (seen > MAX_HEAD) {
            fails(c, "a line is too long");
            return NULL;
        }
        if (!more(c, until)) return NULL;
    }
}

/* ---- the head ------------------------------------------------------------------------------- */

const char *client_header(const http_client *c, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = c->head; line && line < c->head + c->head_size;
         line += strlen(line) + 1)
        if (!strncasecmp(line, name, length) && line[length] == ':')
            return line + length + 1 + strspn(line + length + 1, " ");
    return NULL;
}

int client_count_headers(const http_client *c, const char *name)
{
    int n = 0;
    size_t length = strlen(name);
    for (const char *line = c->head; line && line < c->head + c->head_size;
         line += strlen(line) + 1)
        n += !strncasecmp(line, name, length) && line[length] == ':';
    return n;
}

/* Works out the length of the body from the head. */
static bool read_framing(http_client *c)
{
    const char *length = client_header(c, "Content-Length");
    const char *encoding = client_header(c, "Transfer-Encoding");
    c->left = 0;
    c->framing = HTTP_TO_END;
    if (client_count_headers(c, "Content-Length") > 1 || (length && encoding))
        return fails(c, "the length of the answer is not clear");
    if (encoding) {
        if (strcasecmp(encoding, "chunked")) return fails(c, "encoding %.40s", encoding);
        c->framing = HTTP_CHUNKED;
    } else if (length) {
        char *end;
        c->framing = HTTP_LENGTH;
        c->left = strtoull(length, &end, 10);
        if (end == length || *end) return fails(c, "length %.40s", length);
    }
    if (c->status < 200 || c->status == 204 || c->status == 304 || c->asked_head)
        c->framing = HTTP_EMPTY;
    c->complete = c->framing == HTTP_EMPTY || (c->framing == HTTP_LENGTH && !c->left);
    return true;
}

bool client_read_interim(http_client *c)
{
    double until = clock_seconds() + c->patience;
    size_t capacity = 0;
    free(c->head);
    c->head = NULL;
    c->status = 0;
    c->head_size = c->length = c->line = 0;
    char *line = read_line(c, until);
    if (!line) return false;
    if (sscanf(line, "HTTP/1.%*1[01] %3d ", &c->status) != 1)
        return fails(c, "no answer of HTTP: %.60s", line);
    while ((line = read_line(c, until)) && *line) {
        size_t size = strlen(line) + 1;
        c->head = grown(c->head, &capacity, c->head_size + size);
        memcpy(c->head + c->head_size, line, size);
        c->head_size += size;
    }
    if (!line || !read_framing(c)) {
        c->status = 0;
        return false;
    }
    c->body = grown(c->body, &c->body_capacity, 1);
    c->body[0] = '\0';
    return true;
}

bool client_read_head(http_client *c)
{
    do
        if (!client_read_interim(c)) return false;
    while (c->status == 100);
    return true;
}

/* ---- the body ------------------------------------------------------------------------------- */

/* The size of the next chunk; the last one ends the body. */
static bool read_chunk_size(http_client *c, double until)
{
    char *line = read_line(c, until), *end;
    if (!line) return false;
    c->left = strtoull(line, &end, 16);
    if (end == line || *end) return fails(c, "the size of a chunk is %.40s", line);
    if (c->left) return true;
    c->complete = true;
    while ((line = read_line(c, until)) && *line) {
    } /* trailers */
    return line != NULL;
}

/* Reads some more bytes of the body; false if it is complete, or if none came. */
static bool read_some(http_client *c, double until)
{
    if (c->complete) return false;
    if (c->framing == HTTP_CHUNKED && !c->left && (!read_chunk_size(c, until) || c->complete))
        return false;
    if (c->first == c->last && !more(c, until)) {
        if (c->framing == HTTP_TO_END && c->ended) c->complete = true;
        return false;
    }
    size_t n = c->last - c->first;
    if (c->framing != HTTP_TO_END && n > c->left) n = c->left;
    c->body = grown(c->body, &c->body_capacity, c->length + n + 1);
    memcpy(c->body + c->length, c->bytes + c->first, n);
    c->first += n;
    c->length += n;
    c->body[c->length] = '\0';
    c->left -= c->framing == HTTP_TO_END ? 0 : n;
    if (c->framing == HTTP_LENGTH && !c->left) c->complete = true;
    if (c->framing == HTTP_CHUNKED && !c->left) {
        char *line = read_line(c, until);
        if (!line) return false;
        if (*line) return fails(c, "a chunk is longer than it says");
    }
    return true;
}

bool client_read_body(http_client *c)
{
    double until = clock_seconds() + c->patience;
    while (read_some(c, until)) {
    }
    return c->complete;
}

int client_read(http_client *c)
{
    return client_read_head(c) && client_read_body(c) ? c->status : 0;
}

int client_fetch(http_client *c, const char *url, const char *method, const char *path,
                 const char *headers, const char *body)
{
    if (!client_open(c, url) || !client_ask(c, method, path, headers, body)) return 0;
    return client_read(c);
}

const char *client_line(http_client *c)
{
    double until = clock_seconds() + c->patience;
    for (;;) {
        char *from = c->body + c->line, *end = memchr(from, '\n', c->length - c->line);
        if (end) {
            *end = '\0';
            if (end > from && end[-1] == '\r') end[-1] = '\0';
            c->line = (size_t)(end - c->body) + 1;
            return from;
        }
        if (!read_some(c, until)) return NULL;
    }
}

const char *client_event(http_client *c)
{
    const char *data = NULL, *line;
    size_t at = 0;
    while ((line = client_line(c))) {
        if (!*line && data) return c->body + at; /* the body may have moved since `data` was set */
        if (strncmp(line, "data:", 5)) continue;
        data = line + 5 + (line[5] == ' ');
        at = (size_t)(data - c->body);
    }
    return NULL;
}

bool client_is_closed(http_client *c, double seconds)
{
    double until = clock_seconds() + seconds;
    while (!c->ended)
        if (c->first < c->last || !more(c, until)) break;
    return c->ended && c->first == c->last;
}

bool client_is_cut_off(http_client *c, double seconds)
{
    double until = clock_seconds() + seconds;
    do c->first = c->last;
    while (!c->ended && more(c, until));
    return c->ended;
}
