/* http_client.h - a client of the server for tests: it sends whatever bytes a test wants, right or wrong, and reads answers
 * strictly. Every wait has an end; what went wrong is in `problem`. */
#ifndef DSMOE_TESTS_HTTP_CLIENT_H
#define DSMOE_TESTS_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct http_client {
    int descriptor;  /* -1: not connected */
    double patience; /* seconds that one call may wait for bytes (10) */
    char problem[160];
    bool ended;      /* the server has closed its half */
    bool asked_head; /* by client_ask: the answer to HEAD has no body */

    char *bytes; /* that came and that nobody has read yet: from `first` to `last` */
    size_t first, last, capacity;

    /* The answer that is being read. */
    int status;
    char *head; /* its lines, each with a NUL instead of CR LF */
    size_t head_size;
    enum { HTTP_EMPTY, HTTP_LENGTH, HTTP_CHUNKED, HTTP_TO_END } framing;
    size_t left;   /* bytes of the body, or of this chunk */
    bool complete; /* all of the body was read */
    char *body;    /* as far as it was read, with a NUL after it */
    size_t length, body_capacity;
    size_t line; /* where the next line begins that client_line has not returned yet */
} http_client;

/* By "http://127.0.0.1:8080" or "unix:/path". False if nobody listens. */
bool client_open(http_client *client, const char *url);
/* Closes the connection and frees everything; the second one by a reset. */
void client_close(http_client *client);
void client_reset(http_client *client);
/* No more will be sent; the client still reads. */
void client_half_close(http_client *client);

/* All of the bytes; false if the server closed the connection or does not take them in time. */
bool client_send(http_client *client, const void *bytes, size_t length);
bool client_say(http_client *client, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A request with a body (which may be NULL) and further headers ("A: b\r\n", or ""). */
bool client_ask(http_client *client, const char *method, const char *path, const char *headers,
                const char *body);

/* The status line and the headers of the next answer; the first one skips 100 Continue. */
bool client_read_head(http_client *client);
bool client_read_interim(http_client *client);
/* The rest of it. */
bool client_read_body(http_client *client);
/* Both: the status, or 0 with `problem`. */
int client_read(http_client *client);
/* All of it: connect, ask, read. The status, or 0. The client is to be closed in any case. */
int client_fetch(http_client *client, const char *url, const char *method, const char *path,
                 const char *headers, const char *body);

/* Of the head that was read; NULL: not there. How often it is there. */
const char *client_header(const http_client *client, const char *name);
int client_count_headers(const http_client *client, const char *name);

/* The next line of the body without its end, as it comes; NULL if the answer is over or no line came in time.
 * Valid until the next call. */
const char *client_line(http_client *client);
/* The data of the next server-sent event ("data: …" and an empty line); comments are skipped; NULL as above. */
const char *client_event(http_client *client);

/* Whether the server closes the connection, with nothing more to say, in that time. */
bool client_is_closed(http_client *client, double seconds);
/* The same, whatever it still says. */
bool client_is_cut_off(http_client *client, double seconds);

#endif
