/* http_client.h - an HTTP client for tests of the server: it sends the bytes a test wants, right or wrong,
 * and reads answers strictly. Every wait has a time limit; `problem` says what went wrong. */
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

    char *bytes; /* received and not yet read: from `first` to `last` */
    size_t first, last, capacity;

    /* The answer that is being read. */
    int status;
    char *head; /* its lines, each with a NUL instead of CR LF */
    size_t head_size;
    enum { HTTP_EMPTY, HTTP_LENGTH, HTTP_CHUNKED, HTTP_TO_END } framing;
    size_t left;   /* bytes missing from the body, or from this chunk */
    bool complete; /* the whole body was read */
    char *body;    /* the part read so far, with a NUL after it */
    size_t length, body_capacity;
    size_t line; /* where the next line of client_line begins */
} http_client;

/* Connects to "http://127.0.0.1:8080" or "unix:/path". False if no server listens there. */
bool client_open(http_client *client, const char *url);
/* Both close the connection and free everything; client_reset closes with a TCP reset. */
void client_close(http_client *client);
void client_reset(http_client *client);
/* Ends the sending half of the connection; the client still reads. */
void client_half_close(http_client *client);

/* Sends all of the bytes; false if the server closed the connection or does not take them in time. */
bool client_send(http_client *client, const void *bytes, size_t length);
bool client_say(http_client *client, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Sends a request with a body (which may be NULL) and further headers ("A: b\r\n", or ""). */
bool client_ask(http_client *client, const char *method, const char *path, const char *headers,
                const char *body);

/* Reads the status line and the headers of the next answer; client_read_head skips 100 Continue. */
bool client_read_head(http_client *client);
bool client_read_interim(http_client *client);
/* Reads the rest of the answer. */
bool client_read_body(http_client *client);
/* Reads head and body. Returns the status, or 0 with `problem`. */
int client_read(http_client *client);
/* Connects, asks and reads. Returns the status, or 0. The client must be closed in any case. */
int client_fetch(http_client *client, const char *url, const char *method, const char *path,
                 const char *headers, const char *body);

/* A header of the head that was read, or NULL; and the number of times it occurs. */
const char *client_header(const http_client *client, const char *name);
int client_count_headers(const http_client *client, const char *name);

/* The next line of the body without its end, as soon as it arrives. NULL if the answer is over or no line
 * came in time. Valid until the next call. */
const char *client_line(http_client *client);
/* The data of the next server-sent event ("data: …" and an empty line). Comments are skipped. NULL as for
 * client_line. */
const char *client_event(http_client *client);

/* Whether the server closes the connection within that time without sending anything more. */
bool client_is_closed(http_client *client, double seconds);
/* The same, but the server may still send something. */
bool client_is_cut_off(http_client *client, double seconds);

#endif
