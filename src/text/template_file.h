/* template_file.h - chat_template.jinja, where newer folders keep the template of conversations. */
#ifndef DSMOE_TEXT_TEMPLATE_FILE_H
#define DSMOE_TEXT_TEMPLATE_FILE_H

#include "text/tokenizer.h"

#define TEMPLATE_FILE_NAME "chat_template.jinja"

/* The text of a tokenizer_config.json whose chat_template is that of the file at `path`, in memory to free(). It takes
 * the place of one that the text has, as in public tools. NULL: the text is no JSON object, which its reader will tell. */
dsmoe_status template_file_put(const char *path, const tokenizer_text *config, char **text,
                               size_t *length, dsmoe_error *error);

#endif
