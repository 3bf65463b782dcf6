/* fake_server.c - one thread, one connection at a time, canned bytes. */
#include "fake_server.h"

#include <arpa/inet.h>
#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_REPLIES = 4, MAX_REQUEST = 1 << 16 };

struct fake_server {
    int fd, port, n_replies;
    bool is_joined;
    pthread_t thread;
    fake_reply replies[MAX_REPLIES];
    char requests[MAX_REPLIES][MAX_REQUEST];
    char url[64];
};

/* The length of a request whose headers have arrived. */
static size_t whole_length(const char *request)
{
    const char *body = strstr(request, "\r\n\r\n"), *field = strcasestr(request, "content-length:");
    if (!body) return SIZE_MAX;
    size_t length = field && field < body ? strtoul(field + 15, NULL, 10) : 0;
    return (size_t)(body + 4 - request) + length;
}

static void read_request(int fd, char *request)
{
    size_t length = 0;
    while (length < whole_length(request) && length < MAX_REQUEST - 1) {
        ssize_t n = read(fd, request + length, MAX_REQUEST - 1 - length);
        if (n <= 0) return;
        length += (size_t)n;
        request[length] = '\0';
    }
}

static bool say(int fd, const char *text)
{
    size_t length = text ? strlen(text) : 0;
    while (length > 0) {
        ssize_t n = send(fd, text, length, MSG_NOSIGNAL);
        if (n < 0) return false;
        text += n;
        length -= (size_t)n;
    }
    return true;
}

static void wait_for_hangup(int fd)
{
    char byte;
    struct pollfd one = {.fd = fd, .events = POLLIN};
    poll(&one, 1, 20000);
    (void)!read(fd, &byte, 1);
}

static void reply(int fd, const fake_reply *r)
{
    bool ok = say(fd, r->first);
    for (int i = 0; ok && r->repeated && i != r->n_repeats; i++) {
        if (r->pause_ms) usleep((useconds_t)r->pause_ms * 1000);
        ok = say(fd, r->repeated);
    }
    if (ok) say(fd, r->last);
    if (r->interrupts) {
        usleep(100000); /* so that the client has received the reply */
        kill(getpid(), SIGINT);
    }
    if (r->holds) wait_for_hangup(fd);
}

static void *serve(void *context)
{
    fake_server *s = context;
    for (int i = 0; i < s->n_replies; i++) {
        int fd = accept(s->fd, NULL, NULL);
        if (fd < 0) break;
        if (!s->replies[i].is_deaf) read_request(fd, s->requests[i]);
        reply(fd, &s->replies[i]);
        shutdown(fd, SHUT_WR);
        if (s->replies[i].is_deaf)
            wait_for_hangup(fd); /* otherwise the client may get a reset instead of the reply */
        close(fd);
    }
    return NULL;
}

static void listen_on_loopback(fake_server *s)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert(s->fd >= 0 && bind(s->fd, (struct sockaddr *)&at, size) == 0);
    assert(getsockname(s->fd, (struct sockaddr *)&at, &size) == 0);
    s->port = ntohs(at.sin_port);
}

static void listen_on_socket(fake_server *s, const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    assert(strlen(path) < sizeof at.sun_path);
    strcpy(at.sun_path, path);
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert(s->fd >= 0 && bind(s->fd, (struct sockaddr *)&at, sizeof at) == 0);
}

fake_server *fake_server_start(const char *unix_path, const fake_reply *replies, int n_replies)
{
    fake_server *s = calloc(1, sizeof *s);
    assert(s && n_replies <= MAX_REPLIES);
    memcpy(s->replies, replies, (size_t)n_replies * sizeof *replies);
    s->n_replies = n_replies;
    if (unix_path)
        listen_on_socket(s, unix_path);
    else
        listen_on_loopback(s);
    assert(listen(s->fd, 4) == 0);
    int failed = pthread_create(&s->thread, NULL, serve, s);
    assert(!failed);
    (void)failed;
    return s;
}

const char *fake_server_url(fake_server *s, const char *scheme)
{
    snprintf(s->url, sizeof s->url, "%s://127.0.0.1:%d", scheme, s->port);
    return s->url;
}

void fake_server_join(fake_server *s)
{
    if (s->is_joined) return;
    shutdown(s->fd, SHUT_RDWR); /* ends an accept() that may still be waiting */
    pthread_join(s->thread, NULL);
    close(s->fd);
    s->is_joined = true;
}

const char *fake_server_request(const fake_server *s, int i) { return s->requests[i]; }

void fake_server_free(fake_server *s)
{
    fake_server_join(s);
    free(s);
}
