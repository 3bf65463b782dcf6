/* ids.h - token ids as people write them: decimal numbers between blanks, newlines or commas. */
#ifndef DSMOE_CLI_IDS_H
#define DSMOE_CLI_IDS_H

#include <stddef.h>
#include <stdint.h>

/* All ids of a text, to be freed. On failure the message, which names the word at fault, is printed
 * and the exit code returned, else CLI_OK. */
int ids_parse(const char *command, const char *text, size_t length, int32_t **ids, size_t *n_ids);

#endif
