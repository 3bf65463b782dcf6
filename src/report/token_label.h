/* token_label.h - a token as people can read it, on one line of a terminal or a page. */
#ifndef DSMOE_REPORT_TOKEN_LABEL_H
#define DSMOE_REPORT_TOKEN_LABEL_H

#include <stddef.h>
#include <stdint.h>

#include "dsmoe.h"

enum { TOKEN_LABEL = 160 };

/* Writes the text of a token with blanks, line ends and tabs made visible. A byte of no character is shown as
 * \xE4, a control character as \u{202E}. The text is cut after about 20 columns. Without a tokenizer, or for
 * a token that it does not have, writes the id: "#17". Returns the columns taken. */
int token_label(const dsmoe_tokenizer *tokenizer, int32_t token, char out[TOKEN_LABEL]);

#endif
