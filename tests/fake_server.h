/* fake_server.h - a server that sends what a test tells it to, right or wrong, on the loopback address or
 * a Unix socket. */
#ifndef DSMOE_TESTS_FAKE_SERVER_H
#define DSMOE_TESTS_FAKE_SERVER_H

#include <stdbool.h>

/* The answer to one connection: `first`, `repeated` n_repeats times (-1: until the client leaves),
 * `last`. */
typedef struct fake_reply {
    const char *first, *repeated, *last; /* NULL: nothing */
    int n_repeats, pause_ms;             /* pause_ms: before each repetition */
    bool holds;                          /* the connection stays open until the client leaves */
    bool is_deaf;                        /* the request is not read */
    bool interrupts;                     /* after all of this the program gets a SIGINT */
} fake_reply;

typedef struct fake_server fake_server;

/* Answers one connection after another, with one reply each. Listens on a Unix socket if there is a
 * path. */
fake_server *fake_server_start(const char *unix_path, const fake_reply *replies, int n_replies);
/* "http://127.0.0.1:PORT", or with another scheme. */
const char *fake_server_url(fake_server *s, const char *scheme);
/* Waits for the replies and ends the server. The requests, headers and body, can be read until
 * fake_server_free. */
void fake_server_join(fake_server *s);
const char *fake_server_request(const fake_server *s, int i);
void fake_server_free(fake_server *s);

/* ---- replies of servers ----------------------------------------------------------------------------- */

#define JSON_OK "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
#define STREAM_OK                                                                                  \
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n"
#define MODELS JSON_OK "{\"object\": \"list\", \"data\": [{\"id\": \"moe \\\"1\\\"\"}]}"
#define DELTA(text)                                                                                \
    "data: {\"choices\": [{\"delta\": {\"content\": \"" text "\"}, \"finish_reason\": null}]}\n\n"
#define END(reason) "data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"" reason "\"}]}\n\n"
#define USAGE(n)                                                                                   \
    "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 7, \"completion_tokens\": " n "}}\n\n"
#define DONE "data: [DONE]\n\n"
#define TOO_LONG                                                                                   \
    "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"      \
    "{\"error\": {\"message\": \"the prompt has 99 tokens, but the context holds only 64\"}}"

#endif
