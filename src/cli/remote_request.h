/* remote_request.h - what is sent to a server: the JSON of a request. */
#ifndef DSMOE_CLI_REMOTE_REQUEST_H
#define DSMOE_CLI_REMOTE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/voice.h"

/* The members that all requests of a command have, those of the options that were given: what the user does not
 * say is left to the server and its model. Each ends with a comma. */
void remote_request_settings(const voice_order *order, FILE *out);

/* Whether a text is UTF-8, which JSON is. */
bool remote_request_can_hold(const char *text, size_t length);

#endif
