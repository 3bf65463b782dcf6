/* conversation_file.h - a conversation as /save writes and /load reads it: a JSON array of messages,
 *
 *   [{"role": "system", "content": "…"},        optional
 *    {"role": "user", "content": "…"},
 *    {"role": "assistant", "content": "…"}, …]  in turn; the last is an answer
 *
 * Other members of a message are ignored. */
#ifndef DSMOE_CLI_CONVERSATION_FILE_H
#define DSMOE_CLI_CONVERSATION_FILE_H

#include "cli/conversation.h"

/* Reads a file; after a failure there is nothing to free. */
dsmoe_status conversation_open(const char *path, conversation *c, dsmoe_error *error);

#endif
