/* conversation.h - the messages of a chat, which it owns: an optional system message, then user and
 * assistant in turn. */
#ifndef DSMOE_CLI_CONVERSATION_H
#define DSMOE_CLI_CONVERSATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "dsmoe.h"

typedef struct conversation {
    dsmoe_message *messages;
    size_t count, capacity;
} conversation;

/* Appends a message; NULs in its text are left out. `role` is kept, not copied. False if there is not enough
 * memory. */
bool conversation_add(conversation *c, const char *role, const char *text, size_t length);
void conversation_drop_last(conversation *c);
/* Removes and returns the answer at the end, to be freed; NULL if the conversation does not end with one. */
char *conversation_take_answer(conversation *c);
/* Forgets the newest question and its answer; false if there is none. */
bool conversation_undo(conversation *c);
/* Forgets the oldest question and its answer; false if there is only the newest question left. */
bool conversation_drop_turn(conversation *c);
/* Forgets all but the system message. */
void conversation_reset(conversation *c);
/* The messages as JSON: [{"role": …, "content": …}, …]. */
void conversation_print(const conversation *c, FILE *file);
void conversation_free(conversation *c);

#endif
