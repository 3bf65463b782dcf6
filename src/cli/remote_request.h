/* remote_request.h - what is sent to a server: the JSON of a request. */
#ifndef DSMOE_CLI_REMOTE_REQUEST_H
#define DSMOE_CLI_REMOTE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/voice.h"

/* Prints the members that all requests of a command have: those of the options that were given. The server
 * and its model decide the rest. A comma follows each member. */
void remote_request_settings(const voice_order *order, FILE *out);

/* Whether a text is UTF-8, as JSON must be. */
bool remote_request_can_hold(const char *text, size_t length);

#endif
